"""Durability of an embedded frontier: `commit` writes admissions and ends to the journal.

Periodic checkpoints spare the next start the whole journal. An item that has ended stays open until the store's batch
with its row is acknowledged: a crash before queues it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import msgspec

from weft.errors import DiskFull
from weft.frontier.durability.checkpoint import OpenItem
from weft.frontier.durability.recovery import Counts, Finished, FrontierRecovery
from weft.frontier.durability.saving import Saving
from weft.frontier.embedded.resources import Resources
from weft.telemetry import Log

CHECKPOINT_EVERY = 500_000  # journal lines between checkpoints; close() waits for less
MOST_CHANGES = 32 * 1024 * 1024  # bytes of changes of what is swapped out, after which one is due in any case
MOST_LOST = 8 * 1024 * 1024  # bytes of blobs in no checkpoint: an end writes one, or the next start makes them again
SAVED_BESIDE_FROM = 100_000  # queued URLs: fewer are written in some milliseconds
log = Log("weft.frontier.embedded.durability")


class EmbeddedDurability:
    """See the contract. Holds the ends that are not acknowledged."""

    def __init__(self, base: Resources, checkpoints: Checkpoints) -> None:
        self._base = base
        self._journal = base.journal
        self._requests = base.requests
        self._kept_requests = base.kept_requests
        self._pods = base.pods
        self.checkpoints = checkpoints
        self.acknowledged: int = base.journal.meta("acknowledged") or 0
        self._unacknowledged: list[tuple[int, OpenItem]] = []
        self._log_position = ("", 0)

    def commit(self) -> None:
        """Writes admissions, ends and messages to other pods, and periodically a checkpoint."""
        self._pods.outbox.flush()
        self._requests.flush()
        lines = self._journal.waiting
        if self._requests.place != self._log_position:
            self._log_position = self._requests.place
            self._journal.put_meta("request_log", self._log_position)
        self._journal.commit()
        self._base.seen_runs.step()
        self._base.blobs.delete_some()
        self.checkpoints.committed(lines, len(self._unacknowledged))
        self._pods.committed()

    def sync(self) -> None:
        """Also makes received messages durable, so that their senders may delete them."""
        safe = self._pods.last_committed
        self._requests.sync()
        self._journal.sync()
        self._pods.durable = safe

    def acknowledge(self, batch: int) -> None:
        """Writes the ends of the batches' items to the journal."""
        self.acknowledged = batch
        keep = []
        for number, out in self._unacknowledged:
            if number <= batch:
                self._end_for_good(out)
            else:
                keep.append((number, out))
        self._unacknowledged = keep
        self._journal.put_meta("acknowledged", batch)

    def knows_finished(self) -> Callable[[int], bool]:
        """Returns a test whether the journal has an item's end."""
        return Finished(self._journal).__contains__

    def end(self, out: OpenItem, batch: int) -> None:
        """Ends an item whose row is in this batch of the store; 0: in none."""
        if out.item.item < 0:
            return
        self._base.counts.finished += 1
        if batch:
            self._unacknowledged.append((batch, out))
        else:
            self._end_for_good(out)

    def forget(self, crawls: Collection[int]) -> None:
        """Forgets the ends of deleted crawls."""
        self._unacknowledged = [entry for entry in self._unacknowledged if entry[1].crawl not in crawls]

    def open_items(self) -> list[OpenItem]:
        """Items that have ended, and would be restored after a crash."""
        return [out for _, out in self._unacknowledged]

    def close(self) -> None:
        """Commits; writes a last checkpoint."""
        self.commit()
        self.checkpoints.close(len(self._unacknowledged))

    def _end_for_good(self, out: OpenItem) -> None:
        """Ends an item that no crash can restore; its attempts are recorded until then."""
        self._journal.done[out.crawl].append(out.item.item)
        self._kept_requests.ended(out.item.item)
        if out.item.attempt:
            self._journal.delete("retries", out.item.item)


class Checkpoints:
    """Decides when a checkpoint is written; a large one is written by a child process."""

    def __init__(self, base: Resources, recovery: FrontierRecovery, every: int = CHECKPOINT_EVERY) -> None:
        self._base = base
        self._recovery = recovery
        self._every = every
        # Items that are out of their queues and have not ended for good, by the part that holds them.
        self.open_items: list[Callable[[], Iterable[OpenItem]]] = []
        self.saved_beside_from = SAVED_BESIDE_FROM
        self._since = 0  # journal lines since the last one was begun
        self._unsaved = 0  # journal lines that the last complete checkpoint does not include: a start replays them
        self._unsaved_before = 0  # those of them that the checkpoint being written includes
        self._saving: Saving | None = None

    def replayed(self, lines: int) -> None:
        """Called when a start has replayed that many lines."""
        self._since = self._unsaved = lines

    def committed(self, lines: int, unacknowledged: int) -> None:
        """That many lines were written to the journal. Ends that are not acknowledged do not count as finished."""
        self._since += lines
        self._unsaved += lines
        self.is_saving()
        if self._since > self._every or len(self._base.queues.swapped.changes) > MOST_CHANGES:
            self._write(unacknowledged)

    def is_saving(self, *, wait: bool = False) -> bool:
        """Whether a checkpoint is being written."""
        if self._saving is not None and self._saving.is_over(wait=wait):
            was_written, self._saving = self._saving.was_written, None
            size = self._recovery.saved(was_written=was_written)
            if was_written:
                self._note_saved(self._unsaved_before, size)
        return self._saving is not None

    def close(self, unacknowledged: int) -> None:
        """Writes the last checkpoint of this process, after one that is being written: the next start has nothing to
        replay, however short this process was. It takes a second or two at any size.
        """
        if self._saving is not None:
            self._saving.wait(self._recovery.written, self._base.alive)
        self.is_saving()
        if self._unsaved > self._every // 25 or self._base.blobs.bytes_written > MOST_LOST:
            self._write_here(self._counts(unacknowledged))

    def _write(self, unacknowledged: int) -> None:
        """Writes a checkpoint; everything must be committed."""
        if self.is_saving():
            return
        self._since = 0
        counts = self._counts(unacknowledged)
        if not self._is_large():
            self._write_here(counts)
            return
        with suppress(DiskFull):
            self._unsaved_before = self._unsaved
            self._saving = self._recovery.save_beside(counts, self._out)

    def _write_here(self, counts: Counts) -> None:
        with suppress(DiskFull):  # the journal has everything
            self._note_saved(self._unsaved, self._recovery.save(counts, self._out))

    def _note_saved(self, lines: int, size: int) -> None:
        self._unsaved -= lines
        log.info("a checkpoint was written", lines=lines, bytes=size, bytes_a_line=round(size / max(lines, 1), 1))

    def _counts(self, unacknowledged: int) -> Counts:
        return msgspec.structs.replace(self._base.counts, finished=self._base.counts.finished - unacknowledged)

    def _is_large(self) -> bool:
        """Whether a checkpoint takes longer than a round should."""
        queues = self._base.queues
        return queues.queued >= self.saved_beside_from

    def _out(self) -> list[OpenItem]:
        return [out for part in self.open_items for out in part()]
