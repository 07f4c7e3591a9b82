"""One process's connection to the Redis of one pod: scripts and commands, the clock, and the numbers of items.

Every part of the frontier works over one link. `PodLink` is for processes of all pods; a pod's own processes have an
`OwnPodLink`, because only they decide whether a restarted server has lost data: until one of them has, and has loaded
the scripts, the pod is unavailable (ServerAway) to other pods' processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, Unpack

from msgspec import Struct
from xxhash import xxh3_64_intdigest

from weft.config import PolitenessSection
from weft.errors import BadInput, ServerAway, ServerFull
from weft.frontier.contract import CrawlLimits
from weft.frontier.politeness import log_change
from weft.frontier.redis.connection import Emptied, Restarted, check_run_id, convert_errors
from weft.frontier.redis.item_packing import OriginCodes
from weft.frontier.redis.known import KnownUrls
from weft.frontier.redis.marks import PodMarks
from weft.frontier.redis.pod_info import PodIdentity, read_claim_id, renew_claim
from weft.frontier.redis.scripts import ScriptArgument, Scripts
from weft.records import Purpose
from weft.telemetry import Log

if TYPE_CHECKING:
    from redis import Redis

POD_BITS = 48
NUMBER_MASK = (1 << POD_BITS) - 1
PURPOSE_LETTERS = {Purpose.PAGE: "p", Purpose.SITEMAP: "s", Purpose.ROBOTS: "r"}
LETTER_PURPOSES = {letter.encode(): purpose for purpose, letter in PURPOSE_LETTERS.items()}
log = Log("weft.frontier.redis")


class DataLost(Exception):
    """The server has lost writes of this process. It is not a WeftError: the process must die of it, and the next one
    in its slot compares its store with what is prepared on the server (`recover`).
    """


class QueueLimits(Struct, frozen=True):
    """How many entries of one queue may lie in Redis."""

    split_above: int = 4000  # above this a queue is split into head and tail, and a tail is spilled to disk
    moved_at_once: int = 1000  # moved from the tail to the head at a time
    refill_below: int = 300  # left in the head when it is refilled
    most_in_tail: int = 1_000_000  # in a tail that no process spills: further URLs are refused as `full`


class CrawlFacts:
    """This process's view of a crawl; another process may have changed its limits and politeness since."""

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
        self.has_depths = False  # it has, or had, a `max_depth`: queued items carry a fingerprint
        self.known = KnownUrls(seed)

    def fingerprint(self, text: str) -> str:
        """A fingerprint in the form of the server's sets: a signed number, or two numbers for a Bloom filter kept by
        scripts.
        """
        data = text.encode()
        number = xxh3_64_intdigest(data, self.seed)
        if self.bloom and self.bloom != "server":
            return f"{number & NUMBER_MASK}:{xxh3_64_intdigest(data, self.seed ^ 0x5EED) & NUMBER_MASK | 1}"
        return str(number - (1 << 64) if number >> 63 else number)


class NextClaim:
    """When a claim may next return something, judged by the last claim and by this process's operations since."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.due: float | None = 0.0
        self.idle_until = 0.0  # a claim that got nothing is not repeated sooner

    def allow_after(self, seconds: float) -> None:
        """An operation may have made something claimable after these seconds."""
        at = self._now() + seconds
        self.due = at if self.due is None else min(self.due, at)
        self.idle_until = min(self.idle_until, at)


class LinkOptions(TypedDict, total=False):
    """The options of a link; see `PodLink`."""

    pod: int
    pods: int
    where: str
    limits: QueueLimits | None
    identity: PodIdentity | None
    clock: Callable[[], float]
    server_clock: Callable[[], float] | None


class PodLink:
    """See above. `server_clock` is for tests: it takes the place of the server's time, in seconds."""

    def __init__(
        self,
        connection: Redis,
        section: PolitenessSection,
        *,
        pod: int = 0,
        pods: int = 1,
        where: str = "redis",
        limits: QueueLimits | None = None,
        identity: PodIdentity | None = None,
        clock: Callable[[], float] = time.monotonic,
        server_clock: Callable[[], float] | None = None,
    ) -> None:
        """`identity`: the database's expected identity; None: it is not checked."""
        self.client = connection
        self.section = section
        self.pod, self.pods = pod, pods
        self.where = where
        self.limits = limits or QueueLimits()
        self.identity = identity
        self.crawls: dict[int, CrawlFacts] = {}
        self.keys = OriginCodes(section.key_scope)
        self.sent_at = 0.0  # this process's time when the last call was sent
        self.next_claim = NextClaim(self.now)
        self.scripts = Scripts(
            connection, where, self._common_arguments, self._on_reply, self._on_restart, self._on_emptied
        )
        self._clock, self._server_clock = clock, server_clock
        self._latest = 0.0
        self._server_now = 0  # the server's time in the last reply, in microseconds
        self._section_text = section_text(section)
        self._claim_id = ""  # the id of the database's claim; empty: not checked
        self._known_losses: int | None = None  # how often the server's data was found incomplete

    def now(self) -> float:
        """This process's clock, which never runs backwards; deadlines and due times are given in it."""
        self._latest = max(self._latest, self._clock())
        return self._latest

    def to_local_time(self, moment: int) -> float:
        """A time of the server in this process's clock, or slightly earlier: the call left before the reply's time."""
        return self.sent_at + (moment - self._server_now) / 1e6

    def item_of_number(self, number: int) -> int:
        """An item's number in the whole crawl; 0, the number before the first one, becomes that of its pod."""
        return number + (self.pod << POD_BITS) if number >= 0 else number - (self.pod << POD_BITS)

    def number_of_item(self, item: int) -> int:
        """An item's number in this pod."""
        return item - (self.pod << POD_BITS) if item > 0 else item + (self.pod << POD_BITS)

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        return self.keys.key_and_code(url[: url.index("/", 8)])[0]

    def call_script(self, name: str, arguments: Sequence[ScriptArgument]) -> list[Any]:
        """Runs a script, after the deferred calls; returns its reply."""
        self._check_before_call()
        return self.scripts.call(name, arguments)

    def send_deferred(self) -> None:
        """Sends the deferred calls."""
        self._check_before_call()
        self.scripts.send_deferred()

    def run_command(self, *command: ScriptArgument) -> Any:
        """Runs a plain command, after the deferred calls."""
        self.send_deferred()
        client: Any = self.client
        with convert_errors(self.where):
            try:
                return client.execute_command(*command)
            except Restarted:
                self._on_restart()
                return client.execute_command(*command)

    def scan_keys(self, pattern: str) -> Iterator[list[bytes]]:
        """The keys of that pattern."""
        cursor: Any = 0
        while True:
            with convert_errors(self.where):
                answer: Any = self.client.scan(cursor, match=pattern, count=1000)
            cursor, keys = answer
            if keys:
                yield keys
            if not cursor:
                return

    def is_server_answering(self) -> bool:
        """Whether the server answers, be it with an error; may be called from any thread."""
        from redis import RedisError

        try:
            with convert_errors(self.where):
                self.client.ping()
        except ServerAway:
            return False
        except (ServerFull, RedisError):
            pass
        return True

    def read_claim(self) -> None:
        """From now on scripts work only on this claim of the database: they read its id after the politeness
        section.
        """
        if self.identity is not None:
            try:
                self._use_claim(read_claim_id(self.client, self.where, self.identity))
            except BadInput as error:
                raise ServerAway(str(error)) from None  # its own processes report it, and may repair it

    def note_item_in_use(self, number: int) -> None:
        """Called with the highest item number that is in use."""

    def _use_claim(self, claim: str) -> None:
        self._claim_id = claim
        self._section_text = f"{section_text(self.section)}@{claim}"

    def _common_arguments(self) -> Sequence[ScriptArgument]:
        self.sent_at = self.now()
        return ("" if self._server_clock is None else int(self._server_clock() * 1e6), self._section_text)

    def _check_before_call(self) -> None:
        """Called before every call. `Scripts` notices a restarted server: it has no scripts."""
        self.scripts.has_failed = False

    def _on_restart(self) -> None:
        """Called when the server lacks a script: it may have been restarted."""
        raise ServerAway(f"{self.where}: pod {self.pod} is being opened again")

    def _on_emptied(self) -> NoReturn:
        """Called when the database is not the one that was opened; nothing was changed there."""
        raise Emptied(self.where)

    def _on_reply(self, reply: list[Any]) -> None:
        self._server_now = int(reply[0])
        if reply[4]:
            _log_changes(reply[4])
        if reply[3] != self._known_losses:
            self._known_losses = reply[3]
            for crawl in self.crawls.values():
                crawl.known.forget()


class OwnPodLink(PodLink):
    """A process's link to its own pod: it detects what the server has lost, and then sends nothing more."""

    def __init__(
        self, connection: Redis, section: PolitenessSection, marks: PodMarks, **options: Unpack[LinkOptions]
    ) -> None:
        super().__init__(connection, section, **options)
        self._marks = marks
        self.epoch = 0
        self.has_worked = False  # the server may have lost data of this process
        self.has_lost_data = False  # when it was opened
        self.has_waiting_rejects = False  # there are rejected items whose rows are to be stored
        self._is_lost = self._is_emptied = False
        self._last_operation = 0
        self._run_id = ""  # of the server that was opened
        check_run_id(connection, lambda: self._run_id)

    @property
    def is_usable(self) -> bool:
        """Whether anything may still be sent."""
        return not (self._is_lost or self._is_emptied)

    @property
    def is_rebooted(self) -> bool:
        """Whether the machine was rebooted since this slot's last process, or there was none."""
        return self._marks.is_rebooted

    def open(self, *, new_epoch: bool = True) -> None:
        """Checks whether the server was restarted, and whether it has lost data."""
        self._run_id = ""
        with convert_errors(self.where):
            info: Any = self.client.info("server")
        self._run_id = str(info["run_id"])
        self.read_claim()
        operation, item = self._marks.last_seen()
        mark = "?" if operation is None else operation
        epoch, lost = self.scripts.call_first("open", [self._run_id, mark, item & NUMBER_MASK, int(new_epoch)])
        if lost:
            self.has_lost_data = True
            log.error("the server has lost data: every site waits a full delay", server=self.where)
        self.epoch = int(epoch)

    def read_claim(self) -> None:
        """BadInput if the database belongs to another crawl: retries are useless."""
        if self.identity is None:
            return
        try:
            claim = read_claim_id(self.client, self.where, self.identity)
        except Emptied:
            self._on_emptied()
        if self._claim_id not in ("", claim):
            self._on_emptied()
        self._use_claim(claim)

    def renew_claim(self) -> None:
        """Ends the work of every process that has opened the database, this one included."""
        if self.identity is not None:
            renew_claim(self.client, self.where, self.identity)
        self._is_emptied = True

    def note_item_in_use(self, number: int) -> None:
        """Stored on the disk: a server that has lost items must not reuse their numbers."""
        self._marks.record_seen(self._last_operation, number)

    def _check_before_call(self) -> None:
        self._check_lost_data()
        if self.scripts.has_failed:
            self._on_restart()
            self.scripts.has_failed = False

    def _check_lost_data(self) -> None:
        if self._is_lost:
            what = "was emptied" if self._is_emptied else "has lost data"
            raise DataLost(f"{self.where}: {what}: this process must be restarted")

    def _on_restart(self) -> None:
        """Checks whether the server has lost data. If so, nothing more is sent: not even deferred calls, such as the
        acknowledgement of pages whose claims and links the server no longer has.
        """
        if self.epoch:
            self.open(new_epoch=False)
            self._check_lost_data()

    def _on_emptied(self) -> NoReturn:
        """A process that has worked must be restarted, as after any loss; another waits for a new claim."""
        self._is_emptied = True
        self._is_lost = self._is_lost or self.has_worked
        self._check_lost_data()
        raise Emptied(self.where)

    def _on_reply(self, reply: list[Any]) -> None:
        self._is_lost = self._is_lost or (self.has_worked and self._known_losses != reply[3])
        super()._on_reply(reply)
        self._last_operation = reply[1]
        self.has_waiting_rejects = reply[2] > 0
        self._marks.record_seen(self._last_operation)


def _log_changes(events: list[bytes]) -> None:
    for what, site, number in zip(events[::3], events[1::3], events[2::3], strict=True):
        in_microseconds = what in (b"slowed", b"eased", b"opened")
        log_change(what.decode(), site.decode(), int(number) / (1e6 if in_microseconds else 1))


def section_text(section: PolitenessSection) -> str:
    """The section in the format that lua/common.lua reads."""
    seconds = (section.delay_s, section.lease_s, section.breaker_reset_s, section.max_retry_after_s)
    delay, lease, reset, longest = (int(value * 1e6) for value in seconds)
    failures, probes = section.breaker_failures, section.breaker_max_probes
    return f"{delay},{section.places},{lease},{failures},{reset},{probes},{longest}"
