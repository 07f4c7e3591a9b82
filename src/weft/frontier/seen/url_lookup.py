"""Finds the items of one URL in an embedded frontier's files, also while the crawl runs, in time that does not grow.

The runs of the seen sets have the line of the journal that admitted a URL, and whether an item has ended; only the
lines that no run has yet are read, which are few (`seen_runs`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from weft.frontier.durability.journal import unpacked_items, unpacked_text
from weft.frontier.durability.journal_lines import JournalLine, parse_line
from weft.frontier.seen.seen_file import RUN_SUFFIX, RunFile, Unsound
from weft.frontier.seen.seen_runs import RUNS_FOLDER, end_key
from weft.frontier.seen.seen_set import fingerprint

JournalRow = tuple[int, str, Sequence[int]]  # a line of the journal, the items it admitted, and those it ended
MOST_COUNTED = 40_000  # items that are checked to count those of a site
_MOST_HOPS = 20
_READ_TRIES = 5


class UrlLookup:
    """Looks up single URLs; every call reads the files as they are now."""

    def __init__(self, folder: Path, db: sqlite3.Connection, seeds: Callable[[], Mapping[int, int]]) -> None:
        """`seeds`: those of the crawls' fingerprints."""
        self._folder = folder / RUNS_FOLDER
        self._db = db
        self._seeds = seeds

    def items_of_url(self, url: str, crawl: int = 0) -> list[tuple[JournalLine, int, bool]]:
        """The items of a URL, each with the line of the journal that admitted it, and whether it has ended; the oldest
        first. Of one crawl, or of all (0). Of a URL that was visited again some of the earlier ones may be missing."""
        files = self._open_runs()
        latest_lines: dict[int, tuple[JournalLine, int]] = {}
        ended = set[int]()
        for line, text, done in chain(self._rows_by_runs(url, crawl, files), self._rows_in_no_run(files)):
            if f" {url}" in text:
                items = (parse_line(one) for one in text.split("\n") if f" {url}" in one)
                latest_lines |= {
                    one.item: (one, line) for one in items if one.found.url == url and crawl in (0, one.crawl)
                }
            ended.update(latest_lines.keys() & done)
        return [
            (one, line, item in ended or self._has_ended(files, item))
            for item, (one, line) in sorted(latest_lines.items())
        ]

    def ahead_of(self, line: int, item: int, depth: int, is_of_site: Callable[[str], bool]) -> tuple[int, bool]:
        """How many items of a site wait before an item of a line: a lower bound if the second part is False, since a
        bounded number is checked.
        """
        files = self._open_runs()
        ended = {number for _, _, done in self._rows_in_no_run(files) for number in done}
        before, left = set[int](), MOST_COUNTED
        for text in self._lines_around(line):
            left -= text.count("\n") + 1
            if left < 0:
                break
            for one in filter(is_of_site, text.split("\n")):
                number, its_depth, _ = one.split(" ", 2)
                if (int(its_depth), int(number)) < (depth, item) and int(number) not in ended:
                    before.add(int(number))
        return sum(not self._has_ended(files, number) for number in before), left >= 0

    def _lines_around(self, line: int) -> Iterator[str]:
        """The lines of items around a line: this one and earlier ones, backwards, then later ones."""
        for sql in ("seq <= ? ORDER BY seq DESC", "seq > ? ORDER BY seq"):
            select = f"SELECT admitted FROM journal WHERE admitted NOT NULL AND {sql}"  # noqa: S608
            for (blob,) in self._db.execute(select, (line,)):
                yield unpacked_text(blob)

    def _open_runs(self) -> list[RunFile]:
        for _ in range(_READ_TRIES):  # a run may be merged and deleted between listing and opening it
            try:
                return [RunFile(path) for path in self._folder.glob(f"*{RUN_SUFFIX}")]
            except FileNotFoundError:
                continue
            except (ValueError, OSError):
                break
        return []  # the journal is read as a whole

    def _rows_by_runs(self, url: str, crawl: int, files: Iterable[RunFile]) -> Iterator[JournalRow]:
        """The lines that the runs name for a URL."""
        lines = set[int]()
        seeds = [seed for number, seed in self._seeds().items() if crawl in (0, number)]
        for file in files:
            try:
                lines.update(line for seed in seeds for line in _lines_of_url(file, url, seed))
            except Unsound:
                yield from self._read_rows(file.first, file.last)
        for line in sorted(lines):
            yield from self._read_rows(line, line)

    def _rows_in_no_run(self, files: Iterable[RunFile]) -> Iterator[JournalRow]:
        return self._read_rows(1 + max((file.covered for file in files), default=0), 1 << 62)

    def _read_rows(self, first: int, last: int) -> Iterator[JournalRow]:
        select = "SELECT seq, admitted, done FROM journal WHERE seq BETWEEN ? AND ? ORDER BY seq"
        for line, admitted, done in self._db.execute(select, (first, last)):
            yield line, unpacked_text(admitted) if admitted else "", unpacked_items(done) if done else ()

    def _has_ended(self, files: Iterable[RunFile], item: int) -> bool:
        for file in files:
            try:
                if file.line_of(end_key(item)) is not None:
                    return True
            except Unsound:
                if any(item in done for _, _, done in self._read_rows(file.first, file.last)):
                    return True
        return False


def _lines_of_url(file: RunFile, url: str, seed: int) -> list[int]:
    """The lines of a URL, of a sitemap, and of a redirect back to it."""
    keys = (url, f"sitemap {url}")
    lines = [line for key in keys if (line := file.line_of(fingerprint(key, seed))) is not None]
    if lines:
        hops = (f"hop {hop} {url}" for hop in range(1, _MOST_HOPS))
        lines += [line for key in hops if (line := file.line_of(fingerprint(key, seed))) is not None]
    return lines
