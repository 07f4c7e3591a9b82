"""The frontier of one process: the working set in memory, durable in a journal beside it. Nothing to install.

Memory holds what must be quick: which sites are due, the heads of the queues, the fingerprints. The journal holds what
must not be lost. What is admitted and finished reaches it with `commit`; requests reach the request log inside `claim`,
before anything is sent, so that every politeness clock survives a kill. One process owns the folder (it holds a lock);
each opening is a new epoch, and leases of an older epoch change nothing.

Order of writes that the engine keeps (see engine/loop/commit.py): pages to the store, then `commit` here (the links
found on them), then the store's index; `acknowledge` once all of it is on the disk. What `finish` has ended is valid
with the row in the index. A crash between any two of these repeats work, and loses none.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from weft.config import PolitenessSection
from weft.errors import BadInput, Busy, Damaged, DiskFull
from weft.frontier.contract import (
    Admission,
    CrawlLimits,
    CrawlStanding,
    End,
    Ended,
    FrontierStats,
    Item,
    Outcome,
    Rejection,
    RobotsRecord,
    Wanted,
)
from weft.frontier.embedded.checkpoint import OpenItem
from weft.frontier.embedded.queues import Queues
from weft.frontier.embedded.recovery import LETTER, Counts, Finished, Recovery
from weft.frontier.embedded.robots_files import RobotsFiles
from weft.frontier.embedded.sites import Crawl, KnownDepth, Lane, Site
from weft.frontier.journal import ANY_CRAWL, LOST_TAIL, REMEDY, Journal, undamaged
from weft.frontier.politeness import AddressClock, log_change
from weft.frontier.requests import RequestLog, boot_id, last_requests, missing_bytes
from weft.frontier.seen import SeenSet, seen_key
from weft.records import POD_SHIFT, Found, Lease, Purpose, Reason
from weft.telemetry import Log

_OVERFLOW = 20  # a domain with a budget of N pages queues at most this many times N
_REMEMBERED_REFUSALS = 100_000
_LONG_WAIT = 10  # of its own delays, after which a crawl is next at a site that several want
CHECKPOINT_EVERY = 500_000  # journal lines between checkpoints; a large frontier waits longer, close() less
_LONGEST_REQUEST_S = 600.0
FROM_STORE = "from_store"  # in the journal's meta: the frontier was rebuilt, stored pages' links are yet to be admitted
log = Log("weft.frontier.embedded.frontier")


class _State:
    """A live lease."""

    __slots__ = ("clock", "cooled", "item", "lane", "lease", "site")

    def __init__(self, lease: Lease, site: Site, lane: Lane, item: Item) -> None:
        self.lease = lease
        self.site = site
        self.clock = site.clock  # which counts this request; the site may move to its address's clock later
        self.lane = lane
        self.item = item
        self.cooled = False


class EmbeddedFrontier:
    """See the contract."""

    def __init__(
        self,
        folder: Path,
        section: PolitenessSection,
        *,
        pod: int = 0,
        checkpoint_every: int = CHECKPOINT_EVERY,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._section = section
        self._clock = clock
        self._wall = wall
        self._latest = 0.0
        self._lock = _lock(folder)
        try:
            self._journal = Journal(folder / "frontier.db")
        except BaseException:
            os.close(self._lock)
            raise
        # Links of stored pages may be missing here: those of the last pages after a power cut, all of them in a rebuilt
        # frontier (`weft rebuild --frontier`). See `restore_stored`.
        self.is_new = self._journal.meta(FROM_STORE) is not None
        self.unsure_of_links = self.is_new or self._journal.lost_tail
        shutil.rmtree(folder / "spill", ignore_errors=True)
        self.epoch: int = (self._journal.meta("epoch") or 0) + 1
        self.acknowledged: int = self._journal.meta("acknowledged") or 0
        self._queues = Queues(section, self._journal, folder / "spill", self.now, wall)
        with undamaged(self._journal.path):
            records = self._journal.rows("crawls")
            self._by_name: dict[str, int] = {msgspec.msgpack.decode(data)["name"]: number for number, data in records}
        self._namesakes: Counter[str] = Counter()  # open crawls by name: seldom more than one
        self._recovery = Recovery(folder, self._journal, self._queues, wall)
        self._leases: dict[int, _State] = {}
        self._aside: dict[int, dict[int, Item]] = {}  # by crawl and number: what an edit has excluded
        self._is_recovered = False
        self._robots = RobotsFiles(self._journal, wall)
        self._counts = Counts(next_item=(pod << POD_SHIFT) + 1)
        self._next_transient = -1
        self._rejected: list[Rejection] = []
        self._rejected_out: dict[int, OpenItem] = {}  # rejected items whose rows are not stored yet
        self._unacknowledged: list[tuple[int, OpenItem]] = []
        self._checkpoint_every = checkpoint_every
        self._since_checkpoint = 0
        self._refusals_kept: Counter[int] = Counter()  # by crawl
        self.unreadable_requests = 0  # lines of the request log; known after `recover`
        self.missing_log_bytes = missing_bytes(folder / "requests", self._journal.meta("request_log"))
        self._requests = RequestLog(folder / "requests", self.now())
        self._log_place = ("", 0)
        # Set by the engine, which can read robots.txt: returns the rule that forbids a URL, or "".
        self.forbids: Callable[[int, RobotsRecord, str, str], str] = lambda _crawl, _record, _origin, _url: ""

    # ── opening ────────────────────────────────────────────────────────────────────────────────────────────────────

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
        self._namesakes[crawl.name] += 1
        self._note_delay(crawl.section.delay_s)
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
        self._note_delay(section.delay_s)
        for site in list(owner.sites) if self._is_recovered else ():
            self._queues.schedule(site)
        self._queues.unblock(owner)

    def _note_delay(self, delay_s: float) -> None:
        """Sites and request logs are kept for as long as the longest delay of any crawl."""
        self._queues.longest_delay_s = longest = max(self._queues.longest_delay_s, delay_s)
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
        for site, lane in owner.sites.items():
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
        shutil.rmtree(owner.spill, ignore_errors=True)
        self._aside.pop(crawl, None)
        self._refusals_kept.pop(crawl, None)
        for rejection in self._rejected:
            if rejection.crawl == crawl:
                del self._rejected_out[rejection.item.item]
        self._rejected = [rejection for rejection in self._rejected if rejection.crawl != crawl]
        self._namesakes[owner.name] -= 1
        if self._by_name.get(owner.name) == crawl:
            del self._by_name[owner.name]
            if self._namesakes[owner.name]:
                self._by_name |= {other.name: other.number for other in self._named(owner.name)}
        if not self._namesakes[owner.name]:
            del self._namesakes[owner.name]

    def _named(self, name: str) -> list[Crawl]:
        return [crawl for crawl in self._queues.crawls.values() if crawl.name == name]

    def closed(self, crawl: int) -> None:
        """Its owner knows, for good, that a crawl has ended: it does not come back after the next commit."""
        self._journal.delete("crawls", crawl)

    def forget_crawl(self, crawl: int, at_most: int = 200) -> bool:
        """Deletes a part of what the journal holds of a closed crawl; True when nothing is left of it."""
        self._unacknowledged = [entry for entry in self._unacknowledged if entry[1].crawl != crawl]
        self._journal.put_meta("next_item", self._counts.next_item)  # what is deleted cannot tell it any more
        self._journal.commit()
        return self._journal.forget(crawl, at_most)

    def set_trust(self, crawl: int, trust: str) -> None:
        """Robots.txt files and breakers are shared by crawls of equal trust: those that see the same hosts behind the
        same names."""
        self._queues.crawls[crawl].trust = f"{trust} " if trust else ""

    def crawl_standing(self, crawl: int) -> CrawlStanding:
        """Where one crawl stands, from what is counted."""
        owner = self._queues.crawls[crawl]
        return CrawlStanding(owner.queued, owner.leased, owner.pages, len(owner.seen), len(self._aside.get(crawl, ())))

    def has_work(self, crawl: int) -> bool:
        """Whether something that is queued of a crawl may still be claimed; a look at all its sites."""
        owner = self._queues.crawls[crawl]
        if owner.limits.max_pages_per_domain is None:
            return owner.queued > 0
        return any(lane.queued and lane.has_budget() for lane in owner.sites.values())

    def set_aside(self, leases: Iterable[Lease]) -> None:
        """Takes items out that an edit has excluded, until `take_back`; nothing was asked for them."""
        for lease in leases:
            state = self._valid(lease)
            if state is None:
                continue
            del self._leases[lease.item]
            state.lane.crawl.leased -= 1
            state.clock.active -= 1
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
            site = self._queues.site(self._queues.key_of(item.url))
            self._queues.push_urgent(site.lane(owner), item)
            self._queues.schedule(site)
        return len(back)

    def recover(
        self,
        done: Iterable[int] = (),
        pages: Mapping[int, int] | None = None,
        by_key: Mapping[str, int] | None = None,
        by_crawl: Mapping[int, Mapping[str, int]] | None = None,
        *,
        batch: int = 0,  # noqa: ARG002
    ) -> int:
        """Fills the queues from the journal; call once, after the crawls are opened. Returns the number queued.

        `done`: items with a row in the store, whose ends the journal may lack. `pages`: stored pages by crawl;
        `by_key`: stored pages by site, where a crawl has a budget for each site; `by_crawl`: the same for each crawl.
        `batch` is for frontiers that are shared; this one acknowledges nothing here.
        """
        now = self.now()
        self._is_recovered = True
        self._read_aside()
        started_before = self._journal.meta("boot")
        if started_before not in (None, boot_id()) or (started_before and self._section.key_scope == "ip"):
            # The clock began anew, or addresses are not known yet: nobody knows how long ago a site was asked.
            self._queues.not_before = now + self._queues.longest_delay_s
        self._recall_requests(now)
        self._robots.restore()
        for item in self._settle(list(done), now):
            self._journal.done[ANY_CRAWL].append(item)
            if item in self._queues.retries:
                self._journal.delete("retries", item)
        self._restore_counts(pages or {}, by_key or {}, by_crawl or {})
        self._journal.put_meta("epoch", self.epoch)
        self._journal.put_meta("boot", boot_id())
        self._journal.commit()
        return self._queues.queued

    def _recall_requests(self, now: float) -> None:
        """When sites were last asked, from the request log; where lines of it are lost, all wait a full delay."""
        longest = max(self._queues.longest_delay_s, self._journal.meta("longest_delay") or 0.0)
        recent = last_requests(self._folder / "requests", now - longest - _LONGEST_REQUEST_S, now)
        self._queues.asked = recent.ended
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
            self._queues.not_before = max(self._queues.not_before, recent.unsure_at + self._queues.longest_delay_s)

    def _settle(self, done: list[int], now: float) -> list[int]:
        """Fills the queues; gives those of `done` that the journal did not know to have ended."""
        self._counts.next_item = max(self._counts.next_item, self._journal.meta("next_item") or 0)
        with undamaged(self._journal.path):
            aside = {item for items in self._aside.values() for item in items}
            # A checkpoint may have items in its queues that were set aside since: then the journal alone is read.
            unrecorded = self._recovery.restore(
                self._counts, done, now, remember=self.unsure_of_links, aside=aside,
                by_checkpoint=not self._aside.keys() & self._queues.crawls.keys(),
            )  # fmt: skip
        last_stored = max(unrecorded, default=0)
        if last_stored >= self._counts.next_item:
            if not self.unsure_of_links:
                # An item is in the journal before its page is stored, so a crash cannot cause this.
                raise Damaged(
                    self._journal.path,
                    f"does not have what was fetched last (item {last_stored:,} of the stored pages)",
                    REMEDY,
                )
            self._counts.next_item = last_stored + 1
        return unrecorded

    def restore_stored(self, crawl: int, rows: Iterable[tuple[Found, int]]) -> None:
        """Marks stored pages as seen and ended, which the journal may have lost, so that they are not fetched again.

        The caller admits their links after this, then calls `links_are_known`.
        """
        owner = self._queues.crawls[crawl]
        for found, item in rows:
            owner.seen.add(found.url)
            if found.hops:
                # Its redirect may have led back into its own chain, which has a key of its own (`seen_key`): mark both.
                owner.seen.add(seen_key(msgspec.structs.replace(found, about=found.url)))
            if self._recovery.knows(item):
                continue
            self._counts.admitted += 1
            if owner.depths is not None:
                owner.depths[owner.seen.fingerprint(found.url)] = KnownDepth(found.depth, item, ended=True)
            self._write_line(owner, found, item)

    def links_are_known(self) -> None:
        """The links of all stored pages are admitted: records that, and commits."""
        self._journal.delete("meta", FROM_STORE)
        self._journal.delete("meta", LOST_TAIL)
        self.commit()
        self.is_new = self.unsure_of_links = False

    def note(self, name: str, value: str | None = None) -> str:
        """A string kept with the frontier; given a value, it is changed at the next commit."""
        if value is None:
            return str(self._journal.meta(f"note:{name}") or "")
        self._journal.put_meta(f"note:{name}", value)
        return value

    def _restore_counts(
        self, pages: Mapping[int, int], by_key: Mapping[str, int], by_crawl: Mapping[int, Mapping[str, int]]
    ) -> None:
        for number, count in pages.items():
            if number in self._queues.crawls:
                self._queues.crawls[number].pages = count
        for key, count in by_key.items():
            for crawl in self._queues.crawls.values():
                self._queues.site(key).lane(crawl).pages = count
        for number, counts in by_crawl.items():
            for key, count in counts.items():
                self._queues.site(key).lane(self._queues.crawls[number]).pages = count

    # ── the contract ───────────────────────────────────────────────────────────────────────────────────────────────

    def now(self) -> float:
        """Never runs backwards."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Looked up in the seen set."""
        return self._queues.crawls[crawl].seen.unknown(candidates)

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new; redirect targets, robots.txt and sitemaps before the rest."""
        owner = self._queues.crawls[crawl]
        new = duplicates = 0
        expand: list[tuple[int, str, int]] = []
        for one in found:
            if one.purpose is Purpose.ROBOTS:
                self._queues.enqueue(owner, one, self._transient())
                continue
            known = seen_key(one)
            if not owner.seen.add(known):
                duplicates += 1
                if owner.depths is not None and (moved := self._move_up(owner, one)) is not None:
                    expand.append(moved)
                continue
            if self._over_budget(owner, one):
                owner.seen.discard(known)
                self._leave_out(owner, one)
                continue
            new += 1
            item = self._numbered(owner, one)
            if one.purpose is Purpose.PAGE and (rule := self._forbidden(crawl, one.url)):
                self._turn_away(owner, one, item, rule)
            else:
                self._queues.enqueue(owner, one, item)
        return Admission(new, duplicates, tuple(expand))

    def recrawl(self, crawl: int, run: str, known: Iterable[Found], begin: Callable[[int], None]) -> None:
        """Queues known pages again, all or none, and once for each run; `begin` is called with the last item before."""
        if self._journal.meta(f"recrawl:{crawl}") == run:
            return
        self.commit()
        begin(self._counts.next_item - 1)
        for found in known:
            self.readmit(crawl, found)
        self._journal.put_meta(f"recrawl:{crawl}", run)
        self.commit()

    def is_recrawled(self, crawl: int) -> bool:
        """Whether known pages of this crawl are being visited again."""
        return self._journal.meta(f"recrawl:{crawl}") is not None

    def readmit(self, crawl: int, found: Found) -> None:
        """Queues a URL, seen or not, as a new visit under a new number.

        A robots.txt that could not be fetched is fetched again, or the visit would be refused again.
        """
        trust = self._queues.crawls[crawl].trust
        self._robots.expire_failed(trust + found.url[: found.url.index("/", 8)])
        owner = self._queues.crawls[crawl]
        owner.seen.add(found.url)
        self._queues.enqueue(owner, found, self._numbered(owner, found))

    def readmit_once(self, crawl: int, name: str, what: str, lost: Iterable[tuple[int, Found]]) -> None:
        """Queues URLs once more, unless the note `name` says of these (`what`) that they are; it says so from now on.

        `lost` are in the order of the items that they had.
        """
        if self.note(name) == what:
            return
        for _, found in lost:
            self.readmit(crawl, found)
        self.note(name, what)  # in the same transaction

    def claim(self, owner: str, limit: int) -> list[Lease]:
        """Leases for what is due, in the request log before it returns."""
        now = self.now()
        self._expire(now)
        self._forget_idle(now)
        leases: list[Lease] = []
        while len(leases) < limit:
            lane = self._next_lane(now)
            if lane is None:
                if self._queues.unblock_waiting():
                    continue
                break
            lease = self._claim_at(lane, owner, now)
            if lease is not None:
                leases.append(lease)
        if leases:
            try:
                self._journal.save_history()
                self._requests.flush()
            except DiskFull:
                self.finish(Outcome(lease, End.RELEASE) for lease in leases)
                raise
        return leases

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

    def depth_of(self, lease: Lease) -> int:
        """From the known depths, which are kept where there is a `max_depth`; else the lease's own."""
        crawl = self._queues.crawls[lease.crawl]
        known = crawl.depths.get(crawl.seen.fingerprint(lease.url)) if crawl.depths is not None else None
        return lease.depth if known is None or known.item != lease.item else min(known.depth, lease.depth)

    def cool(self, ended: Iterable[Ended]) -> None:
        """Frees the places and sets the clocks."""
        for one in ended:
            state = self._valid(one.lease)
            if state is None or state.cooled:
                continue
            state.cooled = True
            self._requests.end(one.lease.item, one.at, one.outcome or "-")
            self._end_request(state, one)
            self._schedule(state)

    def finish(self, outcomes: Iterable[Outcome], batch: int = 0) -> list[bool]:
        """Ends leases. `batch`: the store's batch that `acknowledge` names once it is durable."""
        accepted = []
        unasked = False
        for outcome in outcomes:
            state = self._valid(outcome.lease)
            accepted.append(state is not None)
            if state is None:
                continue
            del self._leases[outcome.lease.item]
            state.lane.crawl.leased -= 1
            if not state.cooled:
                state.clock.active -= 1
                self._requests.end(outcome.lease.item, self.now(), "unasked")
                unasked = True
            self._end_lease(state, outcome, batch)
            self._schedule(state)
        if unasked:
            self._requests.try_flush()
        return accepted

    def robots(self, origin: str) -> RobotsRecord | None:
        """From memory, else from the journal."""
        return self._robots.get(origin)

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Remembers an origin's robots.txt; its Crawl-delay raises the site's delay."""
        self._robots.learn(origin, record)
        site = self._queues.site(self._queues.key_of(origin.rpartition(" ")[2] + "/"))
        if crawl_delay_s and crawl_delay_s > site.clock.crawl_delay_s:
            site.clock.crawl_delay_s = crawl_delay_s
            site.clock.forced_single = True
            # The request for robots.txt has already ended, and set `due` with the shorter delay.
            site.clock.due = max(site.clock.due, self.now() + crawl_delay_s)
            self._save_site(site)
        self._queues.schedule(site)

    def knows_finished(self) -> Callable[[int], bool]:
        """What tells of an item whether the journal has its end."""
        return Finished(self._journal).__contains__

    def next_due(self) -> float | None:
        """When claiming may give something next."""
        return 0.0 if self._queues.fairness else self._queues.wheel.next_due()

    def stats(self) -> FrontierStats:
        """The current numbers."""
        crawls = self._queues.crawls.values()
        return FrontierStats(
            queued=self._queues.queued,
            leased=len(self._leases),
            seen=sum(len(crawl.seen) for crawl in crawls),
            sites=len(self._queues.sites),
            admitted=self._counts.admitted,
            finished=self._counts.finished,
            pages=sum(crawl.pages for crawl in crawls),
            due=self._queues.wheel.due(self.now()),
        )

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept with the crawl; `scope_extensions` gives them back."""
        extensions = self.scope_extensions(crawl)
        if url not in extensions:
            self._journal.put_meta(f"scope:{crawl}", [*extensions, url])
            self._commit_early()

    def scope_extensions(self, crawl: int) -> list[str]:
        """Where seeds' redirects have led."""
        return [str(url) for url in self._journal.meta(f"scope:{crawl}") or ()]

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
        for lane in self._queues.crawls[crawl].sites.values():
            self._reject(lane, Reason.DROPPED)

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """In the journal, for `weft explain`."""
        if self._refusals_kept[crawl] < _REMEMBERED_REFUSALS:
            self._refusals_kept[crawl] += 1
            self._journal.refuse(crawl, reason, url, parent)

    def _leave_out(self, crawl: Crawl, found: Found) -> None:
        if found.purpose is Purpose.SITEMAP and self._refusals_kept[crawl.number] < _REMEMBERED_REFUSALS:
            place = (crawl.number, found.depth, found.hops, found.about)
            self._journal.put("left_sitemaps", found.url, *place)
        self.refused(crawl.number, Reason.BUDGET, found.url, found.parent)

    def left_sitemaps(self, crawl: int) -> list[Found]:
        """The sitemaps for which there was no room, up to a bound: for a crawl that may have more of them now."""
        return [
            Found(url, depth, 0, hops, Purpose.SITEMAP, about)
            for url, number, depth, hops, about in self._journal.rows("left_sitemaps")
            if number == crawl
        ]

    def rejections(self) -> list[Rejection]:
        """Items removed from the queues, or not admitted, since the last call: store them, then call `ended`."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def ended(self, items: Iterable[int], batch: int = 0) -> None:
        """Ends rejected items whose rows are stored."""
        for item in items:
            self._end_item(self._rejected_out.pop(item), batch)

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are durable: the ends of their items go to the journal."""
        self.acknowledged = batch
        keep = []
        for number, out in self._unacknowledged:
            if number <= batch:
                self._end_for_good(out)
            else:
                keep.append((number, out))
        self._unacknowledged = keep
        self._journal.put_meta("acknowledged", batch)

    def commit(self) -> None:
        """Writes what was admitted and what has ended to the journal, and now and then a checkpoint."""
        self._requests.flush()
        self._since_checkpoint += self._journal.waiting
        if self._requests.place != self._log_place:
            self._log_place = self._requests.place
            self._journal.put_meta("request_log", self._log_place)
        self._journal.commit()
        size = self._queues.queued + self._counts.admitted // 8
        if self._since_checkpoint > self._checkpoint_every + size // 10:
            self._checkpoint()

    def sync(self) -> None:
        """Makes what was committed safe against a power cut."""
        self._requests.sync()
        self._journal.sync()

    def close(self) -> None:
        """Commits, closes, and releases the folder's lock."""
        self.commit()
        if self._since_checkpoint > self._checkpoint_every // 25:
            self._checkpoint()
        self._requests.close()
        self._journal.close()
        os.close(self._lock)

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything that is queued for a crawl, site by site."""
        for lane in self._queues.crawls[crawl].sites.values():
            yield from lane.items()

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        return self._queues.key_of(url)

    def take_places(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Moves each site to the clock of its address, which it shares with all other sites there."""
        granted = [self._take_place(one) for one in wanted]
        if not all(granted):
            self._requests.try_flush()
        return granted

    def _take_place(self, wanted: Wanted) -> bool:
        state = self._valid(wanted.lease)
        if state is None:
            return False
        clock, before, site, now = self._queues.address_clock(wanted.address), state.clock, state.site, self.now()
        was = clock.crawl_delay_s
        clock.wants(wanted.crawl_delay_s)
        raised = clock.crawl_delay_s > was
        if clock is before and not raised and clock.long_until <= now:
            return True
        before.active -= 1
        section = state.lane.crawl.section
        trust = state.lane.crawl.trust
        may_go = max(clock.due_for(section, trust), clock.long_until) <= now and clock.has_room(section, trust)
        if not isinstance(site.clock, AddressClock):
            clock.joined(site.clock)
        site.clock = state.clock = clock
        if raised:
            self._save_site(site)
        if may_go:
            clock.started(now)
        else:
            del self._leases[wanted.lease.item]
            state.lane.crawl.leased -= 1
            self._requests.end(wanted.lease.item, now, "unasked")
            self._give_back(state, state.item.attempt, 0.0, first=True)
        if clock.long_until > now:
            for lane in site.all_lanes():
                self._reject(lane, Reason.RETRY_AFTER)
        if before is not clock:
            self._queues.wake(before)
        if clock.has_room(section):
            self._queues.schedule(site)
        return may_go

    # ── claiming ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _next_lane(self, now: float) -> Lane | None:
        """What to try next: of one crawl the site that has been due longest, of several by turns."""
        queues = self._queues
        if len(queues.crawls) == 1 and not queues.fairness:
            while (site := queues.wheel.pop(now)) is not None:
                if site.lanes:
                    return site.lanes[0]
            return None
        while (site := queues.wheel.pop(now)) is not None:
            queues.fairness.offer(site, now)
        return queues.fairness.next()

    def _claim_at(self, lane: Lane, owner: str, now: float) -> Lease | None:
        site = lane.site
        if len(site.lanes) > 1 and (longest := self._longest_waiting(site, lane, now)) is not lane:
            due = site.clock.due_for(longest.crawl.section, longest.crawl.trust)
            if due > now:  # its own delay is longer than the others': they wait, or it never has a turn
                self._queues.wheel.put(site, due, now)
                return None
            lane = longest
        clock, section, trust = site.clock, lane.crawl.section, lane.crawl.trust
        if clock.active >= clock.places(section, trust) and clock.parked is None:
            return None  # others came first; the end of one of theirs schedules the site
        if clock.active >= clock.places(section, trust) or clock.due_for(section, trust) > now:
            self._queues.schedule(site)
            return None
        if clock.broken(section, trust):
            self._give_up(site, trust)
        item = self._take(site, lane, now)
        if item is None:
            self._queues.schedule(site, asked=lane)
            return None
        lease = self._lease(site, lane, item, owner, now)
        self._queues.schedule(site)
        return lease

    def _longest_waiting(self, site: Site, lane: Lane, now: float) -> Lane:
        """The lane whose turn it is, or one of another crawl that has waited ten of its own delays."""
        for other in site.lanes:
            if other.served_at < lane.served_at and other.may_run(now) and other.has_budget():
                delay_s = other.crawl.section.delay_s
                if delay_s and now - other.served_at > _LONG_WAIT * delay_s and other.crawl.permits() > 0:
                    lane = other
        return lane

    def _take(self, site: Site, lane: Lane, now: float) -> Item | None:
        """The lane's next item; robots.txt first where it is not known."""
        if not lane.queued:
            return None
        if lane.crawl.permits() <= 0:
            self._queues.block(lane.crawl, site)
            return None
        if not lane.has_budget():
            return None
        item = self._queues.pop(lane, now)
        if item is None or item.purpose is Purpose.ROBOTS:
            return item
        origin = item.url[: item.url.index("/", 8)]
        about = lane.crawl.trust + origin
        if self._robots.is_in_force(about):
            return item
        self._queues.push_urgent(lane, item, first=True)
        if about in self._robots.pending:
            return None
        self._robots.pending.add(about)
        attempt, wall = self._robots.tried(about)
        robots = Item(
            self._transient(), origin + "/robots.txt", item.depth, item.item, 0, Purpose.ROBOTS, about, attempt
        )
        if wall <= self._wall():
            return robots
        # An earlier process has failed to get it, and its wait is not over.
        self._queues.push_urgent(lane, robots, now + self._queues.wait_s(wall))
        return None

    def _release_robots(self, lane: Lane) -> bool:
        """Other crawls must not wait for a robots.txt that this one will not ask for; whether there was one."""
        waiting = lane.robots or ()
        for _, _, item in waiting:
            self._robots.pending.discard(item.about)
            self._queues.queued -= 1
            lane.crawl.queued -= 1
            lane.queued -= 1
        lane.robots = None
        return bool(waiting)

    def _read_aside(self) -> None:
        for number, crawl, record in self._journal.rows("aside"):
            self._aside.setdefault(crawl, {})[number] = msgspec.msgpack.decode(record, type=Item)

    def _mark(self, item: Item, crawl: Crawl, *, leased: bool, ended: bool = False) -> None:
        if (known := crawl.known(item)) is not None:
            known.leased, known.ended = leased, ended

    def _lease(self, site: Site, lane: Lane, item: Item, owner: str, now: float) -> Lease:
        section = lane.crawl.section
        delay_s = site.clock.delay_s(section)
        lease = Lease(
            item.item, lane.crawl.number, item.url, site.key, item.depth, item.parent, item.hops, item.purpose,
            item.about, item.offsite, item.attempt, owner, self.epoch, now + section.lease_s, delay_s,
        )  # fmt: skip
        self._leases[item.item] = _State(lease, site, lane, item)
        site.clock.started(now)
        lane.served_at = now
        if len(self._queues.crawls) > 1:  # one that is alone must not pay for it when another comes
            self._queues.fairness.served(lane.crawl)
        lane.crawl.leased += 1
        if item.purpose is Purpose.PAGE:
            lane.flight += 1
            lane.crawl.flight += 1
            self._mark(item, lane.crawl, leased=True)
        self._requests.start(item.item, now, site.key, delay_s, site.clock.places(section, lane.crawl.trust), item.url)
        return lease

    def _expire(self, now: float) -> None:
        """Queues the items of expired leases again; leases are in the order of their deadlines."""
        while self._leases:
            state = next(iter(self._leases.values()))
            if state.lease.deadline > now:
                return
            del self._leases[state.lease.item]
            state.lane.crawl.leased -= 1
            clock = state.clock
            if not state.cooled:
                clock.active -= 1
                self._requests.end(state.lease.item, now, "expired")
                clock.ended(now)
            self._give_back(state, state.item.attempt, 0.0, first=True)
            self._schedule(state)

    def _valid(self, lease: Lease) -> _State | None:
        state = self._leases.get(lease.item)
        return state if state is not None and state.lease == lease else None

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self, state: _State) -> None:
        self._queues.schedule(state.site)
        if state.clock is not state.site.clock and state.clock.parked:
            self._queues.wake(state.clock)

    def _end_request(self, state: _State, ended: Ended) -> None:
        clock, section, trust = state.clock, state.lane.crawl.section, state.lane.crawl.trust
        clock.active -= 1
        clock.ended(ended.at)
        before = clock.logged_state(trust)
        if ended.slow_down:
            clock.slow_down(ended.at, ended.retry_after_s, section)
            if (ended.retry_after_s or 0.0) > section.max_retry_after_s:
                for lane in state.site.all_lanes():
                    self._reject(lane, Reason.RETRY_AFTER)
        if ended.ok is not None:
            clock.answered(ended.lease.item, ended.ok, ended.at, section, trust)
        if before != clock.logged_state(trust) or ended.slow_down:
            self._save_site(state.site)
            clock.log_changes(before, state.site.key, section, trust)
        if clock.broken(section, trust):
            self._give_up(state.site, trust)

    def _give_up(self, site: Site, trust: str) -> None:
        """What the crawls of one trust have at a site is rejected: its breaker has stayed open for too long."""
        for lane in site.all_lanes():
            if lane.crawl.trust == trust:
                self._reject(lane, Reason.BREAKER)

    def _end_lease(self, state: _State, outcome: Outcome, batch: int) -> None:
        lane, item = state.lane, state.item
        if lane.crawl.is_closed:
            self._robots.pending.discard(item.about)
            return
        if outcome.end in (End.RETRY, End.RELEASE):
            again = outcome.end is End.RETRY
            self._give_back(state, item.attempt + again, self.now() + outcome.wait_s if again else 0.0, first=not again)
            return
        if item.purpose is Purpose.PAGE:
            self._free_permit(lane)
            self._mark(item, lane.crawl, leased=False, ended=True)
            if outcome.end is End.PAGE:
                lane.pages += 1
                lane.crawl.pages += 1
        self._end_item(OpenItem(lane.crawl.number, item), batch)

    def _end_item(self, out: OpenItem, batch: int) -> None:
        if out.item.item < 0:
            return
        self._counts.finished += 1
        if batch:
            self._unacknowledged.append((batch, out))
        else:
            self._end_for_good(out)

    def _end_for_good(self, out: OpenItem) -> None:
        """It will not come back, whatever happens; until then its attempts are remembered."""
        self._journal.done[out.crawl].append(out.item.item)
        if out.item.attempt:
            self._journal.delete("retries", out.item.item)

    def _give_back(self, state: _State, attempt: int, not_before: float, *, first: bool) -> None:
        item = state.item
        wall = self._wall() + max(0.0, not_before - self.now())
        if state.lane.crawl.is_closed or (item.purpose is Purpose.ROBOTS and state.lane.crawl.paused):
            if item.purpose is Purpose.ROBOTS and attempt != item.attempt:
                self._robots.failed(item.about, attempt, wall)
            self._robots.pending.discard(item.about)  # whoever needs it next asks for it again, when its wait is over
            return
        if item.purpose is Purpose.PAGE:
            self._free_permit(state.lane)
            self._mark(item, state.lane.crawl, leased=False)
            item = state.lane.crawl.at_known_depth(item)
        if attempt != item.attempt:
            item = msgspec.structs.replace(item, attempt=attempt)
            if item.purpose is Purpose.ROBOTS:
                self._robots.failed(item.about, attempt, wall)
            else:
                self._journal.put("retries", item.item, attempt, wall, state.lane.crawl.number)
        # The site may have been forgotten while this was out.
        lane = self._queues.site(state.site.key).lane(state.lane.crawl)
        self._queues.push_urgent(lane, item, not_before, first=first)
        self._queues.schedule(self._queues.site(state.site.key))

    def _free_permit(self, lane: Lane) -> None:
        lane.flight -= 1
        lane.crawl.flight -= 1
        self._queues.unblock(lane.crawl)

    def _reject(self, lane: Lane, reason: Reason) -> None:
        """Empties a lane; `rejections` returns its items."""
        waiting = list(lane.items())
        if waiting:
            log_change(reason, lane.key, len(waiting))
        self._queues.queued -= lane.queued
        lane.crawl.queued -= lane.queued
        lane.clear()
        for item in waiting:
            if item.purpose is Purpose.ROBOTS:
                self._robots.pending.discard(item.about)
            elif item.item not in self._queues.ended:
                self._rejected.append(Rejection(item, lane.crawl.number, reason))
                self._rejected_out[item.item] = OpenItem(lane.crawl.number, item)

    # ── queueing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _numbered(self, crawl: Crawl, found: Found) -> int:
        """Numbers a new item; the next commit writes it."""
        item = self._counts.next_item
        self._counts.next_item += 1
        self._counts.admitted += 1
        if crawl.depths is not None:
            crawl.depths[crawl.seen.fingerprint(found.url)] = KnownDepth(found.depth, item)
        self._write_line(crawl, found, item)
        return item

    def _forbidden(self, crawl: int, url: str) -> str:
        """The rule that forbids a page, as far as the robots.txt is in memory; it is checked again after the claim."""
        origin = url[: url.index("/", 8)]
        record = self._robots.in_memory(self._queues.crawls[crawl].trust + origin)
        return self.forbids(crawl, record, origin, url) if record is not None else ""

    def _turn_away(self, crawl: Crawl, found: Found, number: int, rule: str) -> None:
        """Rejects a new item at once that would be claimed only to be refused."""
        item = Item(
            number, found.url, found.depth, found.parent, found.hops, found.purpose, found.about, 0, found.offsite
        )
        self._mark(item, crawl, leased=False, ended=True)
        self._rejected.append(Rejection(item, crawl.number, Reason.ROBOTS, rule))
        self._rejected_out[number] = OpenItem(crawl.number, item)

    def _write_line(self, crawl: Crawl, found: Found, item: int) -> None:
        about = " " + found.about if found.about else ""
        self._journal.admitted[crawl.number].append(
            f"{item} {found.depth} {found.parent} {found.hops} {found.offsite} {crawl.number} "
            f"{LETTER[found.purpose]} {found.url}{about}"
        )

    def _move_up(self, crawl: Crawl, found: Found) -> tuple[int, str, int] | None:
        """A seen URL found at a smaller depth: moved up if it is queued, returned for expansion if it was fetched."""
        assert crawl.depths is not None
        known = crawl.depths.get(crawl.seen.fingerprint(found.url))
        if known is None or known.depth <= found.depth:
            return None
        known.depth = found.depth
        self._write_line(crawl, found, known.item)
        if known.ended:
            return known.item, found.url, found.depth
        if not known.leased:
            # Its old entry stays in its queue; `Queues.pop` skips it.
            self._queues.enqueue(crawl, found, known.item)
        return None

    def _over_budget(self, crawl: Crawl, found: Found) -> bool:
        if found.purpose is Purpose.SITEMAP and crawl.limits.max_sitemaps is not None:
            return self._has_sitemaps(crawl, found.url, crawl.limits.max_sitemaps)
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return False
        site = self._queues.sites.get(self._queues.key_of(found.url))
        lane = crawl.sites.get(site) if site is not None else None
        return lane is not None and lane.queued + lane.pages >= _OVERFLOW * cap + 1000

    def _has_sitemaps(self, crawl: Crawl, url: str, most: int) -> bool:
        """Whether a site has reached its limit of sitemaps; if not, counts this one. Saved with its item."""
        key = self._queues.key_of(url)
        lane, name = self._queues.site(key).lane(crawl), f"{crawl.number} {key}"
        if lane.sitemaps_found is None:
            row = self._journal.latest("sitemaps", name)
            lane.sitemaps_found = row[1] if row is not None else 0
        if lane.sitemaps_found >= most:
            return True
        lane.sitemaps_found += 1
        self._journal.put("sitemaps", name, lane.sitemaps_found)
        return False

    def _spill(self, crawl: int) -> Path:
        return self._folder / "spill" / str(crawl)

    def _save_site(self, site: Site) -> None:
        self._queues.save(site)
        delay_s = site.clock.delay_s(self._section)
        if delay_s > (self._journal.latest_meta("longest_delay") or 0.0):
            self._journal.put_meta("longest_delay", delay_s)
        # Rare, and must survive a kill before the next regular commit.
        self._commit_early()

    def _commit_early(self) -> None:
        try:
            self._journal.commit()
        except DiskFull:
            pass  # the changes stay buffered; the next `commit` raises

    def _checkpoint(self) -> None:
        """Writes a checkpoint; everything must be committed."""
        out = [OpenItem(state.lane.crawl.number, state.item) for state in self._leases.values() if state.item.item > 0]
        out += [one for _, one in self._unacknowledged]
        out += self._rejected_out.values()
        # Once they are taken back, no line of the journal says so.
        out += [OpenItem(crawl, item) for crawl, items in self._aside.items() for item in items.values()]
        counts = msgspec.structs.replace(self._counts, finished=self._counts.finished - len(self._unacknowledged))
        try:
            self._recovery.save(counts, out, self.now())
        except DiskFull:
            pass  # the journal has everything
        self._since_checkpoint = 0

    def _forget_idle(self, now: float) -> None:
        for site in self._queues.forget_idle(now):
            for lane in site.all_lanes():
                for origin in lane.origins:
                    self._robots.forget(lane.crawl.trust + origin)

    def _transient(self) -> int:
        """A negative number, for an item that is not in the journal: a robots.txt request."""
        self._next_transient -= 1
        return self._next_transient


def _lock(folder: Path) -> int:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise BadInput(f"data dir {folder}: cannot be used: {error.strerror}; choose another `data_dir`") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise Busy(f"data dir {folder}: a crawl is running in it; stop it first, or choose another data dir") from None
    return fd
