"""What is done with each result: pages are parsed and stored, redirects followed, failures tried again or recorded.

Every item that was admitted ends here in exactly one row (sitemaps and robots.txt, which are no pages, in none).
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable

import msgspec

from weft import urls
from weft.config import FetchSection, PolitenessSection
from weft.engine import robots as robots_txt
from weft.engine.crawls import RunningCrawl
from weft.engine.metrics import EngineMetrics
from weft.engine.revisits import is_unchanged
from weft.engine.robots import RobotsBook
from weft.engine.suspects import Suspects
from weft.engine.verdict import REDIRECTS, Kind, backoff_s, error_kind, kind_of, site_health
from weft.errors import BadUrl
from weft.extract.kind import Kind as PageKind
from weft.extract.page import Page, extract
from weft.extract.robots_meta import robots_tag
from weft.fetch import sitemaps
from weft.fetch.decode import decode
from weft.fetch.headers import Head
from weft.frontier.contract import Admission, End, Ended, Frontier, Item, Outcome, Rejection
from weft.records import FetchResult, Found, Lease, Purpose, Reason, Row
from weft.store.pages import PageStore

SITEMAP_NESTING = 4
# Why a stored body is not whole, in WARC's words.
TRUNCATED = {"truncated": "disconnect", "protocol": "disconnect", "reset": "disconnect", "timeout": "time"}


class _Leads:
    """What an answer leads to: links, or where it redirects."""

    __slots__ = ("links", "redirect", "unkept")

    def __init__(self, links: list[str], redirect: str = "") -> None:
        self.links = links
        self.redirect = redirect
        self.unkept = False  # the answer is not in the store


class Results:
    """Turns results into rows, links and outcomes."""

    def __init__(
        self,
        frontier: Frontier,
        store: PageStore,
        crawls: dict[int, RunningCrawl],
        book: RobotsBook,
        suspects: Suspects,
        politeness: PolitenessSection,
        fetch: FetchSection,
        metrics: EngineMetrics,
        *,
        wall: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._frontier = frontier
        self._store = store
        self._crawls = crawls
        self._book = book
        self._suspects = suspects
        self._politeness = politeness
        self._fetch = fetch
        self._metrics = metrics
        self._wall = wall
        self._chance = chance
        self._leads: dict[int, _Leads] = {}  # by item, where a depth limit may want them again
        # A test may name a mark in a page at which parsing kills the process.
        self._deadly = os.environ.get("WEFT_TEST_DEADLY_MARK", "").encode()

    def take(self, lease: Lease, result: FetchResult) -> None:
        """One transfer has ended."""
        crawl = self._crawls[lease.crawl]
        crawl.progress.status.requests += 1
        self._metrics.fetch_s.observe(result.ended - result.started)
        kind = kind_of(result)
        head = Head(result.head)
        slow = kind is Kind.SLOW_DOWN
        wait_s = head.retry_after_s(self._wall()) if slow else None
        outcome = result.error or str(result.status)
        self._frontier.cool([Ended(lease, result.ended, site_health(result), slow, wait_s, outcome)])
        if crawl.jar is not None and result.status:
            crawl.keep_cookies(lease.url, head.set_cookies, self._wall())
        before = crawl.revisits.known(lease) if crawl.revisits is not None else None
        if kind is Kind.AGAIN:
            self._finish(lease, End.RELEASE)
        elif before is not None and is_unchanged(before, result):
            self._record_unchanged(crawl, lease, result, before)
        elif lease.purpose is Purpose.ROBOTS:
            self._take_robots(crawl, lease, result, head, kind)
        elif lease.purpose is Purpose.SITEMAP:
            self._take_sitemap(crawl, lease, result, head, kind)
        elif kind is Kind.PAGE:
            self._take_page(crawl, lease, result, head)
        elif kind is Kind.REDIRECT and head.location is not None:
            self._take_redirect(crawl, lease, result, head)
        elif kind in (Kind.RETRY, Kind.SLOW_DOWN):
            self._take_failure(crawl, lease, result, head, wait_s)
        elif result.status == 401 and crawl.answers(
            lease, head.get_all("www-authenticate"), sent=b"\r\nAuthorization: " in result.request_head
        ):
            self._finish(lease, End.RETRY)
        elif result.error == "too_large":
            self._record(crawl, lease, None, head, error=result.error, facts=result)
        else:
            self._record(crawl, lease, result, head, error=result.error or "")

    def refuse(self, lease: Lease, reason: Reason, detail: str = "") -> None:
        """Ends a lease for which no request was made."""
        crawl = self._crawls[lease.crawl]
        crawl.progress.refused[reason] += 1
        if lease.purpose is not Purpose.PAGE:
            self._finish(lease, End.OTHER)
            return
        self._add_refusal(lease, lease.crawl, f"{reason}: {detail}" if detail else str(reason))
        self._finish(lease, End.OTHER, batch=self._store.batch + 1)

    def reject(self, rejection: Rejection) -> None:
        """Records an item that the frontier took out of its queue."""
        self._crawls[rejection.crawl].progress.refused[rejection.reason] += 1
        if rejection.item.purpose is Purpose.PAGE:
            self._add_refusal(rejection.item, rejection.crawl, str(rejection.reason))

    # ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_page(self, crawl: RunningCrawl, lease: Lease, result: FetchResult, head: Head) -> None:
        encoding = head.content_encoding
        body, error = result.body, "wrong_length" if result.surplus else ""
        if encoding:
            decoded = decode(body, encoding, self._fetch.max_body_bytes)
            if decoded.truncated and decoded.error is None:
                self._record(crawl, lease, None, head, error="too_large", facts=result)
                return
            body, error = decoded.body, "decode" if decoded.error else error
        content_type = head.get("content-type")
        page = self._parse(lease, body, content_type)
        if page is None:
            crawl.progress.status.poisoned.append(lease.url)
            self._record(crawl, lease, result, head, error="parse_crash")
            return
        noindex, nofollow = page.noindex, page.nofollow
        if tags := head.get_all("x-robots-tag"):
            by_header = robots_tag(tags, self._book.agent)
            noindex, nofollow = noindex or by_header[0], nofollow or by_header[1]
        if page.title is not None and lease.depth:
            crawl.rules.sameness.observe(lease.url, page.title, len(page.hrefs), lambda: _words(page))
        if page.hrefs and not nofollow:
            self._follow(crawl, lease, page)
        if noindex:
            if lease.item in self._leads:
                self._leads[lease.item].unkept = True
            self._record(crawl, lease, None, head, error="noindex", facts=result)
        else:
            self._record(crawl, lease, result, head, error=error, page=page)

    def _parse(self, lease: Lease, body: bytes, content_type: str | None) -> Page | None:
        """The page, or None if parsing it has killed this process before."""
        if self._suspects.is_poison(lease.item):
            return None
        self._suspects.parsing(lease.item)
        if self._deadly and self._deadly in body:
            os.abort()
        began = time.perf_counter()
        page = extract(body, lease.url, content_type)
        if self._store.keeps_text:
            _ = page.text  # computed here, where a crash is known to be this page's
        self._metrics.parse_s.observe(time.perf_counter() - began)
        self._suspects.parsed()
        return page

    def _follow(self, crawl: RunningCrawl, lease: Lease, page: Page) -> None:
        refused = crawl.progress.refused

        def count(_href: str, reason: str) -> None:
            refused[reason] += 1

        links = urls.join_all(page.base, page.hrefs, page.charset or "utf-8", count)
        if crawl.scope.max_depth is None:
            crawl.admit_links(lease, links)
            return
        self._leads[lease.item] = _Leads(links)
        # It may have been found by a shorter way while it was in flight.
        near = msgspec.structs.replace(lease, depth=self._frontier.depth_of(lease))
        self._expand(crawl, near, crawl.admit_links(near, links))

    def _expand(self, crawl: RunningCrawl, lease: Lease, admission: Reason | Admission | None) -> None:
        """Lets in once more what pages lead to that were fetched at a greater depth and turned out to be nearer."""
        waiting = list(admission.expand) if isinstance(admission, Admission) else []
        while waiting:
            item, url, depth = waiting.pop()
            near = msgspec.structs.replace(lease, item=item, url=url, depth=depth, hops=0, about="", offsite=0)
            leads = self._leads.get(item) or self._stored_leads(url)
            again = (
                crawl.admit_redirect(near, leads.redirect) if leads.redirect else crawl.admit_links(near, leads.links)
            )
            waiting += again.expand if isinstance(again, Admission) else ()

    def _stored_leads(self, url: str) -> _Leads:
        """What a stored answer leads to."""
        stored = self._store.get(url)
        http = stored.http if stored is not None else None
        if stored is None or http is None:
            return _Leads([])
        if stored.row.status in REDIRECTS:
            return _Leads([], stored.row.final_url)
        if not 200 <= stored.row.status < 300:
            return _Leads([])
        encoding = http.content_encoding
        body = decode(http.body, encoding, self._fetch.max_body_bytes).body if encoding else http.body
        page = extract(body, url, http.get("content-type"))
        tags = [value for name, value in http.headers if name.lower() == "x-robots-tag"]
        if robots_tag(tags, self._book.agent)[1]:
            return _Leads([])
        return _Leads(urls.join_all(page.base, page.hrefs, page.charset or "utf-8"))

    def committed(self) -> None:
        """What was taken so far is in the store, and can be read there; what is not kept stays in memory."""
        if self._leads:
            self._leads = {item: leads for item, leads in self._leads.items() if leads.unkept}

    def _take_redirect(self, crawl: RunningCrawl, lease: Lease, result: FetchResult, head: Head) -> None:
        crawl.progress.status.redirects += 1
        try:
            target = urls.join(lease.url, head.location or "")
        except BadUrl as bad:
            crawl.progress.refused[bad.reason] += 1
            self._record(crawl, lease, result, head, error=f"redirect to {bad.reason}")
            return
        if lease.hops >= self._fetch.max_redirects:
            self._record(crawl, lease, result, head, error="too_many_redirects", final_url=target)
            return
        near = lease
        if crawl.scope.max_depth is not None:
            self._leads[lease.item] = _Leads([], target)
            near = msgspec.structs.replace(lease, depth=self._frontier.depth_of(lease))
        admitted = crawl.admit_redirect(near, target)
        self._expand(crawl, near, admitted)
        error = f"redirect to {admitted}" if isinstance(admitted, Reason) else ""
        self._record(crawl, lease, result, head, error=error, final_url=target)

    def _take_failure(
        self, crawl: RunningCrawl, lease: Lease, result: FetchResult, head: Head, retry_after_s: float | None
    ) -> None:
        too_long = (retry_after_s or 0.0) > self._politeness.max_retry_after_s
        if lease.attempt < self._politeness.max_retries and not too_long:
            crawl.progress.status.retries += 1
            wait_s = backoff_s(self._politeness.retry_backoff_s, lease.attempt, self._chance())
            self._finish(lease, End.RETRY, max(wait_s, retry_after_s or 0.0))
            return
        self._record(crawl, lease, result, head, error=result.error or (str(Reason.RETRY_AFTER) if too_long else ""))

    # ── robots.txt and sitemaps ────────────────────────────────────────────────────────────────────────────────────

    def _take_robots(self, crawl: RunningCrawl, lease: Lease, result: FetchResult, head: Head, kind: Kind) -> None:
        origin = lease.about
        if kind is Kind.REDIRECT and head.location is not None and lease.hops < robots_txt.MAX_HOPS:
            try:
                target = urls.join(lease.url, head.location)
            except BadUrl:
                pass
            else:
                self._finish(lease, End.OTHER)
                hop = Found(target, lease.depth, lease.parent, lease.hops + 1, Purpose.ROBOTS, origin)
                self._frontier.admit(crawl.number, [hop])
                return
        record = robots_txt.record_of(result, self._wall(), self._politeness.robots_ttl_s)
        if record is None and lease.attempt + 1 < robots_txt.TRIES:
            wait_s = backoff_s(self._politeness.retry_backoff_s, lease.attempt, self._chance())
            self._finish(lease, End.RETRY, max(wait_s, head.retry_after_s(self._wall()) or 0.0))
            return
        self._finish(lease, End.OTHER)
        self._book.learn(origin, record or robots_txt.unreachable(result, self._wall()))

    def _take_sitemap(self, crawl: RunningCrawl, lease: Lease, result: FetchResult, head: Head, kind: Kind) -> None:
        if kind in (Kind.RETRY, Kind.SLOW_DOWN) and lease.attempt < self._politeness.max_retries:
            self._finish(lease, End.RETRY, backoff_s(self._politeness.retry_backoff_s, lease.attempt, self._chance()))
            return
        self._finish(lease, End.OTHER)
        nested: list[str] = []
        if kind is Kind.REDIRECT and head.location:
            nested = [head.location]
        elif kind is Kind.PAGE:
            encoding = head.content_encoding
            body = decode(result.body, encoding, sitemaps.MAX_BYTES).body if encoding else result.body
            listed = sitemaps.parse(body)
            crawl.admit_listed(lease, urls.join_all(lease.url, [url for url, _ in listed.urls]))
            nested = listed.sitemaps
        if lease.hops < SITEMAP_NESTING:
            for url in urls.join_all(lease.url, nested):
                if crawl.rules.refusal(url, lease.depth, is_link=False, included=True) is None:
                    deeper = Found(url, lease.depth, 0, lease.hops + 1, Purpose.SITEMAP, lease.about)
                    self._frontier.admit(crawl.number, [deeper])

    # ── ends ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _record(
        self,
        crawl: RunningCrawl,
        lease: Lease,
        result: FetchResult | None,
        head: Head,
        *,
        error: str,
        page: Page | None = None,
        final_url: str = "",
        facts: FetchResult | None = None,
    ) -> None:
        """The item's one row; `result` is stored with it, `facts` only counted."""
        seen = result or facts
        assert seen is not None
        status = seen.status
        is_page = result is not None and 200 <= status < 300
        progress = crawl.progress
        progress.statuses[str(status)] += 1
        if is_page:
            progress.page(lease.url, len(seen.body))
        if failure := error or error_kind(seen):
            progress.errors[failure] += 1
        row = Row(
            lease.item, lease.crawl, lease.url, final_url or lease.url, status, self._asked_at(seen),
            head.content_type()[0], (page.charset if page else "") or "", "", (page.title if page else "") or "",
            lease.depth, lease.parent, "", len(seen.body), error or (seen.error or ""), lease.hops,
        )  # fmt: skip
        truncated = "unspecified" if seen.surplus else TRUNCATED.get(seen.error or "")
        readable = page is not None and page.kind is not PageKind.OTHER and self._store.keeps_text
        self._store.add(row, result, truncated=truncated, text=page.text if page is not None and readable else None)
        self._finish(lease, End.PAGE if is_page else End.OTHER, batch=self._store.batch + 1)

    def _asked_at(self, result: FetchResult) -> float:
        """The time of day when a request was made."""
        return self._wall() - (result.ended - result.started)

    def _record_unchanged(self, crawl: RunningCrawl, lease: Lease, result: FetchResult, before: Row) -> None:
        """A visit that found the page as it was: a row of its own, that refers to the stored copy."""
        crawl.progress.statuses["304"] += 1
        row = msgspec.structs.replace(
            before, item=lease.item, status=304, fetched_at=self._asked_at(result), depth=lease.depth,
            parent=lease.parent, hops=lease.hops, error="", warc_file="", warc_offset=0, warc_length=0,
        )  # fmt: skip
        self._store.add_revisit(row, result, of_date=before.fetched_at, not_modified=result.status == 304)
        self._finish(lease, End.OTHER, batch=self._store.batch + 1)

    def _add_refusal(self, item: Item | Lease, crawl: int, error: str) -> None:
        row = Row(
            item.item, crawl, item.url, item.url, 0, self._wall(), "", "", "", "",
            item.depth, item.parent, "", 0, error, item.hops,
        )  # fmt: skip
        self._store.add(row, None)

    def _finish(self, lease: Lease, end: End, wait_s: float = 0.0, batch: int = 0) -> None:
        self._frontier.finish([Outcome(lease, end, wait_s)], batch)


def _words(page: Page) -> frozenset[str]:
    """The words of a page, numbers left out: what tells it from its neighbours."""
    return frozenset(word for word in page.text.split()[:2000] if not any(char.isdigit() for char in word))
