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
from weft.frontier.durability.recovery import FinishedItems, FrontierCounters, FrontierRecovery
from weft.frontier.durability.saving import CheckpointChild
from weft.frontier.embedded.resources import FrontierResources
from weft.telemetry import Log

CHECKPOINT_EVERY = 500_000  # journal lines between checkpoints; close() waits for less
MOST_CHANGE_BYTES = 32 * 1024 * 1024  # bytes of changes of what is swapped out, after which one is due in any case
MOST_UNSAVED_BLOB_BYTES = (
    8 * 1024 * 1024
)  # bytes of blobs in no checkpoint: an end writes one, or the next start makes them again
SAVED_IN_CHILD_FROM = 100_000  # queued URLs: fewer are written in some milliseconds
log = Log("weft.frontier.embedded.durability")


class EmbeddedDurability:
    """See the contract. Holds the ends that are not acknowledged."""

    def __init__(self, base: FrontierResources, checkpoints: CheckpointSchedule) -> None:
        self._base = base
        self._journal = base.journal
        self._requests = base.requests
        self._kept_requests = base.kept_requests
        self._pod_messages = base.pods
        self.checkpoints = checkpoints
        self.acknowledged: int = base.journal.meta("acknowledged") or 0
        self._unacknowledged: list[tuple[int, OpenItem]] = []
        self._log_position = ("", 0)

    def commit(self) -> None:
        """Writes admissions, ends and messages to other pods, and periodically a checkpoint."""
        self._pod_messages.outbox.flush_messages()
        self._requests.flush()
        lines = self._journal.unwritten_items
        if self._requests.position != self._log_position:
            self._log_position = self._requests.position
            self._journal.put_meta("request_log", self._log_position)
        self._journal.commit()
        self._base.seen_runs.do_due_work()
        self._base.blobs.delete_some()
        self.checkpoints.count_committed(lines, len(self._unacknowledged))
        self._pod_messages.note_commit()

    def sync(self) -> None:
        """Also makes received messages durable, so that their senders may delete them."""
        safe = self._pod_messages.committed_numbers
        self._requests.sync()
        self._journal.sync()
        self._pod_messages.durable_numbers = safe

    def acknowledge(self, batch: int) -> None:
        """Writes the ends of the batches' items to the journal."""
        self.acknowledged = batch
        keep = []
        for number, out in self._unacknowledged:
            if number <= batch:
                self._journal_end(out)
            else:
                keep.append((number, out))
        self._unacknowledged = keep
        self._journal.put_meta("acknowledged", batch)

    def knows_finished(self) -> Callable[[int], bool]:
        """Returns a test whether the journal has an item's end."""
        return FinishedItems(self._journal).__contains__

    def end_item(self, out: OpenItem, batch: int) -> None:
        """Ends an item whose row is in this batch of the store; 0: in none."""
        if out.item.item < 0:
            return
        self._base.counts.finished += 1
        if batch:
            self._unacknowledged.append((batch, out))
        else:
            self._journal_end(out)

    def forget_crawls(self, crawls: Collection[int]) -> None:
        """Forgets the ends of deleted crawls."""
        self._unacknowledged = [entry for entry in self._unacknowledged if entry[1].crawl not in crawls]

    def open_items(self) -> list[OpenItem]:
        """Items that have ended, and would be restored after a crash."""
        return [out for _, out in self._unacknowledged]

    def close(self) -> None:
        """Commits; writes a last checkpoint."""
        self.commit()
        self.checkpoints.close(len(self._unacknowledged))

    def _journal_end(self, out: OpenItem) -> None:
        """Ends an item that no crash can restore; its attempts are recorded until then."""
        self._journal.done[out.crawl].append(out.item.item)
        self._kept_requests.ended(out.item.item)
        if out.item.attempt:
            self._journal.delete("retries", out.item.item)


class CheckpointSchedule:
    """Decides when a checkpoint is written; a large one is written by a child process."""

    def __init__(self, base: FrontierResources, recovery: FrontierRecovery, every: int = CHECKPOINT_EVERY) -> None:
        self._base = base
        self._recovery = recovery
        self._lines_between = every
        # Items that are out of their queues and have not ended for good, by the part that holds them.
        self.open_items: list[Callable[[], Iterable[OpenItem]]] = []
        self.saved_beside_from = SAVED_IN_CHILD_FROM
        self._lines_since_begun = 0  # journal lines since the last one was begun
        self._unsaved_lines = (
            0  # journal lines that the last complete checkpoint does not include: a start replays them
        )
        self._being_saved_lines = 0  # those of them that the checkpoint being written includes
        self._checkpoint_child: CheckpointChild | None = None

    def count_replayed(self, lines: int) -> None:
        """Called when a start has replayed that many lines."""
        self._lines_since_begun = self._unsaved_lines = lines

    def count_committed(self, lines: int, unacknowledged: int) -> None:
        """That many lines were written to the journal. Ends that are not acknowledged do not count as finished."""
        self._lines_since_begun += lines
        self._unsaved_lines += lines
        self.is_saving()
        if self._lines_since_begun > self._lines_between or len(self._base.queues.swapped.changes) > MOST_CHANGE_BYTES:
            self._write_checkpoint(unacknowledged)

    def is_saving(self, *, wait: bool = False) -> bool:
        """Whether a checkpoint is being written."""
        if self._checkpoint_child is not None and self._checkpoint_child.has_ended(wait=wait):
            was_written, self._checkpoint_child = self._checkpoint_child.was_written, None
            size = self._recovery.end_checkpoint(was_written=was_written)
            if was_written:
                self._note_saved(self._being_saved_lines, size)
        return self._checkpoint_child is not None

    def close(self, unacknowledged: int) -> None:
        """Writes the last checkpoint of this process, after one that is being written: the next start has nothing to
        replay, however short this process was. It takes a second or two at any size.
        """
        if self._checkpoint_child is not None:
            self._checkpoint_child.wait(self._recovery.written_bytes, self._base.alive)
        self.is_saving()
        if self._unsaved_lines > self._lines_between // 25 or self._base.blobs.bytes_written > MOST_UNSAVED_BLOB_BYTES:
            self._write_in_this_process(self._counters(unacknowledged))

    def _write_checkpoint(self, unacknowledged: int) -> None:
        """Writes a checkpoint; everything must be committed."""
        if self.is_saving():
            return
        self._lines_since_begun = 0
        counts = self._counters(unacknowledged)
        if not self._is_large():
            self._write_in_this_process(counts)
            return
        with suppress(DiskFull):
            self._being_saved_lines = self._unsaved_lines
            self._checkpoint_child = self._recovery.save_in_child(counts, self._all_open_items)

    def _write_in_this_process(self, counts: FrontierCounters) -> None:
        with suppress(DiskFull):  # the journal has everything
            self._note_saved(self._unsaved_lines, self._recovery.save_checkpoint(counts, self._all_open_items))

    def _note_saved(self, lines: int, size: int) -> None:
        self._unsaved_lines -= lines
        log.info("a checkpoint was written", lines=lines, bytes=size, bytes_a_line=round(size / max(lines, 1), 1))

    def _counters(self, unacknowledged: int) -> FrontierCounters:
        return msgspec.structs.replace(self._base.counts, finished=self._base.counts.finished - unacknowledged)

    def _is_large(self) -> bool:
        """Whether a checkpoint takes longer than a round should."""
        queues = self._base.queues
        return queues.queued >= self.saved_beside_from

    def _all_open_items(self) -> list[OpenItem]:
        return [out for part in self.open_items for out in part()]
