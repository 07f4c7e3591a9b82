"""Merges several sorted runs of fingerprints into one, in a thread: the crawl continues with the old ones."""

from __future__ import annotations

import threading
from array import array
from pathlib import Path

from weft.errors import WeftError
from weft.frontier.seen.seen_file import RunFile, RunWriter, Unsound, merge, sync_file, unpack_marks
from weft.frontier.seen.seen_run import Run
from weft.telemetry import Log

_ENTRIES_AT_ONCE = 1 << 16  # entries between two checks whether to stop: some milliseconds
log = Log("weft.frontier.seen.seen_merge")


class RunMerge:
    """One merge; `made` is its run, unless it has failed or found one `damaged`."""

    def __init__(self, files: list[RunFile], path: Path, dead: frozenset[int], gone: frozenset[int]) -> None:
        """Leaves out the entries of the `dead` crawls, and the numbers that are `gone`."""
        self.files = files
        self.gone = gone
        self.merged_run: RunFile | None = None
        self.damaged_run: Run | None = None
        self.path = path
        self._dead = dead
        self._is_stopped = False
        self._thread = threading.Thread(target=self._run_thread, name="merging runs", daemon=True)
        self._thread.start()

    def is_over(self) -> bool:
        """Whether the thread has ended."""
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Stops the merge and deletes its incomplete run."""
        self._is_stopped = True
        self._thread.join()

    def _run_thread(self) -> None:
        try:
            self._merge_runs()
        except Unsound as damage:
            self.damaged_run = damage.args[0]
        except (OSError, ValueError, WeftError) as error:
            log.warning("parts of the seen set were not merged: it is tried again later", error=str(error))

    def _merge_runs(self) -> None:
        writer = RunWriter(self.path, sum(map(len, self.files)))
        try:
            self._copy_entries(writer)
            if self._is_stopped:
                writer.give_up()
                return
            first, last = min(file.first for file in self.files), max(file.last for file in self.files)
            writer.finish(first, last, max(file.covered for file in self.files), self._merged_marks().tobytes())
        except BaseException:
            writer.give_up()
            raise
        sync_file(self.path)
        self.merged_run = RunFile(self.path)

    def _copy_entries(self, writer: RunWriter) -> None:
        first = min(file.first for file in self.files)
        runs, shifts = tuple(file.run for file in self.files), tuple(file.first - first for file in self.files)
        positions, dead = [0] * len(runs), tuple(map(self._dead_lines, self.files))
        while not self._is_stopped:
            keys, lines = merge(runs, positions, shifts, dead, _ENTRIES_AT_ONCE)
            if not keys:
                return
            writer.add(*self._drop_removed(keys, lines))

    def _dead_lines(self, file: RunFile) -> array[int]:
        lines = (line - file.first for line, crawl, _ in unpack_marks(file.marks()) if crawl in self._dead)
        return array("I", sorted(lines) if self._dead else ())

    def _merged_marks(self) -> array[int]:
        marks = array("Q")
        for file in self.files:
            if not self._dead:
                marks.extend(file.marks())
                continue
            both = file.marks()
            for at, (_, crawl, _) in enumerate(unpack_marks(both)):
                if crawl not in self._dead:
                    marks.extend(both[2 * at : 2 * at + 2])
        return marks

    def _drop_removed(self, keys: bytes, lines: bytes) -> tuple[bytes, bytes]:
        numbers = array("Q", keys)
        if self.gone.isdisjoint(numbers):
            return keys, lines
        kept = [at for at, number in enumerate(numbers) if number not in self.gone]
        at_lines = array("I", lines)
        return array("Q", [numbers[at] for at in kept]).tobytes(), array("I", [at_lines[at] for at in kept]).tobytes()
