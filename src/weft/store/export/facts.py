"""The columns of JSONL and CSV exports: values of a row, and content of its page where a column needs it.

Pages are read by a function that is passed in (see pages.py), since this room does not parse HTML. Missing values are
None; `status` is 0 where there was no response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import msgspec

from weft.errors import Unparsed
from weft.records import Row
from weft.store.errors import UnreadableData
from weft.store.export.pages_ahead import ExportPages
from weft.store.export.part import UnreadPages
from weft.store.export.request import CONTENT_COLUMNS, DESCRIBED_COLUMNS, FIELD_PREFIX, RULE_COLUMNS
from weft.store.export.source import ExportSource

UNREADABLE = "unreadable"  # the `error` of a row whose page had to be read and is unreadable


class ExportColumns:
    """The wanted columns of rows, in order. Pages are read if a column of content is wanted.

    A page that cannot be read is added to `unread`; its row is exported without the content.
    """

    def __init__(
        self,
        source: ExportSource,
        pages: ExportPages,
        unread: UnreadPages,
        columns: tuple[str, ...],
        asked: tuple[str, ...] = (),
        crawls: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        """`crawls`: the names of several crawls, by number."""
        self.columns = columns
        self._crawls = crawls
        self._unread = unread
        self._source = source
        self._pages = pages
        self._contents = [name for name in columns if name in CONTENT_COLUMNS]
        # A crawl does not detect languages, so the column is filled only if pages are read, or on demand.
        self._described = [name for name in columns if name in DESCRIBED_COLUMNS]
        self._reads = bool(self._contents or self._described) or "language" in asked
        self._reads_fields = any(name in RULE_COLUMNS or name.startswith(FIELD_PREFIX) for name in columns)
        self._getters = [(name, _COLUMN_GETTERS[name]) for name in columns if name in _COLUMN_GETTERS]

    def values_of(self, row: Row) -> dict[str, object]:
        """The values by column, in order."""
        facts: dict[str, object] = dict.fromkeys(self.columns)
        for name, get in self._getters:
            facts[name] = get(row) or None
        if "crawl" in facts:
            facts["crawl"] = self._crawls.get(row.crawl)
        if "status" in facts:
            facts["status"] = row.status
        if "depth" in facts:
            facts["depth"] = row.depth
        if "length" in facts:
            facts["length"] = row.length
        if "parent" in facts and row.parent:
            facts["parent"] = self._source.url_of(row.parent)
        if "content_path" in facts:
            facts["content_path"] = self._source.content_path(row)
        if "warc_offset" in facts and row.warc_file:
            facts["warc_offset"] = row.warc_offset
        if self._reads_fields and row.fields:
            facts |= extracted_fields(row, self.columns)
        if self._reads:
            self._add_page_values(row, facts)
        return facts

    def _add_page_values(self, row: Row, facts: dict[str, object]) -> None:
        try:
            page = self._pages.get(row)
            for name in self._contents:
                if page is not None:
                    facts[name] = self._pages.content(page, name)
                elif name == "text" and 200 <= row.status < 300:
                    facts[name] = self._source.text(row)
        except (UnreadableData, Unparsed) as error:
            self._unread.add(row, error)
            if "error" in facts:
                facts["error"] = row.error or (error.kind if isinstance(error, Unparsed) else UNREADABLE)
            return
        if page is not None and self._described:
            described = page.described
            facts |= {name: described.get(name) for name in self._described}
        if page is not None and "language" in facts:
            facts["language"] = row.language or page.language
        if page is not None and "mime" in facts:
            facts["mime"] = page.mime


def extracted_fields(row: Row, columns: tuple[str, ...]) -> dict[str, object]:
    """The columns that hold fields extracted by rules."""
    fields = msgspec.json.decode(row.fields)
    values = fields.get("fields", {})
    return {
        name: fields.get(name) if name in RULE_COLUMNS else values.get(name.removeprefix(FIELD_PREFIX))
        for name in columns
        if name in RULE_COLUMNS or name.startswith(FIELD_PREFIX)
    }


def iso_time(at: float) -> str:
    """A time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


_COLUMN_GETTERS: dict[str, Callable[[Row], object]] = {
    "url": lambda row: row.url,
    "final_url": lambda row: row.final_url,
    "fetched_at": lambda row: iso_time(row.fetched_at),
    "content_type": lambda row: row.content_type,
    "charset": lambda row: row.charset,
    "language": lambda row: row.language,
    "title": lambda row: row.title,
    "digest": lambda row: row.digest,
    "warc_file": lambda row: row.warc_file,
    "error": lambda row: row.error,
}
