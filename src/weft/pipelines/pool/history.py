"""What an earlier run of the same work has done: read from its journal and from the slots it left behind.

Invariant: after `replay` is exhausted the journal holds every result that any worker of the earlier run had committed,
each once, and the slots are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool.journal import ResultJournal
from weft.pipelines.pool.record import STARTED, Record, Result, to_result
from weft.pipelines.pool.runs import RunDirectory
from weft.pipelines.pool.slot import SLOT_BYTES, SlotReader
from weft.pipelines.pool.task import new_ids
from weft.telemetry import Log

_decode = msgspec.msgpack.Decoder(list[Record]).decode
_log = Log("weft.pipelines")


class History:
    """The results of earlier runs in one run directory."""

    def __init__(self, directory: RunDirectory, journal: ResultJournal) -> None:
        self._directory = directory
        self._journal = journal
        self._places: dict[int, tuple[int, int]] = {}
        self.done = new_ids()

    def refuse_if_any(self) -> None:
        """For a run that is meant to be new."""
        if not self._journal.empty:
            raise BadInput(
                f"{self._directory.path} holds the results of a run already: resume it, or choose another directory"
            )
        for path in self._directory.slots.iterdir():
            path.unlink()  # of a run that was killed before it had a result

    def replay(self) -> Iterator[Result]:
        """Every result of the earlier run, as it came."""
        for block in self._journal.read():
            yield from (to_result(record, block.pid or None) for record in block.records if self._new(record))
        for path in sorted(self._directory.slots.iterdir()):
            if path.suffix == ".slot":
                yield from self._rescue(path)
            path.unlink()

    def index(self) -> None:
        """For results in the order of the items: where each one is. Costs about 150 bytes an item."""
        for _ in self.replay():
            pass
        for block in self._journal.read():
            for number, record in enumerate(block.records):
                self._places.setdefault(hash(str(record.item_id)), (block.at, number))

    def find(self, key: str) -> Result | None:
        """The result of an item that is done; None without an index."""
        place = self._places.get(hash(key))
        block = self._journal.block(place[0]) if place else None
        return to_result(block[0].records[place[1]], block[0].pid or None) if place and block else None

    def _rescue(self, path: Path) -> Iterator[Result]:
        """What a worker had finished when its parent was killed, and the parent had not yet read."""
        records = [record for record in _left_in(path) if record.status < STARTED and self._new(record)]
        if records:
            self._journal.append(0, msgspec.msgpack.encode(records))
            self._journal.flush()
            self._journal.sync()  # before the slot, the only other copy, is deleted
        return (to_result(record, None) for record in records)

    def _new(self, record: Record) -> bool:
        return self.done.add(str(record.item_id))


def _left_in(path: Path) -> list[Record]:
    """The readable records of a slot; one whose creation was interrupted has none."""
    records: list[Record] = []
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
