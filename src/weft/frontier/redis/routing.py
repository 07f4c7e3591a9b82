"""The frontier of one process of a pod on Redis, among several pods: links go to the pod that they belong to.

A message to another pod goes into this slot's outbox, a file, before the page is finished, and is then delivered to
that pod's frontier at once, or later where its Redis is down or full. It is kept until that Redis has it in its
append-only file, as a server that is killed loses its last moments (see outbox.py). `deliver_waiting` delivers what
waits, repeats what was lost, and checks what is safe. The number of messages that are not safe is written to this pod's
own Redis before the page is finished, so that the crawl is not taken for finished.

    outboxes   hash   slot -> messages in its outbox that other pods may not have, or lose; in this pod's database
    told       list   robots.txt of this pod's origins, fetched by processes of other nodes, which have no access to
                      this pod's files; `take_mail` reads it, and the list `nearer` that admit.lua writes
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft import urls
from weft.errors import ServerAway, ServerFull
from weft.frontier.contract import Admission, RobotsRecord
from weft.frontier.outbox import PodMessage, Recent, RobotsNotice, encoded, read_message
from weft.frontier.redis.client import CrawlEnded, NotOpened, PodClient
from weft.frontier.redis.connection import Emptied
from weft.frontier.redis.frontier import RedisFrontier
from weft.frontier.redis.outbox import Arrived, Behind, FileOutbox, Sent
from weft.frontier.redis.packing import unpacked, unpacked_item
from weft.frontier.redis.scripts import Argument
from weft.frontier.redis.shelf import Shelf
from weft.records import Found, Purpose
from weft.telemetry import Log

MAIL = 100  # entries of `told` and `nearer` that are read at a time
ASK_EVERY_S = 1.0  # how often a pod that gets many messages is asked which are safe
AWAY_S = 1.0  # how long a pod that did not answer is left alone
ABSENT = (ServerAway, ServerFull)
_MOST_ORIGINS = 200_000  # whose pods are remembered; then it begins anew
T = TypeVar("T")
log = Log("weft.frontier.redis.routing")


class OtherPod:
    """Another pod, which may be down.

    When it does not answer, a thread polls it: each call to a server that is stopped, or behind a network that drops
    packets, would block for a whole timeout, and this pod has pages to fetch meanwhile.
    """

    def __init__(self, pod: int, client: PodClient, shelf: Path | None, crawl: str = "") -> None:
        """`shelf`: the file of the pod's robots.txt on this node; None: the pod is another node's. `crawl`: the one of
        messages that name none, as an earlier version wrote them."""
        self.pod = pod
        self._client = client
        if shelf is None:
            client.mode = "afar"
        self._shelf_path = shelf
        self._shelf: Shelf | None = None
        self.crawl = crawl
        self._numbers: dict[str, int] = {}  # of crawls, by name: each pod numbers its own
        self._here = threading.Event()
        self._here.set()
        self._kept: dict[str, Recent] = {}  # by crawl: URLs that wait for it in the outbox

    @property
    def is_away(self) -> bool:
        """Whether it does not answer."""
        return not self._here.is_set()

    def ask(self, what: Callable[[PodClient], T]) -> T:
        """Calls it; ServerAway at once while it is known not to answer."""
        if not self._here.is_set():
            raise ServerAway(f"pod {self.pod} is away")
        try:
            return what(self._client)
        except ABSENT as why:
            if isinstance(why, NotOpened) and self._numbers:
                raise  # it works on other crawls
            if isinstance(why, Emptied):
                self._numbers.clear()  # it is another database, in which they are given anew
            self._here.clear()
            threading.Thread(target=self._wait, name=f"pod {self.pod}", daemon=True).start()
            log.warning("another pod does not answer", pod=self.pod, why=why)
            raise

    def _wait(self) -> None:
        """Polls until it answers. A full server does answer, and is tried again."""
        time.sleep(AWAY_S)
        while not self._client.answers():
            time.sleep(AWAY_S)
        self._here.set()

    def number_of(self, crawl: str) -> int:
        """The number that it has for a crawl; ServerAway where it has not opened it."""
        name = crawl or self.crawl
        if name not in self._numbers:
            self._numbers[name] = self.ask(lambda client: client.find_crawl(name))
        return self._numbers[name]

    def kept(self, crawl: str) -> Recent:
        """The URLs of a crawl that wait for it in the outbox."""
        name = crawl or self.crawl
        if name not in self._kept:
            self._kept[name] = Recent()
        return self._kept[name]

    def deliver(self, sender: str, number: int, found: Sequence[Found], after: int, crawl: str = "") -> Admission:
        """Admits URLs of a crawl there, once for each message number."""
        at = self.number_of(crawl)
        try:
            return self.ask(lambda client: client.deliver(at, sender, number, found, after))
        except CrawlEnded:
            # It has ended there since. If there is a new one of that name, the next try finds it.
            del self._numbers[crawl or self.crawl]
            at = self.number_of(crawl)
            return self.ask(lambda client: client.deliver(at, sender, number, found, after))

    def skip(self, sender: str, number: int, after: int) -> Admission:
        """A message whose crawl has ended: its number arrives, and nothing else."""
        return self.ask(lambda client: client.deliver(0, sender, number, (), after))

    def scope_extended(self, url: str, crawl: str = "") -> None:
        """Extends a crawl's scope there."""
        at = self.number_of(crawl)
        self.ask(lambda client: client.scope_extended(at, url))

    def unseen(self, candidates: list[str], crawl: str = "") -> list[str]:
        """Those that this process has not found to be seen there, and that do not wait in the outbox."""
        new = self.kept(crawl).unknown(candidates)
        at = self._numbers.get(crawl or self.crawl)
        return self._client.unseen(at, new) if at is not None else new

    def forget(self, crawl: str) -> None:
        """A crawl has ended: what is known of it here is of no use."""
        self._numbers.pop(crawl, None)
        self._kept.pop(crawl, None)

    def tell_robots(self, notice: RobotsNotice, wall: float) -> None:
        """Gives an origin's robots.txt to its pod: first the body on disk, then its version."""
        if self._shelf_path is None:
            self.ask(lambda client: client.mail_robots(msgspec.msgpack.encode(notice)))
            return
        if self._shelf is None:
            self._shelf = Shelf(self._shelf_path)
        version = self._shelf.keep(notice.origin, notice.record, wall)
        expires_s = notice.record.expires - wall
        self.ask(lambda client: client.tell_robots(notice.origin, version, expires_s, notice.crawl_delay_s or 0.0))


class RoutedRedisFrontier(RedisFrontier):
    """See the contract."""

    def __init__(self, *args: Any, others: Mapping[int, OtherPod], outbox: Path, **more: Any) -> None:
        super().__init__(*args, **more)
        self._others = others
        self._box = FileOutbox(outbox, self._wall)
        self._sent = {pod: Sent(self._box.numbers(pod)) for pod in range(self._pods)}
        self._ask_at = dict.fromkeys(self._sent, 0.0)
        self._by_origin: dict[str, int] = {}
        self._reported = 0  # the number of unsafe messages that this pod's server has
        self._next_report = 0.0
        self._has_put = False  # since `deliver_waiting` last ran
        self.crossed: Callable[[int, float], None] = lambda _links, _seconds: None  # called for links to another pod
        self._report_unsafe(at_once=True)

    def pod_of(self, url: str) -> int:
        """The pod that a URL belongs to."""
        origin = url[: url.index("/", 8)]
        pod = self._by_origin.get(origin)
        if pod is None:
            if len(self._by_origin) > _MOST_ORIGINS:
                self._by_origin.clear()
            pod = self._by_origin[origin] = urls.pod_of(urls.domain_of(url), self._pods)
        return pod

    @property
    def waiting(self) -> int:
        """How many messages are not delivered."""
        return sum(sent.waiting for sent in self._sent.values())

    def owns(self, url: str) -> bool:
        """Whether a URL belongs to this pod."""
        return self.pod_of(url) == self._pod

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those that this process has not found to be seen in their pods."""
        by_pod: dict[int, list[str]] = {}
        for url in candidates:
            by_pod.setdefault(self.pod_of(url), []).append(url)
        new = super().unseen(crawl, by_pod.pop(self._pod, ()))
        for pod, some in by_pod.items():
            new += self._others[pod].unseen(some, self._crawls[crawl].name)
        return new

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues what is new, each in its pod."""
        by_pod: dict[int, list[Found]] = {}
        for one in found:
            by_pod.setdefault(self.pod_of(one.url), []).append(one)
        own = by_pod.pop(self._pod, [])
        all_ = [super().admit(crawl, own)] if own else []
        if own and all_[0].full:
            by_pod[self._pod] = list(all_[0].full)
        if by_pod:
            all_ += self._send(crawl, by_pod)
        return Admission(
            sum(one.new for one in all_),
            sum(one.duplicates for one in all_),
            tuple(x for one in all_ for x in one.expand),
        )

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept in every pod."""
        super().scope_extended(crawl, url)
        names = {crawl: self._crawls[crawl].name}
        self._post({pod: PodMessage([], [], [(crawl, url)], [], names) for pod in self._others})

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Kept here, or sent to the pod that owns the origin."""
        pod = self.pod_of(origin + "/")
        if pod == self._pod:
            super().robots_known(origin, record, crawl_delay_s)
        else:
            self._post({pod: PodMessage([], [], [], [RobotsNotice(origin, record, crawl_delay_s)])})

    def _ask_places(self, pod: int, arguments: Sequence[Argument]) -> list[bytes]:
        if pod == self._pod:
            return self.places(arguments)
        return self._others[pod].ask(lambda client: client.places(arguments))

    def deliver_waiting(self) -> list[Admission]:
        """Delivers waiting messages to the pods that answer; returns the results. Reports how many are not safe."""
        came: list[Admission] = []
        forgotten: dict[int, int] = {}
        now, hurry = self.now(), not self._has_put
        for pod, sent in self._sent.items():
            try:
                self._empty(pod, sent, came)
                if sent.is_due(now) and (hurry or now >= self._ask_at[pod]):
                    self._ask_at[pod] = now + ASK_EVERY_S
                    if number := sent.update(self._arrived(pod), now):
                        forgotten[pod] = number
            except Behind:
                self._send_again(pod)
            except ABSENT:
                continue
        self._has_put = False
        if forgotten:
            self._box.forget(forgotten)
        self._report_unsafe()
        return came

    def _empty(self, pod: int, sent: Sent, came: list[Admission]) -> None:
        while sent.waits and (entry := self._box.next(pod, sent.after)) is not None:
            number, body = entry
            message = read_message(body)
            admission = self._bring(pod, number, message, message.found())
            came.append(admission)
            if admission.full:
                return

    def _arrived(self, pod: int) -> Arrived:
        if pod == self._pod:
            return self.arrived(self._slot)
        return self._others[pod].ask(lambda client: client.arrived(self._slot))

    def _send_again(self, pod: int) -> None:
        """Makes every message that is kept for a pod undelivered."""
        log.warning("another pod has lost what was sent to it: it is sent again", pod=pod)
        self._sent[pod].rewind()

    def adopt(self, path: Path) -> None:
        """Takes over the outbox of a slot that no longer exists. May be repeated after a kill."""
        left = FileOutbox(path, self._wall)
        for pod, sent in self._sent.items():
            for _, body in left.all(pod):
                self._alive()
                sent.put(self._box.put({pod: body})[pod])
        self._box.sync()
        self._report_unsafe(at_once=True)
        self._ask("HDEL", "outboxes", path.stem)
        left.close()
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            file.unlink(missing_ok=True)

    def take_mail(self, expand: Callable[[Sequence[tuple[int, str, int]]], None]) -> None:
        """Handles what other nodes left for this one; called by one process of the pod. Repeated after a kill."""
        notices = self._ask("LRANGE", "told", 0, MAIL - 1)
        for entry in notices:
            notice = msgspec.msgpack.decode(entry, type=RobotsNotice)
            self.robots_known(notice.origin, notice.record, notice.crawl_delay_s)
        if notices:
            self._ask("LTRIM", "told", len(notices), -1)
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

    def _bring(self, pod: int, number: int, message: PodMessage, found: Sequence[Found]) -> Admission:
        """Delivers one message. It stays undelivered if a queue there was full."""
        sent = self._sent[pod]
        if pod == self._pod:
            came = self._bring_home(number, message, found, sent.after)
        else:
            came = self._bring_to(self._others[pod], number, message, found, sent.after)
        if not came.full:
            sent.delivered(number)
        return came

    def _bring_home(self, number: int, message: PodMessage, found: Sequence[Found], after: int) -> Admission:
        crawl = self._by_name.get(message.name, message.crawl if found and not message.name else 0)
        if found and not crawl and self.has_crawl(message.name):
            raise NotOpened(f"{self._where}: crawl {message.name} has not been opened here yet")
        if not crawl:
            found = ()
        try:
            return self.deliver(crawl, self._slot, number, found, after)
        except CrawlEnded:
            return self.deliver(0, self._slot, number, (), after)

    def _bring_to(
        self, other: OtherPod, number: int, message: PodMessage, found: Sequence[Found], after: int
    ) -> Admission:
        for notice in message.robots:
            other.tell_robots(notice, self._wall())
        if message.name and message.name not in self._by_name and not self.has_crawl(message.name):
            return other.skip(self._slot, number, after)
        try:
            for _, url in message.scopes:
                other.scope_extended(url, message.name)
            asked = self.now()
            if not found:
                return other.skip(self._slot, number, after)
            came = other.deliver(self._slot, number, found, after, message.name)
        except NotOpened:
            if message.name and not self.has_crawl(message.name):
                return other.skip(self._slot, number, after)  # it has ended here, too
            raise
        self.crossed(len(found), self.now() - asked)
        return came

    def close_crawl(self, crawl: int) -> None:
        """What waits of it for other pods is not delivered any more."""
        name = self._crawls[crawl].name if crawl in self._crawls else ""
        super().close_crawl(crawl)
        for other in self._others.values():
            other.forget(name)

    def _send(self, crawl: int, by_pod: Mapping[int, Sequence[Found]]) -> list[Admission]:
        """Posts URLs to other pods, or to this one if its queue was full."""
        going = {pod: self._not_waiting(crawl, pod, found) for pod, found in by_pod.items()}
        name = self._crawls[crawl].name
        messages = {pod: _message(crawl, name, found) for pod, found in going.items() if found}
        came = self._post(messages, going)
        for pod, found in by_pod.items():
            if pod not in came:
                came[pod] = Admission(len(going[pod]), len(found) - len(going[pod]))
            elif came[pod].full:
                came[pod] = Admission(came[pod].new + len(came[pod].full), came[pod].duplicates, came[pod].expand)
            else:
                continue
            self._remember(crawl, pod, going[pod])
        return list(came.values())

    def _post(
        self, messages: Mapping[int, PodMessage], found: Mapping[int, Sequence[Found]] | None = None
    ) -> dict[int, Admission]:
        """Puts messages into the outbox and delivers them; returns the results of those that arrived."""
        came: dict[int, Admission] = {}
        if not messages:
            return came
        behind = {pod for pod in messages if self._sent[pod].waits or pod == self._pod}
        numbers = self._box.put({pod: encoded(message) for pod, message in messages.items()})
        if any(message.scopes or message.robots or _is_for_robots(message) for message in messages.values()):
            self._box.sync()  # unlike links, these could not be read from the stored pages after a power cut
        for pod, number in numbers.items():
            self._sent[pod].put(number)
        self._has_put = True
        if not self._reported:
            self._report_unsafe(at_once=True)
        for pod, message in messages.items():
            if pod in behind:
                continue
            try:
                admission = self._bring(pod, numbers[pod], message, found[pod] if found else ())
            except ABSENT:
                continue
            except Behind:
                self._send_again(pod)
                continue
            came[pod] = admission
        return came

    def _not_waiting(self, crawl: int, pod: int, found: Sequence[Found]) -> Sequence[Found]:
        """The URLs without those that wait for this pod in the outbox already."""
        if pod == self._pod or not (self._others[pod].is_away or self._sent[pod].waits):
            return found
        kept = self._others[pod].kept(self._crawls[crawl].name)
        names = [one for one in found if not self._is_urgent(one)]
        new = set(kept.unknown(self._named(crawl, one) for one in names))
        return [one for one in found if self._is_urgent(one) or self._named(crawl, one) in new]

    def _remember(self, crawl: int, pod: int, found: Sequence[Found]) -> None:
        if pod != self._pod:
            for one in found:
                if not self._is_urgent(one):
                    self._others[pod].kept(self._crawls[crawl].name).add(self._named(crawl, one))

    def _report_unsafe(self, *, at_once: bool = False) -> None:
        """Writes an absolute number, and again every second while it is not 0: the server may have lost it."""
        unsafe = sum(sent.unsafe for sent in self._sent.values())
        if unsafe != self._reported or (unsafe and self.now() >= self._next_report) or at_once:
            self._ask("HSET", "outboxes", self._slot, unsafe)
            self._reported, self._next_report = unsafe, self.now() + 1.0

    def sync(self) -> None:
        """Also the outbox."""
        super().sync()
        self._box.sync()

    def _is_urgent(self, one: Found) -> bool:
        return bool(one.hops) or one.purpose is not Purpose.PAGE

    def _named(self, crawl: int, one: Found) -> str:
        return f"{one.depth} {one.url}" if self._crawls[crawl].has_depths else one.url


def _message(crawl: int, name: str, found: Sequence[Found]) -> PodMessage:
    message = PodMessage([], [], [], [], {crawl: name})
    for one in found:
        message.add(crawl, one)
    return message


def _is_for_robots(message: PodMessage) -> bool:
    return any(special.purpose is Purpose.ROBOTS for special in message.special_urls)
