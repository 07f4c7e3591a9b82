"""Reads the pages of an export's rows, requested some rows ahead.

Pages are read by other processes; with a window of requested pages these processes never wait for this one, and memory
is bounded. The order of the rows is unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Protocol

from weft.records import Row
from weft.store.contract import StoredPage
from weft.store.errors import UnreadableData
from weft.store.export.source import ExportSource

UNPARSED_ERRORS = ("parse_crash", "parse_timeout")  # errors of pages that the crawl knows to be unparsable
AHEAD_ROWS = 64
AHEAD_BYTES = 4 << 20  # total size of their compressed records


class ReadablePage(Protocol):
    """A page that was read, with the requested properties."""

    @property
    def text(self) -> str: ...
    @property
    def main_text(self) -> str: ...
    @property
    def comments(self) -> str: ...
    @property
    def described(self) -> Mapping[str, str | float | None]: ...
    @property
    def markdown(self) -> str: ...
    @property
    def markdown_text(self) -> str: ...
    @property
    def markdown_drop(self) -> str: ...
    @property
    def html(self) -> str: ...
    @property
    def language(self) -> str | None: ...
    @property
    def mime(self) -> str | None: ...


# Begins to read a page, of which these properties are wanted. The result waits for the page: it returns None if no
# response is stored, and may raise Unparsed.
PendingRead = Callable[[], ReadablePage | None]
StartRead = Callable[[StoredPage, tuple[str, ...]], PendingRead]


class ExportPages:
    """The pages of rows. `wanted` are the properties that the export writes; with none, nothing is read. `markdown` is
    the property with the requested form of Markdown.
    """

    def __init__(
        self, source: ExportSource, reader: StartRead, wanted: tuple[str, ...], markdown: str = "markdown"
    ) -> None:
        self._source, self._reader = source, reader
        self._markdown = markdown
        self._wanted = wanted = tuple(map(self._property_name, wanted))
        self._without_language = tuple(name for name in wanted if name != "language")
        self._pending_reads: dict[int, PendingRead] = {}  # by item

    def in_advance(self, rows: Iterable[Row], taken: Container[int]) -> Iterator[Row]:
        """The rows in order; the pages of accepted items are requested in advance."""
        if not self._wanted:
            yield from rows
            return
        ahead: deque[Row] = deque()
        ahead_bytes = 0
        for row in rows:
            if row.item in taken and _has_page(row):
                self._pending_reads[row.item] = self._start_read(row)
            ahead.append(row)
            ahead_bytes += row.warc_length
            while len(ahead) > AHEAD_ROWS or ahead_bytes > AHEAD_BYTES:
                first = ahead.popleft()
                ahead_bytes -= first.warc_length
                yield first
                self._pending_reads.pop(first.item, None)
        for row in ahead:
            yield row
            self._pending_reads.pop(row.item, None)

    def get(self, row: Row) -> ReadablePage | None:
        """The row's page, if it has a readable one; raises Unreadable or Unparsed."""
        if not _has_page(row):
            return None
        return (self._pending_reads.pop(row.item, None) or self._start_read(row))()

    def content(self, page: ReadablePage, name: str) -> str:
        """A page's value for a column of content."""
        content: str = getattr(page, self._property_name(name))
        return content

    def _property_name(self, name: str) -> str:
        return self._markdown if name == "markdown" else name

    def _start_read(self, row: Row) -> PendingRead:
        try:
            stored = self._source.read_page(row)
        except UnreadableData as error:
            return _failed_read(error)
        # A crawl does not detect languages; if one is known nevertheless, detecting it again would be wasted.
        return self._reader(stored, self._without_language if row.language else self._wanted)


def _has_page(row: Row) -> bool:
    return 200 <= row.status < 300 and bool(row.warc_file) and row.error not in UNPARSED_ERRORS


def _failed_read(error: UnreadableData) -> PendingRead:
    def fail() -> None:
        raise error

    return fail
