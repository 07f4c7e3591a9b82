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
from weft.store.export.lines import CsvLines, JsonArray, JsonLines, LineFile, Lines, LineStream
from weft.store.export.markdown import MarkdownFolder
from weft.store.export.pages_ahead import ExportPages, Reader
from weft.store.export.parquet import ParquetPieces, schema
from weft.store.export.part import ExportPart, PartState, Unread
from weft.store.export.pieces import PieceFolder
from weft.store.export.request import (
    CONTENTS,
    DESCRIBED,
    FIELD_PREFIX,
    FIELDS,
    RULE_COLUMNS,
    ExportRequest,
    Selection,
    moment,
)  # fmt: skip
from weft.store.export.source import CrawlSource, ExportSource
from weft.store.export.warc import RecordLocator, WarcFiles, WarcStream

CHECKPOINT_ROWS = 5000
CHECKPOINT_S = 1.0
TOGETHER = 1000  # rows whose URLs' other visits are looked up at a time
STREAMS = ("jsonl", "json", "csv", "cdxj", "warc")

Watch = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Done:
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


class Sink(Protocol):
    """An output. `save` makes added rows durable, and returns whether a checkpoint may be written."""

    def save(self, state: PartState) -> bool: ...
    def finish(self) -> Path | None: ...
    def close(self) -> None: ...


class RowSink(Sink, Protocol):
    """An output that receives rows in the order of their items."""

    def add(self, row: Row) -> bool: ...


class Export:
    """One export. `crawl_id` and `info` name the crawl in the output; `watch` gets the rows read and their total."""

    def __init__(
        self,
        order: ExportRequest,
        data_dirs: Sequence[Path],
        reader: Reader,
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
        known = COLUMNS if order.format == "parquet" else ("crawl", *FIELDS) if crawls else FIELDS
        order.check(known + CONTENTS + DESCRIBED + RULE_COLUMNS)
        if order.format == "parquet":
            schema(())  # raises now if pyarrow is missing
        self._order = order
        self._data_dirs = list(data_dirs)
        self._reader = reader
        self._crawl_id = crawl_id
        self._info = info or {}
        self._watch = watch
        self._checkpoint_rows = checkpoint_rows
        self._crawl = crawl
        self._crawls = crawls
        self._rules = rules

    def to_path(self, path: Path) -> Done:
        """Writes to a path, continuing an interrupted export with the same request."""
        pieces = self._order.format in ("cdxj", "parquet")
        folder = self._order.format == "markdown" or self._order.max_bytes is not None
        with ExitStack() as stack:
            part = ExportPart(path, folder=folder, pieces=pieces)
            stack.callback(part.close)
            source = self._source()
            stack.callback(source.close)
            state = self._state(part, source)
            return self._run(source, state, part, None, stack)

    def to_stream(self, out: BinaryIO) -> Done:
        """Writes to a stream."""
        if self._order.format not in STREAMS or self._order.max_bytes is not None:
            raise BadInput(f"{self._order.format} of this kind is made of files: give `out` a path")
        with ExitStack() as stack:
            source = self._source()
            stack.callback(source.close)
            part = None
            if self._order.format == "cdxj":  # sorting needs a temporary folder
                folder = Path(stack.enter_context(TemporaryDirectory(prefix="weft-export-")))
                part = ExportPart(folder / "cdxj", pieces=True)
                stack.callback(part.close)
            state = self._fresh(source)
            if part is not None:
                part.begin(state)
            return self._run(source, state, part, out, stack)

    def _source(self) -> ExportSource:
        return CrawlSource(self._data_dirs, self._crawl) if self._crawl else ExportSource(self._data_dirs)

    def _usual(self) -> tuple[str, ...]:
        """The default columns: those of all rows, and of the fields if there are rules."""
        if self._order.format == "parquet":
            return COLUMNS + RULE_COLUMNS if self._rules else COLUMNS
        usual = ("crawl", *FIELDS) if self._crawls else FIELDS
        if self._order.format == "csv" and self._rules:
            return (*usual, *(f"{FIELD_PREFIX}{name}" for name in self._rules), "field_errors")
        return usual + RULE_COLUMNS if self._rules else usual

    def _state(self, part: ExportPart, source: ExportSource) -> PartState:
        state = part.state(self._order.plain())
        if state is None or not source.go_back(state.snapshot):
            state = self._fresh(source)
        part.begin(state)
        return state

    def _fresh(self, source: ExportSource) -> PartState:
        return PartState(self._order.plain(), source.snapshot, moment(self._order.since))

    def _run(
        self, source: ExportSource, state: PartState, part: ExportPart | None, out: BinaryIO | None, stack: ExitStack
    ) -> Done:
        selection = Selection(self._order, state.since)
        source.select(selection.hosts, state.since)
        resumed = state.rows
        kept = part if out is None else None
        pages = ExportPages(source, self._reader, _wanted(self._order), self._order.markdown)
        every = self._order.all_visits
        run = _Run(source, pages, selection, state, kept, self._watch, self._checkpoint_rows, every)
        sink: Sink
        if self._order.format == "warc":
            sink = warc = self._warc(state, part, out)
            stack.callback(sink.close)
            run.by_place(warc)
        else:
            sink = rows = self._rows(source, pages, state, part, out)
            stack.callback(sink.close)
            run.by_item(rows)
        return Done(state.rows, resumed, sink.finish(), state.unread, tuple(state.unread_pages), state.unparsed)

    def _warc(self, state: PartState, part: ExportPart | None, out: BinaryIO | None) -> WarcFiles | WarcStream:
        if out is not None:
            return WarcStream(out, self._info)
        assert part is not None
        return WarcFiles(part, state, self._info, self._order.max_bytes)

    def _rows(
        self, source: ExportSource, pages: ExportPages, state: PartState, part: ExportPart | None, out: BinaryIO | None
    ) -> RowSink:
        order, unread = self._order, Unread(state)
        if order.format == "cdxj":
            assert part is not None
            return PieceFolder(part, state, CdxjPieces(source), out)
        if order.format == "parquet":
            assert part is not None
            names = order.columns(self._usual())
            wanted = _wanted(order)
            described = tuple(name for name in order.fields if name in DESCRIBED)
            read = (*(name for name in wanted if name != "described"), *described)
            facts = ExportColumns(source, pages, unread, read, ("language",))
            pieces = ParquetPieces(facts, names, self._crawl_id, bool(wanted), part.path, self._crawls)
            return PieceFolder(part, state, pieces)
        if order.format == "markdown":
            assert part is not None
            return MarkdownFolder(part, pages)
        facts = ExportColumns(source, pages, unread, order.columns(self._usual()), order.fields, self._crawls)
        kinds: dict[str, Callable[[ExportColumns], Lines]] = {"jsonl": JsonLines, "json": JsonArray, "csv": CsvLines}
        lines = kinds[order.format](facts)
        if out is not None:
            return LineStream(out, lines)
        assert part is not None
        return LineFile(part, state, lines)


class _Run:
    """Iterates over the rows, and writes checkpoints."""

    def __init__(
        self,
        source: ExportSource,
        pages: ExportPages,
        selection: Selection,
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
        self._unread = Unread(state)
        self._read = 0
        self._next_s = time.monotonic() + CHECKPOINT_S

    def by_item(self, sink: RowSink) -> None:
        """Exports every wanted row, in the order of the commits."""
        rows = self._source.rows(self._state.cursor)
        while placed := list(islice(rows, TOGETHER)):
            some, cursors = [row for _, row in placed], {row.item: cursor for cursor, row in placed}
            current = self._current(some)
            taken = {row.item for row in some if row.item in current and self._selection.matches(row)}
            for row in self._pages.in_advance(some, taken):
                if row.item in taken and self._add(sink, row):
                    self._state.rows += 1
                if self._due():
                    self._save(sink, cursors[row.item])

    def _current(self, rows: Sequence[Row]) -> Container[int]:
        """The wanted items of these rows: all with every visit, otherwise those that are their URL's current visit."""
        return {row.item for row in rows} if self._every_visit else self._source.current(rows)

    def _add(self, sink: RowSink, row: Row) -> bool:
        """Writes a row; an unreadable page is counted, and the export continues."""
        try:
            return sink.add(row)
        except (UnreadableData, Unparsed) as error:
            self._unread.add(row, error)
            return False

    def by_place(self, sink: WarcFiles | WarcStream) -> None:
        """Exports every wanted record, in the order of the files. The cursor: index, batch, and the offset in
        the file.
        """
        name_reached, batch, file, end = self._state.cursor or ("", 0, "", 0)
        for name in sorted(self._source.snapshot):
            if name < name_reached:
                continue
            places = RecordLocator(self._source.warc_path, (file, end) if name == name_reached else ("", 0))
            try:
                for rows, reached in self._source.by_place(name, batch if name == name_reached else 0):
                    current = self._current(rows)
                    for row in rows:
                        self._copy(row, places, sink, is_wanted=row.item in current)
                    if self._due(len(rows)):
                        self._save(sink, (name, reached, *places.at))
            finally:
                places.close()

    def _copy(self, row: Row, places: RecordLocator, sink: WarcFiles | WarcStream, *, is_wanted: bool) -> None:
        if not is_wanted or not self._selection.matches(row):
            places.skip(row)
            return
        try:
            members = places.members(row)
        except UnreadableData as error:
            self._unread.add(row, error)
            return
        sink.write(members)
        self._state.rows += 1

    def _due(self, rows: int = 1) -> bool:
        before, self._read = self._read, self._read + rows
        if self._read // self._checkpoint_rows > before // self._checkpoint_rows:
            return True
        return time.monotonic() >= self._next_s

    def _save(self, sink: Sink, cursor: object) -> None:
        self._next_s = time.monotonic() + CHECKPOINT_S
        self._watch(self._read, self._source.total)
        if sink.save(self._state) and self._part is not None:
            self._state.cursor = cursor
            self._part.save(self._state)


def _wanted(order: ExportRequest) -> tuple[str, ...]:
    """The properties of pages that this request needs; none if rows are enough."""
    if order.format in ("warc", "cdxj"):
        return ()
    if order.format == "markdown":
        return ("markdown", "language", "mime")
    contents = tuple(name for name in order.columns(()) if name in CONTENTS)
    if not set(DESCRIBED).isdisjoint(order.fields):
        contents = (*contents, "described")
    languages = {"language", "content_languages"}
    if not contents and languages.isdisjoint(order.fields) and "content_mime_detected" not in order.fields:
        return ()
    with_language = not order.fields or not languages.isdisjoint(order.fields)
    return (*contents, *(("language",) if with_language else ()), "mime")
