"""What the prompt of `weft shell` offers: `page`, `fetch`, and a spider's callbacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import weft
from weft.cli.shell.page_sources import PageSource
from weft.errors import BadInput

if TYPE_CHECKING:
    from weft.engine.stored.stored_page import CrawledPage
    from weft.engine.user_code.request import Request
    from weft.spiders.spider import Spider
    from weft.spiders.trying import Tried

_REFERENCE_STARTS = ("/", "?", "./", "../")


class ShellSession:
    """The names of one prompt, and what they do."""

    def __init__(self, source: PageSource, spider: Spider | None) -> None:
        self._source = source
        self._spider = spider
        self._callback = ""
        self.names: dict[str, Any] = {"__name__": "__weft_shell__", "weft": weft, "page": None, "fetch": self.fetch}
        if spider is not None:
            self.names |= {"spider": spider, "try_callback": self.try_callback}

    def fetch(self, target: str | Request) -> CrawledPage:
        """Gets a page, which is `page` from then on: of a URL, or of a request (`page.follow(...)`), with its meta."""
        from weft.engine.user_code.request import Request

        if not isinstance(target, str | Request):
            raise BadInput(f"fetch: {type(target).__name__} is not accepted; use a URL or a request")
        request = target if isinstance(target, Request) else Request(self._absolute(target))
        page, self._callback = self._source.get(request)
        if request.meta:
            page.meta = dict(request.meta)
        self.names["page"] = page
        return page

    def _absolute(self, url: str) -> str:
        """A reference that begins like one of the page is one."""
        page = self.names["page"]
        return page.urljoin(url) if page is not None and url.startswith(_REFERENCE_STARTS) else url

    def try_callback(self, callback: Any = None) -> Tried:
        """Calls a method of the spider, or the one named, with `page`; the result has `.items` and `.requests`.

        Without a callback it is the one that `page` was requested for, else `parse`.
        """
        from weft.engine.user_code.request import callback_name
        from weft.spiders.trying import try_callback

        page = self.names["page"]
        if self._spider is None or page is None:
            raise BadInput("try_callback: there is no page yet: `fetch(url)` gets one")
        return try_callback(self._spider, page, callback_name(callback) or self._callback)
