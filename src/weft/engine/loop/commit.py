"""Group commit: many pages made permanent together, in the one order in which a crash costs nothing.

    1. the pages' bytes to the WARC files
    2. the links found on them to the frontier's journal
    3. the pages' rows to the index: the commit point
    4. about once a second, from a thread: bytes, journal and rows to the disk
    5. then these batches are acknowledged to the frontier, which forgets their items

A crash after 2 repeats the page and finds its links known; a crash after 3 finds the row and finishes the item. A full
disk stops at the step that failed; the next call resumes there, and until then nothing new is claimed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from weft.errors import WeftError
from weft.frontier.contract import Frontier
from weft.store.pages import PageStore
from weft.telemetry import Log

SYNC_EVERY_S = 1.0
log = Log("weft.engine.loop.commit")


class Committer:
    """Commits for one engine, on its thread; syncs to disk on another."""

    def __init__(
        self,
        frontier: Frontier,
        store: PageStore,
        step: Callable[[str], None],
        also_sync: Callable[[], None] = lambda: None,
    ) -> None:
        self._durability, self._rejected_items = frontier.durability, frontier.rejected
        self._store = store
        self._step = step
        self._also_sync = also_sync
        self._ended_items: list[int] = []
        self._synced = self._acknowledged = 0
        self._is_stopping = threading.Event()
        self._sync_wanted = threading.Event()
        self._next_sync = 0.0  # when bytes, journal and rows are synced to disk together
        self._requested_ticket = self._completed_ticket = 0  # the last `sync_soon`, and the last that is on the disk
        self.after_sync: Callable[[], None] = lambda: None  # on the syncing thread
        self._thread = threading.Thread(target=self._sync_in_background, name="sync", daemon=True)
        self._thread.start()

    def register_rejected_items(self, items: Iterable[int]) -> None:
        """Registers rejected items whose rows were handed to the store."""
        self._ended_items += items

    def commit(self) -> None:
        """Makes everything so far permanent against a kill. DiskFull: call it again when there is room."""
        self._step("before-write")
        self._store.write()
        self._step("after-write")
        self._durability.commit()
        self._step("after-links")
        batch = self._store.commit()
        self._step("after-rows")
        if self._ended_items:
            self._rejected_items.end_stored(self._ended_items, batch)
            self._ended_items = []
        if self._synced > self._acknowledged:
            self._step("after-sync")
            self._acknowledged = self._synced
            self._durability.acknowledge(self._acknowledged)
            self._step("after-acknowledge")

    def sync_soon(self) -> int:
        """Requests that the other thread syncs what is committed; returns a ticket for `synced`."""
        self._requested_ticket += 1
        self._sync_wanted.set()
        return self._requested_ticket

    def is_synced(self, ticket: int) -> bool:
        """Whether what was committed before `sync_soon` returned this ticket is on the disk."""
        return self._completed_ticket >= ticket

    def close(self) -> None:
        """Commits and syncs the rest, and acknowledges it to the frontier."""
        self._is_stopping.set()
        self._sync_wanted.set()
        self._thread.join()
        self.commit()
        self._durability.sync()
        self._synced = self._store.sync()
        self._durability.acknowledge(self._synced)
        self._durability.commit()

    def _sync_in_background(self) -> None:
        while self._sync_wanted.wait(SYNC_EVERY_S) is not None and not self._is_stopping.is_set():
            try:
                requested = self._requested_ticket
                self._sync_wanted.clear()
                if requested > self._completed_ticket and time.monotonic() < self._next_sync:
                    # Only journal and rows are synced: WARC bytes that a power cut destroys are detected at the next
                    # start.
                    self._durability.sync()
                    self._store.sync_rows()
                    self._completed_ticket = requested
                    self.after_sync()
                    continue
                batch = self._store.batch
                self._also_sync()
                self._durability.sync()
                # The loop commits meanwhile. A later batch may have its rows on the disk now, but its links were
                # written after the journal was synced, so it counts from the next sync on.
                self._synced = min(batch, self._store.sync())
                self._next_sync = time.monotonic() + SYNC_EVERY_S
                if requested > self._completed_ticket:
                    self._completed_ticket = requested
                    self.after_sync()
            except (OSError, WeftError) as error:
                # The next round tries again; until then no batch is acknowledged, so nothing can be lost.
                log.error("sync failed", error=error)
