"""The frontier of one process: the working set in memory, durable in a journal beside it. Nothing to install.

Memory holds what must be quick: who is due, the heads of the queues, the fingerprints. The journal holds what must not
be lost. What is admitted and finished reaches it with `commit`; who is being asked reaches the request log inside
`claim`, before anything is sent, so that a killed process leaves every clock readable. One process owns the folder (a
lock says so); each opening is a new epoch, and leases of an older one change nothing.

Order of writes that the engine keeps (see engine/commit.py): pages to the store, then `commit` here (the links found on
them), then the store's index, then `finish` here. A crash between any two of these repeats work, and loses none.
"""

from __future__ import annotations

import fcntl
import os
import random
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from weft import urls
from weft.config import PolitenessSection
from weft.errors import BadInput, Busy, DiskFull
from weft.frontier.contract import (
    Admission,
    CrawlLimits,
    End,
    Ended,
    FrontierStats,
    Item,
    Outcome,
    Rejection,
    RobotsRecord,
)
from weft.frontier.journal import Journal
from weft.frontier.politeness import Turn
from weft.frontier.requests import RequestLog, boot_id, last_requests
from weft.frontier.seen import known_as
from weft.frontier.sites import Crawl, Known, Lane, Site
from weft.frontier.wheel import Wheel
from weft.records import Found, Lease, Purpose, Reason

_LETTER = {Purpose.PAGE: "p", Purpose.SITEMAP: "s"}
_PURPOSE = {letter: purpose for purpose, letter in _LETTER.items()}
_OVERFLOW = 20  # a domain with a budget of N pages queues at most this many times N
_REMEMBERED_REFUSALS = 100_000


class _State:
    """A lease that is out."""

    __slots__ = ("cooled", "item", "lane", "lease", "site")

    def __init__(self, lease: Lease, site: Site, lane: Lane, item: Item) -> None:
        self.lease = lease
        self.site = site
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
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._folder = folder
        self._section = section
        self._clock = clock
        self._wall = wall
        self._latest = 0.0
        self._lock = _lock(folder)
        self._journal = Journal(folder / "frontier.db")
        shutil.rmtree(folder / "spill", ignore_errors=True)
        self.epoch: int = (self._journal.meta("epoch") or 0) + 1
        self.acknowledged: int = self._journal.meta("acknowledged") or 0
        self._sites: dict[str, Site] = {}
        self._turns: dict[str, Turn] = {}
        self._keys: dict[str, str] = {}
        self._crawls: dict[int, Crawl] = {}
        self._wheel: Wheel[Site] = Wheel()
        self._leases: dict[int, _State] = {}
        self._robots_expiry: dict[str, float] = {}
        self._robots_cache: dict[str, RobotsRecord] = {}
        self._robots_pending: set[str] = set()
        self._robots_tries: dict[
            str, tuple[int, float]
        ] = {}  # failed ones by origin, and when the next may come (wall)
        self._next_item = (pod << 48) + 1
        self._next_transient = -1
        self._not_before = 0.0
        self._rejected: list[Rejection] = []
        self._queued = self._admitted = self._finished = 0
        self._unacknowledged: list[tuple[int, int]] = []
        self._refusals_kept = 0
        self._requests = RequestLog(folder / "requests", self.now())

    # ── opening ────────────────────────────────────────────────────────────────────────────────────────────────────

    def open_crawl(self, name: str, limits: CrawlLimits) -> int:
        """The number of a crawl: a new one, or the one of that name that is there, held to these limits from now on."""
        for crawl in self._crawls.values():
            if crawl.name == name:
                crawl.limits = limits
                return crawl.number
        known = {record[0]: msgspec.msgpack.decode(record[1]) for record in self._journal.rows("crawls")}
        for there, record in known.items():
            if record["name"] == name:
                self._crawls[there] = Crawl(there, name, record["seed"], limits)
                return int(there)
        number: int = max(known, default=0) + 1
        seed = random.getrandbits(63)
        self._crawls[number] = Crawl(number, name, seed, limits)
        self._journal.put("crawls", number, msgspec.msgpack.encode({"name": name, "seed": seed}))
        return number

    def recover(
        self, done: Iterable[int] = (), pages: Mapping[int, int] | None = None, by_key: Mapping[str, int] | None = None
    ) -> int:
        """Fills the queues from the journal; call once, after the crawls are opened. Gives the number queued.

        `done`: items that the store has and the journal does not know to have ended. `pages`: pages stored by crawl;
        `by_key`: by site, where a crawl has a budget for each.
        """
        now = self.now()
        started_before = self._journal.meta("boot")
        if started_before not in (None, boot_id()) or (started_before and self._section.key_scope == "ip"):
            # The clock began anew, or addresses are not known yet: nobody knows how long ago a site was asked.
            self._not_before = now + self._section.delay_s
        self._restore_sites(now)
        for origin, expires, _ in self._journal.rows("robots"):
            self._robots_expiry[origin] = expires
        for origin, attempt, wall in self._journal.rows("robots_tries"):
            self._robots_tries[origin] = (attempt, wall)
        finished = _Bitmap()
        for _, numbers in self._journal.replay():
            finished.add(numbers)
        late = [item for item in done if item not in finished]
        finished.add(late)
        self._journal.done += late
        self._restore_queues(finished, now)
        self._restore_counts(pages or {}, by_key or {})
        for site in self._sites.values():
            self._schedule(site)
        self._journal.put_meta("epoch", self.epoch)
        self._journal.put_meta("boot", boot_id())
        self._journal.commit()
        return self._queued

    def _restore_sites(self, now: float) -> None:
        for key, record in self._journal.rows("sites"):
            state = msgspec.msgpack.decode(record)
            turn = self._site(key).turn
            turn.crawl_delay_s, turn.extra_s = state["crawl_delay"], state["extra"]
            turn.forced_single, turn.probes = state["single"], state["probes"]
            turn.due = max(turn.due, now + state["due_wall"] - self._wall())
            turn.open_until = turn.due if state["open"] else 0.0
        for key, ended in last_requests(self._folder / "requests", now - 3600).items():
            turn = self._site(key).turn
            turn.due = max(turn.due, (now if ended is None else ended) + turn.delay_s(self._section))

    def _restore_queues(self, finished: _Bitmap, now: float) -> None:
        retries = {item: (attempt, wall) for item, attempt, wall in self._journal.rows("retries")}
        moved: dict[int, tuple[Crawl, Found]] = {}  # where depth decides, the last line of an item counts
        for admitted, _ in self._journal.replay():
            for line in admitted:
                number, depth, parent, hops, offsite, crawl_number, letter, rest = line.split(" ", 7)
                item = int(number)
                self._next_item = max(self._next_item, item + 1)
                crawl = self._crawls.get(int(crawl_number))
                if crawl is None:
                    continue
                url, _, about = rest.partition(" ")
                self._admitted += 1
                found = Found(url, int(depth), int(parent), int(hops), _PURPOSE[letter], about, int(offsite))
                crawl.seen.add(known_as(found))
                if crawl.depths is not None:
                    moved[item] = (crawl, found)
                elif item in finished:
                    self._finished += 1
                else:
                    self._requeue(crawl, found, item, retries, now)
        for item, (crawl, found) in moved.items():
            assert crawl.depths is not None
            crawl.depths[crawl.seen.fingerprint(found.url)] = Known(found.depth, item)
            if item in finished:
                self._finished += 1
            else:
                self._requeue(crawl, found, item, retries, now)

    def _requeue(
        self, crawl: Crawl, found: Found, item: int, retries: dict[int, tuple[int, float]], now: float
    ) -> None:
        attempt, wall = retries.get(item, (0, 0.0))
        not_before = now + max(0.0, wall - self._wall()) if attempt else 0.0
        self._enqueue(crawl, found, item, attempt, not_before)

    def _restore_counts(self, pages: Mapping[int, int], by_key: Mapping[str, int]) -> None:
        for number, count in pages.items():
            if number in self._crawls:
                self._crawls[number].pages = count
        for key, count in by_key.items():
            for crawl in self._crawls.values():
                self._lane(self._site(key), crawl).pages = count

    # ── the contract ───────────────────────────────────────────────────────────────────────────────────────────────

    def now(self) -> float:
        """Never runs backwards."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those of the URLs that this crawl does not know yet."""
        return self._crawls[crawl].seen.unknown(candidates)

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new; redirect targets, robots.txt and sitemaps before the rest."""
        owner = self._crawls[crawl]
        new = duplicates = 0
        expand: list[tuple[int, str, int]] = []
        for one in found:
            if one.purpose is Purpose.ROBOTS:
                self._enqueue(owner, one, self._transient())
                continue
            known = known_as(one)
            if not owner.seen.add(known):
                duplicates += 1
                if owner.depths is not None and (moved := self._move_up(owner, one)) is not None:
                    expand.append(moved)
                continue
            if self._over_budget(owner, one):
                owner.seen.discard(known)
                self.refused(Reason.BUDGET, one.url, one.parent)
                continue
            new += 1
            self._admit_new(owner, one)
        return Admission(new, duplicates, tuple(expand))

    def recrawl(self, crawl: int, run: str, known: Iterable[Found], begin: Callable[[int], None]) -> None:
        """Queues known pages once more, all or none, and once for each run; `begin` is told the last item before."""
        if self._journal.meta(f"recrawl:{crawl}") == run:
            return
        self.commit()
        begin(self._next_item - 1)
        for found in known:
            self.readmit(crawl, found)
        self._journal.put_meta(f"recrawl:{crawl}", run)
        self.commit()

    def is_recrawled(self, crawl: int) -> bool:
        """Whether known pages of this crawl are being visited again."""
        return self._journal.meta(f"recrawl:{crawl}") is not None

    def readmit(self, crawl: int, found: Found) -> None:
        """Queues a URL once more, known or not: a new visit, under a new number.

        A robots.txt that could not be had is asked for again, or the visit would only be refused again.
        """
        origin = found.url[: found.url.index("/", 8)]
        robots = self.robots(origin)
        if robots is not None and robots.status == "unreachable":
            self._robots_expiry.pop(origin, None)
        self._crawls[crawl].seen.add(found.url)
        self._admit_new(self._crawls[crawl], found)

    def claim(self, owner: str, limit: int) -> list[Lease]:
        """Leases for what is due, in the request log before it returns."""
        now = self.now()
        self._expire(now)
        leases: list[Lease] = []
        while len(leases) < limit:
            site = self._wheel.pop(now)
            if site is None:
                break
            lease = self._claim_at(site, owner, now)
            if lease is not None:
                leases.append(lease)
        if leases:
            try:
                self._requests.flush()
            except DiskFull:
                self.finish(Outcome(lease, End.RELEASE) for lease in leases)
                raise
        return leases

    def exhausted(self) -> bool:
        """Whether every crawl has all the pages that it may have."""
        return all(
            crawl.limits.max_pages is not None and crawl.pages >= crawl.limits.max_pages
            for crawl in self._crawls.values()
        )

    def depth_of(self, lease: Lease) -> int:
        """From what is known where depth decides; else the lease's own."""
        crawl = self._crawls[lease.crawl]
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
            self._end_turn(state, one)
            self._schedule(state.site)

    def finish(self, outcomes: Iterable[Outcome], batch: int = 0) -> list[bool]:
        """Ends leases. `batch`: the store's, which `acknowledge` will name when it is safe on disk."""
        accepted = []
        for outcome in outcomes:
            state = self._valid(outcome.lease)
            accepted.append(state is not None)
            if state is None:
                continue
            del self._leases[outcome.lease.item]
            if not state.cooled:
                state.site.turn.active -= 1
                self._requests.end(outcome.lease.item, self.now(), "unasked")
            self._end_lease(state, outcome, batch)
            self._schedule(state.site)
        return accepted

    def robots(self, origin: str) -> RobotsRecord | None:
        """From memory, else from the journal."""
        record = self._robots_cache.get(origin)
        if record is None and (row := self._journal.row("robots", origin)) is not None:
            record = self._remember_robots(origin, msgspec.msgpack.decode(row[2], type=RobotsRecord))
        return record

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Remembers an origin's robots.txt; its Crawl-delay raises the site's delay."""
        self._robots_pending.discard(origin)
        if self._robots_tries.pop(origin, None) is not None:
            self._journal.delete("robots_tries", origin)
        self._robots_expiry[origin] = record.expires
        self._remember_robots(origin, record)
        encoded = msgspec.msgpack.encode(record)
        self._journal.put("robots", origin, record.expires, encoded)
        self._journal.put("robots_history", (origin, self._wall()), encoded)
        site = self._site(self.key_of(origin + "/"))
        if crawl_delay_s and crawl_delay_s > site.turn.crawl_delay_s:
            site.turn.crawl_delay_s = crawl_delay_s
            site.turn.forced_single = True
            # The request that brought the news has ended already, counted with the shorter delay.
            site.turn.due = max(site.turn.due, self.now() + crawl_delay_s)
            self._save_site(site)
        self._schedule(site)

    def next_due(self) -> float | None:
        """When claiming may give something next."""
        return self._wheel.next_due()

    def stats(self) -> FrontierStats:
        """Where things stand."""
        crawls = self._crawls.values()
        return FrontierStats(
            queued=self._queued,
            leased=len(self._leases),
            seen=sum(len(crawl.seen) for crawl in crawls),
            sites=len(self._sites),
            admitted=self._admitted,
            finished=self._finished,
            pages=sum(crawl.pages for crawl in crawls),
            due=self._wheel.due(self.now()),
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
        self._crawls[crawl].paused = paused
        self._unblock(self._crawls[crawl])

    def drop(self, crawl: int) -> None:
        """Takes out everything that is queued of a crawl."""
        for site in self._sites.values():
            for lane in site.lanes:
                if lane.crawl.number == crawl:
                    self._reject(lane, Reason.DROPPED)

    def refused(self, reason: Reason, url: str, parent: int) -> None:
        """In the journal, for `weft explain`."""
        if self._refusals_kept < _REMEMBERED_REFUSALS:
            self._refusals_kept += 1
            self._journal.refuse(reason, url, parent)

    def rejections(self) -> list[Rejection]:
        """What was taken out of the queues since the last call: record it, then tell `ended`."""
        rejected, self._rejected = self._rejected, []
        return rejected

    def ended(self, items: Iterable[int], batch: int = 0) -> None:
        """Rejected items whose reasons are stored."""
        for item in items:
            self._end_item(item, batch)

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are safe on disk: what ended with them need not be asked for again."""
        self.acknowledged = batch
        keep = []
        for number, item in self._unacknowledged:
            if number <= batch:
                self._journal.done.append(item)
            else:
                keep.append((number, item))
        self._unacknowledged = keep
        self._journal.put_meta("acknowledged", batch)

    def commit(self) -> None:
        """Writes down what was admitted and what has ended."""
        self._requests.flush()
        self._journal.commit()

    def sync(self) -> None:
        """Makes what was committed safe against a power cut."""
        self._requests.sync()
        self._journal.sync()

    def close(self) -> None:
        """Commits, closes, and lets another process have the folder."""
        self._requests.close()
        self._journal.close()
        os.close(self._lock)

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything that is queued of a crawl, site by site."""
        for site in self._sites.values():
            for lane in site.lanes:
                if lane.crawl.number == crawl:
                    yield from lane.items()

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        origin = url[: url.index("/", 8)]
        key = self._keys.get(origin)
        if key is None:
            if len(self._keys) > 200_000:
                self._keys.clear()
            host = urls.host_of(url)
            key = self._keys[origin] = urls.domain(host) if self._section.key_scope == "domain" else host
        return key

    def share_turn(self, url: str, address: str) -> bool:
        """This site and all others of that address are one from now on."""
        site = self._site(self.key_of(url))
        turn = self._turns.get(address)
        if turn is None:
            self._turns[address] = site.turn
            return True
        if turn is site.turn:
            return True
        may_go = turn.due <= self.now() and turn.active < turn.places(self._section)
        turn.active += site.turn.active  # the lease that this is about
        turn.crawl_delay_s = max(turn.crawl_delay_s, site.turn.crawl_delay_s)
        site.turn = turn
        return may_go

    # ── claiming ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _claim_at(self, site: Site, owner: str, now: float) -> Lease | None:
        turn = site.turn
        if turn.due > now:
            self._wheel.put(site, turn.due)
            return None
        if turn.active >= turn.places(self._section):
            turn.parked.append(site)
            return None
        if turn.broken(self._section):
            for lane in site.lanes:
                self._reject(lane, Reason.BREAKER)
        taken = self._take(site, now)
        if taken is None:
            self._schedule(site, asked=True)
            return None
        lane, item = taken
        lease = self._lease(site, lane, item, owner, now)
        if turn.active < turn.places(self._section):
            self._schedule(site)
        return lease

    def _take(self, site: Site, now: float) -> tuple[Lane, Item] | None:
        """The next item of the next crawl that may have one; robots.txt first where it is not known."""
        for _ in range(len(site.lanes)):
            lane = site.lanes[0]
            site.rotate()
            if not lane.queued:
                continue
            if lane.crawl.permits() <= 0:
                lane.crawl.blocked[site] = None
                continue
            if not lane.has_budget():
                continue
            item = self._pop(lane, now)
            if item is None:
                continue
            if item.purpose is Purpose.ROBOTS:
                return lane, item
            origin = item.url[: item.url.index("/", 8)]
            if self._robots_expiry.get(origin, 0.0) > self._wall():
                return lane, item
            lane.push_urgent(item, first=True)
            self._queued += 1
            if origin in self._robots_pending:
                continue
            self._robots_pending.add(origin)
            attempt, wall = self._robots_tries.get(origin, (0, 0.0))
            robots = Item(
                self._transient(), origin + "/robots.txt", item.depth, item.item, 0, Purpose.ROBOTS, origin, attempt
            )
            if wall <= self._wall():
                return lane, robots
            # An earlier process has failed to get it, and its wait is not over.
            lane.push_urgent(robots, now + wall - self._wall())
            self._queued += 1
        return None

    def _pop(self, lane: Lane, now: float) -> Item | None:
        """The lane's next item; an entry whose item has since moved up is passed over."""
        while (item := lane.pop(now)) is not None:
            self._queued -= 1
            if lane.crawl.depths is None or item.purpose is not Purpose.PAGE:
                return item
            known = lane.crawl.depths.get(lane.crawl.seen.fingerprint(item.url))
            if (
                known is None
                or known.item != item.item
                or not (known.leased or known.ended or known.depth < item.depth)
            ):
                return item
        return None

    def _mark(self, item: Item, crawl: Crawl, *, leased: bool, ended: bool = False) -> None:
        if crawl.depths is not None and item.purpose is Purpose.PAGE:
            known = crawl.depths.get(crawl.seen.fingerprint(item.url))
            if known is not None and known.item == item.item:
                known.leased, known.ended = leased, ended

    def _lease(self, site: Site, lane: Lane, item: Item, owner: str, now: float) -> Lease:
        delay_s = site.turn.delay_s(self._section)
        lease = Lease(
            item.item, lane.crawl.number, item.url, site.key, item.depth, item.parent, item.hops, item.purpose,
            item.about, item.offsite, item.attempt, owner, self.epoch, now + self._section.lease_s, delay_s,
        )  # fmt: skip
        self._leases[item.item] = _State(lease, site, lane, item)
        site.turn.started(now, self._section)
        if item.purpose is Purpose.PAGE:
            lane.flight += 1
            lane.crawl.flight += 1
            self._mark(item, lane.crawl, leased=True)
        self._requests.start(item.item, now, site.key, delay_s, site.turn.places(self._section), item.url)
        return lease

    def _schedule(self, site: Site, *, asked: bool = False) -> None:
        """Puts a site on the wheel for when it may be claimed from; `asked`: it just was, and gave nothing."""
        turn = site.turn
        if turn.parked and turn.active < turn.places(self._section):
            parked, turn.parked = turn.parked, []
            for other in parked:
                if other is not site:
                    self._schedule(other)
        if turn.active >= turn.places(self._section):
            return
        if asked:
            # What it has now waits for a permit, a budget or a robots.txt, which will schedule it.
            times = [time for lane in site.lanes if (time := lane.later(self._latest)) is not None]
            at = min(times, default=None)
        else:
            at = site.next_time()
        if at is not None:
            self._wheel.put(site, max(turn.due, at))
        elif not asked:
            self._wheel.remove(site)

    def _expire(self, now: float) -> None:
        """Gives back leases past their deadline; they are in the order of their deadlines."""
        while self._leases:
            state = next(iter(self._leases.values()))
            if state.lease.deadline > now:
                return
            del self._leases[state.lease.item]
            turn = state.site.turn
            if not state.cooled:
                turn.active -= 1
                self._requests.end(state.lease.item, now, "expired")
                turn.ended(now, self._section)
            self._give_back(state, state.item.attempt, 0.0, first=True)
            self._schedule(state.site)

    def _valid(self, lease: Lease) -> _State | None:
        state = self._leases.get(lease.item)
        return state if state is not None and state.lease == lease else None

    # ── ending ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_turn(self, state: _State, ended: Ended) -> None:
        turn, section = state.site.turn, self._section
        turn.active -= 1
        turn.ended(ended.at, section)
        before = (turn.extra_s, turn.open_until, turn.probes)
        if ended.slow_down:
            turn.slow_down(ended.at, ended.retry_after_s, section)
            if (ended.retry_after_s or 0.0) > section.max_retry_after_s:
                for lane in state.site.lanes:
                    self._reject(lane, Reason.RETRY_AFTER)
        if ended.ok is not None:
            turn.answered(ended.lease.item, ended.ok, ended.at, section)
        if before != (turn.extra_s, turn.open_until, turn.probes) or ended.slow_down:
            self._save_site(state.site)
        if turn.broken(section):
            for lane in state.site.lanes:
                self._reject(lane, Reason.BREAKER)

    def _end_lease(self, state: _State, outcome: Outcome, batch: int) -> None:
        lane, item = state.lane, state.item
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
        if item.attempt and item.item > 0:
            self._journal.delete("retries", item.item)
        self._end_item(item.item, batch)

    def _end_item(self, item: int, batch: int) -> None:
        if item < 0:
            return
        self._finished += 1
        if batch:
            self._unacknowledged.append((batch, item))
        else:
            self._journal.done.append(item)

    def _give_back(self, state: _State, attempt: int, not_before: float, *, first: bool = False) -> None:
        item = state.item
        if item.purpose is Purpose.PAGE:
            self._free_permit(state.lane)
            self._mark(item, state.lane.crawl, leased=False)
            item = _at_its_nearest(item, state.lane.crawl)
        if attempt != item.attempt:
            item = msgspec.structs.replace(item, attempt=attempt)
            wall = self._wall() + max(0.0, not_before - self.now())
            if item.purpose is Purpose.ROBOTS:
                self._robots_tries[item.about] = (attempt, wall)
                self._journal.put("robots_tries", item.about, attempt, wall)
            else:
                self._journal.put("retries", item.item, attempt, wall)
        state.lane.push_urgent(item, not_before, first=first)
        self._queued += 1

    def _free_permit(self, lane: Lane) -> None:
        lane.flight -= 1
        lane.crawl.flight -= 1
        self._unblock(lane.crawl)

    def _unblock(self, crawl: Crawl) -> None:
        for _ in range(min(len(crawl.blocked), max(0, crawl.permits()))):
            site = next(iter(crawl.blocked))
            del crawl.blocked[site]
            self._schedule(site)

    def _reject(self, lane: Lane, reason: Reason) -> None:
        """Takes out everything that waits in a lane; `rejections` gives it to whoever keeps the reasons."""
        waiting = list(lane.items())
        lane.clear()
        self._queued -= len(waiting)
        for item in waiting:
            if item.purpose is Purpose.ROBOTS:
                self._robots_pending.discard(item.about)
            else:
                self._rejected.append(Rejection(item, lane.crawl.number, reason))

    # ── queueing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _admit_new(self, crawl: Crawl, found: Found) -> None:
        item = self._next_item
        self._next_item += 1
        self._admitted += 1
        if crawl.depths is not None:
            crawl.depths[crawl.seen.fingerprint(found.url)] = Known(found.depth, item)
        self._write_line(crawl, found, item)
        self._enqueue(crawl, found, item)

    def _write_line(self, crawl: Crawl, found: Found, item: int) -> None:
        about = " " + found.about if found.about else ""
        self._journal.admitted.append(
            f"{item} {found.depth} {found.parent} {found.hops} {found.offsite} {crawl.number} "
            f"{_LETTER[found.purpose]} {found.url}{about}"
        )

    def _enqueue(self, crawl: Crawl, found: Found, item: int, attempt: int = 0, not_before: float = 0.0) -> None:
        site = self._site(self.key_of(found.url))
        lane = self._lane(site, crawl)
        was_empty = not lane.queued
        if found.purpose is Purpose.PAGE and not found.hops and not attempt:
            lane.push(item, found.url, found.depth, found.parent, found.offsite)
        else:
            lane.push_urgent(
                Item(
                    item,
                    found.url,
                    found.depth,
                    found.parent,
                    found.hops,
                    found.purpose,
                    found.about,
                    attempt,
                    found.offsite,
                ),
                not_before,
            )
            was_empty = True
        self._queued += 1
        if was_empty:
            self._schedule(site)

    def _move_up(self, crawl: Crawl, found: Found) -> tuple[int, str, int] | None:
        """A known URL found by a shorter way: queued, it moves up; fetched, the caller must expand it again."""
        assert crawl.depths is not None
        known = crawl.depths.get(crawl.seen.fingerprint(found.url))
        if known is None or known.depth <= found.depth:
            return None
        known.depth = found.depth
        self._write_line(crawl, found, known.item)
        if known.ended:
            return known.item, found.url, found.depth
        if not known.leased:
            # Its old entry stays where it is and is passed over when its turn comes.
            self._enqueue(crawl, found, known.item)
        return None

    def _over_budget(self, crawl: Crawl, found: Found) -> bool:
        cap = crawl.limits.max_pages_per_domain
        if cap is None:
            return False
        site = self._sites.get(self.key_of(found.url))
        lane = next((lane for lane in site.lanes if lane.crawl is crawl), None) if site else None
        return lane is not None and lane.queued + lane.pages >= _OVERFLOW * cap + 1000

    def _site(self, key: str) -> Site:
        site = self._sites.get(key)
        if site is None:
            site = self._sites[key] = Site(key, Turn(self._not_before))
        return site

    def _lane(self, site: Site, crawl: Crawl) -> Lane:
        return site.lane(crawl, self._folder / "spill" / f"{crawl.number}-{_file_name(site.key)}")

    def _save_site(self, site: Site) -> None:
        turn = site.turn
        record = {
            "crawl_delay": turn.crawl_delay_s,
            "extra": turn.extra_s,
            "single": turn.forced_single,
            "probes": turn.probes,
            "open": bool(turn.open_until),
            "due_wall": self._wall() + max(0.0, turn.due - self.now()),
        }
        self._journal.put("sites", site.key, msgspec.msgpack.encode(record))
        # What a site has asked for is rare and must outlive a kill in the next tenth of a second.
        self._commit_early()

    def _commit_early(self) -> None:
        try:
            self._journal.commit()
        except DiskFull:
            pass  # what was put is kept, and the next `commit` will tell

    def _remember_robots(self, origin: str, record: RobotsRecord) -> RobotsRecord:
        if len(self._robots_cache) > 20_000:
            self._robots_cache.clear()
        self._robots_cache[origin] = record
        return record

    def _transient(self) -> int:
        """A number for what is not kept: a robots.txt request that a crash may forget."""
        self._next_transient -= 1
        return self._next_transient


def _at_its_nearest(item: Item, crawl: Crawl) -> Item:
    """The item at the depth that was found while it was leased: as the deeper one `_pop` would pass it over."""
    known = crawl.depths.get(crawl.seen.fingerprint(item.url)) if crawl.depths is not None else None
    if known is None or known.item != item.item or known.depth >= item.depth:
        return item
    return msgspec.structs.replace(item, depth=known.depth)


class _Bitmap:
    """A set of item numbers, a bit each: they are dense."""

    def __init__(self) -> None:
        self._bits: dict[int, bytearray] = {}

    def add(self, items: Iterable[int]) -> None:
        for item in items:
            block = self._bits.get(item >> 16)
            if block is None:
                block = self._bits[item >> 16] = bytearray(8192)
            block[(item >> 3) & 8191] |= 1 << (item & 7)

    def __contains__(self, item: int) -> bool:
        block = self._bits.get(item >> 16)
        return block is not None and bool(block[(item >> 3) & 8191] & (1 << (item & 7)))


def _file_name(key: str) -> str:
    from hashlib import sha256

    return sha256(key.encode()).hexdigest()[:24]


def _lock(folder: Path) -> int:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise BadInput(f"data dir {folder}: cannot be used: {error.strerror}; choose another with --data-dir") from None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise Busy(f"data dir {folder}: a crawl is running in it; stop it first, or choose another data dir") from None
    return fd
