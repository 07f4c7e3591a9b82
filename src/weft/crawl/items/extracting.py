"""Runs a spider again on stored pages, without requests: for `weft extract`.

The items go to a separate file; the crawl's committed items do not change. Pages are read in the order of their
commits, and several are in the child processes at a time.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from weft.config import Config
from weft.crawl.items.writing import WholeFile, check_output
from weft.engine.parsing.parsers import ChildCode, Parsers, PendingPage
from weft.engine.user_code.again import call_again, result_of
from weft.engine.user_code.calls import Code, Loading, encode
from weft.engine.user_code.sources import PRELOADED
from weft.errors import BadInput
from weft.records import Row
from weft.store.index.query import RowFilter
from weft.store.pages import PageStore

AHEAD = 64  # pages that are being processed by child processes
_ROWS_TOGETHER = 200  # rows whose outputs are read in one query


class ExtractedItems(NamedTuple):
    """The counts and failures of an extraction."""

    pages: int
    items: int
    failed: dict[str, int]  # by cause
    first_failure: str  # its URL and traceback


def extract_items(
    data_dirs: Sequence[Path],
    config: Config,
    code: Code,
    out: str,
    *,
    overwrite: bool = False,
    watch: Callable[[int], None] = lambda _: None,
) -> ExtractedItems:
    """Writes the items that a spider yields for the stored pages; raises BadInput if the file exists."""
    format_ = check_output(out)
    if Path(out).exists() and not overwrite:
        raise BadInput(f"{out} exists already: overwrite it with `--overwrite`")
    store = PageStore.open(data_dirs, read_only=True)
    section = config.spider
    spare = 1 if section.scrapy else len(os.sched_getaffinity(0)) - 1
    loading = encode(Loading(code))
    modules = PRELOADED[code.maker]
    child = ChildCode(lambda: loading, section.callback_s, section.callback_memory_mb, bool(section.scrapy), modules)
    try:
        with Parsers(section.spider_workers or max(1, spare), code=child) as parsers, tempfile.TemporaryFile() as lines:
            run = _ExtractionPass(store, parsers, watch)
            for item in run.items():
                lines.write(item + b"\n")
            lines.flush()
            whole = WholeFile(lambda: _read_lines_back(lines.fileno()), Path(out), format_)
            whole.close()
            return ExtractedItems(run.pages, whole.written, run.failed, run.first_failure)
    finally:
        store.abandon()


def _read_lines_back(fd: int) -> Iterator[bytes]:
    os.lseek(fd, 0, os.SEEK_SET)
    with os.fdopen(os.dup(fd), "rb") as file:
        yield from (line.removesuffix(b"\n") for line in file)


class _ExtractionPass:
    """One pass over the stored pages."""

    def __init__(self, store: PageStore, parsers: Parsers, watch: Callable[[int], None]) -> None:
        self.pages = 0
        self.failed: dict[str, int] = {}
        self.first_failure = ""
        self._store = store
        self._parsers = parsers
        self._watch = watch

    def items(self) -> Iterator[bytes]:
        """The items of all pages, as JSON."""
        waiting: deque[tuple[Row, PendingPage]] = deque()
        for row, pending in self._pages_in_progress():
            waiting.append((row, pending))
            if len(waiting) >= AHEAD:
                yield from self._items_of(*waiting.popleft())
        while waiting:
            yield from self._items_of(*waiting.popleft())

    def _pages_in_progress(self) -> Iterator[tuple[Row, PendingPage]]:
        some: list[Row] = []
        for row in self._store.rows(RowFilter(stored=True)):
            if 200 <= row.status < 300 and row.warc_file:
                some.append(row)
            if len(some) == _ROWS_TOGETHER:
                yield from self._call_spider(some)
                some = []
        yield from self._call_spider(some)

    def _call_spider(self, rows: list[Row]) -> Iterator[tuple[Row, PendingPage]]:
        outputs = self._store.outputs_of([row.item for row in rows])
        for row in rows:
            if (pending := call_again(self._parsers, self._store, row, outputs.get(row.item))) is not None:
                yield row, pending

    def _items_of(self, row: Row, pending: PendingPage) -> list[bytes]:
        result = result_of(self._parsers, pending)
        self.pages += 1
        self._watch(self.pages)
        if result.error:
            self.failed[result.error] = self.failed.get(result.error, 0) + 1
            self.first_failure = self.first_failure or f"{row.url}\n{result.traceback}"
        return result.items
