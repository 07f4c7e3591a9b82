"""Calls the user's code again for stored pages: for links that a frontier has lost, and for `weft extract`."""

from __future__ import annotations

from functools import partial

from weft import urls
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.verdict import REDIRECTS
from weft.engine.parsing.parsers import Parsers, PendingPage
from weft.engine.stored.stored_page import read_page
from weft.engine.user_code import calls
from weft.engine.user_code.calls import Call, CallResult, RequestSpec, decode_output, decode_result, encode, encode_spec
from weft.errors import BadUrl, Unparsed
from weft.frontier.contract import QueuePart
from weft.records import Lease, Purpose, Reason, Row, RowOutput
from weft.store.pages import PageStore


def spec_in_output(output: RowOutput | None) -> RequestSpec:
    """The request of a stored page beyond its URL, without its body."""
    spec = decode_output(output.data).request if output is not None else None
    return spec if spec is not None else RequestSpec()


def call_again(parsers: Parsers, store: PageStore, row: Row, output: RowOutput | None) -> PendingPage | None:
    """Sends a stored page to a child with the user's code; None if its bytes cannot be read."""
    page = read_page(store.read_page(row))
    if page is None:
        return None
    head = f"HTTP/1.1 {row.status} \r\n" + "".join(f"{name}: {value}\r\n" for name, value in page.headers)
    kind = calls.PAGE if 200 <= row.status < 300 else calls.FAILURE
    call = Call(kind, spec_in_output(output), row.url, (), row.status, head.encode(), row.depth, row.fetched_at)
    if page.rendered:
        call.is_rendered, call.original, call.screenshot = True, page.body, page.screenshot
    message = encode(call)
    return parsers.submit(page.readable, row.url, page.readable_type, ("called",), call=message)


def result_of(parsers: Parsers, pending: PendingPage) -> CallResult:
    """The result of the call; an error if the code, or the parser, has failed."""
    try:
        page = parsers.result(pending)
    except Unparsed as error:
        return CallResult(error=str(error))
    if pending.code_error:
        return CallResult(error=pending.code_error, traceback=pending.code_output)
    return decode_result(page.called)


def queue_requests_again(crawl: RunningCrawl, queue: QueuePart, parsers: Parsers, store: PageStore, row: Row) -> None:
    """Queues the unknown requests of a stored page, whose callback is called once more."""
    assert crawl.spider is not None
    output = store.outputs_of([row.item]).get(row.item)
    lease = lease_of(row, spec_in_output(output))
    if row.status in REDIRECTS and spec_in_output(output).redirects:
        _queue_redirect_again(crawl, queue, lease, row)
        return
    if not (200 <= row.status < 300 or crawl.spider.description.hears_failures):
        return
    if (pending := call_again(parsers, store, row, output)) is None:
        return
    made = result_of(parsers, pending).requests
    queue.admit(
        crawl.number, crawl.spider.requests_of_page(lease, made, partial(crawl.refused_request, parent=row.item))
    )


def has_come_again(store: PageStore, row: Row, output: RowOutput | None) -> bool:
    """Whether a later page belongs to the same request: one that was read again, or visited again. Requests that are
    repeated on purpose differ in parent, callback or meta.
    """
    later = [
        one
        for one in store.rows_of_url(row.url, row.crawl)
        if one.item > row.item and one.request == row.request and one.parent == row.parent
        if _is_page_row(one) or (bool(one.warc_file) and one.status == row.status)
    ]
    outputs, spec = store.outputs_of([one.item for one in later]), spec_in_output(output)
    return any(spec_in_output(outputs.get(one.item)) == spec for one in later)


def _is_page_row(row: Row) -> bool:
    return 200 <= row.status < 300 and bool(row.warc_file)


def lease_of(row: Row, spec: RequestSpec) -> Lease:
    """A lease for a stored page, as if it were in flight."""
    return Lease(
        row.item, row.crawl, row.url, "", row.depth, row.parent, row.hops, Purpose.PAGE, row.url, 0, 0, "", 0, 0.0, 0.0,
        encode_spec(spec),
    )  # fmt: skip


def _queue_redirect_again(crawl: RunningCrawl, queue: QueuePart, lease: Lease, row: Row) -> None:
    assert crawl.spider is not None
    try:
        found = crawl.judge_redirect(lease, urls.canonical(row.final_url))
    except BadUrl:
        return
    if (
        not isinstance(found, Reason)
        and (target := crawl.spider.redirect_request(lease, row.status, found)) is not None
    ):
        queue.admit(crawl.number, [target])
