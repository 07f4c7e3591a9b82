"""A crawl as the engine runs it: its rules, its cookies, its logins, and the handling of the URLs it finds."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from weft import urls
from weft.config import Config, FetchSection, PolitenessSection, ScopeSection
from weft.credentials import Credentials, without_host
from weft.engine.admission.names import NameSet
from weft.engine.admission.recent_links import RecentLinks
from weft.engine.admission.rules import AdmissionRules
from weft.engine.loop.fetcher.cookies import CookieShare
from weft.engine.loop.fetcher.revisits import Revisits
from weft.engine.loop.fetcher.robots import RobotsBook
from weft.engine.loop.progress import CrawlProgress
from weft.engine.loop.stop import Stop
from weft.engine.parsing.extraction import Extraction
from weft.engine.transports.lazy_rendering import LazyRendering
from weft.engine.transports.shells import ShellHosts
from weft.engine.user_code.calls import RequestSpec
from weft.engine.user_code.running import RunningSpider
from weft.errors import ServerAway
from weft.fetch.auth import authorization
from weft.fetch.contract import Transport
from weft.fetch.cookies import CookieJar, with_cookies
from weft.fetch.guard import is_private_host
from weft.fetch.robots import product_token
from weft.frontier.contract import Admission, CrawlLimits, Frontier, LoginsPart, PageLinks
from weft.logins import FormLogin
from weft.records import Found, Lease, Purpose, Reason
from weft.telemetry import Log

if TYPE_CHECKING:  # imports the HTML parser: most crawls, and all reports, log in nowhere
    from weft.engine.login.session import LoginSession

_REASONS = frozenset(Reason)
log = Log("weft.engine.crawls")
MOST_COOKIE_JARS = 10_000  # of named cookie jars: the least recently used is forgotten


class _Challenge:
    """An origin's WWW-Authenticate values as received, and how many requests have answered them."""

    __slots__ = ("answers", "values")

    def __init__(self, values: list[str]) -> None:
        self.values = values
        self.answers = 0


class RunningCrawl:
    """One crawl of those that share an engine, or the only one."""

    is_only_crawl = True  # it has a frontier of its own

    def __init__(
        self,
        number: int,
        rules: AdmissionRules,
        scope: ScopeSection,
        fetch: FetchSection,
        frontier: Frontier,
        progress: CrawlProgress,
        seeds: Iterable[str] = (),
        *,
        politeness: PolitenessSection,
        book: RobotsBook | None = None,
        transport: Transport | None = None,
        extraction: Extraction | None = None,
        spider: RunningSpider | None = None,
        origins: Iterable[str] = (),
        open_transport: Callable[[FetchSection], Transport] | None = None,
    ) -> None:
        """`book`, `transport`, `open_transport` and `origins` are for processes that fetch; `origins`: those that its
        credentials go to (see `credentials.seed_origins`). `extraction` is what is read from pages beyond their links;
        `spider` is the user's code that handles them.
        """
        self.number = number
        self.fetch = fetch
        self.politeness = politeness
        self.extraction = extraction
        self.spider = spider
        self.agent = product_token(fetch.user_agent())
        self._book = book
        self._transport = transport
        self._rendering = LazyRendering(fetch, politeness, open_transport) if fetch.render == "never" else None
        self.rules = rules
        self.scope = scope
        self.progress = progress
        rules.matched = progress.matched
        self.jar = CookieJar(urls.domain) if fetch.cookies == "jar" else None
        self._share: CookieShare | None = None
        if self.jar is not None:
            self._share = CookieShare(number, self.jar, frontier.sites)
        self._shares = OrderedDict[str, CookieShare]()  # the jars that requests name
        self.credentials = Credentials(fetch.headers, fetch.auth, origins)
        self._has_headers = any(":" in key for key in fetch.headers) or bool(without_host(fetch.headers))
        self._frontier = frontier
        self._challenged: dict[str, _Challenge] = {}  # by origin: 401 challenges for which a login is configured
        self.shells = ShellHosts() if fetch.render == "auto" else None
        self.known_origins = NameSet()
        self._seed_origins = NameSet(map(urls.origin_of, seeds))
        self.revisits: Revisits | None = None  # set while known pages are visited again
        self.has_been_edited = False  # queued URLs may be excluded by now
        self.is_paused = False
        self.pause_reason = ""  # why it is paused, if not by a command
        self.self_paused_at = 0.0  # when it last paused itself, by the wall clock
        self.session: LoginSession | None = None  # its session at the site it logs in to
        # Where depth or hops decide, a link that was refused may be admitted later by a shorter path.
        lasting = scope.max_depth is None and not scope.offsite_hops
        self.recent_links = RecentLinks(progress.refused) if lasting else None

    def excludes(self, lease: Lease) -> bool:
        """Excludes a queued URL that an edit no longer admits; it returns to the queue when the edit is reverted."""
        if lease.purpose is not Purpose.PAGE or not self.rules.excludes(lease.url):
            return False
        self._frontier.leases.exclude([lease])
        return True

    def edit(self, config: Config, limits: CrawlLimits, weight: float = 1.0) -> int:
        """Continues with other settings; returns how many excluded URLs return to the queue. BadInput: nothing is
        changed.
        """
        self._frontier.crawls.change_crawl(self.number, limits, config.politeness, weight)
        self.scope, self.politeness = config.scope, config.politeness
        self.rules.edit(config.scope)
        self.has_been_edited = True
        if self.recent_links is not None:
            self.recent_links.forget_links()
        return self._frontier.queue.restore_excluded(self.number, lambda item: not self.rules.excludes(item.url))

    def pause(self, paused: bool = True, reason: str = "") -> None:
        """Pauses or continues it: while paused nothing is requested, and nothing is lost."""
        self._frontier.crawls.pause(self.number, paused)
        self.is_paused, self.pause_reason = paused, reason if paused else ""
        if not paused and self.session is not None:
            self.session.reset_after_pause()

    def log_in(self, login: FormLogin, frontier: LoginsPart) -> None:
        """Makes the pages of the login's site wait for a session there from now on; a login that fails pauses the
        crawl.
        """
        from weft.engine.login.session import LoginSession

        first_s = self.politeness.retry_backoff_s
        self.session = LoginSession(login, self.number, frontier, self.give_up, backoff_first_s=first_s)

    def give_up(self, why: str) -> None:
        """Pauses the crawl by itself, because it cannot continue as intended."""
        log.error("paused", why=why)
        self.self_paused_at = time.time()
        self.pause(reason=why)

    def _is_full(self, pages: int) -> bool:  # noqa: ARG002
        """Whether it has as many pages as it may have; in a pod, as many as the pod's share."""
        return self._frontier.permits.exhausted()

    def awaits_seeds(self) -> bool:
        """Whether it must wait for more seeds instead of ending when nothing is left."""
        return self.spider is not None and self.spider.is_starting

    def why_over(self) -> Stop | None:
        """Why it ends now; None while it has work, or must wait for some."""
        reason = self._stop_without_work()
        return None if reason is not Stop.MAX_PAGES and (self.is_paused or self.awaits_seeds()) else reason

    def _stop_without_work(self) -> Stop | None:
        """Why no work is left, whatever seeds may come; None while there is some."""
        frontier, at = self._frontier, self._frontier.status.crawl_counts(self.number)
        if at.leased:
            return None
        if self._is_full(at.pages):
            return Stop.MAX_PAGES
        if not at.queued:
            return Stop.DONE
        if self.is_only_crawl and frontier.leases.next_due() is not None:
            return None  # known without checking all of its sites
        return None if frontier.status.has_work(self.number) else Stop.BUDGET

    @property
    def robots_book(self) -> RobotsBook:
        """The robots.txt rules for this crawl's user agent."""
        assert self._book is not None
        return self._book

    @property
    def transport(self) -> Transport:
        """The transport that fetches this crawl's pages."""
        assert self._transport is not None
        return self._transport

    def transport_of(self, spec: RequestSpec | None, needs_browser: bool) -> Transport:
        """The transport of one request: one for a browser may need another transport than the crawl's."""
        if spec is not None and spec.render not in ("", "never"):
            needs_browser = True
        if needs_browser and self._rendering is not None:
            return self._rendering.transport() or self.transport
        return self.transport

    def rendering(self, lease: Lease) -> tuple[str, tuple[dict[str, Any], ...]]:
        """Whether a page is rendered (never, auto, always), and the actions to perform on it first."""
        spec = self.spider.spec_of(lease) if self.spider is not None and lease.request else None
        if spec is None:
            return self.fetch.render, self.fetch.render_actions
        return spec.render or self.fetch.render, spec.actions or self.fetch.render_actions

    def not_rendered(self, lease: Lease) -> str:
        """Why a page was not rendered though its request demands it; empty for all others."""
        if self._rendering is None or not self._rendering.trouble or self.spider is None or not lease.request:
            return ""
        return self._rendering.trouble if self.spider.spec_of(lease).render not in ("", "never") else ""

    def headers(self, lease: Lease, now: float) -> Sequence[tuple[str, str]]:
        """The request headers of this crawl beyond the usual ones; for most crawls none."""
        spec = self.spider.spec_of(lease) if self.spider is not None and lease.request else None
        jar = self._jar_for(lease, spec, now) if self._share is not None else None
        own_headers = spec.headers if spec is not None else {}
        session = self.session if lease.purpose is not Purpose.ROBOTS else None
        if not (self._challenged or jar or self.revisits or self._has_headers or own_headers or session):
            return ()
        url, headers = lease.url, list[tuple[str, str]]()
        if self.revisits is not None and lease.purpose is Purpose.PAGE and (spec is None or spec.is_plain):
            headers += self.revisits.conditions(lease)
        split = url.index("/", 8)
        origin, path = url[:split], url[split:].partition("?")[0]
        own = {name.lower(): (name, value) for name, value in self.credentials.headers_for(origin)}
        own |= {name.lower(): (name, value) for name, value in own_headers.items()}
        if jar and (cookie := jar.header(urls.host_of(url), path, url.startswith("https:"), now)):
            given = own["cookie"][1] if "cookie" in own else ""
            own["cookie"] = ("Cookie", with_cookies(given, cookie))
        for name, value in session.headers(lease, now) if session is not None else ():
            given = own["cookie"][1] if name == "Cookie" and "cookie" in own else ""
            own[name.lower()] = (name, with_cookies(given, value) if given else value)
        if (challenge := self._challenged.get(origin)) and (
            authorisation := self._authorization_header(
                origin, url, challenge, spec.method if spec is not None else "GET"
            )
        ):
            own["authorization"] = ("Authorization", authorisation)
        return [*headers, *own.values()]

    def _jar_for(self, lease: Lease, spec: RequestSpec | None, now: float) -> CookieJar | None:
        """The cookie jar of a request, with the request's own cookies added."""
        share = self._share if spec is None else self._share_of(spec)
        if share is None:
            return None
        share.load_shared_cookies(lease)
        if spec is not None and spec.cookies:
            share.store_cookies(lease.url, "/", spec.cookies, now)
        return share.jar

    def _share_of(self, spec: RequestSpec | None) -> CookieShare | None:
        if spec is None or not spec.jar or self._share is None:
            return self._share
        share = self._shares.pop(spec.jar, None)
        if share is None:
            share = CookieShare(self.number, CookieJar(urls.domain), self._frontier.sites, spec.jar)
        self._shares[spec.jar] = share
        if len(self._shares) > MOST_COOKIE_JARS:
            self._shares.popitem(last=False)
        return share

    def sends_secrets(self, lease: Lease) -> bool:
        """Whether a request may carry a cookie, a login or another credential, or a body that may hold one."""
        url, spec = lease.url, self.spider.spec_of(lease) if self.spider is not None and lease.request else None
        if lease.purpose is Purpose.LOGIN or self.session is not None or (spec is not None and not spec.is_plain):
            return True
        origin = urls.origin_of(url)
        own = spec is not None and (spec.headers or spec.cookies)
        if origin in self._challenged or self.credentials.headers_for(origin) or own:
            return True
        path, share = url[url.index("/", 8) :].partition("?")[0], self._share_of(spec)
        return bool(share and share.jar.header(urls.host_of(url), path, url.startswith("https:"), time.time()))

    def cookies_for(self, url: str, now: float) -> str:
        """The Cookie header for a page, as a browser is given it."""
        path = url[url.index("/", 8) :].partition("?")[0]
        own = self.jar.header(urls.host_of(url), path, url.startswith("https:"), now) if self.jar else None
        of_session = self.session.cookie(url, now) if self.session is not None else ""
        return with_cookies(own, of_session) if own and of_session else own or of_session

    def keep_cookies(self, url: str, values: Sequence[str], now: float, asked_at: float, lease: Lease) -> None:
        """Stores the cookies that a response set. Cookies of a site that the crawl logs in to belong to the session
        alone.
        """
        if values and self.session is not None and self.session.covers(url):
            is_step = lease.purpose is Purpose.LOGIN and self.session.is_current(lease)
            self.session.keep_cookies(url, values, now, asked_at, is_step=is_step)
        elif values and self.jar is not None:
            path = url[url.index("/", 8) :].partition("?")[0]
            share = self._share_of(self.spider.spec_of(lease) if self.spider is not None and lease.request else None)
            assert share is not None
            share.store_cookies(url, path, values, now)

    def answers(self, lease: Lease, challenges: list[str], *, sent: bool) -> bool:
        """Whether a 401 is worth one more request, which will carry an answer. `sent`: this one already did."""
        origin = urls.origin_of(lease.url)
        if self._authorization_header(origin, lease.url, _Challenge(challenges)) is None:
            return False
        known = self._challenged.get(origin)
        is_new = known is None or known.values != challenges
        if sent and (lease.attempt or not is_new):
            return False
        if is_new:
            self._challenged[origin] = _Challenge(challenges)
        return True

    def _authorization_header(self, origin: str, url: str, challenge: _Challenge, method: str = "GET") -> str | None:
        """The Authorization for a URL, where there is a login for its origin."""
        login = self.credentials.login_for(origin)
        if login is None:
            return None
        user, _, password = login.partition(":")
        challenge.answers += 1
        return authorization(challenge.values, user, password, method, url, count=challenge.answers)

    @property
    def finds_depth(self) -> bool:
        """Whether the depth of a URL decides if it is wanted, so that a shorter path to it matters. Requests of a
        user's code keep the depth at which they were first made.
        """
        return self.scope.max_depth is not None and self.spider is None

    @property
    def follows_links(self) -> bool:
        """Whether the links of its pages are followed within its scope."""
        return self.spider is None or (self.spider.description.follows and not self.spider.description.chooses_links)

    def disregards_robots(self, lease: Lease) -> bool:
        """Whether robots.txt is ignored: the user's code asks for that, and the host itself declares that it is
        private.
        """
        if self.spider is None or self.spider.description.obeys_private_robots:
            return False
        return is_private_host(urls.host_of(lease.url))

    def must_be_sent_once(self, lease: Lease) -> bool:
        """Whether a request must not be sent again once it may have been sent."""
        return self.spider is not None and bool(lease.request) and not self.spider.spec_of(lease).idempotent

    def refused_request(self, url: str, reason: str, parent: int) -> None:
        """Records that a request of the user's code was not admitted: counted, and visible to `weft explain`."""
        self.progress.refused[reason] += 1
        if reason in _REASONS:
            self._frontier.rejected.refused(self.number, Reason(reason), url, parent)

    def admit_links(self, found: list[str], page: Lease, *, are_new: bool = True) -> list[PageLinks]:
        """The links of a page that the rules admit; the others are counted by reason.

        `are_new`: none of them is in the seen set.
        """
        let_in, refused = self.rules.split_admitted(found, page)
        for url, reason in refused:
            self._count_refusal(url, reason, page)
        if are_new and self.rules.sameness.needs_new_links(page.url):
            self._record_new_links(let_in, page)
        return let_in

    def _count_refusal(self, url: str, reason: Reason, page: Lease) -> None:
        self.progress.refused[reason] += 1
        if self.recent_links is not None:
            self.recent_links.record_refusal(page.url, url, reason)
        if reason is Reason.TRAP:
            self.note_trap(url)
            if not self.rules.looks_like_a_trap(url):
                # The reason must be recorded here: it came from a count, and the URL alone does not reveal it.
                self._frontier.rejected.refused(self.number, reason, url, page.item)

    def note_trap(self, url: str) -> None:
        """Called when a link was left out as a trap; a crawl that reports how many there are overrides it (see
        `tenant`).
        """

    def before_admission(self, found: Iterable[str]) -> None:
        """Called before URLs are admitted, some of which may have been left out before; see `tenant`."""

    def _record_new_links(self, let_in: list[PageLinks], page: Lease) -> None:
        """Records that a page led to new URLs; if that stops the page's pattern, its links to that pattern are
        refused.
        """
        sameness = self.rules.sameness
        if not sameness.record_links(page.url, [url for links in let_in for url in links.urls]):
            return
        for links in let_in:
            for stopped in [one for one in links.urls if sameness.stops(one, page.url)]:
                links.urls.remove(stopped)
                self._count_refusal(stopped, Reason.TRAP, page)

    def extend(self, url: str) -> None:
        """Adds a URL's domain, host or prefix to the scope."""
        self.rules.extend(url)
        if self.recent_links is not None:
            self.recent_links.forget_links()

    def learn_scope(self) -> None:
        """Adopts the targets of seeds' redirects into the scope; another process may have found them."""
        try:
            extensions = self._frontier.notes.scope_extensions(self.number)
        except ServerAway:
            return
        for url in extensions:
            if not self.rules.in_scope(url):
                self.extend(url)

    def admit_sitemap_entries(self, lease: Lease, entries: Iterable[str]) -> list[Found]:
        """The URLs of a sitemap that the rules admit; its owner lists them on purpose, so extension and traps do not
        apply.
        """
        found = []
        for url in dict.fromkeys(map(self.rules.rewritten, entries)):
            reason = self.rules.refusal(url, lease.depth + 1, is_link=False)
            if reason is None:
                found.append(Found(url, lease.depth + 1, 0))
            else:
                self.progress.refused[reason] += 1
        return found

    def judge_redirect(self, lease: Lease, target: str) -> Reason | Found:
        """Where a redirect leads, checked like a new URL, or why it may not be followed; a seed's redirect extends the
        scope.

        The target replaces the redirecting URL: outside the scope both together count as one hop.
        """
        target = self.rules.rewritten(target) if target != lease.url else target
        offsite = 0 if self.rules.in_scope(target) else max(1, lease.offsite)
        reason = self.rules.refusal(target, lease.depth, is_link=False, offsite=max(0, offsite - 1))
        if reason is None and self.spider is not None:
            reason = self.spider.refusal(target, self.spider.spec_of(lease))
        elif reason is Reason.SCOPE and lease.depth == 0 and lease.purpose is Purpose.PAGE:
            self.extend(target)
            self._frontier.notes.scope_extended(self.number, target)
            offsite = 0
            reason = self.rules.refusal(target, lease.depth, is_link=False)
        if reason is not None:
            self.progress.refused[reason] += 1
            return reason
        chain = f"{lease.about} {lease.url}".strip()
        return Found(target, lease.depth, lease.item, lease.hops + 1, Purpose.PAGE, chain, offsite)

    def sitemaps_of_origin(self, depth: int, origin: str, listed: Sequence[str]) -> list[Found]:
        """The sitemaps that an origin names; the usual path where it names none and holds a seed. Once per origin."""
        if self.scope.seeded_urls_only or origin in self.known_origins:
            return []
        if self.spider is not None and not self.spider.description.follows:
            return []  # a user's code decides which pages it visits
        self.known_origins.add(origin)
        if self.scope.max_depth is not None and depth >= self.scope.max_depth:
            return []
        names = list(listed) or ([origin + "/sitemap.xml"] if origin in self._seed_origins else [])
        return self.admit_nested_sitemaps(depth, urls.join_all(origin + "/", names), origin, 0)

    def admit_nested_sitemaps(self, depth: int, sitemaps: Iterable[str], origin: str, hops: int) -> list[Found]:
        """The sitemaps of a sitemap index that the rules admit."""
        return [
            Found(url, depth, 0, hops, Purpose.SITEMAP, origin)
            for url in sitemaps
            if self.rules.refusal(url, depth, is_link=False, included=True) is None
        ]

    def add_seed_origin(self, url: str) -> bool:
        """Adds an origin that holds a seed: its sitemap is looked for at the usual path. False if it was known."""
        return self._seed_origins.add(urls.origin_of(url))

    def refuse_as_too_many(self, found: Sequence[Found]) -> None:
        """Refuses the URLs beyond a bound."""
        self.progress.refused[Reason.BUDGET] += len(found)
        for one in found:
            self._frontier.rejected.refused(self.number, Reason.BUDGET, one.url, one.parent)

    def count_not_admitted(self, found: int, admission: Admission) -> None:
        """Counts those of `found` URLs that the frontier did not admit: duplicates, and those over a budget."""
        self.progress.refused[Reason.DUPLICATE] += admission.duplicates
        over = found - admission.new - admission.duplicates
        if over > 0:
            self.progress.refused[Reason.BUDGET] += over
            if self.recent_links is not None:
                self.recent_links.forget_links()  # the budget may have room for them later
