"""The shared base of the parts of an embedded frontier: its files, its clocks, the working set and the counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weft.alive import Alive
from weft.config import PolitenessSection
from weft.frontier.clock import MachineClock, NoMachineClock
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.durability.recovery import FrontierCounters
from weft.frontier.embedded.kept_requests import KeptRequests
from weft.frontier.embedded.pods import PodExchange
from weft.frontier.requests import RequestLog, Retention
from weft.frontier.scheduling.queues import Queues
from weft.frontier.seen.seen_runs import SeenRuns
from weft.records import POD_SHIFT


class FrontierResources:
    """Opened and closed together; holds no logic of its own."""

    def __init__(
        self,
        folder: Path,
        section: PolitenessSection,
        clock: Callable[[], float],
        wall: Callable[[], float],
        machine: MachineClock | None,
        alive: Alive,
        pod: int,
        pods: int,
        revision: int,
    ) -> None:
        self.folder = folder
        self.section = section
        self.wall = wall
        self.now = never_backwards(clock)
        self.alive = alive
        self.machine = machine or NoMachineClock()
        self.journal = FrontierJournal(folder / "frontier.db", alive)
        self.epoch: int = (self.journal.meta("epoch") or 0) + 1
        self.seen_runs = SeenRuns(folder, self.journal, alive)
        self.blobs = BlobStore(folder / "queues.db")
        self.queues = Queues(section, self.journal, self.blobs, self.now, wall, self.epoch)
        self.counts = FrontierCounters(next_item=(pod << POD_SHIFT) + 1)
        self.pods = PodExchange(self.journal, self.queues.crawls, pod, pods)
        self.requests = RequestLog(
            folder / "requests", self.now(), revision, Retention(section.log_days, section.log_bytes)
        )
        self.kept_requests = KeptRequests(folder / "payloads", self.journal)

    def close(self) -> None:
        """Closes in this order: the journal refers to the request log."""
        self.blobs.close()
        self.seen_runs.close()
        self.requests.close()
        self.journal.close()
        self.kept_requests.close()
        self.machine.close()


def never_backwards(clock: Callable[[], float]) -> Callable[[], float]:
    """A clock that repeats its last time while the other one runs backwards."""
    latest = 0.0

    def now() -> float:
        nonlocal latest
        time = clock()
        if time > latest:  # not `max`: it is called several times for each page
            latest = time
        return latest

    return now
