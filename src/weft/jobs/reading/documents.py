"""A scraped page as its task has ordered it: what `ScrapedResult.document` holds, for every front door and export.

The first keys are in every document; `fields` where the task has rules, read when the page was; and the formats that it
has ordered, made when they are asked for, by parser children: a page that kills its parser costs its formats alone.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from weft.engine.crawls.settings import config_of
from weft.engine.parsing.extraction import extraction_of
from weft.engine.parsing.parsers import Parsers
from weft.engine.parsing.rendering import Renderer, order_of
from weft.engine.stored.stored_page import CrawledPage
from weft.errors import Unparsed
from weft.jobs.model import TaskSpec


def check_order(spec: TaskSpec) -> None:
    """Raises what is wrong with the rules or formats of an order, by their names."""
    if spec.extract:
        extraction_of(config_of({"extract": spec.extract}).extract)
    if spec.formats:
        order_of(spec.formats, **spec.format_options)


class Documents:
    """Makes documents, for one thread; its parser child is started with the first format."""

    def __init__(self) -> None:
        self._parsers: Parsers | None = None

    def __call__(self, pages: Sequence[CrawledPage], spec: TaskSpec) -> list[dict[str, Any]]:
        """The documents of some pages of one task."""
        if not spec.formats:
            return [_facts(page, spec) | _unread(page) for page in pages]
        if self._parsers is None:
            self._parsers = Parsers()
        render = Renderer(self._parsers, order_of(spec.formats, **spec.format_options))
        pending = [None if page.damage else render(page) for page in pages]  # all are under way
        found = []
        for page, get in zip(pages, pending, strict=True):
            if get is None:
                found.append(_facts(page, spec) | dict.fromkeys(spec.formats) | _unread(page))
                continue
            try:
                found.append(_facts(page, spec) | get())
            except Unparsed as error:
                found.append(_facts(page, spec) | dict.fromkeys(spec.formats) | {"unparsed": str(error)})
        return found

    def close(self) -> None:
        """Ends its parser child."""
        if self._parsers is not None:
            self._parsers.close()


def _facts(page: CrawledPage, spec: TaskSpec) -> dict[str, Any]:
    row = page.row
    found: dict[str, Any] = {
        "url": row.url,
        "final_url": row.final_url,
        "status": row.status,
        "title": row.title,
        "content_type": row.content_type,
        "depth": row.depth,
        "fetched_at": row.fetched_at,
        "length": row.length,
    }
    found |= _pictures(page)
    if spec.extract:
        found |= {"fields": page.fields, "field_errors": page.field_errors}
    return found


def _pictures(page: CrawledPage) -> dict[str, Any]:
    """What a browser made of the page besides its text."""
    drawn, found = page.drawn, dict[str, Any]()
    if drawn.screenshot:
        found["screenshot"] = _data_url("image/png", drawn.screenshot)
    if drawn.pictures:
        found["screenshots"] = [_data_url("image/png", one) for one in drawn.pictures]
    if drawn.pdf:
        found["pdf"] = _data_url("application/pdf", drawn.pdf)
    return found


def _data_url(kind: str, content: bytes) -> str:
    return f"data:{kind};base64,{b64encode(content).decode()}"


def _unread(page: CrawledPage) -> dict[str, str]:
    """Why there is nothing but facts of a page whose stored bytes cannot be read."""
    return {"unparsed": page.damage} if page.damage else {}
