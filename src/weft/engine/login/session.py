"""The session of one crawl at the site that it logs in to: asked for before the first page, renewed when it has ended.

    out ──► form ──► sent ──► landing … ──► in          any step may fail: `out` again, three times, then `failed`
     ▲                                       │
     └────────── a page shows `logged_out` ──┘

Each step is a request of its own in the frontier (`LoginsPart`), so it waits for robots.txt, the site's delay and the
guard as any other, and is in the request log. Pages of the site are held until the session is there.

What must stay true:
- The form goes to the login's own origin, or its upgrade to https on the same host and port, and so do the cookies that
  follow; those that are for the whole domain go to its other hosts by the same scheme and port. They are in no other
  jar, and in memory alone: a resume logs in again. So is what a browser that logs in keeps besides (its local storage).
- Sending a form again is harmless: it makes a session and nothing else. One that was cut off is sent again.
- Every state ends: a login that fails, or does not help, pauses the crawl, and resuming the crawl begins anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

from weft import urls
from weft.credentials import with_upgrade
from weft.engine.login.pages import LoginFault, SentForm, failure_text, form_to_send, has_worked
from weft.engine.loop.fetcher.verdict import VerdictKind, backoff_s
from weft.errors import BadInput, BadUrl
from weft.extract.page import ParsedPage, extract
from weft.fetch.cookies import CookieJar
from weft.fetch.headers import Head
from weft.frontier.contract import LoginsPart
from weft.logins import FormLogin, filled_actions, filled_in
from weft.records import FetchResult, Lease, Purpose, Rendered
from weft.telemetry import Log

LOGIN_ATTEMPTS = 3
MOST_LOGIN_REDIRECTS = 5
MOST_USELESS_LOGINS = 3  # pages in a row that are unchanged after a login: logging in does not help
LOGIN_BYTES = 2 << 20  # of a login page
_MOST_PAGES_KEPT = 10_000
_VERDICTS_WITHOUT_PAGE = (VerdictKind.RETRY, VerdictKind.FAILED, VerdictKind.SLOW_DOWN)
Header = tuple[str, str]
log = Log("weft.engine.login.session")


class LoginStep(Enum):
    """The state of a login."""

    OUT = auto()
    FORM = auto()  # the page with the form is requested
    SENT = auto()  # the form is sent
    LANDING = auto()  # the redirect target of the answer is requested
    IN = auto()
    FAILED = auto()  # the crawl is paused


class PageOfSession(Enum):
    """How a page relates to the session: it may have been requested without being logged in."""

    NO = auto()  # it is as expected
    ONCE = auto()  # to be requested again, in a new session
    USELESS = auto()  # it was requested again, and is unchanged


class LoginSession:
    """The session (see the module) of one process, which requests all pages of the site."""

    def __init__(
        self,
        login: FormLogin,
        crawl: int,
        frontier: LoginsPart,
        pause: Callable[[str], None],
        *,
        backoff_first_s: float = 1.0,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`pause` is called with the reason when the login has failed for good."""
        self.login = login
        self.step = LoginStep.OUT
        self.jar = CookieJar(urls.domain)
        self._storage: dict[str, dict[str, str]] = {}  # by origin: what a browser keeps besides cookies
        self._url = urls.seed(login.url)
        self._origin = urls.origin_of(self._url)
        self._session_origins = frozenset(with_upgrade(self._origin))
        self._domain = urls.domain_of(self._url)
        self._schemes_and_ports = frozenset(map(_scheme_and_port, self._session_origins))
        self._crawl = crawl
        self._frontier = frontier
        self._pause_crawl = pause
        self._backoff_first_s = backoff_first_s
        self._chance = chance
        self._covered: dict[str, bool] = {}  # by origin
        self._serial = 0
        self._request_name = ""  # of the request that is under way: answers to other requests are ignored
        self._sent_form: SentForm | None = None
        self._referer = ""
        self._cookies_before: dict[str, str] = {}  # the cookies before the form was sent
        self._redirects = 0
        self._attempts = 0
        self._session_began_at = 0.0  # when the session began, by the wall clock
        self._repeated_items: set[int] = set()  # items that are requested once more
        self._useless_logins = 0
        frontier.hold(crawl, self.holds)

    def covers(self, url: str) -> bool:
        """Whether a URL belongs to the site of the session: its pages wait for the session, and its cookies are
        secret.
        """
        origin = url[: url.index("/", 8)]
        known = self._covered.get(origin)
        if known is None:
            if len(self._covered) >= _MOST_PAGES_KEPT:
                self._covered.clear()
            known = urls.domain_of(url) == self._domain and _scheme_and_port(origin) in self._schemes_and_ports
            self._covered[origin] = known
        return known

    def is_beside(self, url: str) -> bool:
        """Whether a URL is on the site's domain but outside the session: another port, or plain http."""
        return urls.domain_of(url) == self._domain and not self.covers(url)

    def cookie(self, url: str, now: float) -> str:
        """The session's cookies for a URL."""
        if not self.covers(url):
            return ""
        path = url[url.index("/", 8) :].partition("?")[0]
        return self.jar.header(urls.host_of(url), path, url.startswith("https:"), now) or ""

    def holds(self, url: str) -> bool:
        """Whether a page must wait; the frontier calls this during a claim. The first page that must wait starts the
        login.
        """
        if self.step is LoginStep.IN or not self.covers(url):
            return False
        if self.step is LoginStep.OUT:
            self._begin_login()
        return True

    def reset_after_pause(self) -> None:
        """The crawl continues after a pause: a failed login is tried again."""
        if self.step is LoginStep.FAILED:
            self.step, self._attempts, self._useless_logins = LoginStep.OUT, 0, 0
            self._frontier.release(self._crawl)

    # ── its requests ───────────────────────────────────────────────────────────────────────────────────────────────

    def is_current(self, lease: Lease) -> bool:
        """Whether a login request is the one that is under way."""
        return lease.about == self._request_name and self.step in (LoginStep.FORM, LoginStep.SENT, LoginStep.LANDING)

    def request_fields(self) -> dict[str, Any]:
        """What the current request has beyond its URL: method and body."""
        if self.step is LoginStep.SENT and self._sent_form is not None:
            return {"method": "POST", "body": self._sent_form.body}
        return {}

    def actions(self) -> tuple[dict[str, Any], ...]:
        """What a browser does on the login's page; with the secrets in it, for this request alone."""
        return filled_actions(self.login)

    def storage_for(self, url: str) -> dict[str, str] | None:
        """What the session keeps in the browser for a page's origin; None where the page is in no session."""
        if not self.login.actions or urls.origin_of(url) not in self._session_origins:
            return None
        return self._storage.get(urls.origin_of(url), {})

    def keep_storage(self, lease: Lease, rendered: Rendered, asked_at: float) -> None:
        """Keeps what a page of the session has in the browser: in memory, and for its own origin alone."""
        is_step = lease.purpose is Purpose.LOGIN and self.is_current(lease)
        origin = urls.origin_of(lease.url)
        is_own = not rendered.error and origin in self._session_origins
        if is_own and (is_step or (self.step is LoginStep.IN and asked_at >= self._session_began_at)):
            self._storage[origin] = rendered.storage

    def headers(self, lease: Lease, now: float) -> list[Header]:
        """The session's cookies for a request, and what a browser sends with a form."""
        found = list[Header]()
        if cookie := self.cookie(lease.url, now):
            found.append(("Cookie", cookie))
        if self.step is LoginStep.SENT and lease.about == self._request_name:
            origin = urls.origin_of(self._referer)
            found += [("Content-Type", "application/x-www-form-urlencoded"), ("Referer", self._referer)]
            found += [("Origin", origin)]
        return found

    def keep_cookies(self, url: str, values: Sequence[str], now: float, asked_at: float, *, is_step: bool) -> None:
        """Stores the cookies that a response of the site set; a response to a request of an earlier session would undo
        this one.
        """
        if is_step or (self.step is LoginStep.IN and asked_at >= self._session_began_at):
            path = url[url.index("/", 8) :].partition("?")[0]
            self.jar.store(urls.host_of(url), path, url.startswith("https:"), values, now)

    # ── its answers ────────────────────────────────────────────────────────────────────────────────────────────────

    def handle_step(
        self, lease: Lease, result: FetchResult, kind: VerdictKind, read: Callable[[], ParsedPage | None], now: float
    ) -> None:
        """Handles the answer to a step. `read` parses its body: None if it has no readable one."""
        if not self.is_current(lease):
            return
        head = Head(result.head)
        try:
            if kind is VerdictKind.AGAIN:  # the site was not asked
                self._queue_login_request(lease.url)
            elif kind in (VerdictKind.RETRY, VerdictKind.FAILED, VerdictKind.SLOW_DOWN) or (
                self.step is LoginStep.FORM and kind is VerdictKind.ANSWER
            ):
                why = f"{result.error}: {result.detail}" if result.error else f"HTTP {result.status}"
                self.fail_attempt(f"{lease.url} gives no page ({why})", wait_s=head.retry_after_s(now) or 0.0)
            elif self.step is LoginStep.FORM and self.login.actions and kind is not VerdictKind.REDIRECT:
                self._handle_browser_login(lease, result, now)
            elif self.step is LoginStep.FORM:
                self._handle_form(lease, kind, head, read)
            else:
                self._handle_outcome(lease, result, kind, head, read, now)
        except LoginFault as fault:
            self.fail_attempt(str(fault))
        except BadInput as wrong:  # a variable that is no longer set, a file that is gone
            self.fail_attempt(str(wrong), is_final=True)

    def fail_attempt(self, why: str, *, wait_s: float = 0.0, is_final: bool = False) -> None:
        """Records that this attempt has failed."""
        self._attempts += 1
        self._sent_form, self._request_name = None, ""
        log.warning("login failed", url=self._url, tries=self._attempts, why=why)
        if is_final or self._attempts >= LOGIN_ATTEMPTS:
            times = "" if self._attempts == 1 else f" {self._attempts} times"
            self._give_up_login(f"the login at {self._url} has failed{times}: {why}")
            return
        self._begin_login(max(wait_s, backoff_s(self._backoff_first_s, self._attempts, self._chance())))

    def fail_lost_request(self, about: str, why: str) -> None:
        """Records that a request of the login was removed from the queue."""
        if about == self._request_name:
            self.fail_attempt(why, is_final=True)

    def judge_page(self, lease: Lease, asked_at: float, *, is_out: bool, may_repeat: bool = True) -> PageOfSession:
        """Judges a page of the site. `is_out`: it is a page for a user who is not logged in."""
        if not is_out:
            self._useless_logins = 0
            self._repeated_items.discard(lease.item)
            return PageOfSession.NO
        if lease.item in self._repeated_items or not may_repeat:
            return self._judge_repeated_page(lease, asked_at)
        if len(self._repeated_items) >= _MOST_PAGES_KEPT:
            self._repeated_items.clear()
        self._repeated_items.add(lease.item)
        self._end_session(asked_at)
        return PageOfSession.ONCE

    def _judge_repeated_page(self, lease: Lease, asked_at: float) -> PageOfSession:
        was_repeated = lease.item in self._repeated_items
        self._repeated_items.discard(lease.item)
        if not was_repeated:  # it must not be sent twice: the next page starts a new session
            self._end_session(asked_at)
            return PageOfSession.USELESS
        self._useless_logins += 1
        if self._useless_logins >= MOST_USELESS_LOGINS:
            self._give_up_login(
                f"the login at {self._url} does not help: {self._useless_logins} pages in a row are as if nobody were "
                f"logged in, {lease.url} the last. Exclude what this account may not see (`weft edit`), or correct "
                "`logged_out`"
            )
        return PageOfSession.USELESS

    def leads_out(self, target: str) -> bool:
        """Whether a redirect leads to the login's own page, as for a user who is not logged in."""
        return target.partition("?")[0] == self._url.partition("?")[0]

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_login(self, wait_s: float = 0.0) -> None:
        self.step, self._redirects = LoginStep.FORM, 0
        self.jar, self._storage = CookieJar(urls.domain), {}
        self._queue_login_request(self._url, wait_s)

    def _queue_login_request(self, url: str, wait_s: float = 0.0) -> None:
        self._serial += 1
        self._request_name = f"login-{self._serial}"
        self._frontier.ask(self._crawl, url, self._request_name, wait_s)

    def _handle_form(self, lease: Lease, kind: VerdictKind, head: Head, read: Callable[[], ParsedPage | None]) -> None:
        if kind is VerdictKind.REDIRECT and head.location is not None:
            self._queue_login_request(self._redirect_target(lease.url, head.location))
            return
        page = read()
        if page is None:
            raise LoginFault(f"{lease.url} cannot be read")
        sent = form_to_send(page, self.login, filled_in(self.login))
        self._check_target(lease.url, sent.url)
        self._sent_form, self._referer, self._cookies_before = sent, lease.url, self.jar.values()
        self.step, self._redirects = LoginStep.SENT, 0
        self._queue_login_request(sent.url)

    def _handle_outcome(
        self,
        lease: Lease,
        result: FetchResult,
        kind: VerdictKind,
        head: Head,
        read: Callable[[], ParsedPage | None],
        now: float,
    ) -> None:
        page: ParsedPage | None = None
        if result.status >= 400:
            raise LoginFault(failure_text(self.login, None, result.status))
        if kind is VerdictKind.REDIRECT and head.location is not None:
            target = self._resolve_location(lease.url, head.location)
            if (
                result.status in (307, 308) and self._sent_form is not None
            ):  # the site wants the form itself at the new URL
                target = self._redirect_target(lease.url, head.location)
                self._check_target(lease.url, target)
                self._sent_form = self._sent_form._replace(url=target)
                self._queue_login_request(target)
                return
            if not has_worked(self.login, None, target, self._cookies_before, self.jar.values()):
                self._queue_landing_page(self._redirect_target(lease.url, head.location))
                return
        else:
            page = read()
            if not has_worked(self.login, page, lease.url, self._cookies_before, self.jar.values()):
                raise LoginFault(failure_text(self.login, page, result.status))
        self._enter_session(now)

    def _handle_browser_login(self, lease: Lease, result: FetchResult, now: float) -> None:
        """A browser has done what logs in, and is where that led."""
        rendered = result.rendered
        if rendered is None:
            raise LoginFault(f"{lease.url} was not given to a browser: it is no HTML page, or there is no browser")
        if rendered.error:
            raise LoginFault(f"the browser could not log in at {lease.url}: {rendered.detail or rendered.error}")
        page = extract(rendered.html, rendered.url, "text/html; charset=utf-8", references=False)
        kept = self.jar.values() | {f"storage {name}": value for name, value in rendered.storage.items()}
        if not has_worked(self.login, page, rendered.url, {}, kept):
            raise LoginFault(failure_text(self.login, page, result.status))
        self._enter_session(now)

    def _enter_session(self, now: float) -> None:
        self._sent_form, self._request_name = None, ""
        self.step, self._attempts, self._session_began_at = LoginStep.IN, 0, now
        log.info("logged in", url=self._url)
        self._frontier.release(self._crawl)

    def _queue_landing_page(self, url: str) -> None:
        self.step, self._sent_form = LoginStep.LANDING, None
        self._queue_login_request(url)

    def _check_target(self, page: str, target: str) -> None:
        """Checks that a form may be sent to the target."""
        origin = urls.origin_of(target)
        if origin not in self._session_origins or origin not in with_upgrade(urls.origin_of(page)):
            raise LoginFault(
                f"the form is sent to {origin}, and the login is for {self._origin}: name its page in `url`"
            )

    def _resolve_location(self, url: str, location: str) -> str:
        try:
            return urls.join(url, location)
        except BadUrl as bad:
            raise LoginFault(f"{url} redirects to what is no URL ({bad.reason})") from None

    def _redirect_target(self, url: str, location: str) -> str:
        """The target of a redirect of the login, if it may be followed with the session."""
        target = self._resolve_location(url, location)
        self._redirects += 1
        if self._redirects > MOST_LOGIN_REDIRECTS:
            raise LoginFault(f"it redirects more than {MOST_LOGIN_REDIRECTS} times, {target} the last")
        if not self.covers(target) or (url.startswith("https:") and target.startswith("http:")):
            raise LoginFault(
                f"it leads to {urls.origin_of(target)}, where the session must not go: if that is the site's own page "
                "for logins, name it in `url`; if it is where one is logged in, name it in `success` (`url:PATTERN`)"
            )
        return target

    def _end_session(self, asked_at: float) -> None:
        """Ends the session, unless the page was requested before the session began."""
        if self.step is LoginStep.IN and asked_at >= self._session_began_at:
            log.info("session has ended", url=self._url)
            self.step = LoginStep.OUT  # the next page starts another login

    def _give_up_login(self, why: str) -> None:
        self.step, self._request_name, self._sent_form = LoginStep.FAILED, "", None
        self._repeated_items.clear()
        self._pause_crawl(why)


def _scheme_and_port(origin: str) -> tuple[str, str]:
    scheme, _, authority = origin.partition("://")
    port = authority.rpartition(":")[2] if ":" in authority and not authority.endswith("]") else ""
    return scheme, port
