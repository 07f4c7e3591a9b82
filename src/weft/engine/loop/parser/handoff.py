"""The fetcher's side of the spool: writes answers into it, then gives their references to the frontier.

The fetchers of a pod write to its spool; its parsers read and periodically sweep it, and sweep once more when they end,
so that the last process leaves no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from weft.bodies import FileBody
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.parser.pressure import Pressure
from weft.engine.loop.parser.spool import SpoolWriter, spool_answer
from weft.frontier.contract import HandedTransfer, ParseQueuePart, SharedFrontier
from weft.telemetry import Log, Slot

GATHER_S = (
    0.005  # ended transfers wait this long for others: a round trip to the frontier costs more than spooling a page
)
log = Log("weft.engine.loop.parser.handoff")


class Handoff:
    """Accepts answers that must be read; `flush` hands them over in one call."""

    def __init__(
        self,
        queue: ParseQueuePart,
        spool: SpoolWriter,
        pressure: Pressure,
        step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._queue = queue
        self._spool = spool
        self._pressure = pressure
        self._step = step
        self._answers: list[HandedTransfer] = []

    def add_answers(self, answers: Iterable[EndedTransfer]) -> None:
        """Adds answers together with the ends of their transfers: a site's slot is free when the page is handed
        over.
        """
        for answer in answers:
            assert answer.ended is not None
            body = answer.result.body
            large = body if isinstance(body, FileBody) else None
            reference = self._spool.add(answer.lease.item, spool_answer(answer.result, answer.asked_at), large)
            self._answers.append(HandedTransfer(answer.ended, reference))
            answer.handed = True

    def flush(self) -> None:
        """Writes the bytes first, then hands over the references. After an error, call it again."""
        if not self._answers:
            return
        self._spool.flush()
        self._step("spooled")
        valid = self._queue.fetched(self._answers)
        self._answers.clear()
        self._spool.note_references()
        self._pressure.add_pages(len(valid))
        if not all(valid):
            log.warning("leases were over, their pages are dropped", items=valid.count(False))


class HandoffParts:
    """What a fetcher that does not parse needs in addition."""

    def __init__(
        self,
        frontier: SharedFrontier,
        spool: Path,
        slot: Slot,
        soft: int,
        hard: int,
        step: Callable[[str], None],
    ) -> None:
        self.spool = SpoolWriter(spool, slot.process)
        self.pressure = Pressure(lambda: frontier.status.stats().to_parse, soft, hard)
        self.handoff = Handoff(frontier.parse_queue, self.spool, self.pressure, step)
