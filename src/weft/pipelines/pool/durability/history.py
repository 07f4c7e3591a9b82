"""What an earlier run of the same work has done: read from its journal and from the slots it left behind.

Invariant: after `replay` is exhausted the journal holds every result that any worker of the earlier run had committed,
each once, and the slots are gone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool.durability.journal import ResultJournal
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.engine.task import new_ids
from weft.pipelines.pool.record import STARTED, Result, ResultRecord, to_result
from weft.pipelines.pool.values import ValueStore
from weft.pipelines.pool.worker.slot import SLOT_BYTES, SlotReader
from weft.telemetry import Log

LeftElsewhere = Callable[[], Iterator[list[ResultRecord]]]
"""Records that an engine finds where its workers had put them. What it has given is deleted there when it is asked for
more: by then it is in the journal."""
_decode = msgspec.msgpack.Decoder(list[ResultRecord]).decode
_log = Log("weft.pipelines")


class EarlierResults:
    """The results of earlier runs in one run directory."""

    def __init__(
        self,
        directory: RunDirectory,
        journal: ResultJournal,
        values: ValueStore | None = None,
        elsewhere: LeftElsewhere | None = None,
    ) -> None:
        self._left_elsewhere = elsewhere
        self._directory = directory
        self._journal = journal
        self._values = values
        self._lost_values = 0
        self._locations: dict[int, tuple[int, int]] = {}
        self.done = new_ids()

    def refuse_if_any(self) -> None:
        """Refuses a directory with results of an earlier run, for a run that must be new."""
        if not self._journal.empty:
            raise BadInput(
                f"{self._directory.path} holds the results of a run already: resume it, or choose another directory"
            )
        for path in self._directory.slots.iterdir():
            path.unlink()  # of a run that was killed before it had a result

    def replay(self) -> Iterator[Result]:
        """Yields every result of the earlier run, in the order in which they were journalled."""
        for block in self._journal.read():
            yield from (to_result(record, block.pid or None) for record in block.records if self._is_done(record))
        for path in sorted(self._directory.slots.iterdir()):
            if path.suffix == ".slot":
                yield from self._results_left_in(path)
            path.unlink()
        if self._left_elsewhere is not None:
            for records in self._left_elsewhere():
                yield from self._keep(records)
        if self._lost_values:
            _log.warning(
                f"{self._directory.path}: the values of {self._lost_values} results are lost; their "
                f"items are done again"
            )

    def index(self) -> None:
        """Indexes the results by item, to return them in the order of the items. Costs about 150 bytes an item."""
        for _ in self.replay():
            pass
        for block in self._journal.read():
            for number, record in enumerate(block.records):
                self._locations.setdefault(hash(str(record.item_id)), (block.at, number))

    def find(self, key: str) -> Result | None:
        """The result of an item that is done; None without an index."""
        location = self._locations.get(hash(key))
        block = self._journal.block(location[0]) if location else None
        return to_result(block[0].records[location[1]], block[0].pid or None) if location and block else None

    def _results_left_in(self, path: Path) -> Iterator[Result]:
        """The results in a worker's slot that the killed parent had not read yet."""
        return self._keep(_left_in(path))

    def _keep(self, found: list[ResultRecord]) -> Iterator[Result]:
        """Journals rescued results before the slot, their only other copy, is deleted."""
        records = [record for record in found if record.status < STARTED and self._is_done(record)]
        if records:
            if self._values is not None:
                self._values.flush()
            self._journal.append(0, msgspec.msgpack.encode(records))
            self._journal.flush()
            self._journal.sync()
        return (to_result(record, None) for record in records)

    def _is_done(self, record: ResultRecord) -> bool:
        """Whether a record is the first of its item whose value is not lost. Its value is journalled from here on."""
        if self._values is not None and record.value is not None:
            record.value = self._values.restore(record.value)
            if record.value is None:
                self._lost_values += 1
                return False
        return self.done.add(str(record.item_id))


def _left_in(path: Path) -> list[ResultRecord]:
    """The readable records of a slot; one whose creation was interrupted has none."""
    records: list[ResultRecord] = []
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.ftruncate(fd, SLOT_BYTES)  # what a shorter one lacks is read as zeros
        slot = SlotReader(fd)
        try:
            for chunk in slot.chunks():
                records += _decode(chunk.data)
        except (ValueError, RecursionError) as error:  # cut, or written by a worker gone wild
            _log.warning(f"{path}: damaged ({error}); items whose results were in it are done again")
        finally:
            slot.close()
    finally:
        os.close(fd)
    return records
