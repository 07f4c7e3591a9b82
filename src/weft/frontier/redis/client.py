"""A pod's frontier as processes of all pods use it: admits URLs, reads the figures, keeps permits and ownership.

The pod's own processes use more of it (`frontier.RedisFrontier`). Only they decide whether a restarted server has lost
data: until one of them has, and has loaded the scripts, the pod is unavailable (ServerAway) to other pods' processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from weft import urls
from weft.config import PolitenessSection, checks_pod_assignment
from weft.errors import BadInput, Busy, ServerAway, ServerFull
from weft.frontier.contract import Admission, CrawlLimits, FrontierStats, PageLinks
from weft.frontier.politeness import log_change
from weft.frontier.redis.connection import Emptied, Restarted, asking
from weft.frontier.redis.known import KnownUrls
from weft.frontier.redis.outbox import Arrived, Behind
from weft.frontier.redis.packing import Keys, parent_code
from weft.frontier.redis.pod_info import PodIdentity, claim_of
from weft.frontier.redis.scripts import Argument, Scripts
from weft.frontier.seen import seen_key
from weft.records import Found, Purpose
from weft.telemetry import Log

if TYPE_CHECKING:
    from redis import Redis

POD_BITS = 48
NUMBER_MASK = (1 << POD_BITS) - 1
# Why lua/admit.lua refuses a batch: an earlier one is missing; the pod recovers from a loss; the crawl has ended.
_BEHIND, _EARLY, _ENDED = 2, 3, 4
LETTERS = {Purpose.PAGE: "p", Purpose.SITEMAP: "s", Purpose.ROBOTS: "r"}
# What may keep a crawl from being over, in the order of lua/stats.lua.
WAITS = ("outboxes", "scheduled", "blocked", "rejects", "mail", "seeded", "spilled")
Figures = tuple[list[int], int, int, list[list[int]], int, list[int]]
log = Log("weft.frontier.redis")


class NotOpened(ServerAway):
    """The pod does not have the crawl yet, or any more."""


class CrawlEnded(Exception):
    """A batch for a crawl that the pod does not have any more, or has under another number."""


class Limits(Struct, frozen=True):
    """How many entries of one queue may lie in Redis."""

    cap: int = 4000  # above this a queue is split into head and tail, and a tail is spilled to disk
    keep: int = 1000  # moved from the tail to the head at a time
    low: int = 300  # left in the head when it is refilled
    hard: int = 1_000_000  # in a tail, where nothing spills it: further URLs are refused as `full`


class CrawlFacts:
    """This process's record of a crawl; another process may have changed its limits and politeness since."""

    __slots__ = ("bloom", "has_depths", "known", "limits", "name", "number", "section", "seed")

    def __init__(
        self,
        number: int,
        seed: int,
        limits: CrawlLimits,
        bloom_filter: str,
        name: str = "",
        section: PolitenessSection | None = None,
    ) -> None:
        self.number = number
        self.name = name
        self.seed = seed
        self.limits = limits
        self.section = section  # None: it has none of its own
        self.bloom = bloom_filter
        self.has_depths = False  # it has, or had, a `max_depth`: what is queued carries a fingerprint
        self.known = KnownUrls(seed)

    def fingerprint(self, text: str) -> str:
        """As the server's sets hold it: a signed number, or two numbers for a Bloom filter kept by scripts."""
        data = text.encode()
        number = xxh3_64_intdigest(data, self.seed)
        if self.bloom and self.bloom != "server":
            return f"{number & NUMBER_MASK}:{xxh3_64_intdigest(data, self.seed ^ 0x5EED) & NUMBER_MASK | 1}"
        return str(number - (1 << 64) if number >> 63 else number)


class PodClient:
    """One pod. `server_clock` is for tests: it takes the place of the server's time, in seconds."""

    mode = ""  # "afar": the pod's pages lie on another node, which expands them where they are found at a smaller depth

    def __init__(
        self,
        connection: Redis,
        section: PolitenessSection,
        *,
        pod: int,
        pods: int,
        where: str = "redis",
        limits: Limits | None = None,
        identity: PodIdentity | None = None,
        clock: Callable[[], float] = time.monotonic,
        server_clock: Callable[[], float] | None = None,
    ) -> None:
        """`identity`: which database it must be, from `find_crawl` on; None: it is not checked."""
        self._client = connection
        self._section = section
        self._pod, self._pods = pod, pods
        self._where = where
        self._limits = limits or Limits()
        self._clock, self._server_clock = clock, server_clock
        self._latest = 0.0
        self._server_now = 0  # the server's time in the last reply, in microseconds
        self._sent_at = 0.0  # this process's time when that call was sent
        self._section_text = section_text(section)
        self._identity = identity
        self._claim = ""  # the id of the database's claim; empty: not checked
        self._losses: int | None = None  # how often the server's data was found incomplete
        self._crawls: dict[int, CrawlFacts] = {}
        self._keys = Keys(section.key_scope)
        self._scripts = Scripts(connection, where, self._prefix, self._on_reply, self._on_restart, self._on_emptied)
        self._checks_assignment = checks_pod_assignment() and pods > 1  # debug: each URL must belong to this pod

    def find_crawl(self, name: str) -> int:
        """The number of a crawl that the pod's own processes have opened."""
        self._read_claim()
        number: Any = self._ask("HGET", "crawls", name)
        if number is None:
            raise NotOpened(f"{self._where}: pod {self._pod} has not been opened yet")
        seed, kind, depth = self._ask("HMGET", f"c:{int(number)}", "seed", "bloom", "depth")
        limits = CrawlLimits(max_depth=int(depth) if depth and depth != b"any" else None)
        facts = CrawlFacts(int(number), int(seed), limits, (kind or b"").decode(), name)
        facts.has_depths = bool(depth)
        self._crawls[facts.number] = facts
        return facts.number

    def has_crawl(self, name: str) -> bool:
        """Whether the pod has a crawl of this name, be it one whose end is not confirmed."""
        return bool(self._ask("HEXISTS", "crawls", name)) or name.encode() in self._ask("HVALS", "numbers")

    def answers(self) -> bool:
        """Whether the server answers, be it with an error; may be called from any thread."""
        from redis import RedisError

        try:
            with asking(self._where):
                self._client.ping()
        except ServerAway:
            return False
        except (ServerFull, RedisError):
            pass
        return True

    def now(self) -> float:
        """This process's clock, which never runs backwards; deadlines and due times are given in it."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those that this process has not found to be seen; `admit` asks the server about the rest."""
        return self._crawls[crawl].known.unknown(candidates)

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new; redirect targets, robots.txt and sitemaps before the rest."""
        return self._admit(crawl, found, mode=self.mode)

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """The same for what pages link to: one call for all of it."""
        return self.admit(crawl, [one for some in links for one in some.found()])

    def deliver(self, crawl: int, sender: str, number: int, found: Sequence[Found], after: int = 0) -> Admission:
        """Admits a batch from an outbox. A repeated one changes nothing; one with `full` URLs must be delivered again.

        `after` is the sender's batch that must have arrived before: `Behind` if it has not.
        """
        return self._admit(crawl, found, mode=self.mode, sender=sender, number=number, after=after)

    def arrived(self, sender: str) -> Arrived:
        """The last batch that arrived from a sender, and how much of the server's append-only file is written."""
        steps: Any = self._client.pipeline(transaction=False)
        with asking(self._where), steps:
            steps.execute_command("HGET", "senders", sender)
            steps.execute_command("INFO", "server", "persistence")
            last, info = steps.execute()
        # A server without an append-only file has no such fields.
        return Arrived(
            int(last or 0), info["run_id"], info.get("aof_current_size", 0), info.get("aof_buffer_length", 0)
        )

    def sent(self, amount: int) -> None:
        """Counts URLs that were put into an outbox for another pod."""
        self._ask("HINCRBY", "n", "sent", amount)

    def exhausted(self) -> bool:
        """Whether every crawl has reached the number of pages that it may have."""
        return all(
            most >= 0 and pages >= (given if given >= 0 else most) for _, pages, _, most, _, given in self._figures()[3]
        )

    def stats(self) -> FrontierStats:
        """The current numbers."""
        return _stats(self._figures())

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept with the crawl, for all processes."""
        self._ask("SADD", f"scope:{crawl}", url)

    def scope_extensions(self, crawl: int) -> list[str]:
        """The URLs by which redirects of seeds extended the scope."""
        return sorted(member.decode() for member in self._ask("SMEMBERS", f"scope:{crawl}"))

    def tell_robots(self, origin: str, version: int, expires_s: float, crawl_delay_s: float) -> None:
        """Announces the version of an origin's robots.txt that is on the pod's shelf."""
        key, code = self._keys.of(origin)
        self._call("robots", [key, code, int(expires_s * 1e6), int(crawl_delay_s * 1e6), version])

    def mail_robots(self, notice: bytes) -> None:
        """Sends an origin's robots.txt from a node that does not have the pod's files."""
        self._ask("RPUSH", "told", notice)

    def facts(self) -> tuple[FrontierStats, dict[str, int]]:
        """For the decision that a crawl is over: the figures, and how much waits where (`WAITS`). One script reads
        both: an item that moved between two calls would be counted in neither place, and the crawl end without it."""
        figures = self._figures()
        return _stats(figures), dict(zip(WAITS, figures[5], strict=True))

    def note(self, name: str, value: str | None = None) -> str:
        """A string kept with the pod; given a value, it is changed, or deleted where that is empty."""
        if value is None:
            kept: Any = self._ask("HGET", "meta", name)
            return kept.decode() if kept else ""
        self._ask("HSET", "meta", name, value) if value else self._ask("HDEL", "meta", name)
        return value

    def given(self, crawl: int) -> tuple[int, int, int]:
        """Pages stored, pages in flight, and how many this pod may have in all (-1: not set)."""
        for number, pages, _, _, flight, given in self._figures()[3]:
            if number == crawl:
                return pages, flight, given
        return 0, 0, -1

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        return self._keys.of(url[: url.index("/", 8)])[0]

    def give_permits(self, crawl: int, pod: int, wanted: int) -> int:
        """On pod 0's frontier: grants a pod up to the wanted total of pages, and returns the total; may be repeated."""
        return int(self._call("permits", ["give", crawl, pod, wanted])[0])

    def limit_pages(self, crawl: int, max_pages: int) -> None:
        """On pod 0's frontier, from any node: sets how many pages all pods may have together."""
        self._ask("HSET", f"c:{crawl}", "max", max_pages)

    def pods_with_permits(self, crawl: int) -> set[int]:
        """On pod 0's frontier: the pods that have an entry for permits, be it 0."""
        return {int(pod) for pod in self._ask("HKEYS", f"permits:{crawl}")}

    def record_permits(self, crawl: int, pod: int, used: int) -> None:
        """On pod 0's frontier: records what a pod has used, unless it has an entry already."""
        self._ask("HSETNX", f"permits:{crawl}", pod, used)

    def allow(self, crawl: int, max_pages: int) -> None:
        """On the pod's own frontier: sets how many pages it may have."""
        self._call("permits", ["set", crawl, max_pages])
        self._due_after(0.0)

    def permits(self, crawl: int) -> int:
        """How many more pages of a crawl may be started in this pod."""
        for number, pages, _, most, flight, given in self._figures()[3]:
            bound = given if given >= 0 else most
            if number == crawl and bound >= 0:
                return bound - pages - flight
        return 1_000_000_000

    def lower_permits(self, crawl: int, wanted: int) -> int:
        """On the pod's own frontier, before pod 0's: gives up permits that are unused; returns what is left."""
        return int(self._call("permits", ["lower", crawl, wanted])[0])

    def places(self, arguments: Sequence[Argument]) -> list[bytes]:
        """Takes or gives back places of the addresses that this pod keeps (see lua/address.lua)."""
        answers: list[bytes] = self._call("address", arguments)[0]
        return answers

    def hold_pod(self, node: str, ttl_s: float) -> None:
        """Makes this node the owner of the pod for a time; Busy if another is. A time of 0 releases it."""
        holder = self._hold("owner", node, ttl_s)
        if holder not in (node, ""):
            where = holder.rpartition("@")[2]
            raise Busy(f"{self._where}: pod {self._pod} is run by node {where}; stop it there first")

    def decide(self, node: str, ttl_s: float) -> bool:
        """Whether this node is elected, for a time, to decide when the crawl is over. A time of 0 resigns."""
        return self._hold("decider", node, ttl_s) == node

    def _hold(self, key: str, node: str, ttl_s: float) -> str:
        return str(self._call("hold", [key, node, int(ttl_s * 1000)])[0].decode())

    def _admit(
        self,
        crawl: int,
        found: Sequence[Found],
        *,
        mode: str = "",
        sender: str = "",
        number: int = 0,
        after: int = 0,
        then: tuple[str, str] = ("", ""),
    ) -> Admission:
        if not (found or any(then) or sender):
            return Admission(0, 0)
        if self._checks_assignment:
            self._check_pods(found)
        limits, owner = self._limits, self._crawls.get(crawl)
        if owner is None:
            assert not found, "a crawl that is not open here"
            order, groups = list[Found](), list[Argument]()
        else:
            order, groups = self._grouped(owner, found)
        header: list[Argument] = [crawl, mode, sender, number, limits.cap, limits.keep, limits.hard, *then, after]
        letters, expand, refused, last = self._call("admit", [*header, *groups])
        self._seen_item(last)
        if refused == _BEHIND:
            raise Behind
        if refused == _EARLY:
            raise ServerAway(f"{self._where}: pod {self._pod} has lost data and is recovering")
        if refused == _ENDED and sender:
            raise CrawlEnded
        if refused:
            return Admission(0, len(found))
        text = letters.decode()
        if owner is not None:
            owner.known.add(seen_key(one) for one, letter in zip(order, text, strict=True) if letter in "nd")
        full = []
        for one, letter in zip(order, text, strict=True):
            if letter == "b":
                self._refused(crawl, one)
            elif letter == "f":
                full.append(one)
        if "n" in text or "r" in text:
            self._due_after(0.0)
        again = tuple(
            (self._item(int(item)), order[at].url, order[at].depth)
            for at, item in zip(expand[::2], expand[1::2], strict=True)
        )
        return Admission(text.count("n"), text.count("d"), again, tuple(full))

    def _grouped(self, crawl: CrawlFacts, found: Sequence[Found]) -> tuple[list[Found], list[Argument]]:
        """The script's arguments, grouped by site and depth, and the URLs in that order."""
        groups: dict[tuple[str, int], list[tuple[Found, bytes]]] = {}
        order: list[Found] = []
        urgent: list[Argument] = []
        parents: dict[tuple[int, int], bytes] = {}
        for one in found:
            url = one.url
            split = url.index("/", 8)
            key, code = self._keys.of(url[:split])
            parent = parents.get((one.parent, one.offsite))
            if parent is None:
                parent = parents[one.parent, one.offsite] = parent_code(one.parent, one.offsite)
            rest = code + parent + url[split:].encode()
            if one.purpose is Purpose.PAGE and not one.hops:
                groups.setdefault((key, one.depth), []).append((one, rest))
                continue
            fingerprint = "" if one.purpose is Purpose.ROBOTS else crawl.fingerprint(seen_key(one))
            urgent += ["u", key, one.depth, LETTERS[one.purpose], one.hops, one.about, fingerprint, rest]
            order.append(one)
        arguments = urgent
        for (key, depth), members in groups.items():
            arguments += ["p", key, depth, len(members)]
            for one, rest in members:
                arguments.append(crawl.fingerprint(one.url))
                arguments.append(rest)
                order.append(one)
        return order, arguments

    def _check_pods(self, found: Sequence[Found]) -> None:
        for one in found:
            pod = urls.pod_of(urls.domain_of(one.url), self._pods)
            if pod != self._pod:
                log.error("a URL went to the wrong pod", url=one.url, pod=self._pod, belongs=pod)

    def _item(self, number: int) -> int:
        """An item's number in the whole crawl; 0, the number before the first one, becomes that of its pod."""
        return number + (self._pod << POD_BITS) if number >= 0 else number - (self._pod << POD_BITS)

    def _number(self, item: int) -> int:
        """Its number in this pod."""
        return item - (self._pod << POD_BITS) if item > 0 else item + (self._pod << POD_BITS)

    def _figures(self) -> Figures:
        counters, leased, to_parse, crawls, due, waits = self._call("stats", [])
        return counters, leased, to_parse, crawls, due, waits

    def _call(self, name: str, arguments: Sequence[Argument]) -> list[Any]:
        self._check_server()
        return self._scripts.call(name, arguments)

    def _flush(self) -> None:
        self._check_server()
        self._scripts.flush()

    def _check_server(self) -> None:
        """After a failed call: the server may have been restarted, and have lost data."""
        if self._scripts.broken:
            self._on_broken()
            self._scripts.broken = False

    def _ask(self, *command: Argument) -> Any:
        """Runs a plain command, after the deferred calls."""
        self._flush()
        client: Any = self._client
        with asking(self._where):
            try:
                return client.execute_command(*command)
            except Restarted:
                self._on_restart()
                return client.execute_command(*command)

    def _scan(self, pattern: str) -> Iterator[list[bytes]]:
        cursor: Any = 0
        while True:
            with asking(self._where):
                found: Any = self._client.scan(cursor, match=pattern, count=1000)
            cursor, keys = found
            if keys:
                yield keys
            if not cursor:
                return

    def _prefix(self) -> Sequence[Argument]:
        self._sent_at = self.now()
        return ("" if self._server_clock is None else int(self._server_clock() * 1e6), self._section_text)

    def _read_claim(self) -> None:
        if self._identity is not None:
            try:
                self._use_claim(claim_of(self._client, self._where, self._identity))
            except BadInput as error:
                raise ServerAway(str(error)) from None  # whoever runs the pod reports it, and may repair it

    def _use_claim(self, claim: str) -> None:
        """From now on scripts work on this claim of the database alone: they read it behind the politeness section."""
        self._claim = claim
        self._section_text = f"{section_text(self._section)}@{claim}"

    def _local(self, moment: int) -> float:
        """A time of the server in this process's clock, or slightly earlier: the call left before the reply's time."""
        return self._sent_at + (moment - self._server_now) / 1e6

    def _refused(self, crawl: int, found: Found) -> None:
        """A URL was over its site's budget."""

    def _due_after(self, seconds: float) -> None:
        """Called when an operation may have made something claimable after so many seconds."""

    def _on_broken(self) -> None:
        """Called before the first call after a failed one. `Scripts` notices a restarted server: it has no scripts."""

    def _on_restart(self) -> None:
        """Called when the server lacks a script: it may have been restarted."""
        raise ServerAway(f"{self._where}: pod {self._pod} is being opened again")

    def _on_emptied(self) -> NoReturn:
        """Called when the database is not the one that was opened; nothing was changed there."""
        raise Emptied(self._where)

    def _on_reply(self, reply: list[Any]) -> None:
        self._server_now = int(reply[0])
        if reply[4]:
            self._log_changes(reply[4])
        if reply[3] != self._losses:
            self._losses = reply[3]
            for crawl in self._crawls.values():
                crawl.known.forget()

    def _log_changes(self, events: list[bytes]) -> None:
        for what, site, number in zip(events[::3], events[1::3], events[2::3], strict=True):
            in_microseconds = what in (b"slowed", b"eased", b"opened")
            log_change(what.decode(), site.decode(), int(number) / (1e6 if in_microseconds else 1))

    def _seen_item(self, number: int) -> None:
        """Called with the highest item number that is in use."""


def _stats(figures: Figures) -> FrontierStats:
    counters, leased, to_parse, crawls, due, _ = figures
    queued, sites, admitted, finished, sent, received, _ = counters
    return FrontierStats(
        queued=queued,
        leased=leased,
        seen=sum(crawl[2] for crawl in crawls),
        sites=sites,
        admitted=admitted,
        finished=finished,
        pages=sum(crawl[1] for crawl in crawls),
        to_parse=to_parse,
        due=due,
        sent=sent,
        received=received,
    )


def section_text(section: PolitenessSection) -> str:
    """As lua/common.lua reads it."""
    seconds = (section.delay_s, section.lease_s, section.breaker_reset_s, section.max_retry_after_s)
    delay, lease, reset, longest = (int(value * 1e6) for value in seconds)
    failures, probes = section.breaker_failures, section.breaker_max_probes
    return f"{delay},{section.places},{lease},{failures},{reset},{probes},{longest}"
