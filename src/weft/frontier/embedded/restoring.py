"""What an embedded frontier restores when it is opened: the queues, the clocks of sites, and ends that the journal
lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from weft.errors import Damaged
from weft.frontier.durability.journal import ANY_CRAWL, FROM_STORE, LOST_TAIL, REMEDY, report_damage
from weft.frontier.durability.recovery import FrontierRecovery
from weft.frontier.embedded.durability import EmbeddedDurability
from weft.frontier.embedded.excluded import ExcludedItems
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.queue import EmbeddedQueue
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.politeness import LONGEST_SILENCE_S
from weft.frontier.requests import boot_id, last_requests, missing_bytes
from weft.frontier.scheduling.sites import KnownDepth
from weft.frontier.seen.seen_set import seen_key
from weft.records import Found
from weft.telemetry import Log

log = Log("weft.frontier.embedded.embedded_frontier")


class EmbeddedRecovery:
    """See the contract. `restore_stored` and `record_links_complete` are for a frontier that may lack links of stored
    pages.
    """

    def __init__(
        self,
        base: FrontierResources,
        queue: EmbeddedQueue,
        sites: EmbeddedSites,
        durability: EmbeddedDurability,
        excluded: ExcludedItems,
        recovery: FrontierRecovery,
    ) -> None:
        self._base = base
        self._journal, self._queues, self._counts = base.journal, base.queues, base.counts
        self._clocks = base.queues.clocks
        self._queue = queue
        self._sites = sites
        self._durability = durability
        self._excluded = excluded
        self._recovery = recovery
        # Links of stored pages may be missing here: those of the last pages after a power cut, all of them in a rebuilt
        # frontier (`weft rebuild --frontier`).
        self.is_new = base.journal.meta(FROM_STORE) is not None
        self.may_lack_links = self.is_new or base.journal.lost_tail
        self.unreadable_requests = 0  # unreadable lines of the request log; known after `recover`
        self.missing_log_bytes = missing_bytes(base.folder / "requests", base.journal.meta("request_log"))

    def recover(
        self,
        done: Iterable[int] = (),
        pages: Mapping[int, int] | None = None,
        by_key: Mapping[str, int] | None = None,
        by_crawl: Mapping[int, Mapping[str, int]] | None = None,
        *,
        batch: int = 0,  # noqa: ARG002
    ) -> int:
        """Restores from the journal. `batch` is for shared frontiers; this one acknowledges nothing here."""
        now, started_before = self._base.now(), self._journal.meta("boot")
        is_rebooted = started_before not in (None, boot_id())
        if self.is_new or is_rebooted:
            # The message numbers used last are unknown, and a receiver drops reused ones.
            self._base.pods.outbox.skip_used_numbers()
        self._recovery.is_restored = True
        self._excluded.load()
        if is_rebooted or (started_before and self._base.section.key_scope == "ip"):
            # The clock began again, or addresses are not known yet: it is unknown how long ago a site was asked.
            self._clocks.not_before = now + self._clocks.longest_delay_s
        self._read_last_requests(now)
        for item in self._restore_queues(list(done), now):
            self._journal.done[ANY_CRAWL].append(item)
            self._base.kept_requests.ended(item)
            if item in self._queues.retries:
                self._journal.delete("retries", item)
        self._restore_counts(pages or {}, by_key or {}, by_crawl or {})
        self._journal.put_meta("epoch", self._base.epoch)
        self._journal.put_meta("boot", boot_id())
        self._journal.commit()
        queued = self._queues.queued
        for crawl, found_url in self._base.pods.awaited_robots():
            if crawl in self._queues.crawls:
                self._queue.admit(crawl, [found_url])
        return queued

    def restore_stored(self, crawl: int, rows: Iterable[tuple[Found, int]]) -> None:
        """Marks stored pages as seen and ended, which the journal may have lost, so that they are not fetched again.

        The caller admits their links after this, then calls `record_links_complete`.
        """
        owner = self._queues.crawls[crawl]
        for found_url, item in rows:
            self._base.alive()
            owner.seen.add(found_url.url)
            if found_url.hops:
                # Its redirect may have led back into its own chain, which has a key of its own (`seen_key`): mark both.
                owner.seen.add(seen_key(msgspec.structs.replace(found_url, about=found_url.url)))
            if self._recovery.knows_item(item):
                continue
            self._counts.admitted += 1
            if owner.depths is not None:
                owner.depths[owner.seen.fingerprint(found_url.url)] = KnownDepth(found_url.depth, item, ended=True)
            self._queue.write_line(owner, found_url, item)

    def record_links_complete(self) -> None:
        """The links of all stored pages are admitted: records that, and commits."""
        self._journal.delete("meta", FROM_STORE)
        self._journal.delete("meta", LOST_TAIL)
        self._durability.commit()
        self.is_new = self.may_lack_links = False

    def _read_last_requests(self, now: float) -> None:
        """Reads from the request log when sites were last asked; if lines of it are lost, all sites wait a full
        delay.
        """
        longest = max(self._clocks.longest_delay_s, self._journal.meta("longest_delay") or 0.0)
        folder, not_before = self._base.folder / "requests", now - longest - LONGEST_SILENCE_S
        recent = last_requests(folder, not_before, now, self._base.alive, longest_delay_s=longest)
        self._clocks.last_ends = recent.ended
        if recent.lasts_s and self._clocks.not_before:  # hands may still send what an earlier boot gave them
            self._clocks.not_before += recent.lasts_s
        missing = self.missing_log_bytes
        self.unreadable_requests = recent.unreadable
        if recent.unreadable or missing:
            log.warning(
                "the request log is damaged: sites that may be in the lost lines wait a full delay",
                unreadable_lines=recent.unreadable, missing_bytes=missing,
            )  # fmt: skip
        if missing or self.is_new:
            recent.unsure_at = now
        if recent.unsure_at is not None:
            self._clocks.not_before = max(self._clocks.not_before, recent.unsure_at + self._clocks.longest_delay_s)

    def _restore_queues(self, done: list[int], now: float) -> list[int]:
        """Fills the queues; returns those of `done` whose ends the journal did not have."""
        self._counts.next_item = max(self._counts.next_item, self._journal.meta("next_item") or 0)
        excluded = list(self._excluded)
        with report_damage(self._journal.path):
            # A checkpoint may have items in its queues that were excluded since: then only the journal is read.
            unrecorded = self._recovery.restore(
                self._counts, done, now, remember=self.may_lack_links, aside={one.item.item for one in excluded},
                by_checkpoint=not any(one.crawl in self._queues.crawls for one in excluded),
            )  # fmt: skip
        self._durability.checkpoints.count_replayed(self._recovery.replayed_lines)
        last_stored = max(unrecorded, default=0)
        if last_stored >= self._counts.next_item:
            if not self.may_lack_links:
                # An item is in the journal before its page is stored, so a crash cannot cause this.
                raise Damaged(
                    self._journal.path,
                    f"does not have what was fetched last (item {last_stored:,} of the stored pages)",
                    REMEDY,
                )
            self._counts.next_item = last_stored + 1
        return unrecorded

    def _restore_counts(
        self, pages: Mapping[int, int], by_key: Mapping[str, int], by_crawl: Mapping[int, Mapping[str, int]]
    ) -> None:
        for number, count in pages.items():
            if number in self._queues.crawls:
                self._queues.crawls[number].pages = count
        for key, count in by_key.items():
            self._base.alive()
            for crawl in self._queues.crawls.values():
                self._queues.site(key).queue_of(crawl).pages = count
        for number, counts in by_crawl.items():
            for key, count in counts.items():
                self._base.alive()
                self._queues.site(key).queue_of(self._queues.crawls[number]).pages = count
