"""The crawls of an embedded frontier: opened, changed, paused, closed, forgotten; and the pages that they may have."""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits
from weft.frontier.durability.journal import report_damage
from weft.frontier.durability.recovery import FrontierRecovery
from weft.frontier.embedded.durability import EmbeddedDurability
from weft.frontier.embedded.excluded import ExcludedItems
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.rejected import EmbeddedRejected
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.scheduling.queues import Queues
from weft.frontier.scheduling.sites import Crawl
from weft.frontier.seen.seen_set import SeenSet


class EmbeddedCrawls:
    """See the contract. Maps names to numbers."""

    def __init__(
        self,
        base: FrontierResources,
        sites: EmbeddedSites,
        rejected: EmbeddedRejected,
        durability: EmbeddedDurability,
        excluded: ExcludedItems,
        recovery: FrontierRecovery,
    ) -> None:
        self._base = base
        self._queues, self._journal = base.queues, base.journal
        self._sites = sites
        self._rejected = rejected
        self._durability = durability
        self._excluded = excluded
        self._recovery = recovery
        with report_damage(base.journal.path):
            records = base.journal.rows("crawls")
            self._by_name: dict[str, int] = {msgspec.msgpack.decode(data)["name"]: number for number, data in records}

    def open_crawl(
        self, name: str, limits: CrawlLimits, section: PolitenessSection | None = None, weight: float = 1.0
    ) -> int:
        """See the contract; also restores a crawl that was not opened before `recover`."""
        section = section or self._base.section
        number = self._by_name.get(name)
        if number is not None and number in self._queues.crawls:
            self.change_crawl(number, limits, section, weight)
        elif number is not None:
            self.reopen_crawl(number, limits, section, weight)
        else:
            number, seed = self._record_new_crawl(name)
            runs = self._base.seen_runs
            self._add_crawl(Crawl(number, name, seed, limits, self._queues.blobs, section, weight, runs))
        return number

    def reopen_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Restores one of `kept_crawls`."""
        with report_damage(self._journal.path):
            row = self._journal.row("crawls", crawl)
            assert row is not None
            record = msgspec.msgpack.decode(row[1])
        blobs, runs = self._queues.blobs, self._base.seen_runs
        owner = Crawl(crawl, record["name"], record["seed"], limits, blobs, section, weight, runs)
        self._add_crawl(owner)
        if self._recovery.is_restored:
            self._recovery.restore_late_crawl(owner, self._base.counts, self._base.now())

    def change_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Applies other settings from now on."""
        owner = self._queues.crawls[crawl]
        if limits.max_depth is not None and owner.depths is None and len(owner.seen):
            raise BadInput("max_depth can be changed, but not added to a crawl that has begun without one")
        if limits.max_depth is not None and owner.depths is None:
            owner.depths = {}
        owner.limits, owner.section, owner.weight = limits, section, weight
        self._raise_longest_waits(section)
        for site in list(owner.sites) if self._recovery.is_restored else ():
            self._queues.schedule(site)
        self._queues.swapped.make_due_now(crawl, self._base.now())
        self._queues.schedule_blocked(owner)

    def follow(self, crawl: int, revision: int, trust: str = "") -> None:
        """See the contract. Robots.txt files and breakers are shared by crawls of equal `trust`: those that see the
        same hosts behind the same names."""
        self._queues.crawls[crawl].trust = f"{trust} " if trust else ""
        if trust or revision > 1:
            self._base.requests.log_crawl(self._base.now(), crawl, revision, trust)

    def kept_crawls(self) -> list[int]:
        """Every crawl in the journal, opened or not. Two may have one name if a kill came before one was `closed`."""
        with report_damage(self._journal.path):
            return [number for number, _ in self._journal.rows("crawls")]

    def open_number(self, name: str) -> int | None:
        """The number of an open crawl; None if none of that name is open."""
        number = self._by_name.get(name)
        return number if number in self._queues.crawls else None

    def pause(self, crawl: int, paused: bool = True) -> None:
        """Pauses or continues a crawl."""
        owner = self._queues.crawls[crawl]
        if owner.paused is paused:
            return
        owner.paused, now = paused, self._base.now()
        self._queues.fairness.remove_crawl(owner)
        owner.blocked.clear()
        self._queues.schedule_blocked(owner)
        for site, queue in owner.sites.items():
            if paused:
                self._sites.release_robots(queue)  # other crawls may have waited for it
            queue.served_at = max(queue.served_at, now)
            site.move_queue(queue)
            self._queues.schedule(site)

    def close_crawl(self, crawl: int) -> None:
        """Ends a crawl: its queue and its seen set are dropped in one step, and its name is free.

        After a kill it is restored, until `closed` is committed.
        """
        owner = self._queues.crawls.pop(crawl)
        owner.is_closed = True
        self._queues.fairness.remove_crawl(owner)
        self._queues.swapping.drop_swapped(owner)
        for site, queue in owner.sites.items():
            self._base.alive()
            self._sites.release_robots(queue)
            queue.clear()
            site.remove_queue(queue)
            self._queues.schedule(site)
        self._queues.queued -= owner.queued
        owner.sites.clear()
        self._base.seen_runs.detach_crawl(crawl)
        owner.seen, owner.depths = SeenSet(0), None  # the process that still holds the crawl holds no more than that
        owner.queued = 0
        owner.blocked.clear()
        self._queues.blocked.pop(crawl, None)
        self._excluded.close_crawl(crawl)
        self._rejected.close_crawl(crawl)
        if self._by_name.get(owner.name) == crawl:
            del self._by_name[owner.name]
            others = self._queues.crawls.values()
            self._by_name |= {other.name: other.number for other in others if other.name == owner.name}

    def forget_closed_crawl(self, crawl: int) -> None:
        """Its owner has recorded the end of a crawl: it is not restored any more after the next commit."""
        row = self._journal.row("crawls", crawl)
        if row is not None:  # until it is forgotten, `weft explain` finds its URLs
            self._journal.put_meta(f"seed:{crawl}", msgspec.msgpack.decode(row[1])["seed"])
        self._journal.delete("crawls", crawl)

    def forget_crawls(self, crawls: Sequence[int], at_most: int = 200) -> bool:
        """Deletes a part of what the journal holds of closed crawls, in one transaction: most of what one costs is the
        transaction."""
        self._durability.forget_crawls(frozenset(crawls))
        self._journal.put_meta("next_item", self._base.counts.next_item)  # the deleted lines can no longer provide it
        self._journal.commit()
        is_over = self._journal.forget_crawls(crawls, at_most)
        self._base.seen_runs.rewrite_without_forgotten()
        return is_over

    def _record_new_crawl(self, name: str) -> tuple[int, int]:
        number: int = (self._journal.meta("last_crawl") or max(self._by_name.values(), default=0)) + 1
        seed = random.getrandbits(63)
        self._by_name[name] = number
        self._journal.put("crawls", number, msgspec.msgpack.encode({"name": name, "seed": seed}))
        self._journal.put_meta("last_crawl", number)
        return number, seed

    def _add_crawl(self, crawl: Crawl) -> None:
        self._queues.crawls[crawl.number] = crawl
        self._raise_longest_waits(crawl.section)

    def _raise_longest_waits(self, section: PolitenessSection) -> None:
        self._queues.clocks.register_section(section)
        self._base.machine.raise_longest_times(section.max_retry_after_s, section.lease_s)


class EmbeddedPermits:
    """See the contract."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    def allow(self, crawl: int, max_pages: int) -> None:
        """Sets how many pages a crawl may have."""
        owner = self._queues.crawls[crawl]
        owner.limits = msgspec.structs.replace(owner.limits, max_pages=max_pages)
        self._queues.schedule_blocked(owner)

    def limit_flight(self, crawl: int, in_flight: int | None) -> None:
        """Limits the pages of a crawl that may be out from now on; more that are already out are not aborted."""
        owner = self._queues.crawls[crawl]
        if owner.limits.in_flight != in_flight:
            owner.limits = msgspec.structs.replace(owner.limits, in_flight=in_flight)
            self._queues.schedule_blocked(owner)

    def left(self, crawl: int) -> int:
        """How many more pages of a crawl may be started."""
        return self._queues.crawls[crawl].permits()

    def exhausted(self) -> bool:
        """Whether every crawl has reached its `max_pages`."""
        return all(
            crawl.limits.max_pages is not None and crawl.pages >= crawl.limits.max_pages
            for crawl in self._queues.crawls.values()
        )
