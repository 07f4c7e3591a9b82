"""The fingerprints that a frontier keeps on disk, of all its crawls: sorted runs, written once, mapped and searched.

New fingerprints are added to the tables in memory (`seen`) and to a log in the order of the journal. Once the log has
FLUSHED_ENTRIES entries, they are written as a run and leave memory. MERGED_RUNS runs of about one size are merged into
one, by a thread. So there are few runs, of which an entry is rewritten once for each size, and the number of files
grows with their bytes alone: crawls share them, since their fingerprints are seeded differently.

Each entry has the line of the journal that admitted it, for `weft explain`, and what has ended has an entry, too
(`end_key`). The journal stays the truth: a run counts once a checkpoint names it (`state`), files that none names are
deleted when the frontier is opened, and a damaged run is made again from its lines of the journal.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from math import log as logarithm
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from weft.alive import Alive, silent
from weft.errors import unreadable
from weft.frontier.durability.journal import ANY_CRAWL, REMEDY, FrontierJournal
from weft.frontier.durability.journal_lines import parse_line
from weft.frontier.seen.seen_file import RUN_SUFFIX, RunFile, RunWriter, arranged, pack_mark, sync_file, unpack_marks
from weft.frontier.seen.seen_merge import RunMerge
from weft.frontier.seen.seen_set import SeenSet, Table, fingerprint, seen_key
from weft.telemetry import Log

if TYPE_CHECKING:
    from weft.frontier.seen.seen_run import Run

RUNS_FOLDER = "seen"
FLUSHED_ENTRIES = 1 << 17  # entries: sorted and written in about 10 ms; more would delay the loop for longer
MOST_MARKS = 1 << 15  # lines of the journal in the log
MERGED_RUNS = 4
MOST_MERGED_RUNS = 12  # runs at once
_RUN_FILE_NAME = re.compile(r"\d{9}\.(?:run|tmp)")
_END_SEED = 0
log = Log("weft.frontier.seen.seen_runs")


class SavedRun(Struct, array_like=True, frozen=True):
    """A run in a checkpoint: its file, and the lines of the journal from which it can be made again."""

    name: str
    first: int
    last: int
    covered: int


class SeenState(Struct, array_like=True):
    """The state of the seen sets in a checkpoint."""

    runs: list[SavedRun]
    covered: int  # the entries of all lines of the journal up to this one are in the runs or in the log
    counts: dict[int, int]  # URLs that each crawl has seen
    numbers: bytes  # the log: fingerprints, and as in a run the marks of their lines
    marks: bytes
    gone: list[int]


class SeenRuns:
    """The runs of a frontier's folder, and the log of entries that are in no run yet."""

    def __init__(self, folder: Path, journal: FrontierJournal, alive: Alive = silent) -> None:
        self.runs: tuple[Run, ...] = ()  # the newest first: replaced as a whole, never changed
        self.gone: Table | None = None  # a table of numbers that were removed, though a run has them
        self._folder = folder / RUNS_FOLDER
        self._journal = journal
        self._alive = alive
        self._files: list[RunFile] = []  # by the lines of the journal, the oldest first
        self._unsynced: set[str] = set()
        self._next = 1 + max((int(path.name[:9]) for path in self._existing_files()), default=0)
        self._numbers, self._marks = array("Q"), array("Q")
        self._covered = 0
        self._pending: dict[int, array[int]] = {}
        self._sets: dict[int, SeenSet] = {}
        self._gone: set[int] = set()
        self._has_forgotten = False
        self._merging: RunMerge | None = None
        journal.on_commit = self.note_committed

    # ── for the seen sets ──────────────────────────────────────────────────────────────────────────────────────────

    def attach_crawl(self, crawl: int, seen: SeenSet) -> array[int]:
        """Registers a crawl's set; it puts the fingerprints that it adds into the array that is returned."""
        self._sets[crawl] = seen
        return self._pending.setdefault(crawl, array("Q"))

    def detach_crawl(self, crawl: int) -> None:
        """Removes an ended crawl; its entries in the runs are removed when it is forgotten."""
        self._sets.pop(crawl, None)
        self._pending.pop(crawl, None)

    def has(self, number: int) -> bool:
        """Whether a run has a number that was not removed."""
        return number not in self._gone and any(file.line_of(number) is not None for file in self._files)

    def remove(self, number: int) -> None:
        """Removes a number that a run has, or that the log has."""
        self._gone.add(number)
        self._update_removed()

    def note_added_again(self, numbers: Iterable[int]) -> None:
        """Records numbers that were added; some may have been removed before."""
        if not self._gone.isdisjoint(numbers := list(numbers)):
            self._gone.difference_update(numbers)
            self._update_removed()

    def repair(self, run: Run) -> None:
        """Rebuilds a damaged run from the journal."""
        at = next((at for at, file in enumerate(self._files) if file.run is run), None)
        if at is not None:
            file = self._files[at]
            self._files[at : at + 1] = self._rebuild_run(SavedRun(file.path.name, file.first, file.last, file.covered))
            self._update_runs()

    # ── what is committed ──────────────────────────────────────────────────────────────────────────────────────────

    def note_committed(self, lines: Mapping[int, int], ended: Mapping[int, Sequence[int]]) -> None:
        """By crawl, the lines that a commit has written to the journal, and what has ended by them."""
        for crawl, line in lines.items():
            self.assign_entries(line, crawl, ended.get(crawl, ()))
            self._covered = max(self._covered, line)

    def note_replayed(self, line: int, crawl: int, *, covers: bool) -> None:
        """A line of the journal was replayed; `covers`: so were all lines before it."""
        self.assign_entries(line, crawl, ())
        if covers:
            self._covered = max(self._covered, line)
        self.flush_if_due()

    def assign_entries(self, line: int, crawl: int, ended: Sequence[int]) -> None:
        """Assigns the entries that a crawl has added, and these ends, to a line of the journal."""
        if pending := self._pending.get(crawl):
            self._log_entries(line, crawl, pending)
            del pending[:]
        if ended:
            self._log_entries(line, crawl, array("Q", map(end_key, ended)))

    def do_due_work(self) -> None:
        """Does the work that is due after a commit: writes a run, begins and ends merges. DiskFull changes nothing."""
        if self._merging is not None and self._merging.is_over():
            self._end_merge()
        self.flush_if_due()

    @property
    def is_merging(self) -> bool:
        """Whether a merge is under way, or its result is not in use yet."""
        return self._merging is not None

    def flush_if_due(self) -> None:
        """Writes a run if the log has become too long."""
        if len(self._numbers) >= FLUSHED_ENTRIES or len(self._marks) >= 2 * MOST_MARKS:
            self.flush()

    def flush(self) -> None:
        """Writes the log as a run: its entries leave memory."""
        if not self._numbers:
            return
        self._files.append(self._write_run(self._numbers, self._marks, self._covered))
        self._numbers, self._marks = array("Q"), array("Q")
        self._update_runs()
        for seen in self._sets.values():
            seen.empty_table()
        self._begin_merge()

    def rewrite_without_forgotten(self) -> None:
        """The journal has forgotten crawls: runs that are mostly theirs are rewritten without them."""
        self._has_forgotten = True

    # ── checkpoints ────────────────────────────────────────────────────────────────────────────────────────────────

    def state_for_checkpoint(self) -> SeenState:
        """For a checkpoint; everything must be committed. Call `sync` before it is valid, and `named` after that."""
        for crawl, pending in self._pending.items():
            if pending:  # entries without a line of their own
                self.assign_entries(self._covered, crawl, ())
        runs = [SavedRun(file.path.name, file.first, file.last, file.covered) for file in self._files]
        counts = {number: len(seen) for number, seen in self._sets.items() if len(seen)}
        numbers, marks = self._numbers.tobytes(), self._marks.tobytes()
        return SeenState(runs, self._covered, counts, numbers, marks, sorted(self._gone))

    def file_names(self) -> frozenset[str]:
        """The files of the runs."""
        return frozenset(file.path.name for file in self._files)

    def sync(self) -> None:
        """Syncs the files that are not on the disk yet."""
        for name in self._unsynced & self.file_names():  # others were merged meanwhile, and may be deleted
            sync_file(self._folder / name)
        self._unsynced = set()

    def keep_named(self, names: frozenset[str]) -> None:
        """A checkpoint that names these files is valid: all other unused files are deleted."""
        self._unsynced -= names
        used = names | self.file_names()
        if self._merging is not None:
            used |= {self._merging.path.name}  # it may be complete, and not in use yet
        for path in self._existing_files():
            if path.name not in used and path.suffix == RUN_SUFFIX:
                path.unlink(missing_ok=True)

    def restore(self, state: SeenState | None) -> None:
        """Opens the runs that a checkpoint names, deletes all others, and fills the sets of the crawls that are open.

        Without a state there are none: the whole journal is replayed.
        """
        state = state or SeenState([], 0, {}, b"", b"", [])
        names = {run.name for run in state.runs}
        for path in self._existing_files():
            if path.name not in names:
                path.unlink(missing_ok=True)
                self._alive()
        self._gone.update(state.gone)
        self._update_removed()
        for run in state.runs:
            self._files += self._open_run(run)
        self._update_runs()
        self._numbers.frombytes(state.numbers)
        self._marks.frombytes(state.marks)
        self._covered = state.covered
        self._fill_tables(state.counts)

    def close(self) -> None:
        """Ends a merge that is under way."""
        if self._merging is not None:
            self._merging.stop()
            self._merging = None

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _log_entries(self, line: int, crawl: int, numbers: array[int]) -> None:
        self._numbers.extend(numbers)
        self._marks.append(line)
        self._marks.append(pack_mark(crawl, len(numbers)))

    def _fill_tables(self, counts: Mapping[int, int]) -> None:
        """Loads the log into the tables."""
        at = 0
        for _, crawl, count in unpack_marks(self._marks):
            if crawl in counts and (seen := self._sets.get(crawl)) is not None:
                seen.restore(self._numbers[at : at + count].tolist())
            at += count
        for crawl, count in counts.items():
            if (seen := self._sets.get(crawl)) is not None:
                seen.count = count

    def _open_run(self, run: SavedRun) -> list[RunFile]:
        path = self._folder / run.name
        try:
            return [RunFile(path)]
        except (FileNotFoundError, ValueError):
            return self._rebuild_run(run)
        except OSError as error:
            raise unreadable(path, error, REMEDY) from error

    def _rebuild_run(self, run: SavedRun) -> list[RunFile]:
        """Rebuilds runs from the lines of the journal that a run had."""
        log.warning("a run of the seen set is damaged: it is made again from the journal", file=self._folder / run.name)
        seeds = self._journal.seeds()
        made: list[RunFile] = []
        numbers, marks = array("Q"), array("Q")
        for line, crawl, admitted, ended in self._journal.lines_between(run.first, run.last):
            self._alive()
            known = [fingerprint(seen_key(parse_line(text).found), seeds[crawl]) for text in admitted if crawl in seeds]
            known += map(end_key, ended)
            numbers.extend(known)
            marks.extend((line, pack_mark(crawl, len(known))))
            if len(numbers) >= FLUSHED_ENTRIES:
                made.append(self._write_run(numbers, marks, 0))
                numbers, marks = array("Q"), array("Q")
        return [*made, self._write_run(numbers, marks, run.covered)]

    def _write_run(self, numbers: array[int], marks: array[int], covered: int) -> RunFile:
        first = min(marks[::2], default=0)
        lines = array("I")
        for line, _, count in unpack_marks(marks):
            lines.extend(array("I", [line - first]) * count)
        path = self._new_path()
        writer = RunWriter(path, len(numbers))
        try:
            writer.add(*arranged(numbers, lines))
            writer.finish(first, max(marks[::2], default=0), covered, marks.tobytes())
        except BaseException:
            writer.give_up()
            raise
        self._unsynced.add(path.name)
        return RunFile(path)

    def _new_path(self) -> Path:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        name = f"{self._next:09}{RUN_SUFFIX}"
        self._next += 1
        return self._folder / name

    def _existing_files(self) -> list[Path]:
        entries = self._folder.iterdir() if self._folder.exists() else ()
        return [path for path in entries if _RUN_FILE_NAME.fullmatch(path.name)]

    def _update_runs(self) -> None:
        self.runs = tuple(file.run for file in reversed(self._files))

    def _update_removed(self) -> None:
        self.gone = None
        if self._gone:
            self.gone, numbers = Table(), list(self._gone)
            self.gone.add_new(numbers, numbers)

    # ── merging ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_merge(self) -> None:
        if self._merging is not None:
            return
        dead = self._forgotten_crawls()
        groups = (group for group in reversed(self._mergeable_groups()) if len(group) >= MERGED_RUNS)
        if files := next(groups, None) or self._run_mostly_of(dead):
            self._merging = RunMerge(files[:MOST_MERGED_RUNS], self._new_path(), dead, frozenset(self._gone))

    def _end_merge(self) -> None:
        merging, self._merging = self._merging, None
        assert merging is not None
        if merging.damaged_run is not None:
            self.repair(merging.damaged_run)
        elif merging.merged_run is not None and all(file in self._files for file in merging.files):
            at = self._files.index(merging.files[0])
            self._files[at : at + len(merging.files)] = [merging.merged_run] if len(merging.merged_run) else []
            self._update_runs()
            self._gone -= {one for one in merging.gone if all(file.line_of(one) is None for file in self._files)}
            self._update_removed()
            self._begin_merge()

    def _mergeable_groups(self) -> list[list[RunFile]]:
        """Neighbours of about one size, the oldest first."""
        return [list(files) for _, files in groupby(self._files, lambda file: _level_of(len(file)))]

    def _forgotten_crawls(self) -> frozenset[int]:
        """The crawls in the runs that the journal no longer has."""
        if not self._has_forgotten:
            return frozenset()
        live = {ANY_CRAWL, *self._journal.seeds()}
        return frozenset(crawl for file in self._files for _, crawl, _ in unpack_marks(file.marks())) - live

    def _run_mostly_of(self, dead: frozenset[int]) -> list[RunFile]:
        """A run most of whose entries are of dead crawls."""
        for file in self._files if dead else ():
            if 2 * sum(count for _, crawl, count in unpack_marks(file.marks()) if crawl in dead) > len(file):
                return [file]
        return []


def end_key(item: int) -> int:
    """The number that represents the end of an item in the runs."""
    return xxh3_64_intdigest(b"ended %d" % item, _END_SEED)


def _level_of(entries: int) -> int:
    """Runs of one level are merged with each other."""
    return max(0, round(logarithm(max(entries, 1) / FLUSHED_ENTRIES, MERGED_RUNS)))
