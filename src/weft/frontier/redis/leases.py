"""Leases of a pod's frontier on Redis: what is due is claimed, and what was claimed ends.

A claim is in this slot's request log before it is returned, and the end of a request before another process may send
one to its site. A lease tells which robots.txt and which cookies of its site are the newest, so a process reads them
only when another one has learnt something.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft import urls
from weft.errors import DiskFull
from weft.frontier.contract import (
    End,
    Ended,
    Handed,
    Outcome,
    RobotsRecord,
    Slots,
    Taken,
    Wanted,
)
from weft.frontier.politeness import Shown
from weft.frontier.redis.client import LETTERS, NUMBER_MASK
from weft.frontier.redis.crawls import RedisCrawls
from weft.frontier.redis.packing import unpacked
from weft.frontier.redis.places import AddressPlaces, slow_of, took_of
from weft.frontier.redis.scripts import Argument
from weft.frontier.redis.shelf import Shelf
from weft.frontier.requests import RequestLog
from weft.frontier.seen import seen_key
from weft.frontier.slots import TURNS, ClassSlots
from weft.records import Found, Lease, Purpose

PURPOSES = {letter.encode(): purpose for purpose, letter in LETTERS.items()}
_END = {End.PAGE: "p", End.OTHER: "o", End.RETRY: "y", End.RELEASE: "l"}
_YES = ord("1")
_KEPT_ROBOTS = 20_000


class _Out:
    """A lease that this process holds."""

    __slots__ = ("cooled", "lease", "places", "rank", "stamp")

    def __init__(self, lease: Lease, stamp: int, cooled: bool, places: int = 1, rank: int | None = None) -> None:
        self.lease = lease
        self.stamp = stamp
        self.cooled = cooled
        self.places = places  # requests that its crawl may have in flight there
        self.rank = rank  # whose slot it has; None: its request is over


class RedisLeases(RedisCrawls):
    """Claiming and ending."""

    owner: str
    epoch: int
    _wall: Callable[[], float]
    _idle_s: float
    _worked: bool
    _out: dict[int, _Out]
    _slots: ClassSlots
    _line_turn: int
    _next_due: float | None
    _idle_until: float
    _robots: dict[str, tuple[int, RobotsRecord]]
    _robots_wanted: dict[str, int]
    _cookies: dict[tuple[int, str], tuple[int, bytes]]
    _cookies_wanted: dict[tuple[int, str], int]
    _places: AddressPlaces | None
    _shelf: Shelf
    _requests: RequestLog

    def claim(self, owner: str, limit: int, slots: Slots | None = None) -> list[Lease]:
        """Leases for what is due, in the request log before it returns.

        What sites have shown is known to all processes; the slots that it gives them are this process's own.
        """
        self._slots.limit(slots)
        self._free_expired()
        if limit <= 0 or self.now() < self._idle_until:
            return []
        room = [self._slots.room(rank) if slots else "" for rank in (Shown.SLOW, Shown.UNKNOWN)]
        due, deadline, expired, taken = self._call(
            "claim", [owner, limit, self._pod, self._limits.keep, self._limits.low, self._line_turn, *room]
        )
        self._line_turn = (self._line_turn + len(taken)) % len(TURNS)
        self._next_due = self._local(int(due)) if due else None
        if len(taken) < limit:
            wait = self.now() + self._idle_s
            self._idle_until = wait if self._next_due is None else min(wait, self._next_due)
        self._log_expired(expired)
        until = self._local(int(deadline))
        leases = [self._leased(fields, owner, until) for fields in taken]
        if leases or expired:
            try:
                self._requests.flush()
            except DiskFull:
                self.finish(Outcome(lease, End.RELEASE) for lease in leases)
                raise
        return self._readable(leases)

    def _leased(self, fields: list[Any], owner: str, deadline: float) -> Lease:
        lease = self._lease(fields, owner, deadline, fields[10] / 1e6)
        self._out.pop(lease.item, None)  # of an earlier lease, which has expired: the order is that of the deadlines
        self._out[lease.item] = _Out(lease, fields[1], cooled=False, places=int(fields[11]), rank=fields[14])
        self._slots.out[fields[14]] += 1
        self._worked = True
        if lease.purpose is not Purpose.ROBOTS:
            self._robots_wanted[lease.url[: lease.url.index("/", 8)]] = int(fields[12])
        if (cookies := int(fields[13])) > 0:
            self._cookies_wanted[lease.crawl, lease.key] = cookies
        self._requests.start(lease.item, self.now(), lease.key, lease.delay_s, fields[11], lease.url, lease.crawl)
        return lease

    def _readable(self, leases: list[Lease]) -> list[Lease]:
        """The leases whose robots.txt is on this node's disk. The others are released, their robots.txt expired."""
        missing = [
            lease
            for lease in leases
            if lease.purpose is not Purpose.ROBOTS and self.robots(urls.origin_of(lease.url)) is None
        ]
        if not missing:
            return leases
        for lease in missing:
            key, code = self._keys.of(urls.origin_of(lease.url))
            self._forget_robots(key, code)
        self.finish([Outcome(lease, End.RELEASE) for lease in missing])
        return [lease for lease in leases if lease.item in self._out]

    def next_due(self) -> float | None:
        """When `claim` may next return something, judged by the last claim and this process's operations since."""
        return self._next_due

    def cool(self, ended: Iterable[Ended]) -> None:
        """Frees the places and sets the clocks: with the next call, or at once after a failure or a slow-down."""
        cooling: list[tuple[_Out, Ended]] = []
        for one in ended:
            out = self._valid(one.lease)
            if out is None or out.cooled:
                continue
            out.cooled = True
            self._requests.end(one.lease.item, one.at, one.outcome or "-")
            self._free_slot(out)
            cooling.append((out, one))
        if not cooling:
            return
        self._requests.try_flush()  # before another process may send a request to the site
        if self._places is not None:
            self._places.ended(one for _, one in cooling)
        self._scripts.later("cool", lambda: [field for out, one in cooling for field in self._cooling(out, one, b"")])
        if any(one.slow_down or one.ok is False for _, one in cooling):
            self._flush()
        self._due_after(self._shortest_delay_s)

    def fetched(self, handed: Iterable[Handed]) -> list[bool]:
        """Cools transfers whose pages lie in a spool, and queues the pages for a parser. False: the lease had ended."""
        arguments: list[Argument] = []
        valid: list[bool] = []
        given = list(handed)
        for one in given:
            out = self._valid(one.ended.lease)
            valid.append(out is not None)
            if out is None:
                continue
            if not out.cooled:
                self._requests.end(one.ended.lease.item, one.ended.at, one.ended.outcome or "-")
            self._free_slot(out)
            arguments += self._cooling(out, one.ended, one.reference)
        if not arguments:
            return valid
        self._requests.try_flush()  # before another process may send a request to the site
        if self._places is not None:
            self._places.ended(one.ended for one, was in zip(given, valid, strict=True) if was)
        (letters,) = self._call("cool", arguments)
        self._due_after(self._shortest_delay_s)
        answers = iter(letters)
        for one, was in zip(given, valid, strict=True):
            if was:
                self._out.pop(one.ended.lease.item, None)
        return [was and next(answers) == _YES for was in valid]

    def take(self, limit: int) -> list[Taken]:
        """Leases fetched pages to this process for parsing, the oldest first."""
        deadline, rows = self._call("take", [self.owner, limit])
        until = self._local(int(deadline))
        taken = []
        for fields in rows:
            lease = self._lease(fields, self.owner, until, int(fields[10]) / 1e6)
            self._out[lease.item] = _Out(lease, fields[1], cooled=True)
            self._worked = True
            taken.append(Taken(lease, fields[11], int(fields[12])))
        return taken

    def died_on(self, item: int) -> int:
        """Counts a parser that died on this page; returns how many have."""
        deaths: Any = self._ask("HINCRBY", "deaths", str(item & NUMBER_MASK), 1)
        return int(deaths)

    def awaited(self, items: Sequence[int]) -> list[bool]:
        """Whether each item is fetched and not parsed yet; True for a leased one, which may be."""
        numbers = [self._number(item) for item in items]
        waiting, held = self._ask("HMGET", "fetched", *numbers), self._ask("HMGET", "lease", *numbers)
        return [one is not None or other is not None for one, other in zip(waiting, held, strict=True)]

    def finish(self, outcomes: Iterable[Outcome], batch: int = 0) -> list[bool]:
        """Ends leases. With a batch they are prepared by this slot for it, until `acknowledge` or `recover`."""
        given = list(outcomes)
        arguments: list[Argument] = [self._slot, batch]
        outs = [self._valid(outcome.lease) for outcome in given]
        for outcome, out in zip(given, outs, strict=True):
            if out is None:
                continue
            if not out.cooled:
                self._requests.end(outcome.lease.item, self.now(), "unasked")
            self._free_slot(out)
            arguments += [self._number(out.lease.item), out.stamp, _END[outcome.end], int(outcome.wait_s * 1e6)]
            if outcome.end in (End.RETRY, End.RELEASE) or not out.cooled or self._is_limited(out.lease.crawl):
                self._due_after(0.0)
        if len(arguments) == 2:
            return [False] * len(given)
        if any(out is not None and not out.cooled for out in outs):
            self._requests.try_flush()  # before another process may send a request to the site
        if self._places is not None:
            self._places.finished(out.lease.item for out in outs if out is not None)
        (letters,) = self._call("finish", arguments)
        answers = iter(letters)
        for outcome, out in zip(given, outs, strict=True):
            if out is not None:
                self._out.pop(outcome.lease.item, None)
        return [out is not None and next(answers) == _YES for out in outs]

    def set_aside(self, leases: Iterable[Lease]) -> None:
        """Takes items out that an edit has excluded, until `take_back`; nothing was asked for them."""
        arguments: list[Argument] = ["out"]
        for lease in leases:
            out = self._valid(lease)
            if out is not None and not out.cooled:
                del self._out[lease.item]
                self._free_slot(out)
                self._requests.end(lease.item, self.now(), "unasked")
                arguments += [self._number(lease.item), out.stamp]
        if len(arguments) > 1:
            self._requests.try_flush()  # before another process may send a request to the site
            self._call("aside", arguments)
            self._due_after(0.0)

    def take_places(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Asks the pods that keep the addresses. A lease without a place ends, and its site waits for the address."""
        assert self._places is not None, "politeness is not by address"
        outs = [self._valid(one.lease) for one in wanted]
        waits = iter(self._places.take([one for one, out in zip(wanted, outs, strict=True) if out is not None]))
        granted: list[bool] = []
        arguments: list[Argument] = []
        for one, out in zip(wanted, outs, strict=True):
            wait = next(waits) if out is not None else None
            granted.append(out is not None and wait is None)
            if out is not None and wait is not None:
                self._requests.end(one.lease.item, self.now(), "unasked")
                out.cooled = True  # its end is logged
                self._free_slot(out)
                arguments += [self._number(one.lease.item), out.stamp, one.address, wait]
        if arguments:
            self._requests.try_flush()  # before another process may send a request to the site
            self._call("wait", arguments)
            self._due_after(0.0)
        for one, out, has_place in zip(wanted, outs, granted, strict=True):
            if out is not None and not has_place:
                self._out.pop(one.lease.item, None)
        return granted

    def _ask_places(self, pod: int, arguments: Sequence[Argument]) -> list[bytes]:
        assert pod == self._pod, "there are other pods"
        return self.places(arguments)

    def _places_of_lease(self, lease: Lease) -> int:
        return self._out[lease.item].places

    def depth_of(self, lease: Lease) -> int:
        """From the server's known depths, which are kept where there is a `max_depth`; else the lease's own."""
        crawl = self._crawls.get(lease.crawl)
        if crawl is None or not crawl.has_depths:
            return lease.depth
        found = Found(lease.url, lease.depth, lease.parent, lease.hops, lease.purpose, lease.about)
        fingerprint = crawl.fingerprint(seen_key(found))
        bucket = int(fingerprint.rpartition(":")[2].lstrip("-")[-12:]) % 16384
        known: Any = self._ask("HGET", f"k:{lease.crawl}:{bucket}", fingerprint)
        if known is None:
            return lease.depth
        number, depth, _ = known.split(b":")
        return min(int(depth), lease.depth) if int(number) == lease.item & NUMBER_MASK else lease.depth

    # ── robots.txt and cookies ────────────────────────────────────────────────────────────────────────────────────────

    def robots(self, origin: str) -> RobotsRecord | None:
        """From memory, or from the disk where the last claim named a newer version."""
        known = self._robots.get(origin)
        wanted = self._robots_wanted.get(origin, 0)
        if known is None or known[0] < wanted:
            read = self._shelf.robots(origin)
            if read is None or read[0] < wanted:
                return None
            known = self._remember_robots(origin, *read)
        return known[1]

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Remembers an origin's robots.txt; its Crawl-delay raises the site's delay."""
        version = self._shelf.keep(origin, record, self._wall())
        self._requests.robots(self.now(), origin, record)
        self._remember_robots(origin, version, record)
        key, code = self._keys.of(origin)
        delay = int((crawl_delay_s or 0.0) * 1e6)
        if self._places is not None:
            self._places.asks(origin, crawl_delay_s or 0.0)
        self._scripts.later("robots", lambda: [key, code, int((record.expires - self._wall()) * 1e6), delay, version])
        self._due_after(0.0)

    def cookies_of(self, lease: Lease) -> tuple[int, bytes] | None:
        """The cookies last kept for this lease's site by any process, with their version."""
        place = (lease.crawl, lease.key)
        wanted = self._cookies_wanted.get(place)
        if wanted is None:
            return None
        known = self._cookies.get(place)
        if known is None or known[0] != wanted:
            stored: Any = self._ask("GET", f"C:{lease.crawl}:{lease.key}")
            if stored is None:
                return None
            number, _, data = stored.partition(b" ")
            known = self._remember_cookies(place, int(number), data)
        return known

    def keep_cookies(self, crawl: int, key: str, data: bytes) -> int:
        """Saves a site's cookies; other processes get them with their next lease there. Returns their version."""
        number = random.getrandbits(48) | 1
        self._scripts.later("cookies", lambda: [crawl, key, number, data])
        self._remember_cookies((crawl, key), number, data)
        return number

    def _forget_unreachable(self, url: str) -> None:
        origin = urls.origin_of(url)
        record = self.robots(origin)
        if record is not None and record.status in ("unreachable", "address"):
            key, code = self._keys.of(origin)
            self._forget_robots(key, code)

    def _forget_robots(self, key: str, code: bytes) -> None:
        self._scripts.later("robots", lambda: [key, code, "-", 0, 0])

    def _remember_robots(self, origin: str, version: int, record: RobotsRecord) -> tuple[int, RobotsRecord]:
        if len(self._robots) > _KEPT_ROBOTS:
            self._robots.clear()
            self._robots_wanted.clear()
        entry = self._robots[origin] = (version, record)
        return entry

    def _remember_cookies(self, place: tuple[int, str], version: int, data: bytes) -> tuple[int, bytes]:
        if len(self._cookies) > _KEPT_ROBOTS:
            self._cookies.clear()
            held = {(out.lease.crawl, out.lease.key) for out in self._out.values()}
            self._cookies_wanted = {one: wanted for one, wanted in self._cookies_wanted.items() if one in held}
        self._cookies_wanted[place] = version
        entry = self._cookies[place] = (version, data)
        return entry

    # ── leases ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _free_slot(self, out: _Out) -> None:
        """A request is over. What waited for a slot of its class may be claimed now."""
        if out.rank is not None:
            if not self._slots.has_room(out.rank):
                self._due_after(0.0)
            self._slots.out[out.rank] -= 1
            out.rank = None

    def _free_expired(self) -> None:
        """Frees the slots of leases that have expired; leases are in the order of their deadlines."""
        now = self.now()
        for out in self._out.values():
            if out.lease.deadline > now:
                return
            self._free_slot(out)

    def _valid(self, lease: Lease) -> _Out | None:
        out = self._out.get(lease.item)
        return out if out is not None and (out.lease is lease or out.lease == lease) else None

    def _cooling(self, out: _Out, ended: Ended, reference: bytes) -> list[Argument]:
        age = max(0, int((self.now() - ended.at) * 1e6))
        retry_after = "" if ended.retry_after_s is None else int(ended.retry_after_s * 1e6)
        ok = "" if ended.ok is None else int(ended.ok)
        number, slow = self._number(out.lease.item), slow_of(ended)
        return [number, out.stamp, age, ok, slow, retry_after, took_of(ended), reference]

    def _lease(self, fields: list[Any], owner: str, deadline: float, delay_s: float) -> Lease:
        number, _, crawl, site, depth, hops, letter, attempt, about, rest = fields[:10]
        key = site.decode()
        origin, path, parent, offsite = unpacked(rest, key)
        purpose = PURPOSES[letter]
        subject = about.decode() or (origin if purpose is Purpose.ROBOTS else "")
        return Lease(
            self._item(int(number)), int(crawl), origin + path, key, depth, parent, hops, purpose, subject, offsite,
            attempt, owner, self.epoch, deadline, delay_s,
        )  # fmt: skip

    def _is_limited(self, crawl: int) -> bool:
        """Whether the end of a lease may let the crawl claim something else."""
        facts = self._crawls.get(crawl)
        return facts is not None and not (
            facts.limits.max_pages is None
            and facts.limits.in_flight is None
            and facts.limits.max_pages_per_domain is None
        )

    def _log_expired(self, numbers: Iterable[bytes]) -> None:
        for number in numbers:
            item = self._item(int(number))
            self._requests.end(item, self._sent_at, "expired")

    def _due_after(self, seconds: float) -> None:
        at = self.now() + seconds
        self._next_due = at if self._next_due is None else min(self._next_due, at)
        self._idle_until = min(self._idle_until, at)
