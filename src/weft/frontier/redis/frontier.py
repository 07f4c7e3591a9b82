"""The frontier of a pod on its Redis, shared by the pod's processes. Its keys: lua/common.lua.

Each operation is one script, so it is atomic whichever process dies. Redis holds which sites are due, what is queued,
seen and leased, and every politeness clock; the disk holds the request logs (one for each slot), robots.txt bodies and
the tails of long queues. Time is the server's. Callers get it converted to this process's clock; the end of a transfer
is sent as its age, so a delay in transit makes a site due later, never earlier.

The states of an item: queued → leased → (cooled) → prepared for a batch of this slot → deleted; where parsers are
processes of their own: leased → fetched → leased to a parser → prepared. A lease is identified by its stamp, which is
unique.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft import urls
from weft.config import PolitenessSection
from weft.errors import DiskFull
from weft.frontier.contract import (
    End,
    Ended,
    Handed,
    Item,
    Outcome,
    Rejection,
    RobotsRecord,
    Slots,
    Taken,
    Wanted,
)
from weft.frontier.redis.client import LETTERS, NUMBER_MASK, POD_BITS, Limits
from weft.frontier.redis.connection import asking, check_run
from weft.frontier.redis.crawls import RedisCrawls
from weft.frontier.redis.lead import Lead
from weft.frontier.redis.marks import Marks
from weft.frontier.redis.packing import unpacked, unpacked_item
from weft.frontier.redis.places import AddressPlaces
from weft.frontier.redis.scripts import Argument
from weft.frontier.redis.shelf import Shelf
from weft.frontier.requests import RequestLog
from weft.frontier.seen import seen_key
from weft.records import Found, Lease, Purpose, Reason
from weft.telemetry import Log

if TYPE_CHECKING:
    from redis import Redis

IDLE_S = 0.1  # a claim that got nothing is not repeated sooner, unless something has changed here
_PURPOSE = {letter.encode(): purpose for purpose, letter in LETTERS.items()}
_END = {End.PAGE: "p", End.OTHER: "o", End.RETRY: "y", End.RELEASE: "l"}
_YES = ord("1")
_KEPT_ROBOTS = 20_000
log = Log("weft.frontier.redis")


class DataLost(Exception):
    """The server has lost writes of this process. Not a WeftError: the process is meant to die of it, and the next one
    in its slot compares what is prepared with what its store has (`recover`)."""


class _Out:
    """A lease that this process holds."""

    __slots__ = ("cooled", "lease", "places", "stamp")

    def __init__(self, lease: Lease, stamp: int, cooled: bool, places: int = 1) -> None:
        self.lease = lease
        self.stamp = stamp
        self.cooled = cooled
        self.places = places  # requests that its crawl may have in flight there


class RedisFrontier(RedisCrawls):
    """See the contract. `server_clock` is for tests: it takes the place of the server's time, in seconds."""

    def __init__(
        self,
        connection: Redis,
        folder: Path,
        section: PolitenessSection,
        *,
        slot: str,
        incarnation: int = 1,
        pod: int = 0,
        pods: int = 1,
        where: str = "redis",
        limits: Limits | None = None,
        bloom_filter: tuple[int, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        server_clock: Callable[[], float] | None = None,
        idle_s: float = IDLE_S,
    ) -> None:
        super().__init__(
            connection, section, pod=pod, pods=pods, where=where, limits=limits, clock=clock, server_clock=server_clock
        )
        self._slot = slot
        self.owner = f"{slot}#{incarnation}"
        self._bloom = bloom_filter
        self._by_name = {}
        self._wall = wall
        self._idle_s = idle_s
        self._operation = 0
        self.epoch = 0
        self._worked = self._lost = False
        self._out: dict[int, _Out] = {}
        self._rejected_out: dict[int, int] = {}
        self._rejects_wait = False
        self._next_due: float | None = 0.0
        self._idle_until = 0.0
        self._robots: dict[str, tuple[int, RobotsRecord]] = {}
        self._robots_wanted: dict[str, int] = {}
        self._places: AddressPlaces | None = None
        if section.key_scope == "ip":
            self._places = AddressPlaces(slot, self.owner, pod, pods, self._ask_places, self.now, self._places_of_lease)
        self._cookies: dict[tuple[int, str], tuple[int, bytes]] = {}
        self._cookies_wanted: dict[tuple[int, str], int] = {}
        self._shelf = Shelf(folder / "robots.db")
        self._marks = Marks(folder / "marks", slot)
        self._requests = RequestLog(folder / "requests" / slot, self.now())
        self._lead = Lead(folder / "spill", self._call, self._ask, self._scan, self._limits.cap, clock)
        self.lost_ends: list[int] = []  # stored items whose links may have been lost with the server's data
        self._run = ""  # of the server that was opened
        check_run(connection, lambda: self._run)
        self.epoch = self._open(new_epoch=True)
        acknowledged: Any = self._ask("HGET", "slots", slot)
        self.acknowledged = int(acknowledged or 0)

    # ── opening ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open(self, *, new_epoch: bool) -> int:
        """Checks whether the server was restarted, and whether it lost data; returns the epoch."""
        self._run = ""
        with asking(self._where):
            info: Any = self._client.info("server")
        self._run = str(info["run_id"])
        operation, item = self._marks.known()
        mark = "?" if operation is None else operation
        epoch, lost = self._scripts.call_first("open", [self._run, mark, item & NUMBER_MASK, int(new_epoch)])
        if lost:
            log.error("the server has lost data: every site waits a full delay", server=self._where)
        return int(epoch)

    def recover(
        self,
        done: Iterable[int] = (),
        pages: Mapping[int, int] | None = None,
        by_key: Mapping[str, int] | None = None,
        by_crawl: Mapping[int, Mapping[str, int]] | None = None,
        *,
        batch: int = 0,
    ) -> int:
        """Resolves what this slot's earlier process left open; returns the number queued.

        `done`: items that this slot's store has since the last acknowledged batch. `pages`: pages by crawl in this
        slot's store alone; `by_key`: likewise by site, used only where Redis has no count for the site; `by_crawl`: the
        same for each crawl. `batch`: the store's last one, which is on the disk. It is acknowledged here, unless there
        are `lost_ends`: then it is once their links were read again. An end of a crawl that this slot's earlier process
        did not confirm is undone.
        """
        numbers = [item & NUMBER_MASK for item in done if item > 0 and item >> POD_BITS == self._pod]
        stored = [figure for pair in (pages or {}).items() for figure in pair]
        if batch:
            self.sync()  # links for other pods must be on the disk before the pages that they are from are acknowledged
        in_flight, unsure, undone = self._call(
            "recover", [self._slot, int(self._marks.rebooted), batch, len(stored) // 2, *stored, *numbers]
        )
        self._worked = True  # from here on the server can lose something of this process
        self._log_expired(in_flight)
        self.lost_ends = [self._item(int(number)) for number in unsure]
        for crawl in undone:
            self._schedule_anew(int(crawl))
        for key, count in (by_key or {}).items():
            self._call("budget", [key, count, *self._crawls])
        for number, counts in (by_crawl or {}).items():
            for key, count in counts.items():
                self._call("budget", [key, count, number])
        for earlier in (self._slot, self._slot + "#"):
            self.release_owner(earlier, but=self.owner)
        if self._places is not None:
            self._places.settle()
        return self.stats().queued

    def release_owner(self, owner: str, *, but: str = "") -> int:
        """Ends all leases of an owner (or of all incarnations of `slot#`); returns how many requests were in flight."""
        (in_flight,) = self._call("release", [owner, but])
        self._log_expired(in_flight)
        self._requests.flush()
        return len(in_flight)

    def close(self) -> None:
        """Commits and closes."""
        if not self._lost:
            self.commit()
        self._requests.close()
        self._shelf.close()
        self._marks.close()

    # ── the contract ───────────────────────────────────────────────────────────────────────────────────────────────

    def readmit(self, crawl: int, found: Found) -> None:
        """Queues a URL, seen or not, as a new visit under a new number.

        A robots.txt that could not be fetched is fetched again, or the visit would be refused again.
        """
        self._forget_unreachable(found.url)
        self._admit(crawl, [found], mode="again")

    def readmit_once(self, crawl: int, name: str, what: str, lost: Iterable[tuple[int, Found]]) -> None:
        """Queues URLs once more, those of them of which the note `name` does not say that they (`what`) are already.

        `lost` are in the order of the items that they had: the note tells how far it has come, whoever dies.
        """
        said, _, last = self.note(name).partition(" ")
        left = [(item, found) for item, found in lost if said != what or item > int(last)]
        for start in range(0, len(left), 1000):
            some = left[start : start + 1000]
            for _, found in some:
                self._forget_unreachable(found.url)
            self._admit(crawl, [found for _, found in some], mode="again", then=(name, f"{what} {some[-1][0]}"))

    def restore_stored(self, crawl: int, rows: Iterable[tuple[str, int, int]]) -> None:
        """The pages of `lost_ends` (URL, depth, item): if the server has forgotten them, it knows them again."""
        facts, arguments = self._crawls[crawl], list[Argument]()
        for url, depth, item in rows:
            key = self.key_of(url)
            arguments += ["p", key, depth, 1, facts.fingerprint(url), self._number(item)]
        if arguments:
            self._call("admit", [crawl, "had", "", 0, 1, 1, 1, "", "", 0, *arguments])
        self._ask("SREM", "settling", self._slot)

    def settled(self) -> bool:
        """Whether all processes of the pod have called `restore_stored` since the server lost data."""
        return not self._ask("EXISTS", "settling")

    def crew(self, slots: Iterable[str]) -> None:
        """Sets the slots that this pod has from now on; recovery does not wait for others."""
        self._ask("DEL", "crew")
        self._ask("SADD", "crew", *slots)
        self._ask("SINTERSTORE", "settling", "settling", "crew")

    def recrawl(self, crawl: int, run: str, known: Iterable[Found], begin: Callable[[int], None]) -> None:
        """Queues known pages again, once for each run, across crashes; `begin` is called with the last item before."""
        state = self._meta(f"recrawl:{crawl}")
        started, _, done = state.partition(" ")
        if started == run and not done:
            return
        if started != run:
            begin(self._item(self._figures()[0][6]))
            self._set_meta(f"recrawl:{crawl}", f"{run} 0")
            done = "0"
        batch: list[Found] = []
        for at, found in enumerate(known):
            if at >= int(done):
                self._forget_unreachable(found.url)
                batch.append(found)
            if len(batch) == 1000:
                self._admit(crawl, batch, mode="again", then=(f"recrawl:{crawl}", f"{run} {at + 1}"))
                batch = []
        self._admit(crawl, batch, mode="again", then=(f"recrawl:{crawl}", run))

    def is_recrawled(self, crawl: int) -> bool:
        """Whether known pages of this crawl are being visited again."""
        return bool(self._meta(f"recrawl:{crawl}"))

    def claim(self, owner: str, limit: int, slots: Slots | None = None) -> list[Lease]:  # noqa: ARG002
        """Leases for what is due, in the request log before it returns. What sites have shown is not kept in Redis."""
        if limit <= 0 or self.now() < self._idle_until:
            return []
        due, deadline, expired, taken = self._call(
            "claim", [owner, limit, self._pod, self._limits.keep, self._limits.low]
        )
        self._next_due = self._local(int(due)) if due else None
        self._idle_until = 0.0
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
        self._out[lease.item] = _Out(lease, fields[1], cooled=False, places=int(fields[11]))
        self._worked = True
        if lease.purpose is not Purpose.ROBOTS:
            self._robots_wanted[lease.url[: lease.url.index("/", 8)]] = int(fields[12])
        if (cookies := int(fields[13])) > 0:
            self._cookies_wanted[lease.crawl, lease.key] = cookies
        self._requests.start(lease.item, self.now(), lease.key, lease.delay_s, fields[11], lease.url)
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

    def cool(self, ended: Iterable[Ended]) -> None:
        """Frees the places and sets the clocks: with the next call, or at once after a failure or a slow-down."""
        cooling: list[tuple[_Out, Ended]] = []
        for one in ended:
            out = self._valid(one.lease)
            if out is None or out.cooled:
                continue
            out.cooled = True
            self._requests.end(one.lease.item, one.at, one.outcome or "-")
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

    def acknowledge(self, batch: int) -> None:
        """The store's batches up to this one are durable: what was prepared for them has ended."""
        self.acknowledged = batch
        self._scripts.later("acknowledge", lambda: [self._slot, batch])

    def commit(self) -> None:
        """Writes the logs, and sends the deferred calls."""
        self._requests.flush()
        self._shelf.commit()
        self._flush()

    def sync(self) -> None:
        """Makes this node's files safe against a power cut; the server syncs its own every second."""
        self._requests.sync()
        self._shelf.sync()

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
        self._remember_robots(origin, version, record)
        key, code = self._keys.of(origin)
        delay = int((crawl_delay_s or 0.0) * 1e6)
        if self._places is not None:
            self._places.asks(origin, crawl_delay_s or 0.0)
        self._scripts.later("robots", lambda: [key, code, int((record.expires - self._wall()) * 1e6), delay, version])
        self._due_after(0.0)

    def knows_finished(self) -> Callable[[int], bool] | None:
        """Nothing: the server forgets what is finished."""
        return None

    def next_due(self) -> float | None:
        """When `claim` may next return something, judged by the last claim and this process's operations since."""
        return self._next_due

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept with the crawl, for all processes, and on disk for commands that read files only."""
        super().scope_extended(crawl, url)
        self._shelf.keep_scope(crawl, self.scope_extensions(crawl))

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """On disk, for `weft explain`."""
        self._shelf.refuse(crawl, reason, url, parent)

    def left_sitemaps(self, crawl: int) -> list[Found]:
        """The sitemaps for which there was no room, up to a bound: for a crawl that may have more of them now."""
        return self._shelf.left(crawl)

    def rejections(self) -> list[Rejection]:
        """Items removed from their queues, leased to this process until it calls `ended`."""
        if not self._rejects_wait:
            self._flush()
        if not self._rejects_wait:
            return []
        (rows,) = self._call("rejected", [self.owner, 1000])
        rejected = []
        for fields in rows:
            lease = self._lease(fields, self.owner, 0.0, 0.0)
            self._rejected_out[lease.item] = fields[1]
            item = Item(
                lease.item, lease.url, lease.depth, lease.parent, lease.hops, lease.purpose, lease.about, lease.attempt,
                lease.offsite,
            )  # fmt: skip
            rejected.append(Rejection(item, lease.crawl, Reason(fields[10].decode())))
        return rejected

    def ended(self, items: Iterable[int], batch: int = 0) -> None:
        """Ends rejected items whose rows are stored."""
        arguments: list[Argument] = [self._slot, batch]
        for item in items:
            if (stamp := self._rejected_out.pop(item, None)) is not None:
                arguments += [self._number(item), stamp, "o", 0]
        if len(arguments) > 2:
            self._call("finish", arguments)

    def items(self, crawl: int) -> Iterator[Item]:
        """Everything that is queued for a crawl, one kind after the other; spilled items only on the lead's node."""
        depths = self._crawls[crawl].limits.max_depth is not None
        for kind in ("r", "u", "m"):
            for keys in self._scan(f"{kind}:{crawl}:*"):
                for name in keys:
                    site = name.split(b":", 2)[2].decode()
                    for member in self._ask("ZRANGE", name, 0, -1):
                        yield self._urgent_item(member[6:], site)
        for kind in ("q", "g", "w"):
            for keys in self._scan(f"{kind}:{crawl}:*"):
                for name in keys:
                    _, _, depth, key = name.split(b":", 3)
                    entries = self._ask("LRANGE", name, 0, -1)
                    for entry in self._lead.spilled(entries) if kind == "g" else entries:
                        rest = entry[6 + entry[5] :] if depths else entry[5:]
                        origin, path, parent, offsite = unpacked(rest, key.decode())
                        number = self._item(int.from_bytes(entry[:5], "big"))
                        yield Item(number, origin + path, int(depth), parent, offsite=offsite)

    def set_aside(self, leases: Iterable[Lease]) -> None:
        """Takes items out that an edit has excluded, until `take_back`; nothing was asked for them."""
        arguments: list[Argument] = ["out"]
        for lease in leases:
            out = self._valid(lease)
            if out is not None and not out.cooled:
                del self._out[lease.item]
                self._requests.end(lease.item, self.now(), "unasked")
                arguments += [self._number(lease.item), out.stamp]
        if len(arguments) > 1:
            self._requests.try_flush()  # before another process may send a request to the site
            self._call("aside", arguments)
            self._due_after(0.0)

    def take_back(self, crawl: int, wanted: Callable[[Item], bool]) -> int:
        """Queues those set-aside items again that are `wanted` now; how many that are."""
        cursor: Any = 0
        back = 0
        while True:
            cursor, found = self._ask("HSCAN", f"aside:{crawl}", cursor, "COUNT", 500)
            items = [self._set_aside_item(record) for record in found.values()]
            back += self._queue_again(crawl, [item.item for item in items if wanted(item)])
            if not int(cursor):
                return back

    def _set_aside_item(self, record: bytes) -> Item:
        site, fields = unpacked_item(record)
        return self._item_of(fields, site.decode())

    def take_places(self, wanted: Sequence[Wanted]) -> list[bool]:
        """Asks the pods that keep the addresses. A lease without a place ends, and its site waits for the address."""
        assert self._places is not None, "politeness is not by address"
        waits = self._places.take(wanted)
        arguments: list[Argument] = []
        for one, wait in zip(wanted, waits, strict=True):
            out = self._valid(one.lease) if wait is not None else None
            if wait is not None and out is not None:
                self._requests.end(one.lease.item, self.now(), "unasked")
                out.cooled = True  # its end is logged
                arguments += [self._number(one.lease.item), out.stamp, one.address, wait]
        if arguments:
            self._requests.try_flush()  # before another process may send a request to the site
            self._call("wait", arguments)
            self._due_after(0.0)
        for one, wait in zip(wanted, waits, strict=True):
            if wait is not None:
                self._out.pop(one.lease.item, None)
        return [wait is None for wait in waits]

    def _ask_places(self, pod: int, arguments: Sequence[Argument]) -> list[bytes]:
        assert pod == self._pod, "there are other pods"
        return self.places(arguments)

    def _places_of_lease(self, lease: Lease) -> int:
        out = self._out.get(lease.item)
        return out.places if out is not None else 1

    def depth_of(self, lease: Lease) -> int:
        """From the server's known depths, which are kept where there is a `max_depth`; else the lease's own."""
        crawl = self._crawls.get(lease.crawl)
        if crawl is None or crawl.limits.max_depth is None:
            return lease.depth
        found = Found(lease.url, lease.depth, lease.parent, lease.hops, lease.purpose, lease.about)
        fingerprint = crawl.fingerprint(seen_key(found))
        bucket = int(fingerprint.rpartition(":")[2].lstrip("-")[-12:]) % 16384
        known: Any = self._ask("HGET", f"k:{lease.crawl}:{bucket}", fingerprint)
        if known is None:
            return lease.depth
        number, depth, _ = known.split(b":")
        return min(int(depth), lease.depth) if int(number) == lease.item & NUMBER_MASK else lease.depth

    def tend(self) -> int:
        """For the pod's lead: moves the tails of long queues to disk and back; returns how many segments it moved."""
        moved = self._lead.tend()
        self.purge()
        if moved:
            self._due_after(0.0)
        return moved

    # ── cookies ────────────────────────────────────────────────────────────────────────────────────────────────────

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

    # ── robots.txt ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _forget_unreachable(self, url: str) -> None:
        origin = urls.origin_of(url)
        record = self.robots(origin)
        if record is not None and record.status in ("unreachable", "address"):
            key, code = self._keys.of(origin)
            self._forget_robots(key, code)

    def _forget_robots(self, key: str, code: bytes) -> None:
        self._scripts.later("robots", lambda: [key, code, "-", 0, 0])

    # ── leases ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _valid(self, lease: Lease) -> _Out | None:
        out = self._out.get(lease.item)
        return out if out is not None and (out.lease is lease or out.lease == lease) else None

    def _cooling(self, out: _Out, ended: Ended, reference: bytes) -> list[Argument]:
        age = max(0, int((self.now() - ended.at) * 1e6))
        retry_after = "" if ended.retry_after_s is None else int(ended.retry_after_s * 1e6)
        ok = "" if ended.ok is None else int(ended.ok)
        slow = (2 if ended.in_trouble else 1) if ended.slow_down else 0
        return [self._number(out.lease.item), out.stamp, age, ok, slow, retry_after, reference]

    def _lease(self, fields: list[Any], owner: str, deadline: float, delay_s: float) -> Lease:
        number, _, crawl, site, depth, hops, letter, attempt, about, rest = fields[:10]
        key = site.decode()
        origin, path, parent, offsite = unpacked(rest, key)
        purpose = _PURPOSE[letter]
        subject = about.decode() or (origin if purpose is Purpose.ROBOTS else "")
        return Lease(
            self._item(int(number)), int(crawl), origin + path, key, depth, parent, hops, purpose, subject, offsite,
            attempt, owner, self.epoch, deadline, delay_s,
        )  # fmt: skip

    def _urgent_item(self, packed: bytes, key: str) -> Item:
        return self._item_of(unpacked_item(packed), key)

    def _item_of(self, fields: list[Any], key: str) -> Item:
        number, depth, hops, letter, attempt, about, rest, _ = fields
        origin, path, parent, offsite = unpacked(rest, key)
        return Item(
            self._item(number), origin + path, depth, parent, hops, _PURPOSE[letter], about.decode(), attempt, offsite
        )

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

    def _meta(self, name: str) -> str:
        value: Any = self._ask("HGET", "meta", name)
        return value.decode() if value else ""

    def _set_meta(self, name: str, value: str) -> None:
        self._ask("HSET", "meta", name, value)

    def _remember_robots(self, origin: str, version: int, record: RobotsRecord) -> tuple[int, RobotsRecord]:
        if len(self._robots) > _KEPT_ROBOTS:
            self._robots.clear()
            self._robots_wanted.clear()
        entry = self._robots[origin] = (version, record)
        return entry

    def _remember_cookies(self, place: tuple[int, str], version: int, data: bytes) -> tuple[int, bytes]:
        if len(self._cookies) > _KEPT_ROBOTS:
            self._cookies.clear()
            self._cookies_wanted.clear()
        self._cookies_wanted[place] = version
        entry = self._cookies[place] = (version, data)
        return entry

    # ── the server ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _due_after(self, seconds: float) -> None:
        at = self.now() + seconds
        self._next_due = at if self._next_due is None else min(self._next_due, at)
        self._idle_until = min(self._idle_until, at)

    # ── the server ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_server(self) -> None:
        self._check_lost()
        super()._check_server()

    def _on_broken(self) -> None:
        self._on_restart()

    def _on_restart(self) -> None:
        """Checks whether it has lost data. If so, nothing more is sent: not even what was deferred, such as the
        acknowledgement of pages whose claims and links the server no longer has."""
        if self.epoch:
            self._open(new_epoch=False)
            self._check_lost()

    def _check_lost(self) -> None:
        if self._lost:
            raise DataLost(f"{self._where}: has lost data: this process must be restarted")

    def _on_reply(self, reply: list[Any]) -> None:
        self._lost = self._lost or (self._worked and self._losses != reply[3])
        super()._on_reply(reply)
        self._operation = reply[1]
        self._rejects_wait = reply[2] > 0
        self._marks.see(self._operation)

    def _seen_item(self, number: int) -> None:
        self._marks.see(self._operation, number)

    def _refused(self, crawl: int, found: Found) -> None:
        if found.purpose is Purpose.SITEMAP:
            self._shelf.leave(crawl, found)
        self.refused(crawl, Reason.BUDGET, found.url, found.parent)
