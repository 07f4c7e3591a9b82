"""Processes each answer that must be read: the parser's half.

Pages, redirects and sitemaps become rows and links. Every page that was admitted ends here or in the fetcher's half, in
exactly one row; a sitemap, which is not a page, has none.

Pages are parsed here, or by parser children: then `handle` sends them, and `finish` continues with those that were
returned. Until then their leases last, and after a kill of this process they are fetched again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from msgspec import UnsetType

from weft import urls
from weft.bodies import Body, FileBody, first_of
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.login.pages import matches_selector as has_match
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.fetcher.verdict import VerdictKind
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.discovered_links import DiscoveredLinks
from weft.engine.loop.parser.suspects import Suspects
from weft.engine.loop.round import Round
from weft.engine.loop.rows import RowMaker
from weft.engine.loop.stop import CALLBACK_ERROR
from weft.engine.parsing.extracted import Extracted
from weft.engine.parsing.parser_child import FaultMarks
from weft.engine.parsing.parsers import CRASH, POLL_EVERY_S, Parsers, PendingPage
from weft.engine.user_code import calls
from weft.engine.user_code.calls import CallResult
from weft.engine.user_code.running import DrawnPage
from weft.errors import BadUrl, Unparsed
from weft.extract.missing_content import is_shell, may_be_shell
from weft.extract.page import MAX_BYTES, ParsedPage, extract
from weft.extract.robots_meta import robots_tag
from weft.fetch import sitemaps
from weft.fetch.decode import DecodedBody, decode
from weft.fetch.decode_large import decode_file
from weft.frontier.contract import End
from weft.records import TOO_MANY_REDIRECTS, Lease, Purpose, Reason, RowOutput
from weft.telemetry import Log

SITEMAP_NESTING = 3  # sitemaps.org has one index above the files; one more, and a redirect, are put up with
MOST_PAGES_TOGETHER = 8  # answers that `take` should be given at a time, at least
MOST_LOGGED = 4000  # characters of what a user's code prints for one page
log = Log("weft.engine.loop.parser.parsing")
MOST_SENT, MOST_SENT_BYTES = 64, 8 << 20  # pages at parser children that are not returned yet


class _ReadPage(NamedTuple):
    """A page that was read, and the work left on it."""

    answer: EndedTransfer
    page: ParsedPage | Extracted
    error: str
    noindex: bool
    nofollow: bool
    fields: str
    call_result: CallResult | None = None  # the result of the user's code


class _PageAtChild(NamedTuple):
    """A page that is with a parser child."""

    answer: EndedTransfer
    error: str
    body_bytes: int


class _FailedRequest(NamedTuple):
    """A failure for which the user's code is called before it is recorded."""

    crawl: RunningCrawl
    lease: Lease
    record: Callable[[RowOutput, str], None]  # called with the error of the code, which counts if there is no other
    body_bytes: int = 0


Ended = Callable[[CallResult], None]


class Parsing:
    """Reads answers and makes their rows and links."""

    def __init__(
        self,
        round_: Round,
        rows: RowMaker,
        discovered_links: DiscoveredLinks,
        suspects: Suspects,
        metrics: EngineMetrics,
        *,
        parsers: Parsers,
        sends_all: bool,
        keeps_text: bool = False,
    ) -> None:
        """`parsers`: parser children that parse pages for this process; unless it `sends_all`, only those of crawls
        with rules, which may take any time.
        """
        self._round = round_
        self._rows = rows
        self._discovered_links = discovered_links
        self._suspects = suspects
        self._metrics = metrics
        self._keeps_text = keeps_text
        self._fault_marks = FaultMarks()
        self._parsers = parsers
        self._sends_all = sends_all
        self._pages_at_children: dict[int, _PageAtChild | _FailedRequest] = {}  # by request number
        self._calls: dict[int, Ended] = {}  # of the user's code, without a page
        self._sent_bytes = 0
        self._returned: list[PendingPage] = []
        parsers.on_done = self._returned.append

    def handle(self, answers: Iterable[EndedTransfer]) -> None:
        """Pages, redirects, and any answers for sitemaps.

        All pages are parsed, then the links of all are followed, then all are stored: one step for several pages finds
        its code and data in the processor's caches, which is faster than all steps for each page in turn (6 % of a page
        with eight, 4 % more with 32).
        """
        pages = list[_ReadPage]()
        for answer in answers:
            if answer.lease.purpose is Purpose.SITEMAP:
                self._handle_sitemap(answer)
            elif answer.kind is not VerdictKind.PAGE:
                self._handle_redirect(answer)
            elif (read := self._read_page(answer)) is not None:
                pages.append(read)
        self._finish_pages(pages)

    def _finish_pages(self, pages: list[_ReadPage]) -> None:
        for read in pages:
            if read.page.hrefs and not read.nofollow and read.answer.crawl.follows_links:
                self._follow_links(read.answer, read.page)
            if read.call_result is not None:
                self._queue_requests(read.answer.crawl, read.answer.lease, read.call_result)
        for read in pages:
            self._record_page(read)

    def parse_here(self, answer: EndedTransfer) -> ParsedPage | None:
        """The page of an answer, parsed here; None if its body cannot be decoded."""
        decoded = _decode_body(answer.result.body, answer.head.content_encoding, answer.crawl.fetch.max_body_bytes)
        if decoded.error or (decoded.truncated and not decoded.body):
            return None
        return extract(decoded.body, answer.lease.url, answer.head.get("content-type"), references=False)

    def has_match(self, answer: EndedTransfer, css: str) -> bool:
        """Whether an element of a page matches the selector. The page is guarded like any other: parsing it may kill
        the process.
        """
        item = answer.lease.item
        if self._suspects.is_poison(item):
            return False
        self._suspects.mark_parsing(item)
        page = self.parse_here(answer)
        matches = page is not None and has_match(page, css)
        self._suspects.clear_mark()
        return matches

    # ── parser children ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def sent(self) -> int:
        """The number of pages that are at parser children, or returned and not finished."""
        return len(self._pages_at_children)

    @property
    def has_room(self) -> bool:
        """Whether `handle` may be called; always True if pages are parsed here."""
        return len(self._pages_at_children) < MOST_SENT and self._sent_bytes < MOST_SENT_BYTES

    @property
    def has_returned(self) -> bool:
        """Whether `finish` has something to do."""
        return bool(self._returned)

    def fileno(self) -> int:
        """Readable when `poll` has something to do."""
        return self._parsers.fileno()

    def poll(self) -> None:
        """Sends and receives what can be; also called periodically, so that a page that takes too long is noticed."""
        if self._pages_at_children or self._calls:
            self._parsers.turn()

    def finish_returned(self) -> None:
        """Continues with the pages that parser children have returned."""
        came, pages = self._returned.copy(), list[_ReadPage]()
        self._returned.clear()
        for pending in came:
            if (ended := self._calls.pop(pending.position, None)) is not None:
                ended(_result_of(pending))
                continue
            sent = self._pages_at_children.pop(pending.position, None)
            if sent is None:
                continue  # its crawl has been dropped
            self._sent_bytes -= sent.body_bytes
            if isinstance(sent, _FailedRequest):
                self._end_failure(sent, _result_of(pending))
            elif pending.page is None:
                kind = pending.error.kind if isinstance(pending.error, Unparsed) else CRASH
                self._end_unparsed(sent.answer, kind)
            else:
                self._metrics.parse_s.observe(pending.spent_s)
                fields = pending.page.asked.fields
                known = "" if isinstance(fields, UnsetType) else fields
                called = self._call_result_of(sent.answer, pending) if sent.answer.crawl.spider is not None else None
                pages.append(self._judge_page(sent.answer, pending.page, sent.error, known, called))
        self._finish_pages(pages)

    def finish_all(self, alive: Callable[[], None]) -> None:
        """Waits for the pages at parser children, and finishes them."""
        while self._pages_at_children:
            alive()
            self._parsers.turn(POLL_EVERY_S)
            self.finish_returned()

    def wait(self) -> None:
        """Waits until a page is returned, or a moment has passed; finishes it."""
        self._parsers.turn(POLL_EVERY_S)
        self.finish_returned()

    def drop_crawl(self, crawl: int) -> list[Lease]:
        """Forgets the pages of a crawl that are at parser children; returns their leases."""
        dropped = {number: sent for number, sent in self._pages_at_children.items() if _lease_of(sent).crawl == crawl}
        for number, sent in dropped.items():
            del self._pages_at_children[number]
            self._sent_bytes -= sent.body_bytes
        return [_lease_of(sent) for sent in dropped.values()]

    def close(self) -> None:
        """Ends the parser children."""
        self._parsers.close()

    def _send_to_child(
        self, answer: EndedTransfer, body: bytes, content_type: str | None, error: str, drawn: DrawnPage | None
    ) -> None:
        lease = answer.lease
        needs_text = self._keeps_text or answer.crawl.rules.sameness.may_compare(lease.url)
        wanted, rules = (("hrefs", "text") if needs_text else ("hrefs",)), b""
        if answer.crawl.extraction is not None:
            wanted, rules = (*wanted, "fields"), answer.crawl.extraction.encoded
        call, result = b"", answer.result
        if answer.crawl.spider is not None:
            wanted = (*wanted, "called")
            call = answer.crawl.spider.call(
                calls.PAGE, lease, result.status, result.head, answer.asked_at, drawn=drawn, address=result.ip
            )
        pending = self._parsers.submit(body, lease.url, content_type, wanted, rules=rules, call=call)
        self._pages_at_children[pending.position] = _PageAtChild(answer, error, len(body))
        self._sent_bytes += len(body)

    # ── the user's code ────────────────────────────────────────────────────────────────────────────────────────────

    def call_code(self, message: bytes, ended: Ended) -> None:
        """Calls the user's code without a page; `ended` gets the result in `finish`."""
        pending = self._parsers.submit(b"", "", None, (), call=message)
        self._calls[pending.position] = ended

    def fail_request(self, answer: EndedTransfer, error: str, *, stored: bool) -> None:
        """Calls the user's code for a failed request, with or without an answer, and then records the failure."""
        spider, result, lease = answer.crawl.spider, answer.result, answer.lease
        assert spider is not None
        body = _decode_body(result.body, answer.head.content_encoding, answer.crawl.fetch.max_body_bytes).body
        name = error or result.error or ""
        message = spider.call(
            calls.FAILURE, lease, result.status, result.head, answer.asked_at, name, result.detail, address=result.ip
        )
        pending = self._parsers.submit(body, lease.url, answer.head.get("content-type"), ("called",), call=message)

        def record(output: RowOutput, failed: str) -> None:
            why = f"{name}: {failed}" if name and failed else name or failed
            self._rows.make_row(answer, error=why, stored=stored, output=output)

        self._pages_at_children[pending.position] = _FailedRequest(answer.crawl, lease, record, len(body))
        self._sent_bytes += len(body)

    def refuse_request(
        self, crawl: RunningCrawl, lease: Lease, reason: Reason, detail: str, ended: Callable[[], None]
    ) -> None:
        """Calls the user's code for a URL that was refused before the request, and then records it; `ended` ends its
        lease.
        """
        spider = crawl.spider
        assert spider is not None
        message = spider.call(calls.FAILURE, lease, 0, b"", time.time(), str(reason), detail)
        pending = self._parsers.submit(b"", lease.url, None, ("called",), call=message)

        def record(output: RowOutput, failed: str) -> None:
            request, why = spider.request_of(lease), "; ".join(filter(None, (detail, failed)))
            self._rows.make_refused_row(lease, lease.crawl, reason, why, request=request, output=output)
            ended()

        self._pages_at_children[pending.position] = _FailedRequest(crawl, lease, record)

    def _end_failure(self, failure: _FailedRequest, result: CallResult) -> None:
        spider = failure.crawl.spider
        assert spider is not None
        self._handle_result(failure.crawl, failure.lease, result)
        self._queue_requests(failure.crawl, failure.lease, result)
        failed = f"{CALLBACK_ERROR}: {result.error}" if result.error else ""
        failure.record(spider.output_for_row(failure.lease, result), failed)

    def _call_result_of(self, answer: EndedTransfer, pending: PendingPage) -> CallResult:
        result = _result_of(pending)
        self._handle_result(answer.crawl, answer.lease, result)
        return result

    def _handle_result(self, crawl: RunningCrawl, lease: Lease, result: CallResult) -> None:
        """Applies the state and output of a call, and counts its failure."""
        assert crawl.spider is not None
        crawl.spider.keep_state(result)
        crawl.progress.status.items += len(result.items)
        crawl.progress.status.stop = crawl.progress.status.stop or result.stop
        if result.printed:
            log.info("printed", url=lease.url, text=result.printed[:MOST_LOGGED])
        if result.error:
            log.warning("the callback failed", url=lease.url, error=result.error)

    def _queue_requests(self, crawl: RunningCrawl, lease: Lease, result: CallResult) -> None:
        """Queues the requests of a call."""
        assert crawl.spider is not None
        if result.requests:
            refuse = partial(crawl.refused_request, parent=lease.item)
            self._round.add_urls(crawl, crawl.spider.requests_of_page(lease, result.requests, refuse))

    # ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_page(self, answer: EndedTransfer) -> _ReadPage | None:
        """The page, without its tree; None if it has ended here, or was sent to a parser child."""
        crawl, lease, head = answer.crawl, answer.lease, answer.head
        most = MAX_BYTES + 1 if crawl.spider is None else crawl.fetch.max_body_bytes  # the user's code has all of it
        decoded = _decode_body(answer.result.body, head.content_encoding, crawl.fetch.max_body_bytes, most)
        if decoded.truncated and decoded.error is None:
            self._rows.make_row(answer, error="too_large", stored=False)
            return None
        body, error = decoded.body, "wrong_length" if answer.result.surplus else ""
        error = "decode" if decoded.error else error
        content_type, rendered = head.get("content-type"), answer.result.rendered
        drawn: DrawnPage | None = None
        if rendered is not None and rendered.error:
            error = f"render_{rendered.error}: {rendered.detail}"
        elif rendered is not None:
            drawn = DrawnPage(body, rendered.screenshot or next(iter(rendered.pictures), b""))
            body, content_type = rendered.html, "text/html; charset=utf-8"
        elif crawl.spider is not None and (why := crawl.not_rendered(lease)):
            error = f"render_browser: {why}"
        if self._suspects.is_poison(lease.item):
            self._end_unparsed(answer, CRASH)
            return None
        if self._sends_all or crawl.extraction is not None or crawl.spider is not None:
            self._send_to_child(answer, body, content_type, error, drawn)
            return None
        return self._judge_page(answer, self._parse_body(lease, body, content_type), error, "")

    def _end_unparsed(self, answer: EndedTransfer, kind: str) -> None:
        answer.crawl.progress.status.poisoned.append(answer.lease.url)
        self._rows.make_row(answer, error=kind)

    def _judge_page(
        self,
        answer: EndedTransfer,
        page: ParsedPage | Extracted,
        error: str,
        fields: str,
        called: CallResult | None = None,
    ) -> _ReadPage:
        """Decides the work left on a parsed page."""
        crawl, lease, head = answer.crawl, answer.lease, answer.head
        noindex, nofollow = page.noindex, page.nofollow
        if answer.result.rendered is not None:
            page.hrefs.extend(answer.result.rendered.leads_to)
            is_drawn = not answer.result.rendered.error
            crawl.progress.status.shells += crawl.shells is not None
            if crawl.shells is not None and is_drawn:
                crawl.shells.record_rendering(lease.url, gained=bool(page.hrefs) or not _is_still_shell(page))
        elif page.is_shell if isinstance(page, Extracted) else may_be_shell(page):
            crawl.progress.status.shells += 1
        if tags := head.get_all("x-robots-tag"):
            by_header = robots_tag(tags, crawl.agent)
            noindex, nofollow = noindex or by_header[0], nofollow or by_header[1]
        if page.title is not None and lease.depth:
            crawl.rules.sameness.observe(lease.url, page.title, len(page.hrefs), lease.depth, lambda: _words_of(page))
        if isinstance(page, ParsedPage):
            page.let_go()
        return _ReadPage(answer, page, error, noindex, nofollow, fields, called)

    def _record_page(self, read: _ReadPage) -> None:
        spider, error, output = read.answer.crawl.spider, read.error, None
        if spider is not None and read.call_result is not None:
            output = spider.output_for_row(read.answer.lease, read.call_result)
            if read.call_result.error:
                error = f"{CALLBACK_ERROR}: {read.call_result.error}"
        if read.noindex:
            self._discovered_links.keep_in_memory(read.answer.lease.item)
            self._rows.make_row(read.answer, error="noindex", stored=False, output=output)
        else:
            self._rows.make_row(read.answer, error=error, page=read.page, fields=read.fields, output=output)

    def _parse_body(self, lease: Lease, body: bytes, content_type: str | None) -> ParsedPage:
        self._suspects.mark_parsing(lease.item)
        self._fault_marks.trigger_fault(body)
        began = time.perf_counter()
        page = extract(body, lease.url, content_type)
        if self._keeps_text:
            _ = page.text  # computed here, where a crash is attributed to this page
        self._metrics.parse_s.observe(time.perf_counter() - began)
        self._suspects.clear_mark()
        return page

    def _follow_links(self, answer: EndedTransfer, page: ParsedPage | Extracted) -> None:
        crawl, lease = answer.crawl, answer.lease
        refused = crawl.progress.refused

        def count(_href: str, reason: str) -> None:
            refused[reason] += 1

        if not crawl.rules.in_scope(lease.url):
            crawl.learn_scope()
        hrefs = page.hrefs
        if crawl.recent_links is not None and page.charset == "utf-8":  # of others the query's bytes depend on the page
            hrefs = crawl.recent_links.select_unseen_links(page.base, hrefs)
        links = crawl.rules.candidates(page.base, hrefs, page.charset, count)
        near = self._discovered_links.record_links(lease, links) if crawl.finds_depth else lease
        self._round.add_links(crawl, near, links)

    def _handle_redirect(self, answer: EndedTransfer) -> None:
        crawl, lease = answer.crawl, answer.lease
        if crawl.spider is not None and not crawl.spider.spec_of(lease).redirects:
            self.fail_request(answer, "", stored=True)
            return
        crawl.progress.status.redirects += 1
        try:
            target = urls.join(lease.url, answer.head.location or "")
        except BadUrl as bad:
            crawl.progress.refused[bad.reason] += 1
            self._rows.make_row(answer, error=f"redirect to {bad.reason}")
            return
        if lease.hops >= crawl.fetch.max_redirects:
            self._rows.make_row(answer, error=TOO_MANY_REDIRECTS, final_url=target)
            return
        near = self._discovered_links.record_links(lease, [], target) if crawl.finds_depth else lease
        found = crawl.judge_redirect(near, target)
        if isinstance(found, Reason):
            self._rows.make_row(answer, error=f"redirect to {found}", final_url=target)
            return
        if crawl.spider is not None:
            with_request = crawl.spider.redirect_request(lease, answer.result.status, found)
            if with_request is None:
                self._rows.make_row(answer, error="redirect of a body to another origin", final_url=target)
                return
            found = with_request
        self._round.add_urls(crawl, [found])
        self._rows.make_row(answer, error="", final_url=target)

    # ── sitemaps ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _handle_sitemap(self, answer: EndedTransfer) -> None:
        crawl, lease, head = answer.crawl, answer.lease, answer.head
        nested: list[str] = []
        if answer.kind is VerdictKind.REDIRECT and head.location:
            nested = [head.location]
        elif answer.kind is VerdictKind.PAGE:
            listed = self._parse_sitemap(answer)
            self._round.add_urls(
                crawl, crawl.admit_sitemap_entries(lease, urls.join_all(lease.url, [url for url, _ in listed.urls]))
            )
            nested = listed.sitemaps
        deeper = crawl.admit_nested_sitemaps(lease.depth, urls.join_all(lease.url, nested), lease.about, lease.hops + 1)
        if lease.hops < SITEMAP_NESTING:
            self._round.add_robots_and_sitemaps(crawl, deeper)
        else:
            crawl.refuse_as_too_many(deeper)
        self._round.end_lease(lease, End.OTHER)

    def _parse_sitemap(self, answer: EndedTransfer) -> sitemaps.Sitemap:
        """The parsed sitemap; an empty one if reading it has killed a process before."""
        item, encoding = answer.lease.item, answer.head.content_encoding
        body = first_of(answer.result.body, sitemaps.MAX_BYTES)
        if self._suspects.is_poison(item):
            return sitemaps.parse(b"")
        self._suspects.mark_parsing(item)
        listed = sitemaps.parse(decode(body, encoding, sitemaps.MAX_BYTES).body if encoding else body)
        self._suspects.clear_mark()
        return listed


def _is_still_shell(page: ParsedPage | Extracted) -> bool:
    """Whether a rendered page still has nothing to read."""
    return isinstance(page, ParsedPage) and is_shell(page)


def _lease_of(sent: _PageAtChild | _FailedRequest) -> Lease:
    return sent.lease if isinstance(sent, _FailedRequest) else sent.answer.lease


def _result_of(pending: PendingPage) -> CallResult:
    """The result of a call; an error if it was not answered."""
    if pending.page is not None and not isinstance(called := pending.page.asked.called, UnsetType):
        return calls.decode_result(called)
    error = pending.code_error or (str(pending.error).partition(": ")[2] if pending.error is not None else "no answer")
    return CallResult(error=error, traceback=pending.code_output)


def _decode_body(body: Body, encoding: str, limit: int, most: int = MAX_BYTES + 1) -> DecodedBody:
    """A body without its content codings; of one in a file, no more than is needed."""
    if isinstance(body, FileBody):
        return decode_file(body, encoding, limit, most)
    return decode(body, encoding, limit) if encoding else DecodedBody(body)


def _words_of(page: ParsedPage | Extracted) -> frozenset[str]:
    """The words of a page without numbers: they distinguish it from similar pages.

    Empty for a page that was sent to a parser child before similar pages were known: it resembles none of them.
    """
    if isinstance(page, Extracted) and isinstance(page.asked.text, UnsetType):
        return frozenset()
    return frozenset(word for word in page.text.split()[:2000] if not any(char.isdigit() for char in word))
