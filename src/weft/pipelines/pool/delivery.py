"""The path of a result out of the engine: counted, journalled, put in order if wanted, and only then visible.

Invariant: what is in `ready` is in the journal; nothing is delivered twice or left out.
"""

from __future__ import annotations

from collections import deque
from typing import cast

import msgspec

from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.history import History
from weft.pipelines.pool.journal import ResultJournal
from weft.pipelines.pool.record import STATUSES, Code, Record, Result

_ENOUGH = 1000


class Delivery:
    """Results between the workers and the user."""

    def __init__(
        self, progress: PoolProgress, journal: ResultJournal | None, history: History | None, ahead: int | None
    ) -> None:
        self.ready: deque[Result] = deque()
        self.staged: list[tuple[int, Result]] = []
        self.ordered = False
        self._progress = progress
        self._journal = journal
        self._history = history
        self._ahead = ahead
        self._early: dict[int, Result | None] = {}
        self._next = 0

    def room(self, position: int, wanted: int) -> int:
        """How many items from this position on may be begun: none while many results wait for the user, and fewer when
        the ordered results before them are far behind."""
        if len(self.staged) + len(self.ready) > _ENOUGH:
            return 0
        if not self.ordered or self._ahead is None:
            return wanted
        return max(0, min(wanted, self._next + self._ahead - position))

    def add_from_worker(self, pid: int, data: bytes, results: list[tuple[int, Result]]) -> None:
        """Adds results of a worker with their positions; `data` has their records as one msgpack array."""
        if self._journal is not None and results:
            self._journal.append(pid, data)
        self.add(results)

    def made(self, position: int, result: Result) -> None:
        """Adds a result that the parent itself made for an item that was tried."""
        if self._journal is not None:
            self._journal.append(result.worker_pid or 0, msgspec.msgpack.encode([_record(result)]))
        self.add([(position, result)])

    def add(self, results: list[tuple[int, Result]]) -> None:
        """Adds results with their positions, whose records are appended to the journal, or need not be."""
        self._progress.count([result for _, result in results])
        self.staged += results

    def known(self, position: int, key: str) -> None:
        """The item at this position was done in an earlier run; in ordered mode its result is due here."""
        if self.ordered and self._history is not None:
            result = self._history.find(key)
            if result is not None:
                self._progress.count_resumed(result)
            self._early[position] = result

    def resumed(self, result: Result) -> None:
        """A result of an earlier run, when order does not matter."""
        self._progress.count_resumed(result)
        self.ready.append(result)

    def flush(self) -> None:
        """Flushes the journal, then makes the results ready."""
        if self._journal is not None:
            self._journal.flush()
        if self.ordered:
            self._early.update(self.staged)
            while self._next in self._early:
                result = self._early.pop(self._next)
                self._next += 1
                if result is not None:
                    self.ready.append(result)
        else:
            self.ready.extend([result for _, result in self.staged])
        self.staged.clear()


def _record(result: Result) -> Record:
    return Record(
        0, result.item_id, cast(Code, STATUSES.index(result.status)), result.attempts,
        round(result.duration_ms * 1000), result.value, result.failure_phase, result.error, result.traceback,
        result.log, result.death,
    )  # fmt: skip
