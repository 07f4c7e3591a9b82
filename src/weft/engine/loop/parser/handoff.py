"""The fetcher's end of the way to the parsers: answers into the spool, then their references to the frontier.

The fetchers of a pod write to its spool; its parsers read, sweep now and then, and once more when they end: the last to
go leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from weft.bodies import FileBody
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.parser.pressure import Pressure
from weft.engine.loop.parser.spool import SpoolWriter, spooled
from weft.frontier.contract import Handed, ParseQueuePart, SharedFrontier
from weft.telemetry import Log, Slot

GATHER_S = (
    0.005  # ended transfers wait so long for others: a round trip to the frontier costs more than spooling a page
)
log = Log("weft.engine.loop.parser.handoff")


class Handoff:
    """Takes answers that must be read; `flush` gives them away, all in one call."""

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
        self._handed: list[Handed] = []

    def put(self, answers: Iterable[EndedTransfer]) -> None:
        """The ends of the transfers go with them: a site's place is free when the page is handed over."""
        for answer in answers:
            assert answer.ended is not None
            body = answer.result.body
            large = body if isinstance(body, FileBody) else None
            reference = self._spool.add(answer.lease.item, spooled(answer.result, answer.asked_at), large)
            self._handed.append(Handed(answer.ended, reference))
            answer.handed = True

    def flush(self) -> None:
        """First the bytes, then the references. A call that fails is to be made again."""
        if not self._handed:
            return
        self._spool.flush()
        self._step("spooled")
        valid = self._queue.fetched(self._handed)
        self._handed.clear()
        self._spool.referenced()
        self._pressure.grew(len(valid))
        if not all(valid):
            log.warning("leases were over, their pages are dropped", items=valid.count(False))


class Outlet:
    """What a fetcher that does not parse has in addition."""

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
