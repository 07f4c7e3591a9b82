"""The path of a result out of the engine: counted, journalled, put in order if wanted, and only then visible.

Invariant: what is in `ready` is in the journal; nothing is delivered twice or left out.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol, cast

import msgspec

from weft.pipelines.pool.durability.history import EarlierResults
from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.record import STATUSES, Code, Result, ResultRecord, to_result
from weft.pipelines.pool.values import ValueStore

_ENOUGH_READY = 1000
_encode = msgspec.msgpack.Encoder().encode


class DeliveryJournal(Protocol):
    """A journal, which has every result before the user gets it."""

    def append(self, pid: int, data: bytes) -> None:
        """Appends the records of one worker, encoded as one msgpack array."""

    def flush(self) -> None:
        """Writes the records to the operating system, so that they survive this process."""


class ResultDelivery:
    """Passes results from the workers to the user."""

    def __init__(
        self,
        progress: PoolProgress,
        journal: DeliveryJournal | None,
        history: EarlierResults | None,
        ahead: int | None,
        values: ValueStore | None = None,
    ) -> None:
        self.ready: deque[Result] = deque()
        self.staged: list[tuple[int, Result]] = []
        self.ordered = False
        self._progress = progress
        self._journal = journal
        self._history = history
        self._ahead = ahead
        self._values = values
        self._early: dict[int, Result | None] = {}
        self._next = 0

    def room(self, position: int, wanted: int) -> int:
        """How many items from this position on may be begun: none while many results wait for the user, and fewer when
        the ordered results before them are far behind."""
        if len(self.staged) + len(self.ready) > _ENOUGH_READY:
            return 0
        if not self.ordered or self._ahead is None:
            return wanted
        return max(0, min(wanted, self._next + self._ahead - position))

    def add_from_worker(self, pid: int, data: bytes, records: list[tuple[int, ResultRecord]]) -> None:
        """Adds what a worker sent, with the positions of the items; `data` has the records as one msgpack array."""
        if self._values is None:
            results = [(position, to_result(record, pid)) for position, record in records]
        else:
            data, results = self._store_values(self._values, pid, records)
        if self._journal is not None and results:
            self._journal.append(pid, data)
        self.add(results)

    def _store_values(
        self, values: ValueStore, pid: int, records: list[tuple[int, ResultRecord]]
    ) -> tuple[bytes, list[tuple[int, Result]]]:
        """Stores the values of some records; returns the records without these values, and the results with them."""
        results = []
        for position, record in records:
            record.value, value = values.store(record.value)
            results.append((position, to_result(record, pid, value)))
        return _encode([record for _, record in records]), results

    def made(self, position: int, result: Result) -> None:
        """Adds a result that the parent itself made for an item that was tried."""
        if self._journal is not None:
            self._journal.append(result.worker_pid or 0, _encode([_record(result)]))
        self.add([(position, result)])

    def add(self, results: list[tuple[int, Result]]) -> None:
        """Adds results with their positions, whose records are appended to the journal, or need not be."""
        self._progress.count([result for _, result in results])
        self.staged += results

    def known(self, position: int, key: str) -> None:
        """Records that the item at this position was done in an earlier run; in ordered mode its result is due here."""
        if self.ordered and self._history is not None:
            result = self._history.find(key)
            if result is not None:
                self._progress.count_resumed(result)
            self._early[position] = result

    def resumed(self, result: Result) -> None:
        """Adds a result of an earlier run, if results need not be in order."""
        self._progress.count_resumed(result)
        self.ready.append(result)

    def flush(self) -> None:
        """Flushes the journal, then makes the results ready."""
        if self._values is not None and self.staged:
            self._values.flush()
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


def _record(result: Result) -> ResultRecord:
    return ResultRecord(
        0, result.item_id, cast(Code, STATUSES.index(result.status)), result.attempts,
        round(result.duration_ms * 1000), result.value, result.failure_phase, result.error, result.traceback,
        result.log, result.death,
    )  # fmt: skip
