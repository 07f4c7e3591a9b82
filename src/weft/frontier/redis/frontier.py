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

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from weft.alive import Alive, silent
from weft.config import PolitenessSection
from weft.frontier.contract import Item, Rejection, RobotsRecord, Stored
from weft.frontier.politeness import UNREACHABLE_S
from weft.frontier.redis.client import NUMBER_MASK, POD_BITS, Limits
from weft.frontier.redis.connection import Emptied, asking, check_run
from weft.frontier.redis.lead import Lead
from weft.frontier.redis.leases import PURPOSES, RedisLeases
from weft.frontier.redis.marks import Marks
from weft.frontier.redis.packing import unpacked, unpacked_item
from weft.frontier.redis.places import AddressPlaces
from weft.frontier.redis.pod_info import PodIdentity, claim_of, renew_claim
from weft.frontier.redis.scripts import Argument
from weft.frontier.redis.shelf import Shelf
from weft.frontier.requests import RequestLog
from weft.frontier.slots import ClassSlots
from weft.frontier.walk import STEP, Walk, is_cut_off
from weft.records import Found, Purpose, Reason
from weft.telemetry import Log

if TYPE_CHECKING:
    from redis import Redis

IDLE_S = 0.1  # a claim that got nothing is not repeated sooner, unless something has changed here
log = Log("weft.frontier.redis")


class DataLost(Exception):
    """The server has lost writes of this process. Not a WeftError: the process is meant to die of it, and the next one
    in its slot compares what is prepared with what its store has (`recover`)."""


class RedisFrontier(RedisLeases):
    """See the contract. `server_clock` is for tests: it takes the place of the server's time, in seconds."""

    def __init__(
        self,
        connection: Redis,
        folder: Path,
        section: PolitenessSection,
        *,
        slot: str,
        incarnation: int = 1,
        revision: int = 0,
        pod: int = 0,
        pods: int = 1,
        where: str = "redis",
        limits: Limits | None = None,
        bloom_filter: tuple[int, float] | None = None,
        identity: PodIdentity | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        server_clock: Callable[[], float] | None = None,
        idle_s: float = IDLE_S,
        alive: Alive = silent,
    ) -> None:
        """`alive` is called for each piece of work that grows with the crawl."""
        self._alive = alive
        super().__init__(
            connection, section, pod=pod, pods=pods, where=where, limits=limits, identity=identity, clock=clock,
            server_clock=server_clock,
        )  # fmt: skip
        self._slot = slot
        self.owner = f"{slot}#{incarnation}"
        self._bloom = bloom_filter
        self._by_name = {}
        self._wall = wall
        self._idle_s = idle_s
        self._operation = 0
        self.epoch = 0
        self._worked = self._lost = self._is_emptied = False
        self._has_found_loss = False  # by its own opening
        self._out = {}
        self._slots, self._line_turn = ClassSlots(), 0
        self._rejected_out: dict[int, int] = {}
        self._rejects_wait = False
        self._next_due = 0.0
        self._idle_until = 0.0
        self._robots = {}
        self._robots_wanted = {}
        self._places = None
        if section.key_scope == "ip":
            self._places = AddressPlaces(slot, self.owner, pod, pods, self._ask_places, self.now, self._places_of_lease)
        self._cookies = {}
        self._cookies_wanted = {}
        self._shelf = Shelf(folder / "robots.db")
        self._marks = Marks(folder / "marks", slot)
        self._requests = RequestLog(folder / "requests" / slot, self.now(), revision)
        self._lead = Lead(folder / "spill", self._call, self._ask, self._scan, self._limits.cap, clock, alive)
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
        self._read_claim()
        operation, item = self._marks.known()
        mark = "?" if operation is None else operation
        epoch, lost = self._scripts.call_first("open", [self._run, mark, item & NUMBER_MASK, int(new_epoch)])
        if lost:
            self._has_found_loss = True
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
            self._alive()
        for number, counts in (by_crawl or {}).items():
            for key, count in counts.items():
                self._call("budget", [key, count, number])
                self._alive()
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
        if not (self._lost or self._is_emptied):
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

    def readmit_once(self, crawl: int, name: str, what: str, stored: Stored, *, continues: bool = False) -> None:
        """Queues URLs once more, those of which the note `name` does not say that they (`what`) are already.

        The note says how far it has come, in the call that queues them. `continues`: also where it was cut off under
        another `what`.
        """
        walk = Walk.of(self.note(name), what, continues=continues)
        if not walk.is_over:
            self._readmit_all(crawl, name, walk, stored)

    def _readmit_all(self, crawl: int, name: str, walk: Walk, stored: Stored) -> None:
        """In steps, each with its place: a kill costs one step."""
        left = iter(stored(walk.after))
        while some := list(islice(left, STEP)):
            for _, found in some:
                self._forget_unreachable(found.url)
            self._admit(crawl, [found for _, found in some], mode="again", then=(name, walk.at(some[-1][0])))
            self._alive()
        self._set_meta(name, walk.what)

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
        """Sets the slots that this pod has from now on; recovery does not wait for others.

        Where this opening has found a loss, all of them have to report: the server may have lost which they are.
        """
        self._ask("DEL", "crew")
        self._ask("SADD", "crew", *slots)
        if self._has_found_loss:
            self._ask("SUNIONSTORE", "settling", "crew")
        else:
            self._ask("SINTERSTORE", "settling", "settling", "crew")

    def report_again(self) -> None:
        """Has every process of the pod restart, and report all that its store has, with the links of those pages."""
        if self._identity is not None:
            renew_claim(self._client, self._where, self._identity)
        self._is_emptied = True

    def recrawl(self, crawl: int, run: str, known: Stored, begin: Callable[[int], None]) -> None:
        """Queues known pages again, once for each run; `begin` is called with the last item before. One that was cut
        off, in whichever run, continues where it was."""
        name = f"recrawl:{crawl}"
        walk = Walk.of(self._meta(name), run, continues=True)
        if walk.is_over:
            return
        if not walk.after and self._meta(name) != walk.at(0):
            begin(self._item(self._figures()[0][6]))
            self._set_meta(name, walk.at(0))
        self._readmit_all(crawl, name, walk, known)

    def is_recrawled(self, crawl: int) -> bool:
        """Whether known pages of this crawl are being visited again."""
        return bool(self._meta(f"recrawl:{crawl}"))

    def is_recrawl_cut_off(self, crawl: int) -> bool:
        """Whether some known pages were queued again, and others not yet."""
        return is_cut_off(self._meta(f"recrawl:{crawl}"))

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

    def knows_finished(self) -> Callable[[int], bool] | None:
        """Nothing: the server forgets what is finished."""
        return None

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
            reason = Reason(fields[10].decode())
            if item.purpose is Purpose.ROBOTS:
                self._give_up_robots(item, reason)
            else:
                rejected.append(Rejection(item, lease.crawl, reason))
        return rejected

    def _give_up_robots(self, item: Item, reason: Reason) -> None:
        """A redirect has led to what was given up: the robots.txt of the origin that it came from cannot be had."""
        until = self._wall() + UNREACHABLE_S
        self.robots_known(item.about, RobotsRecord("unreachable", b"", until, f"{reason} at {item.url}"), None)
        self.ended([item.item])

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
        depths = self._crawls[crawl].has_depths
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

    def tend(self) -> int:
        """For the pod's lead: moves the tails of long queues to disk and back; returns how many segments it moved."""
        moved = self._lead.tend()
        self.purge()
        if moved:
            self._due_after(0.0)
        return moved

    # ── items ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _urgent_item(self, packed: bytes, key: str) -> Item:
        return self._item_of(unpacked_item(packed), key)

    def _item_of(self, fields: list[Any], key: str) -> Item:
        number, depth, hops, letter, attempt, about, rest, _ = fields
        origin, path, parent, offsite = unpacked(rest, key)
        return Item(
            self._item(number), origin + path, depth, parent, hops, PURPOSES[letter], about.decode(), attempt, offsite
        )

    def _meta(self, name: str) -> str:
        value: Any = self._ask("HGET", "meta", name)
        return value.decode() if value else ""

    def _set_meta(self, name: str, value: str) -> None:
        self._ask("HSET", "meta", name, value)

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

    def _read_claim(self) -> None:
        """BadInput if the database is another crawl's: trying again is useless."""
        if self._identity is not None:
            try:
                claim = claim_of(self._client, self._where, self._identity)
            except Emptied:
                self._on_emptied()
            if self._claim not in ("", claim):
                self._on_emptied()
            self._use_claim(claim)

    def _on_emptied(self) -> NoReturn:
        """A process that has worked must be restarted, as after any loss; another waits for a new claim."""
        self._is_emptied = True
        self._lost = self._lost or self._worked
        self._check_lost()
        raise Emptied(self._where)

    def _check_lost(self) -> None:
        if self._lost:
            what = "was emptied" if self._is_emptied else "has lost data"
            raise DataLost(f"{self._where}: {what}: this process must be restarted")

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
