"""`weft.try_spider(Spider, pages={url: html})`: runs a spider without a network, for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from weft import urls
from weft.engine.user_code.calls import DEFAULT_CALLBACK
from weft.engine.user_code.page import Page
from weft.engine.user_code.request import Request
from weft.errors import BadInput, BadUrl
from weft.spiders.child import encode_item, is_async, is_item
from weft.spiders.loading import check_start
from weft.spiders.spider import Spider

MOST_PAGES = 10_000


class Tried:
    """What a spider has made of the pages it was given.

    `items` are as they would be kept, `requests` all that it has yielded, `visited` the URLs of the pages that its
    callbacks were called with, and `missing` the requests for URLs that it was given no page of.
    """

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []
        self.requests: list[Request] = []
        self.visited: list[str] = []
        self.missing: list[Request] = []

    def __repr__(self) -> str:
        return f"<Tried: {len(self.items)} items, {len(self.visited)} pages, {len(self.missing)} missing>"


def try_spider(spider: type[Spider] | Spider, pages: Mapping[str, str | bytes | Page]) -> Tried:
    """Runs a spider over the pages given, by URL: HTML, bytes, or a `weft.Page`. Exceptions of callbacks are raised.

    A request with a body is answered by the page of its URL, as a GET is.
    """
    given = {urls.seed(url): page for url, page in pages.items()}
    one = spider() if isinstance(spider, type) else spider
    check_start(one)
    tried, queue, known = Tried(), deque[tuple[Request, int, str | None]](), set[tuple[str, str, bytes | None]]()
    queue.extend((_checked(request), 0, None) for request in one.start())
    while queue and len(tried.visited) < MOST_PAGES:
        request, depth, parent = queue.popleft()
        tried.requests.append(request)
        url = urls.seed(request.url)
        key = (request.method, url, request.body)
        if request.unique and key in known:
            continue
        known.add(key)
        if url not in given:
            tried.missing.append(request)
            continue
        page = _make_page(given[url], url, depth, parent, request)
        tried.visited.append(url)
        for made in _collect_yielded(one, page, request.callback or DEFAULT_CALLBACK):
            if isinstance(made, Request):
                queue.append((made, depth + 1, url))
            else:
                tried.items.append(made)
    return tried


def try_callback(spider: Spider, page: Page, callback: str = "") -> Tried:
    """Calls one callback with a page; empty: `parse`. Exceptions of the callback are raised."""
    tried = Tried()
    tried.visited.append(page.url)
    for made in _collect_yielded(spider, page, callback or DEFAULT_CALLBACK):
        if isinstance(made, Request):
            tried.requests.append(made)
        else:
            tried.items.append(made)
    return tried


def _collect_yielded(spider: Spider, page: Page, callback: str) -> list[Any]:
    method = getattr(spider, callback, None)
    if not callable(method):
        raise BadInput(f"callback: {type(spider).__name__} has no method {callback!r}")
    made = method(page)
    if is_async(made):
        raise BadInput(f"{callback} is async: write it without `async`")
    if made is None:
        return []
    listed = [made] if is_item(made) or isinstance(made, Request) else list(made)
    if spider.follow:
        listed += [_checked(page.follow(link)) for link in page.links if spider.should_follow(page, link) is not False]
    return [kept for one in listed if one is not None and (kept := _check_kept(spider, one)) is not None]


def _check_kept(spider: Spider, one: Any) -> Any:
    if isinstance(one, Request):
        return _checked(one)
    if not is_item(one):
        raise BadInput(f"a {type(one).__name__} was yielded: yield items or requests")
    item = spider.process_item(one)
    return None if item is None else msgspec.json.decode(encode_item(item))


def _checked(request: Request) -> Request:
    if not isinstance(request, Request):
        raise BadInput(f"a {type(request).__name__} was yielded by start(): it yields requests")
    try:
        urls.seed(request.url)
    except BadUrl as bad:
        raise BadInput(f"a request for what is no URL: {bad}") from None
    return request


def _make_page(given: str | bytes | Page, url: str, depth: int, parent: str | None, request: Request) -> Page:
    if isinstance(given, Page):
        given.meta, given.depth, given.parent = dict(request.meta), depth, parent
        return given
    body = given.encode() if isinstance(given, str) else given
    kind = "application/json" if body.lstrip()[:1] in (b"{", b"[") else "text/html; charset=utf-8"
    headers = [("Content-Type", kind)]
    return Page(url, body, headers=headers, depth=depth, parent=parent, meta=request.meta)
