"""`weft.Spider`: the class that a user's spider is derived from, and what its hooks are given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from weft.engine.user_code.page import Page
from weft.engine.user_code.request import Request
from weft.extract.links import Link
from weft.logins import FormLogin


class RequestFailure:
    """A request that has failed for good, as `on_error` is given it.

    `error` is the kind as it is stored (`timeout`, `dns`, `robots`; empty for an HTTP status that is no success),
    `detail` says more, and `page` is the answer where there was one. `callback` and `meta` are those of the request.
    """

    def __init__(
        self, url: str, error: str, detail: str, page: Page | None, callback: str, meta: Mapping[str, Any]
    ) -> None:
        self.url = url
        self.error = error
        self.detail = detail
        self.page = page
        self.status = page.status if page is not None else 0
        self.callback = callback
        self.meta = dict(meta)

    def __repr__(self) -> str:
        return f"<RequestFailure {self.error or self.status} {self.url}>"


class Spider:
    """A crawl's own code: where it begins, what it yields from each page, and where it goes next.

    Subclass it, give it `start_urls` and a method `parse(page)` that yields items (mappings, dataclasses, msgspec
    structs, pydantic models) and requests (`page.follow(...)`, `weft.Request(...)`). One object of it lives in each
    parser process: what pages have to share belongs into items or `meta`; `self.state` is a mapping that is saved.
    """

    start_urls: Sequence[str] = ()
    allowed_domains: Sequence[str] = ()  # requests to other hosts are refused; empty: all are admitted
    settings: Mapping[str, Any] = {}  # any setting of a crawl; the command line and the environment override it
    login: FormLogin | Mapping[str, Any] | None = None  # what it logs in with; see `weft.FormLogin`
    render: str | None = None  # have a browser draw the pages: auto (those that scripts must draw) or always
    workers: str | None = None  # which machines ask for the pages: local, cluster or prefer-cluster
    follow = False  # follow the links of all pages by scope, as `weft crawl` does, besides what is yielded

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def start(self) -> Iterable[Request]:
        """The first requests; runs once in a crawl, in one process."""
        return [Request(url) for url in self.start_urls]

    def parse(self, page: Page) -> Any:
        """Yields items and requests of a page: the callback of requests that name none."""
        raise NotImplementedError(f"{type(self).__name__} has no method `parse`: {page.url} has no other callback")

    def should_follow(self, page: Page, link: Link) -> bool | int:  # noqa: ARG002
        """With `follow`: whether a link is followed; a number is its priority."""
        return True

    def on_error(self, failure: RequestFailure) -> Any:
        """Called with each request that has failed for good; may yield items and requests."""

    def process_item(self, item: Any) -> Any:
        """Called with each item before it is kept: returns the item, another one, or None to drop it."""
        return item

    def closed(self, reason: str) -> None:
        """Called at each end of the crawl, at least once."""
