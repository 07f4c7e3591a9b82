"""Explains why a URL was, or was not, crawled: one reason, with its evidence; also while the crawl runs.

The checks in order: is it a valid URL; does the index have a row; is it queued; do the rules reject it; does
robots.txt. What depends on the URL alone is evaluated again, everything else is looked up. On request all stored pages
are searched for a link to it.

Of several crawls in one folder those with a row of the URL answer; if there is none, those that have it queued;
otherwise the latest ones, each by its own rules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from msgspec import Struct

from weft import urls
from weft.crawl.pods.distribution import redis_urls, server_at
from weft.crawl.reports.crawls import ReportCrawl, ReportFolder
from weft.crawl.reports.engine_status import statuses
from weft.crawl.reports.redirects import leads_to_no_page, redirect_chain_of
from weft.engine.admission.rules import AdmissionRules
from weft.engine.loop.fetcher.robots import REASON_BY_ROBOTS_STATE, rules_of
from weft.engine.loop.fetcher.verdict import refusal_of
from weft.engine.loop.progress import CrawlStatus, read_status
from weft.engine.stored.stored_page import read_page
from weft.errors import BadInput, BadUrl, Missing, ServerAway
from weft.extract.robots_meta import robots_tag
from weft.fetch.robots import product_token
from weft.frontier.requests import RequestEnd, RequestStart
from weft.frontier.view import FrontierView, JournalEntry, SiteDelays
from weft.records import TOO_MANY_REDIRECTS, Reason, Row
from weft.store.errors import UnreadableData
from weft.store.export.facts import iso_time

SEARCH_FLAG = "`weft explain --search-pages`"
SearchProgress = Callable[[str, int], None]  # called with "rows" or "pages", and the number of those searched so far
MOST_REQUESTS_LISTED = 20  # crawls that are checked for a URL that none of them has
_MEANING_OF_REASON = {
    Reason.ROBOTS: "robots.txt forbids it",
    Reason.ROBOTS_UNREACHABLE: "its robots.txt could not be fetched",
    Reason.BREAKER: "its site failed again and again, and was given up",
    Reason.RETRY_AFTER: "its site asked to wait longer than this crawl does",
    Reason.ADDRESS: "it leads to an address that may not be requested",
    Reason.SCOPE: "it is outside the crawl's scope",
    Reason.EXCLUDED: "its domain is in the exclude file",
    Reason.EXTENSION: "its extension is one of files without text",
    Reason.PATTERN: "the include and exclude patterns leave it out",
    Reason.TRAP: "it looks like part of an endless space",
    Reason.BUDGET: "the limit of pages, or of sitemaps, of its domain is reached",
    Reason.UNKNOWN_OUTCOME: "it may have been sent when the crawl was killed, and is not sent again",
    Reason.LOST_REQUEST: "the stored request is damaged",
    Reason.CONTENT_TYPE: "its content type is none of those in `accept`: only the head of the answer was read",
}


class Explanation(Struct):
    """The reason and evidence for one URL."""

    url: str
    crawled: bool
    reason: str  # one word: page, redirect, error, queued, robots, scope, extension, ...
    summary: str
    evidence: list[str] = []
    crawl: str = ""  # name of the crawl, if the folder has several


class Explanations:
    """Explains URLs for the crawls of a folder, or for one of them; must be closed."""

    def __init__(self, report: ReportFolder, name: str | None = None, search: SearchProgress | None = None) -> None:
        """With `search` all stored pages are searched for links to a URL that is not known otherwise."""
        self._report = report
        self._search = search
        self._only_crawl = report.crawls(name) if name is not None or not report.is_engines else None
        self._view = FrontierView(report.folder.pod_folders())
        self._explainers: dict[int, Explainer] = {}

    def close(self) -> None:
        """Closes the files."""
        self._view.close()

    def explain(self, text: str) -> list[Explanation]:
        """One reason for each crawl that is concerned with a URL."""
        crawls = self._only_crawl if self._only_crawl is not None else self._crawls_with(text)
        return [self._explainer(one).explain(text) for one in crawls] or [
            Explanation(text, False, "no-crawl", "there is no crawl in this folder")
        ]

    def _crawls_with(self, text: str) -> list[ReportCrawl]:
        try:
            wanted = urls.stored_as(text)
        except BadUrl:
            return self._report.crawls()[-1:]  # it is not a valid URL for any of them
        numbers = {row.crawl for url in wanted for row in self._report.store.rows_of_url(url)}
        numbers = numbers or {entry.crawl for url in wanted for entry in self._view.entries_of_url(url)}
        return self._report.crawls_numbered(numbers) if numbers else self._report.crawls()[-MOST_REQUESTS_LISTED:]

    def _explainer(self, crawl: ReportCrawl) -> Explainer:
        if crawl.number not in self._explainers:
            self._explainers[crawl.number] = Explainer(self._report, crawl, self._view, self._search)
        return self._explainers[crawl.number]


class Explainer:
    """Explains URLs for one crawl."""

    def __init__(
        self, report: ReportFolder, crawl: ReportCrawl, view: FrontierView, search: SearchProgress | None = None
    ) -> None:
        self._report = report
        self._search = search
        self._crawl = crawl
        self._config = config = crawl.config()
        self._folder = report.folder
        self._settings = {} if report.is_engines else report.folder.settings()
        self._servers = redis_urls(report.folder, self._settings)
        self._view = view
        self._store = report.store
        self._seeds = crawl.seeds()
        roots = self._seeds if config.scope.scope == "any" else [*self._seeds, *crawl.scope_seeds()]
        extensions = view.scope_extensions(crawl.number)
        self._rules = AdmissionRules(config.scope, roots, this_year=datetime.now(UTC).year, extensions=extensions)
        self._user_agent = product_token(config.fetch.user_agent())

    def explain(self, text: str) -> Explanation:
        """The reason for one URL."""
        answer = self._explanation_of(text)
        answer.crawl = self._crawl.name if self._report.is_engines else ""
        return answer

    def _explanation_of(self, text: str) -> Explanation:
        try:
            wanted = [self._rules.rewritten(url) for url in urls.stored_as(text)]
        except BadUrl as bad:
            return Explanation(text, False, bad.reason, str(bad))
        for url in wanted:
            if rows := self._store.rows_of_url(url, self._crawl.number):
                return self._explain_row(url, rows)
        return self._explain_unended(wanted[0])

    def _explain_unended(self, url: str) -> Explanation:
        """The reason for a URL without a row in the index."""
        if self._servers:
            return self._explain_on_redis(url)
        entries = self._view.entries_of_url(url, self._crawl.number)
        if entries and not entries[-1].ended:
            key = self._politeness_key_of(url)
            count, is_all = self._view.ahead_of(entries[-1], key, self._politeness_key_of)
            ahead = f"{count:,}" if is_all else f"at least {count:,}" if count else "an uncounted number of"
            return self._explain_queued(
                url, entries[-1], ahead, "in its queue, or being fetched", self._view.site_delays(key)
            )
        if entries and entries[-1].sitemap:
            return Explanation(url, True, "sitemap", "it was read as a sitemap; sitemaps are not stored as pages")
        return self._explain_robots_file(url) or self._explain_by_rules(url) or self._explain_unknown(url)

    def _explain_on_redis(self, url: str) -> Explanation:
        """The reason for a URL that no process has ended: the pod's server knows whether it is queued."""
        from weft.frontier.redis.pod_view import site_pace, waiting_items

        away = ""
        pod = urls.pod_of(urls.domain_of(url), len(self._servers))
        try:
            with server_at(self._servers[pod], self._settings) as (client, where):
                spill = self._folder.pod_folder(pod) / "spill"
                entries = waiting_items(client, where, pod, self._config.politeness.key_scope, url, spill)
                pace = site_pace(client, where, self._politeness_key_of(url)) if entries else SiteDelays()
            if entries:
                return self._explain_queued(
                    url, entries[-1].entry, f"{entries[-1].ahead:,}", entries[-1].location, pace
                )
        except (ServerAway, BadInput, Missing) as why:
            away = str(why)
        known = self._explain_robots_file(url) or self._explain_by_rules(url)
        if known is None and away:
            summary = f"it has not ended; only the Redis of pod {pod} knows if it is queued, and does not answer"
            return Explanation(url, False, "unknown", summary, [away])
        if known is None and pod not in self._folder.pods_here:
            return Explanation(
                url, False, "elsewhere", f"it belongs to pod {pod}, whose pages are on another node: ask there"
            )
        return known or self._explain_unknown(url)

    def _explain_robots_file(self, url: str) -> Explanation | None:
        """The reason for a robots.txt, which is requested for the pages of its origin."""
        origin = urls.origin_of(url)
        record = self._view.robots(self._crawl.robots_key(origin)) if url == origin + "/robots.txt" else None
        if record is None:
            return None
        meaning = {"ok": "read", "allow": "missing: everything is allowed"}
        summary = f"it is requested as robots.txt: {meaning.get(record.status, 'unreachable')}"
        return Explanation(url, True, "robots.txt", summary, [record.detail] if record.detail else [])

    # ── from the index ─────────────────────────────────────────────────────────────────────────────────────────────

    def _explain_row(self, url: str, rows: list[Row]) -> Explanation:
        """The reason from the last visit; requests with other methods than GET are listed with it."""
        others = [f"requested with {row.method}: {_outcome_of_row(row)}" for row in rows if row.request]
        explanation = self._explain_visits(url, [row for row in rows if not row.request] or rows)
        explanation.evidence += others
        return explanation

    def _explain_visits(self, url: str, rows: list[Row]) -> Explanation:
        row, again = rows[-1], ""
        if row.status == 304:
            again = f"visited again {iso_time(row.fetched_at)}: unchanged"
            row = next((one for one in reversed(rows) if 200 <= one.status < 300), row)
        evidence = [self._origin_of(url, row)]
        evidence += [f"depth {row.depth}, ended {iso_time(row.fetched_at)}"]
        evidence += [again] if again else []
        kind, _, detail = row.error.partition(": ")
        if refusal_of(row.status, row.error):
            evidence += [detail] if detail else []
            return Explanation(url, False, kind, _MEANING_OF_REASON.get(Reason(kind), kind), evidence)
        if 300 <= row.status < 400 and row.final_url != url:
            return self._explain_redirect(url, row, evidence)
        if 200 <= row.status < 300:
            return self._explain_page(url, row, evidence)
        evidence += self._logged_requests(row.item, row.url)
        what = f"HTTP {row.status}" if row.status else row.error
        return Explanation(url, False, "error", f"it was requested and failed: {what}", evidence)

    def _origin_of(self, url: str, row: Row) -> str:
        if url in self._seeds or url in map(self._rules.rewritten, self._seeds) or not (row.parent or row.depth):
            return "a seed"
        if not row.parent:
            return "listed in a sitemap"
        how = "redirected to by" if row.hops else "found on"
        return f"{how} {self._store.url_of(row.parent)}"

    def _explain_page(self, url: str, row: Row, evidence: list[str]) -> Explanation:
        if row.warc_file:
            evidence.append(
                f"{row.warc_file} at {row.warc_offset:,}, {row.length:,} bytes, {row.content_type or 'no type'}"
            )
        notes = {
            "noindex": "it was fetched, and asks not to be stored (noindex)",
            "parse_crash": "it was fetched and stored unparsed: parsing it crashed twice",
            "parse_timeout": "it was fetched and stored unparsed: parsing it did not end",
            "too_large": "it was requested, and is larger than `max_body_bytes`",
        }
        kept = "stored" if row.warc_file else "its text is stored"
        page = f"HTTP {row.status}, {kept}" + (f", with a fault: {row.error}" if row.error else "")
        summary = notes.get(row.error, page)
        is_crawled = row.error != "too_large"
        return Explanation(url, is_crawled, row.error if row.error in notes else "page", summary, evidence)

    def _explain_redirect(self, url: str, row: Row, evidence: list[str]) -> Explanation:
        chain = redirect_chain_of(self._store, row, self._crawl.number)
        evidence += [f"{one.status} → {one.final_url}" for one in chain if 300 <= one.status < 400]
        if leads_to_no_page(self._store, row, self._crawl.number):
            summary = "its redirects are circular, or too many"
            return Explanation(url, False, TOO_MANY_REDIRECTS, summary, evidence)
        if row.error:
            return Explanation(url, False, row.error, f"it redirects, and that ended there: {row.error}", evidence)
        return Explanation(url, True, "redirect", f"it redirects to {row.final_url}", evidence)

    def _logged_requests(self, item: int, url: str) -> Iterator[str]:
        """Every request for an item, from the request log: only entries of its site are read."""
        begun: RequestStart | None = None
        by_address = self._config.politeness.key_scope == "ip"
        for event in self._view.requests_of(None if by_address else self._politeness_key_of(url)):
            if isinstance(event, RequestStart) and event.item == item:
                begun = event
            elif isinstance(event, RequestEnd) and event.item == item and begun is not None:
                yield f"requested {iso_time(begun.wall)}: {event.status} after {event.at - begun.at:.2f} s"

    # ── from the frontier ──────────────────────────────────────────────────────────────────────────────────────────

    def _explain_queued(
        self, url: str, entry: JournalEntry, ahead: str, location: str, pace: SiteDelays
    ) -> Explanation:
        evidence = [f"depth {entry.depth}; {ahead} URLs of its site come before it", f"it is {location}"]
        evidence += [f"found on {self._store.url_of(entry.parent)}"] if entry.parent else []
        evidence += self._reasons_for_pace(url, pace)
        if entry.attempt:
            evidence += [f"tried {entry.attempt} times, to be tried again", *self._logged_requests(entry.item, url)]
        status = self._read_status()
        if status.note and status.state in ("paused", "running"):
            evidence.append(f"the crawl is held up: {status.note}")
        if status.state == "running" and status.waiting_for:
            end = "" if status.waiting_until is None else f", until {iso_time(status.waiting_until)}"
            evidence.append(f"the crawl waits: {status.waiting_for}{end}")
        return Explanation(url, False, "queued", "it is queued and has not ended yet", evidence)

    def _read_status(self) -> CrawlStatus:
        if self._report.is_engines:
            return statuses(self._report, [self._crawl])[self._crawl.name]
        return read_status(self._folder.status) or CrawlStatus()

    def _politeness_key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        by_domain = self._config.politeness.key_scope == "domain"
        return urls.domain_of(url) if by_domain else urls.host_of(url)

    def _reasons_for_pace(self, url: str, pace: SiteDelays) -> Iterator[str]:
        """The reasons why requests to the URL's site are less frequent than the crawl's delay allows."""
        tries = self._view.robots_tries(self._crawl.robots_key(urls.origin_of(url)))
        if tries is not None:
            yield f"it waits for its robots.txt, which was tried {tries[0]} times; again at {iso_time(tries[1])}"
        for name, (_, is_open, until) in pace.breakers.items():
            if is_open and name.endswith(urls.origin_of(url)) and until > time.time():
                host = name.rpartition("://")[2]
                yield f"{host} fails: its circuit breaker blocks all requests until {iso_time(until)}"
        if pace.lag:
            at_once = 1 if pace.extra or pace.crawl_delay else self._config.politeness.places
            yield (
                f"its site slows down (an answer takes {pace.recent:.1f} s, {pace.usual:.1f} s usually): "
                f"{pace.lag / at_once:.1f} s between two requests"
            )
        if pace.extra:
            yield f"its site asked for fewer requests (429, 503): {pace.extra:g} s between two"
        if pace.crawl_delay:
            yield f"its robots.txt asks for {pace.crawl_delay:g} s between two requests"

    # ── from the rules ─────────────────────────────────────────────────────────────────────────────────────────────

    def _explain_by_rules(self, url: str) -> Explanation | None:
        remembered = self._view.refusal(url, self._crawl.number)
        reason = Reason(remembered) if remembered else self._rules.refusal(url, 0)
        if reason is not None:
            evidence = [self._rule_detail(reason, url)]
            return Explanation(
                url, False, str(reason), _MEANING_OF_REASON.get(reason, str(reason)), [e for e in evidence if e]
            )
        record = self._view.robots(self._crawl.robots_key(urls.origin_of(url)))
        if record is None:
            return None
        if (reason := REASON_BY_ROBOTS_STATE.get(record.status)) is not None:
            return Explanation(url, False, str(reason), _MEANING_OF_REASON[reason], [record.detail])
        verdict = rules_of(record).verdict(self._user_agent, url)
        if verdict.allowed:
            return None
        return Explanation(
            url, False, "robots", _MEANING_OF_REASON[Reason.ROBOTS], [f"{verdict.rule} (line {verdict.line})"]
        )

    def _rule_detail(self, reason: Reason, url: str) -> str:
        scope = self._config.scope
        if reason is Reason.SCOPE:
            return f"scope is {scope.scope}, seeds: {', '.join(self._seeds[:3])}"
        if reason is Reason.EXTENSION:
            return f"extension {urls.skipped_extension(url)}"
        if reason is Reason.TRAP:
            many = "too many variants of one path and its parameters"
            same = "it was found on pages with equal content that link to more of the same"
            return self._rules.looks_like_a_trap(url) or (many if url.count("=") >= 3 else same)
        if reason is Reason.PATTERN:
            return f"include {list(scope.include)}, exclude {list(scope.exclude)}"
        return ""

    def _explain_unknown(self, url: str) -> Explanation:
        """The reason for a URL that no rule rejects, and that was never found."""
        scope = self._config.scope
        if self._search is not None:
            return self._explain_by_links(url, self._search)
        if scope.seeded_urls_only:
            summary = "the crawl does not know it, and only the seeds are fetched (`seeded_urls_only`)"
            return Explanation(url, False, "scope", summary, [])
        within = "" if scope.max_depth is None else f" at a depth of at most {scope.max_depth} (`max_depth`)"
        evidence = [f"the rules would admit it: a followed link to it{within} would queue it"]
        if self._view.robots(self._crawl.robots_key(urls.origin_of(url))) is None:
            evidence.append("the robots.txt of its site is not known yet")
        evidence.append(f"to search the stored pages for links to it: {SEARCH_FLAG}")
        return Explanation(url, False, "unknown", "the crawl does not know it: it was never queued", evidence)

    # ── from links ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _explain_by_links(self, url: str, alive: SearchProgress) -> Explanation:
        """Searches all rows and all stored pages for a link to it."""
        scope = self._config.scope
        if (cut := self._unfollowed_redirect_to(url, alive)) is not None:
            evidence = [f"{cut.status} from {cut.url}", cut.error]
            return Explanation(url, False, "redirects", "a redirect led to it, and was not followed", evidence)
        for row, how in self._pages_linking_to(url, alive):
            if how:
                return Explanation(url, False, "nofollow", "its links say not to follow them", [f"{how} on {row.url}"])
            if scope.max_depth is not None and row.depth >= scope.max_depth:
                evidence = [f"found on {row.url} at depth {row.depth}, `max_depth` is {scope.max_depth}"]
                return Explanation(url, False, "depth", "it is deeper than `max_depth`", evidence)
            if scope.seeded_urls_only:
                evidence = [f"found on {row.url}"]
                return Explanation(url, False, "scope", "only the seeds are fetched (`seeded_urls_only`)", evidence)
            return Explanation(url, False, "unknown", "it was found, and not queued", [f"on {row.url}"])
        return Explanation(url, False, "no-link", "no stored page links to it", [])

    def _unfollowed_redirect_to(self, url: str, searched: SearchProgress) -> Row | None:
        """The redirect that led to a URL and was not followed."""
        for number, row in enumerate(self._store.rows_of(self._crawl.number)):
            searched("rows", number)
            if row.final_url == url and row.url != url and row.error:
                return row
        return None

    def _pages_linking_to(self, url: str, searched: SearchProgress) -> Iterator[tuple[Row, str]]:
        """Stored pages that link to a URL, and why the link was not followed."""
        name = url[url.index("/", 8) :].rpartition("/")[2].partition("?")[0]
        needles = (name.encode(), name.encode("utf-16-le"))  # bytes that a page with such a link almost always has
        stored = (row for row in self._store.rows_of(self._crawl.number) if row.warc_file)
        for number, row in enumerate(stored):
            searched("pages", number)
            try:
                page = read_page(self._store.read_page(row)) if 200 <= row.status < 300 else None
            except UnreadableData:
                continue
            if page is None or (name.isalnum() and not any(needle in page.body for needle in needles)):
                continue
            tags = [value for name, value in page.headers if name.lower() == "x-robots-tag"]
            why = "nofollow of the page" if page.page.nofollow or robots_tag(tags, self._user_agent)[1] else ""
            for link in page.page.links:
                try:
                    target = self._rules.rewritten(urls.join(page.page.base, link.href, page.page.charset or "utf-8"))
                except BadUrl:
                    continue
                if target == url:
                    yield row, why or ("rel=nofollow" if "nofollow" in link.rel else "")


def _outcome_of_row(row: Row) -> str:
    """How a request has ended, in a few words."""
    return ", ".join(filter(None, [f"HTTP {row.status}" if row.status else "", row.error]))
