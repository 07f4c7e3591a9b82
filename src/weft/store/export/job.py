"""Runs an export from its request to its output.

The export contains the rows that existed when it began. Every few thousand rows, and every second, a checkpoint is
written; called again with the same request after an interruption, the export continues from there, and its output is
the same as without the interruption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import BinaryIO, Protocol

from weft.errors import BadInput, Unparsed
from weft.records import Row
from weft.store.errors import UnreadableData
from weft.store.export.cdxj import CdxjPieces
from weft.store.export.columns import COLUMNS
from weft.store.export.facts import ExportColumns
from weft.store.export.lines import CsvLines, JsonArray, JsonLines, LineFile, LineFormat, LineStream
from weft.store.export.markdown import MarkdownFolder
from weft.store.export.pages_ahead import ExportPages, StartRead
from weft.store.export.parquet import ParquetPieces, parquet_schema
from weft.store.export.part import ExportPart, PartState, UnreadPages
from weft.store.export.pieces import PieceFolder
from weft.store.export.request import (
    CONTENT_COLUMNS,
    DEFAULT_COLUMNS,
    DESCRIBED_COLUMNS,
    FIELD_PREFIX,
    RULE_COLUMNS,
    ExportRequest,
    RowSelection,
    parse_since,
)  # fmt: skip
from weft.store.export.source import CrawlSource, ExportSource
from weft.store.export.warc import RecordLocator, WarcFiles, WarcStream

CHECKPOINT_ROWS = 5000
CHECKPOINT_S = 1.0
ROWS_TOGETHER = 1000  # rows whose URLs' other visits are looked up at a time
STREAM_FORMATS = ("jsonl", "json", "csv", "cdxj", "warc")

Watch = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export. `rows` are those written, in all runs; `resumed` are those of earlier runs.

    `unread` pages could not be read; `unread_pages` are the first of them, each with the reason. `unparsed` of them are
    undamaged, but kill or block their parser.
    """

    rows: int
    resumed: int
    path: Path | None
    unread: int = 0
    unread_pages: tuple[str, ...] = ()
    unparsed: int = 0


class ExportSink(Protocol):
    """An output. `save` makes added rows durable, and returns whether a checkpoint may be written."""

    def save(self, state: PartState) -> bool: ...
    def finish(self) -> Path | None: ...
    def close(self) -> None: ...


class ExportRowSink(ExportSink, Protocol):
    """An output that receives rows in the order of their items."""

    def add(self, row: Row) -> bool: ...


class Export:
    """One export. `crawl_id` and `info` name the crawl in the output; `watch` gets the rows read and their total."""

    def __init__(
        self,
        order: ExportRequest,
        data_dirs: Sequence[Path],
        reader: StartRead,
        *,
        crawl_id: str = "",
        info: Mapping[str, str] | None = None,
        watch: Watch = lambda _read, _all: None,
        checkpoint_rows: int = CHECKPOINT_ROWS,
        crawl: int = 0,
        crawls: Mapping[int, str] = MappingProxyType({}),
        rules: tuple[str, ...] = (),
    ) -> None:
        """`crawl`: export only this crawl of an engine. `crawls`: the names of several, by number, for an additional
        column. `rules`: the fields that are extracted from pages.
        """
        known = COLUMNS if order.format == "parquet" else ("crawl", *DEFAULT_COLUMNS) if crawls else DEFAULT_COLUMNS
        order.check(known + CONTENT_COLUMNS + DESCRIBED_COLUMNS + RULE_COLUMNS)
        if order.format == "parquet":
            parquet_schema(())  # raises now if pyarrow is missing
        self._request = order
        self._data_dirs = list(data_dirs)
        self._reader = reader
        self._crawl_id = crawl_id
        self._info = info or {}
        self._watch = watch
        self._checkpoint_rows = checkpoint_rows
        self._crawl = crawl
        self._crawls = crawls
        self._rules = rules

    def to_path(self, path: Path) -> ExportResult:
        """Writes to a path, continuing an interrupted export with the same request."""
        pieces = self._request.format in ("cdxj", "parquet")
        folder = self._request.format == "markdown" or self._request.max_bytes is not None
        with ExitStack() as stack:
            part = ExportPart(path, folder=folder, pieces=pieces)
            stack.callback(part.close)
            source = self._open_source()
            stack.callback(source.close)
            state = self._resumed_state(part, source)
            return self._write_output(source, state, part, None, stack)

    def to_stream(self, out: BinaryIO) -> ExportResult:
        """Writes to a stream."""
        if self._request.format not in STREAM_FORMATS or self._request.max_bytes is not None:
            raise BadInput(f"{self._request.format} of this kind is made of files: give `out` a path")
        with ExitStack() as stack:
            source = self._open_source()
            stack.callback(source.close)
            part = None
            if self._request.format == "cdxj":  # sorting needs a temporary folder
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="weft-export-")))
                part = ExportPart(folder / "cdxj", pieces=True)
                stack.callback(part.close)
            state = self._new_state(source)
            if part is not None:
                part.begin(state)
            return self._write_output(source, state, part, out, stack)

    def _open_source(self) -> ExportSource:
        return CrawlSource(self._data_dirs, self._crawl) if self._crawl else ExportSource(self._data_dirs)

    def _default_columns(self) -> tuple[str, ...]:
        """The default columns: those of all rows, and of the fields if there are rules."""
        if self._request.format == "parquet":
            return COLUMNS + RULE_COLUMNS if self._rules else COLUMNS
        usual = ("crawl", *DEFAULT_COLUMNS) if self._crawls else DEFAULT_COLUMNS
        if self._request.format == "csv" and self._rules:
            return (*usual, *(f"{FIELD_PREFIX}{name}" for name in self._rules), "field_errors")
        return usual + RULE_COLUMNS if self._rules else usual

    def _resumed_state(self, part: ExportPart, source: ExportSource) -> PartState:
        state = part.state(self._request.plain())
        if state is None or not source.go_back(state.snapshot):
            state = self._new_state(source)
        part.begin(state)
        return state

    def _new_state(self, source: ExportSource) -> PartState:
        return PartState(self._request.plain(), source.snapshot, parse_since(self._request.since))

    def _write_output(
        self, source: ExportSource, state: PartState, part: ExportPart | None, out: BinaryIO | None, stack: ExitStack
    ) -> ExportResult:
        selection = RowSelection(self._request, state.since)
        source.select_rows(selection.hosts, state.since)
        resumed = state.rows
        kept = part if out is None else None
        pages = ExportPages(source, self._reader, _wanted_properties(self._request), self._request.markdown)
        every = self._request.all_visits
        run = _ExportRun(source, pages, selection, state, kept, self._watch, self._checkpoint_rows, every)
        sink: ExportSink
        if self._request.format == "warc":
            sink = warc = self._warc_output(state, part, out)
            stack.callback(sink.close)
            run.export_by_offset(warc)
        else:
            sink = rows = self._row_output(source, pages, state, part, out)
            stack.callback(sink.close)
            run.export_by_item(rows)
        return ExportResult(state.rows, resumed, sink.finish(), state.unread, tuple(state.unread_pages), state.unparsed)

    def _warc_output(self, state: PartState, part: ExportPart | None, out: BinaryIO | None) -> WarcFiles | WarcStream:
        if out is not None:
            return WarcStream(out, self._info)
        assert part is not None
        return WarcFiles(part, state, self._info, self._request.max_bytes)

    def _row_output(
        self, source: ExportSource, pages: ExportPages, state: PartState, part: ExportPart | None, out: BinaryIO | None
    ) -> ExportRowSink:
        order, unread = self._request, UnreadPages(state)
        if order.format == "cdxj":
            assert part is not None
            return PieceFolder(part, state, CdxjPieces(source), out)
        if order.format == "parquet":
            assert part is not None
            names = order.columns(self._default_columns())
            wanted = _wanted_properties(order)
            described = tuple(name for name in order.fields if name in DESCRIBED_COLUMNS)
            read = (*(name for name in wanted if name != "described"), *described)
            facts = ExportColumns(source, pages, unread, read, ("language",))
            pieces = ParquetPieces(facts, names, self._crawl_id, bool(wanted), part.path, self._crawls)
            return PieceFolder(part, state, pieces)
        if order.format == "markdown":
            assert part is not None
            return MarkdownFolder(part, pages)
        facts = ExportColumns(source, pages, unread, order.columns(self._default_columns()), order.fields, self._crawls)
        kinds: dict[str, Callable[[ExportColumns], LineFormat]] = {
            "jsonl": JsonLines,
            "json": JsonArray,
            "csv": CsvLines,
        }
        lines = kinds[order.format](facts)
        if out is not None:
            return LineStream(out, lines)
        assert part is not None
        return LineFile(part, state, lines)


class _ExportRun:
    """Iterates over the rows, and writes checkpoints."""

    def __init__(
        self,
        source: ExportSource,
        pages: ExportPages,
        selection: RowSelection,
        state: PartState,
        part: ExportPart | None,
        watch: Watch,
        checkpoint_rows: int,
        every_visit: bool,
    ) -> None:
        self._every_visit = every_visit
        self._pages = pages
        self._source, self._selection, self._state, self._part = source, selection, state, part
        self._watch = watch
        self._checkpoint_rows = checkpoint_rows
        self._unread = UnreadPages(state)
        self._read_rows = 0
        self._next_s = time.monotonic() + CHECKPOINT_S

    def export_by_item(self, sink: ExportRowSink) -> None:
        """Exports every wanted row, in the order of the commits."""
        rows = self._source.rows(self._state.cursor)
        while placed := list(islice(rows, ROWS_TOGETHER)):
            some, cursors = [row for _, row in placed], {row.item: cursor for cursor, row in placed}
            current = self._wanted_items(some)
            taken = {row.item for row in some if row.item in current and self._selection.matches(row)}
            for row in self._pages.in_advance(some, taken):
                if row.item in taken and self._add_row(sink, row):
                    self._state.rows += 1
                if self._is_checkpoint_due():
                    self._save_checkpoint(sink, cursors[row.item])

    def _wanted_items(self, rows: Sequence[Row]) -> Container[int]:
        """The wanted items of these rows: all with every visit, otherwise those that are their URL's current visit."""
        return {row.item for row in rows} if self._every_visit else self._source.current(rows)

    def _add_row(self, sink: ExportRowSink, row: Row) -> bool:
        """Writes a row; an unreadable page is counted, and the export continues."""
        try:
            return sink.add(row)
        except (UnreadableData, Unparsed) as error:
            self._unread.add(row, error)
            return False

    def export_by_offset(self, sink: WarcFiles | WarcStream) -> None:
        """Exports every wanted record, in the order of the files. The cursor: index, batch, and the offset in
        the file.
        """
        name_reached, batch, file, end = self._state.cursor or ("", 0, "", 0)
        for name in sorted(self._source.snapshot):
            if name < name_reached:
                continue
            places = RecordLocator(self._source.warc_path, (file, end) if name == name_reached else ("", 0))
            try:
                for rows, reached in self._source.rows_by_offset(name, batch if name == name_reached else 0):
                    current = self._wanted_items(rows)
                    for row in rows:
                        self._copy_record(row, places, sink, is_wanted=row.item in current)
                    if self._is_checkpoint_due(len(rows)):
                        self._save_checkpoint(sink, (name, reached, *places.at))
            finally:
                places.close()

    def _copy_record(self, row: Row, places: RecordLocator, sink: WarcFiles | WarcStream, *, is_wanted: bool) -> None:
        if not is_wanted or not self._selection.matches(row):
            places.skip(row)
            return
        try:
            members = places.members_of(row)
        except UnreadableData as error:
            self._unread.add(row, error)
            return
        sink.write(members)
        self._state.rows += 1

    def _is_checkpoint_due(self, rows: int = 1) -> bool:
        before, self._read_rows = self._read_rows, self._read_rows + rows
        if self._read_rows // self._checkpoint_rows > before // self._checkpoint_rows:
            return True
        return time.monotonic() >= self._next_s

    def _save_checkpoint(self, sink: ExportSink, cursor: object) -> None:
        self._next_s = time.monotonic() + CHECKPOINT_S
        self._watch(self._read_rows, self._source.total)
        if sink.save(self._state) and self._part is not None:
            self._state.cursor = cursor
            self._part.save(self._state)


def _wanted_properties(order: ExportRequest) -> tuple[str, ...]:
    """The properties of pages that this request needs; none if rows are enough."""
    if order.format in ("warc", "cdxj"):
        return ()
    if order.format == "markdown":
        return ("markdown", "language", "mime")
    contents = tuple(name for name in order.columns(()) if name in CONTENT_COLUMNS)
    if not set(DESCRIBED_COLUMNS).isdisjoint(order.fields):
        contents = (*contents, "described")
    languages = {"language", "content_languages"}
    if not contents and languages.isdisjoint(order.fields) and "content_mime_detected" not in order.fields:
        return ()
    with_language = not order.fields or not languages.isdisjoint(order.fields)
    return (*contents, *(("language",) if with_language else ()), "mime")
