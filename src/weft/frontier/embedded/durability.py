"""What of an embedded frontier is safe: `commit` writes what was admitted and what has ended to the journal.

Now and then a checkpoint spares the next start the whole journal. An item that has ended stays open until the store's
batch with its row is acknowledged: a crash before queues it again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import msgspec

from weft.errors import DiskFull
from weft.frontier.durability.checkpoint import OpenItem
from weft.frontier.durability.recovery import Finished, Recovery
from weft.frontier.durability.saving import Saving
from weft.frontier.embedded.resources import Resources

CHECKPOINT_EVERY = 500_000  # journal lines between checkpoints; a large frontier waits longer, close() less
SAVED_BESIDE_FROM = 100_000  # URLs, queued and seen: fewer are written down in some milliseconds
MOST_REPLAYED = 3  # times the lines between checkpoints: close() leaves at most this many to the next start


class EmbeddedDurability:
    """See the contract. Owns the ends that are not acknowledged."""

    def __init__(self, base: Resources, checkpoints: Checkpoints) -> None:
        self._base = base
        self._journal = base.journal
        self._requests = base.requests
        self._pods = base.pods
        self.checkpoints = checkpoints
        self.acknowledged: int = base.journal.meta("acknowledged") or 0
        self._unacknowledged: list[tuple[int, OpenItem]] = []
        self._log_place = ("", 0)

    def commit(self) -> None:
        """Writes what was admitted, what has ended and the messages to other pods, and now and then a checkpoint."""
        self._pods.outbox.flush()
        self._requests.flush()
        lines = self._journal.waiting
        if self._requests.place != self._log_place:
            self._log_place = self._requests.place
            self._journal.put_meta("request_log", self._log_place)
        self._journal.commit()
        self.checkpoints.committed(lines, len(self._unacknowledged))
        self._pods.committed()

    def sync(self) -> None:
        """Also makes received messages durable, so that their senders may delete them."""
        safe = self._pods.last_committed
        self._requests.sync()
        self._journal.sync()
        self._pods.durable = safe

    def acknowledge(self, batch: int) -> None:
        """The ends of the batches' items go to the journal."""
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
        """What tells of an item whether the journal has its end."""
        return Finished(self._journal).__contains__

    def end(self, out: OpenItem, batch: int) -> None:
        """An item has ended, with a row in this batch of the store; 0: there is none to wait for."""
        if out.item.item < 0:
            return
        self._base.counts.finished += 1
        if batch:
            self._unacknowledged.append((batch, out))
        else:
            self._end_for_good(out)

    def forget(self, crawls: Collection[int]) -> None:
        """The ends of crawls that are deleted are of no interest."""
        self._unacknowledged = [entry for entry in self._unacknowledged if entry[1].crawl not in crawls]

    def open_items(self) -> list[OpenItem]:
        """What has ended, and might come back."""
        return [out for _, out in self._unacknowledged]

    def close(self) -> None:
        """Commits; writes a last checkpoint where it is worth it."""
        self.commit()
        self.checkpoints.close(len(self._unacknowledged))

    def _end_for_good(self, out: OpenItem) -> None:
        """It will not come back, whatever happens; until then its attempts are remembered."""
        self._journal.done[out.crawl].append(out.item.item)
        if out.item.attempt:
            self._journal.delete("retries", out.item.item)


class Checkpoints:
    """When a checkpoint is written; a large one in a process beside the crawl."""

    def __init__(self, base: Resources, recovery: Recovery, every: int = CHECKPOINT_EVERY) -> None:
        self._base = base
        self._recovery = recovery
        self._every = every
        # What was taken out of its queue, and has not ended for good, by the part that holds it.
        self.open_items: list[Callable[[], Iterable[OpenItem]]] = []
        self.saved_beside_from = SAVED_BESIDE_FROM
        self._since = 0  # journal lines since one was begun
        self._unsaved = 0  # journal lines that the last whole checkpoint does not include: a start replays them
        self._unsaved_before = 0  # those of them that the one that is being written includes
        self._saving: Saving | None = None

    def replayed(self, lines: int) -> None:
        """A start has replayed so many lines."""
        self._since = self._unsaved = lines

    def committed(self, lines: int, unacknowledged: int) -> None:
        """So many lines were written to the journal. Ends that are not acknowledged do not count as finished."""
        self._since += lines
        self._unsaved += lines
        self.is_saving()
        if self._since > self._lines_between():
            self._write(unacknowledged)

    def is_saving(self, *, wait: bool = False) -> bool:
        """Whether a checkpoint is being written."""
        if self._saving is not None and self._saving.is_over(wait=wait):
            if self._saving.was_written:
                self._unsaved -= self._unsaved_before
            self._saving = None
            self._recovery.saved()
        return self._saving is not None

    def close(self, unacknowledged: int) -> None:
        """The last checkpoint of this process. Writing down a large frontier takes 25 µs a site, so an end does not
        wait for it: the next start replays the journal instead, and begins one. Only where it would have to replay
        several times what lies between two checkpoints, because no process ran for long enough to write one, the end
        waits."""
        must_wait = self._unsaved > MOST_REPLAYED * self._lines_between()
        is_worth_it = self._unsaved > self._every // 25
        if self._saving is None and is_worth_it and (must_wait or not self._is_large()):
            self._write(unacknowledged)
        if self._saving is not None:
            if must_wait:
                self._saving.wait(self._recovery.written, self._base.alive)
            else:
                self._saving.give_up()
        self.is_saving()

    def _lines_between(self) -> int:
        """After how many journal lines a checkpoint is due."""
        return self._every + (self._base.queues.queued + self._base.counts.admitted // 8) // 10

    def _write(self, unacknowledged: int) -> None:
        """Everything must be committed."""
        if self.is_saving():
            return
        self._since = 0
        counts = msgspec.structs.replace(self._base.counts, finished=self._base.counts.finished - unacknowledged)
        if self._is_large():
            self._unsaved_before = self._unsaved
            self._saving = self._recovery.save_beside(counts, self._out)
            return
        try:
            self._recovery.save(counts, self._out)
            self._unsaved = 0
        except DiskFull:
            pass  # the journal has everything

    def _is_large(self) -> bool:
        """Whether a checkpoint takes longer than anyone should wait for."""
        queues = self._base.queues
        return queues.queued + sum(len(crawl.seen) for crawl in queues.crawls.values()) >= self.saved_beside_from

    def _out(self) -> list[OpenItem]:
        return [out for part in self.open_items for out in part()]
