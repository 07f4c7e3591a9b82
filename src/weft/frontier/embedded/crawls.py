"""The crawls of an embedded frontier: opened, changed, paused, closed and forgotten; what an edit has set aside."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.contract import (
    CrawlLimits,
    CrawlStanding,
    FrontierStats,
    Item,
    Waiting,
)
from weft.frontier.embedded.leases import Leases
from weft.frontier.embedded.sites import Crawl
from weft.frontier.embedded.waiting import waiting_of
from weft.frontier.journal import undamaged
from weft.frontier.seen import SeenSet
from weft.records import Lease, Reason


class Crawls(Leases):
    """What is done with a crawl as a whole."""

    def open_crawl(
        self, name: str, limits: CrawlLimits, section: PolitenessSection | None = None, weight: float = 1.0
    ) -> int:
        """The number of a crawl: a new one, or the one of that name that is there, held to these settings from now on.

        Without a `section` it is as polite as the frontier. One that was not opened before `recover` comes back here.
        """
        section = section or self._section
        number = self._by_name.get(name)
        if number is not None and number in self._queues.crawls:
            self.change_crawl(number, limits, section, weight)
        elif number is not None:
            self.reopen_crawl(number, limits, section, weight)
        else:
            number, seed = self._new_crawl(name)
            self._open_crawl(Crawl(number, name, seed, limits, self._spill(number), section, weight))
        return number

    def reopen_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Brings back one of `kept_crawls`."""
        with undamaged(self._journal.path):
            row = self._journal.row("crawls", crawl)
            assert row is not None
            record = msgspec.msgpack.decode(row[1])
        spill = self._spill(crawl)
        owner = self._open_crawl(Crawl(crawl, record["name"], record["seed"], limits, spill, section, weight))
        if self._is_recovered:
            self._recovery.restore_late(owner, self._counts, self.now())

    def _open_crawl(self, crawl: Crawl) -> Crawl:
        self._queues.crawls[crawl.number] = crawl
        self._note_section(crawl.section)
        return crawl

    def _new_crawl(self, name: str) -> tuple[int, int]:
        number: int = (self._journal.latest_meta("last_crawl") or max(self._by_name.values(), default=0)) + 1
        seed = random.getrandbits(63)
        self._by_name[name] = number
        self._journal.put("crawls", number, msgspec.msgpack.encode({"name": name, "seed": seed}))
        self._journal.put_meta("last_crawl", number)
        return number, seed

    def change_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Holds a crawl to other settings from now on."""
        owner = self._queues.crawls[crawl]
        if limits.max_depth is not None and owner.depths is None and len(owner.seen):
            raise BadInput("max_depth can be changed, but not added to a crawl that has begun without one")
        if limits.max_depth is not None and owner.depths is None:
            owner.depths = {}
        owner.limits, owner.section, owner.weight = limits, section, weight
        self._note_section(section)
        for site in list(owner.sites) if self._is_recovered else ():
            self._queues.schedule(site)
        self._queues.resting.hurry(crawl, self.now())
        self._queues.unblock(owner)

    def url_bytes(self, crawl: int) -> int:
        """What a crawl's URLs take of memory."""
        return self._queues.crawls[crawl].url_bytes

    def limit_flight(self, crawl: int, in_flight: int | None) -> None:
        """Lets so many pages of a crawl be out from now on; those that are out stay."""
        owner = self._queues.crawls[crawl]
        if owner.limits.in_flight != in_flight:
            owner.limits = msgspec.structs.replace(owner.limits, in_flight=in_flight)
            self._queues.unblock(owner)

    def _note_section(self, section: PolitenessSection) -> None:
        """Sites and request logs are kept for as long as the longest delay of any crawl; waits that were written down
        are believed up to the longest that any crawl allows."""
        queues = self._queues
        queues.longest_wait_s = max(queues.longest_wait_s, section.max_retry_after_s)
        queues.longest_reset_s = max(queues.longest_reset_s, section.breaker_reset_s)
        self._machine.expect(section.max_retry_after_s, section.lease_s)
        queues.longest_delay_s = longest = max(queues.longest_delay_s, section.delay_s)
        if longest > (self._journal.latest_meta("longest_delay") or 0.0):
            self._journal.put_meta("longest_delay", longest)

    def kept_crawls(self) -> list[int]:
        """Every crawl that is kept, opened or not. Two may have one name: a kill came before one was `closed`."""
        with undamaged(self._journal.path):
            return [number for number, _ in self._journal.rows("crawls")]

    def close_crawl(self, crawl: int) -> None:
        """Ends a crawl: what is queued of it, and what it has seen, is dropped in one step, and its name is free.

        After a kill it is there again as it was, until `closed` is committed.
        """
        owner = self._queues.crawls.pop(crawl)
        owner.is_closed = True
        self._queues.fairness.leave(owner)
        self._queues.drop_at_rest(owner, self._alive)
        for site, lane in owner.sites.items():
            self._alive()
            self._release_robots(lane)
            self._queues.queued -= lane.queued
            lane.clear()
            site.remove(lane)
            self._queues.schedule(site)
        owner.sites.clear()
        owner.seen, owner.depths = SeenSet(0), None  # whoever still holds the crawl holds no more than that
        owner.queued = 0
        owner.blocked.clear()
        self._queues.blocked.pop(crawl, None)
        self._recovery.delete(owner.spill)
        self._aside.pop(crawl, None)
        self._refusals_kept.pop(crawl, None)
        for rejection in self._rejected:
            if rejection.crawl == crawl:
                del self._rejected_out[rejection.item.item]
        self._rejected = [rejection for rejection in self._rejected if rejection.crawl != crawl]
        if self._by_name.get(owner.name) == crawl:
            del self._by_name[owner.name]
            self._by_name |= {other.name: other.number for other in self._named(owner.name)}

    def _named(self, name: str) -> list[Crawl]:
        return [crawl for crawl in self._queues.crawls.values() if crawl.name == name]

    def closed(self, crawl: int) -> None:
        """Its owner knows, for good, that a crawl has ended: it does not come back after the next commit."""
        self._journal.delete("crawls", crawl)

    def forget_crawl(self, crawl: int, at_most: int = 200) -> bool:
        """Deletes a part of what the journal holds of a closed crawl; True when nothing is left of it."""
        return self.forget_crawls([crawl], at_most)

    def forget_crawls(self, crawls: Sequence[int], at_most: int = 200) -> bool:
        """The same for several, in one transaction: most of what one costs is the transaction."""
        gone = frozenset(crawls)
        self._unacknowledged = [entry for entry in self._unacknowledged if entry[1].crawl not in gone]
        self._journal.put_meta("next_item", self._counts.next_item)  # what is deleted cannot tell it any more
        self._journal.commit()
        return self._journal.forget(crawls, at_most)

    def open_breakers(self) -> list[tuple[str, float]]:
        """Sites of which nothing is asked now because they failed, with the end of that on the wall clock."""
        return sorted(self._queues.open_breakers().items())

    def set_trust(self, crawl: int, trust: str, revision: int = 1) -> None:
        """Robots.txt files and breakers are shared by crawls of equal trust: those that see the same hosts behind the
        same names. The request log says so, and by which revision of its settings the crawl runs from now on."""
        self._queues.crawls[crawl].trust = f"{trust} " if trust else ""
        if trust or revision > 1:
            self._requests.crawl(self.now(), crawl, revision, trust)

    def crawl_standing(self, crawl: int) -> CrawlStanding:
        """Where one crawl stands, from what is counted."""
        owner = self._queues.crawls[crawl]
        return CrawlStanding(owner.queued, owner.leased, owner.pages, len(owner.seen), len(self._aside.get(crawl, ())))

    def waits_for(self, crawl: int) -> Waiting | None:
        """What a crawl waits for that has URLs queued; None while it does not."""
        return waiting_of(self._queues, self._queues.crawls[crawl], self.now())

    def has_work(self, crawl: int) -> bool:
        """Whether something that is queued of a crawl may still be claimed; a look at all its sites."""
        owner = self._queues.crawls[crawl]
        if owner.limits.max_pages_per_domain is None:
            return owner.queued > 0
        at_rest = self._queues.resting.count(crawl)
        return at_rest > 0 or any(lane.queued and lane.has_budget() for lane in owner.sites.values())

    def set_aside(self, leases: Iterable[Lease]) -> None:
        """Takes items out that an edit has excluded, until `take_back`; nothing was asked for them."""
        for lease in leases:
            state = self._valid(lease)
            if state is None:
                continue
            self._take_home(state)
            self._free_place(state)
            self._machine.ended([(state.noted, self.now(), 0.0)])
            self._requests.end(lease.item, self.now(), "unasked")
            self._free_permit(state.lane)
            self._mark(state.item, state.lane.crawl, leased=False)
            self._aside.setdefault(lease.crawl, {})[lease.item] = state.item
            self._journal.put("aside", lease.item, lease.crawl, msgspec.msgpack.encode(state.item))
            self._schedule(state)
        self._requests.try_flush()

    def take_back(self, crawl: int, wanted: Callable[[Item], bool]) -> int:
        """Queues those set-aside items again that are `wanted` now; how many that are."""
        owner, aside = self._queues.crawls[crawl], self._aside.get(crawl, {})
        back = [item for item in aside.values() if wanted(item)]
        for item in back:
            del aside[item.item]
            self._journal.delete("aside", item.item)
            lane = self._queues.lane_at(self._queues.key_of(item.url), owner)
            self._queues.push_urgent(lane, owner.at_known_depth(item))
            self._queues.schedule(lane.site)
        return len(back)

    def exhausted(self) -> bool:
        """Whether every crawl has reached its `max_pages`."""
        return all(
            crawl.limits.max_pages is not None and crawl.pages >= crawl.limits.max_pages
            for crawl in self._queues.crawls.values()
        )

    def allow(self, crawl: int, max_pages: int) -> None:
        """Changes a crawl's `max_pages`."""
        owner = self._queues.crawls[crawl]
        owner.limits = msgspec.structs.replace(owner.limits, max_pages=max_pages)
        self._queues.unblock(owner)

    def permits(self, crawl: int) -> int:
        """How many more pages of a crawl may be started."""
        return self._queues.crawls[crawl].permits()

    def stats(self) -> FrontierStats:
        """The current numbers."""
        crawls = self._queues.crawls.values()
        return FrontierStats(
            queued=self._queues.queued,
            leased=len(self._leases),
            seen=sum(len(crawl.seen) for crawl in crawls),
            sites=len(self._queues.sites) + len(self._queues.resting),
            admitted=self._counts.admitted,
            finished=self._counts.finished,
            pages=sum(crawl.pages for crawl in crawls),
            due=self._queues.wheel.due(self.now()),
        )

    def pause(self, crawl: int, paused: bool = True) -> None:
        """Nothing of a paused crawl is claimed."""
        owner = self._queues.crawls[crawl]
        if owner.paused is paused:
            return
        owner.paused, now = paused, self.now()
        self._queues.fairness.leave(owner)
        owner.blocked.clear()
        self._queues.unblock(owner)
        for site, lane in owner.sites.items():
            if paused:
                self._release_robots(lane)  # other crawls may have waited for it
            lane.served_at = max(lane.served_at, now)
            site.replace(lane)
            self._queues.schedule(site)

    def drop(self, crawl: int) -> None:
        """Rejects everything that is queued for a crawl."""
        owner = self._queues.crawls[crawl]
        for lane in self._queues.take_out(owner):
            self._reject(lane, Reason.DROPPED)
            self._alive()
        for lane in owner.sites.values():
            self._reject(lane, Reason.DROPPED)
            self._alive()

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything that is queued for a crawl, site by site."""
        owner = self._queues.crawls[crawl]
        for lane in owner.sites.values():
            yield from lane.items()
        for lane in self._queues.lanes_at_rest(owner):
            yield from lane.items()

    def _read_aside(self) -> None:
        for number, crawl, record in self._journal.rows("aside"):
            self._aside.setdefault(crawl, {})[number] = msgspec.msgpack.decode(record, type=Item)
