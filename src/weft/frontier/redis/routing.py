"""The frontier of one process of a pod on Redis, among several pods: links go to the pod that they belong to.

Another pod's frontier is called directly. While its Redis is away, or has no room, what is for it goes into this slot's
outbox, a file, before the page is finished; `deliver_waiting` brings it later. How much waits there is told in this
pod's own Redis, so that nobody takes the crawl for ended.

    outboxes   hash   slot -> messages that wait in its outbox; in this pod's database
    told       list   what robots.txt of this pod's origins said, from processes of other nodes, whose disks this pod's
                      processes do not see; `take_mail` takes it, and what admit.lua left in `nearer`
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft import urls
from weft.errors import ServerAway, ServerFull, writing
from weft.frontier.contract import Admission, RobotsRecord
from weft.frontier.outbox import Errand, Message, Recent, Told, read_message
from weft.frontier.redis.client import PodClient
from weft.frontier.redis.frontier import RedisFrontier
from weft.frontier.redis.packing import unpacked, unpacked_item
from weft.frontier.redis.scripts import Argument
from weft.frontier.redis.shelf import Shelf
from weft.records import Found, Purpose
from weft.telemetry import Log

MAIL = 100  # letters that are taken at a time
AWAY_S = 1.0  # a pod that did not answer is not asked again sooner
ABSENT = (ServerAway, ServerFull)
T = TypeVar("T")
log = Log("weft.frontier.redis.routing")


class OtherPod:
    """Another pod, as long as it answers.

    Once it did not, a thread waits for it to answer again: a server that is stopped, or behind a network that drops
    what is sent, keeps whoever asks it for a whole timeout, and this pod has pages to fetch meanwhile.
    """

    def __init__(self, pod: int, client: PodClient, shelf: Path | None, crawl: str) -> None:
        """`shelf` is the pod's on this node; None: the pod is another node's."""
        self.pod = pod
        self._client = client
        if shelf is None:
            client.mode = "afar"
        self._shelf_path = shelf
        self._shelf: Shelf | None = None
        self._crawl = crawl
        self._number: int | None = None
        self._here = threading.Event()
        self._here.set()
        self.kept = Recent()  # what waits for it in the outbox

    def ask(self, what: Callable[[PodClient, int], T]) -> T:
        """Asks it something about the crawl; ServerAway, without a journey, while it is known not to answer."""
        if not self._here.is_set():
            raise ServerAway(f"pod {self.pod} is away")
        try:
            if self._number is None:
                self._number = self._client.find_crawl(self._crawl)
            return what(self._client, self._number)
        except ABSENT as why:
            self._here.clear()
            threading.Thread(target=self._wait, name=f"pod {self.pod}", daemon=True).start()
            log.warning("another pod does not answer", pod=self.pod, why=why)
            raise

    def _wait(self) -> None:
        """Until it answers. One that is full does, and is tried again."""
        time.sleep(AWAY_S)
        while not self._client.answers():
            time.sleep(AWAY_S)
        self._here.set()

    def admit(self, found: Sequence[Found]) -> Admission:
        """Queues what is new there."""
        return self.ask(lambda client, number: client.admit(number, found))

    def scope_extended(self, url: str) -> None:
        """Makes a place a part of the scope there."""
        self.ask(lambda client, number: client.scope_extended(number, url))

    def unseen(self, candidates: list[str]) -> list[str]:
        """Those that this process does not know to be known there, or to wait for it."""
        new = self.kept.unknown(candidates)
        return self._client.unseen(self._number, new) if self._number is not None else new

    def tell_robots(self, told: Told, wall: float) -> None:
        """What an origin's robots.txt says, to the origin's pod: the body on disk, then its version."""
        if self._shelf_path is None:
            self.ask(lambda client, _: client.mail_robots(msgspec.msgpack.encode(told)))
            return
        if self._shelf is None:
            self._shelf = Shelf(self._shelf_path)
        version = self._shelf.keep(told.origin, told.record, wall)
        expires_s = told.record.expires - wall
        self.ask(lambda client, _: client.tell_robots(told.origin, version, expires_s, told.crawl_delay_s or 0.0))


class FileOutbox:
    """What waits for pods that are away: numbered messages in one SQLite file of this slot."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._db = sqlite3.connect(path, isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")  # a number that was used must not be used again
        self._db.executescript(
            "CREATE TABLE IF NOT EXISTS waiting (pod INTEGER, number INTEGER, message BLOB, PRIMARY KEY (pod, number));"
            "CREATE TABLE IF NOT EXISTS numbers (pod INTEGER PRIMARY KEY, last INTEGER);"
        )

    def put(self, pod: int, message: bytes) -> None:
        """Keeps a message; on disk when this returns."""
        with writing(self._path), self._db:
            self._db.execute("BEGIN IMMEDIATE")
            row = self._db.execute("SELECT last FROM numbers WHERE pod = ?", (pod,)).fetchone()
            number = (row[0] if row else 0) + 1
            self._db.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?)", (pod, number))
            self._db.execute("INSERT INTO waiting VALUES (?, ?, ?)", (pod, number, message))

    def first(self, pod: int) -> tuple[int, bytes] | None:
        """The oldest message to a pod."""
        row: Any = self._db.execute(
            "SELECT number, message FROM waiting WHERE pod = ? ORDER BY number LIMIT 1", (pod,)
        ).fetchone()
        return (int(row[0]), bytes(row[1])) if row else None

    def delivered(self, pod: int, number: int) -> None:
        """It is there."""
        self._db.execute("DELETE FROM waiting WHERE pod = ? AND number = ?", (pod, number))

    def pods(self) -> list[int]:
        """The pods that something waits for."""
        return [int(pod) for (pod,) in self._db.execute("SELECT DISTINCT pod FROM waiting ORDER BY pod")]

    def __len__(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM waiting").fetchone()[0])

    def close(self) -> None:
        """Lets the file go."""
        self._db.close()


class RoutedRedisFrontier(RedisFrontier):
    """See the contract."""

    def __init__(self, *args: Any, others: Mapping[int, OtherPod], outbox: Path, **more: Any) -> None:
        super().__init__(*args, **more)
        self._others = others
        self._box = FileOutbox(outbox)
        self._by_origin: dict[str, int] = {}
        self._waiting = -1
        self.crossed: Callable[[int, float], None] = lambda _links, _seconds: None  # told of links to another pod
        self._next_telling = 0.0

    def pod_of(self, url: str) -> int:
        """The pod that a URL belongs to."""
        origin = url[: url.index("/", 8)]
        pod = self._by_origin.get(origin)
        if pod is None:
            if len(self._by_origin) > 200_000:
                self._by_origin.clear()
            pod = self._by_origin[origin] = urls.pod_of(urls.domain_of(url), self._pods)
        return pod

    @property
    def waiting(self) -> int:
        """How many messages wait in the outbox."""
        return max(0, self._waiting)

    def owns(self, url: str) -> bool:
        """Whether a URL belongs to this pod."""
        return self.pod_of(url) == self._pod

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those that this process does not know to be known to their pods."""
        by_pod: dict[int, list[str]] = {}
        for url in candidates:
            by_pod.setdefault(self.pod_of(url), []).append(url)
        new = super().unseen(crawl, by_pod.pop(self._pod, ()))
        for pod, some in by_pod.items():
            new += self._others[pod].unseen(some)
        return new

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new, each in its pod."""
        by_pod: dict[int, list[Found]] = {}
        for one in found:
            by_pod.setdefault(self.pod_of(one.url), []).append(one)
        own = by_pod.pop(self._pod, [])
        all_ = [self._roomy(crawl, self._pod, super().admit(crawl, own))] if own else []
        for pod, some in by_pod.items():
            try:
                asked = self.now()
                there = self._others[pod].admit(some)
                self.crossed(len(some), self.now() - asked)
            except ABSENT:
                there = self._keep(crawl, pod, some)
            all_.append(self._roomy(crawl, pod, there))
        return Admission(
            sum(one.new for one in all_),
            sum(one.duplicates for one in all_),
            tuple(x for one in all_ for x in one.expand),
        )

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept in every pod."""
        super().scope_extended(crawl, url)
        for pod, other in self._others.items():
            try:
                other.scope_extended(url)
            except ABSENT:
                self._put(pod, Message([], [], [(crawl, url)], []))

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Kept in the origin's pod."""
        pod = self.pod_of(origin + "/")
        if pod == self._pod:
            super().robots_known(origin, record, crawl_delay_s)
            return
        told = Told(origin, record, crawl_delay_s)
        try:
            self._others[pod].tell_robots(told, self._wall())
        except ABSENT:
            self._put(pod, Message([], [], [], [told]))

    def _ask_places(self, pod: int, arguments: Sequence[Argument]) -> list[bytes]:
        if pod == self._pod:
            return self.places(arguments)
        return self._others[pod].ask(lambda client, _: client.places(arguments))

    def deliver_waiting(self) -> list[Admission]:
        """Brings what waits to the pods that are back; what became of it. Tells here how much waits still."""
        came: list[Admission] = []
        for pod in self._box.pods():
            try:
                while (entry := self._box.first(pod)) is not None:
                    came.append(self._bring(pod, *entry))
                    self._box.delivered(pod, entry[0])
            except ABSENT:
                continue
        self._tell_waiting()
        return came

    def take_mail(self, expand: Callable[[Sequence[tuple[int, str, int]]], None]) -> None:
        """Does what other nodes have left for this one; for one process of the pod. A kill makes it do it again."""
        told = self._ask("LRANGE", "told", 0, MAIL - 1)
        for entry in told:
            one = msgspec.msgpack.decode(entry, type=Told)
            self.robots_known(one.origin, one.record, one.crawl_delay_s)
        if told:
            self._ask("LTRIM", "told", len(told), -1)
        nearer = self._ask("LRANGE", "nearer", 0, MAIL - 1)
        if nearer:
            expand([self._nearer(entry) for entry in nearer])
            self._ask("LTRIM", "nearer", len(nearer), -1)

    def _nearer(self, entry: bytes) -> tuple[int, str, int]:
        number, depth, site, rest = unpacked_item(entry)
        origin, path, _, _ = unpacked(rest, site.decode())
        return self._item(int(number)), origin + path, depth

    def close(self) -> None:
        """The outbox stays, for the next process of this slot."""
        super().close()
        self._box.close()

    def _bring(self, pod: int, number: int, body: bytes) -> Admission:
        message, sender = read_message(body), self._slot
        found = [errand.found() for errand in message.errands]
        if pod == self._pod:
            return self.deliver(message.errands[0].crawl, sender, number, found) if found else Admission(0, 0)
        other = self._others[pod]
        for _, url in message.scopes:
            other.scope_extended(url)
        for told in message.robots:
            other.tell_robots(told, self._wall())
        if not found:
            return Admission(0, 0)
        came = other.ask(lambda client, crawl: client.deliver(crawl, sender, number, found))
        return self._roomy(message.errands[0].crawl, pod, came)

    def _keep(self, crawl: int, pod: int, found: Sequence[Found]) -> Admission:
        """Into the outbox, but for what waits there already."""
        kept = self._others[pod].kept if pod in self._others else Recent()
        new = [one for one in found if self._is_urgent(one) or kept.add(self._named(crawl, one))]
        if new:
            errands = [
                Errand(crawl, one.url, one.depth, one.parent, one.hops, one.purpose, one.about, one.offsite)
                for one in new
            ]
            self._put(pod, Message([], errands, [], []))
        return Admission(len(new), len(found) - len(new))

    def _put(self, pod: int, message: Message) -> None:
        self._box.put(pod, msgspec.msgpack.encode(message))
        self._tell_waiting(at_once=True)

    def _tell_waiting(self, *, at_once: bool = False) -> None:
        """An absolute number, told again now and then: it may be repeated, and a server that lost it has it again."""
        waiting = len(self._box)
        if waiting != self._waiting or (waiting and self.now() >= self._next_telling) or at_once:
            self._ask("HSET", "outboxes", self._slot, waiting)
            self._waiting, self._next_telling = waiting, self.now() + 1.0

    def _roomy(self, crawl: int, pod: int, admission: Admission) -> Admission:
        """What found its queue full waits in the outbox."""
        if admission.full:
            kept = self._keep(crawl, pod, admission.full)
            return Admission(admission.new + kept.new, admission.duplicates + kept.duplicates, admission.expand)
        return admission

    def _is_urgent(self, one: Found) -> bool:
        return bool(one.hops) or one.purpose is not Purpose.PAGE

    def _named(self, crawl: int, one: Found) -> str:
        return f"{one.depth} {one.url}" if self._crawls[crawl].limits.max_depth is not None else one.url
