"""Converts stored pages to formats in parser children, for results of the service and programs with many pages.

renderer = Renderer(parsers, order_of(["markdown", "links"], exclude_tags=[".ad"])) pending = [renderer(page) for page
in pages]     # all are under way documents = [get() for get in pending]           # {"markdown": ..., "links": [...]};
Unparsed for one that kills
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from weft.engine.parsing.extracted import PageFormats
from weft.engine.parsing.parsers import Parsers
from weft.engine.stored.stored_page import CrawledPage
from weft.extract.formats import check_formats, check_links, check_shape


def page_formats_of(
    formats: Iterable[str],
    *,
    only_main_content: bool = True,
    include_tags: Iterable[str] = (),
    exclude_tags: Iterable[str] = (),
    links: str = "keep",
) -> PageFormats:
    """The checked formats of a page; BadRules names an invalid option."""
    names = check_formats(formats)
    shape = check_shape(only_main_content, include_tags, exclude_tags, ("include_tags", "exclude_tags"))
    return PageFormats(names, shape.main_only, shape.include, shape.exclude, check_links(links))


class FormatReader:
    """Converts pages, all to the same formats."""

    def __init__(self, parsers: Parsers, order: PageFormats) -> None:
        self._parsers = parsers
        self._formats = msgspec.json.encode(order)

    def __call__(self, page: CrawledPage) -> Callable[[], dict[str, Any]]:
        """Begins to convert a page; the returned function waits for the result, and raises Unparsed if the page cannot
        be parsed.
        """
        pending = self._parsers.submit(page.readable, page.url, page.readable_type, ["in_formats"], order=self._formats)
        return lambda: self._parsers.result(pending).in_formats
