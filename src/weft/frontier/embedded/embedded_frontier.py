"""The frontier of one process: the working set in memory, durable in a journal beside it. Nothing to install.

Memory holds what is needed quickly: due sites, the heads of the queues, the fingerprints. The journal holds what must
not be lost. Admissions and ends reach it with `commit`; requests reach the request log inside `claim`, before anything
is sent, so that every politeness clock survives a kill. One process owns the folder (it holds a lock); each opening is
a new epoch, and leases of an older epoch change nothing.

Order of writes that the engine keeps (see engine/loop/commit.py): pages to the store, then `commit` here (the links
found on them), then the store's index; `acknowledge` once all of it is on the disk. What `finish` has ended is valid
with the row in the index. A crash between any two of these repeats work, and loses none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from weft.alive import Alive, silent
from weft.config import PolitenessSection
from weft.errors import BadInput, Busy
from weft.files import try_lock
from weft.frontier.clock import MachineClock
from weft.frontier.durability.recovery import FrontierRecovery
from weft.frontier.embedded.crawls import EmbeddedCrawls, EmbeddedPermits
from weft.frontier.embedded.durability import CHECKPOINT_EVERY, CheckpointSchedule, EmbeddedDurability
from weft.frontier.embedded.embedded_routing import PodInbox, RoutedQueue
from weft.frontier.embedded.excluded import ExcludedItems
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.leases import EmbeddedLeases
from weft.frontier.embedded.logins import EmbeddedLogins
from weft.frontier.embedded.notes import EmbeddedNotes
from weft.frontier.embedded.queue import EmbeddedQueue
from weft.frontier.embedded.rejected import EmbeddedRejected
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.embedded.restoring import EmbeddedRecovery
from weft.frontier.embedded.revisits import EmbeddedRevisits
from weft.frontier.embedded.status import EmbeddedStatus
from weft.frontier.scheduling.queues import MAX_SITES_IN_MEMORY


class EmbeddedFrontier:
    """See the contract. Of several `pods` it is one: `pods` and `inbox` are for the exchange with the others."""

    def __init__(
        self,
        folder: Path,
        section: PolitenessSection,
        *,
        pod: int = 0,
        pods: int = 1,
        revision: int = 0,
        checkpoint_every: int = CHECKPOINT_EVERY,
        max_in_memory: int = MAX_SITES_IN_MEMORY,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        machine: MachineClock | None = None,
        alive: Alive = silent,
    ) -> None:
        """`machine`: the clock that all processes of a user share; it goes by the machine's monotonic time.

        `revision`: of the crawl's settings, for the request log. `alive` is called for each piece of work that grows
        with the crawl.
        """
        self._lock = _lock_folder(folder)
        try:
            self._base = base = FrontierResources(folder, section, clock, wall, machine, alive, pod, pods, revision)
        except BaseException:
            os.close(self._lock)
            raise
        base.queues.max_in_memory = max_in_memory
        restoring = FrontierRecovery(folder, base.journal, base.queues, base.seen_runs, alive)
        checkpoints = CheckpointSchedule(base, restoring, checkpoint_every)
        excluded = ExcludedItems(base.journal)
        self.now = base.now
        self.pods = base.pods
        self.durability = durability = EmbeddedDurability(base, checkpoints)
        self.sites = sites = EmbeddedSites(base)
        self.rejected = rejected = EmbeddedRejected(base, sites, durability)
        self.leases = EmbeddedLeases(base, sites, rejected, durability, excluded)
        self.queue = (EmbeddedQueue if pods == 1 else RoutedQueue)(base, sites, rejected, excluded)
        self.revisits = EmbeddedRevisits(base, self.queue, sites, durability)
        self.crawls = EmbeddedCrawls(base, sites, rejected, durability, excluded, restoring)
        self.permits = EmbeddedPermits(base.queues)
        self.status = EmbeddedStatus(base, self.leases, excluded)
        self.notes = EmbeddedNotes(base)
        self.logins = EmbeddedLogins(base)
        self.recovery = EmbeddedRecovery(base, self.queue, sites, durability, excluded, restoring)
        self.inbox = PodInbox(base.pods, self.queue, self.crawls, self.notes, sites)
        # Excluded items are included: after they are restored, no line of the journal has them.
        checkpoints.open_items = [
            self.leases.open_items, durability.open_items, rejected.open_items, lambda: excluded,
        ]  # fmt: skip

    def close(self) -> None:
        """Commits, closes, and releases the folder's lock."""
        self.durability.close()
        self._base.close()
        os.close(self._lock)


def _lock_folder(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"data dir {folder}: cannot be used: {error.strerror}; choose another `data_dir`") from None
    if not try_lock(fd):
        os.close(fd)
        raise Busy(f"data dir {folder}: a crawl is running in it; stop it first, or choose another data dir") from None
    return fd
