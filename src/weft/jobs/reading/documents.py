"""Makes the document of a scraped page in its task's formats: `ScrapedResult.document`, for every interface and
export.

Every document has some common keys; `fields` if the task has extraction rules, which were applied when the page was
parsed; and the task's formats, which are made on request by parser processes: a page that crashes its parser costs its
formats alone.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from weft.engine.crawls.settings import config_of
from weft.engine.parsing.extraction import extraction_of
from weft.engine.parsing.parsers import Parsers
from weft.engine.parsing.rendering import FormatReader, page_formats_of
from weft.engine.stored.stored_page import CrawledPage
from weft.errors import Unparsed
from weft.jobs.model import TaskSpec


def check_formats(spec: TaskSpec) -> None:
    """Raises BadInput, which names the field, if the rules or formats of a task are invalid."""
    if spec.extract:
        extraction_of(config_of({"extract": spec.extract}).extract)
    if spec.formats:
        page_formats_of(spec.formats, **spec.format_options)


class Documents:
    """Makes documents in one thread; starts its parser process when the first format is needed."""

    def __init__(self) -> None:
        self._parsers: Parsers | None = None

    def __call__(self, pages: Sequence[CrawledPage], spec: TaskSpec) -> list[dict[str, Any]]:
        """The documents of some pages of one task."""
        if not spec.formats:
            return [_page_facts(page, spec) | _reasons_unread(page) for page in pages]
        if self._parsers is None:
            self._parsers = Parsers()
        render = FormatReader(self._parsers, page_formats_of(spec.formats, **spec.format_options))
        pending = [None if page.damage else render(page) for page in pages]  # all are being rendered at once
        documents = []
        for page, get in zip(pages, pending, strict=True):
            if get is None:
                documents.append(_page_facts(page, spec) | dict.fromkeys(spec.formats) | _reasons_unread(page))
                continue
            try:
                documents.append(_page_facts(page, spec) | get())
            except Unparsed as error:
                documents.append(_page_facts(page, spec) | dict.fromkeys(spec.formats) | {"unparsed": str(error)})
        return documents

    def close(self) -> None:
        """Ends its parser process."""
        if self._parsers is not None:
            self._parsers.close()


def _page_facts(page: CrawledPage, spec: TaskSpec) -> dict[str, Any]:
    row = page.row
    facts: dict[str, Any] = {
        "url": row.url,
        "final_url": row.final_url,
        "status": row.status,
        "title": row.title,
        "content_type": row.content_type,
        "depth": row.depth,
        "fetched_at": row.fetched_at,
        "length": row.length,
    }
    facts |= _page_pictures(page)
    if spec.extract:
        facts |= {"fields": page.fields, "field_errors": page.field_errors}
    return facts


def _page_pictures(page: CrawledPage) -> dict[str, Any]:
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


def _reasons_unread(page: CrawledPage) -> dict[str, str]:
    """The reason why a page whose stored bytes cannot be read has no content."""
    return {"unparsed": page.damage} if page.damage else {}
