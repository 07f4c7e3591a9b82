"""Where a pod's fetched pages wait for its parsers, and who cleans up there.

    DATA/spool/pod_N/    segments (see engine/loop/spool.py)

The fetchers write; the parsers read, sweep now and then, and once more when they end: the last to go leaves nothing.
"""

from __future__ import annotations

from pathlib import Path

from weft.engine.loop.handoff import Handoff
from weft.engine.loop.pressure import Pressure
from weft.engine.loop.spool import SpoolWriter
from weft.engine.loop.steps import crash_point
from weft.frontier.contract import Frontier, ParseQueue
from weft.telemetry import Slot

GATHER_S = (
    0.005  # ended transfers wait so long for others: each journey to the frontier costs more than a page's spooling
)


def spool_of(home: Path, pod: int) -> Path:
    """The pod's spool in a crawl's first data dir."""
    return home / "spool" / f"pod_{pod}"


class Outlet:
    """What a fetcher that does not parse has in addition."""

    def __init__(self, frontier: Frontier, queue: ParseQueue, home: Path, slot: Slot, soft: int, hard: int) -> None:
        self.spool = SpoolWriter(spool_of(home, slot.pod), slot.process)
        self.pressure = Pressure(lambda: frontier.stats().to_parse, soft, hard)
        self.handoff = Handoff(queue, self.spool, self.pressure, crash_point())
