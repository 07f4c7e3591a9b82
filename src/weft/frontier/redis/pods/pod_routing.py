"""Routes URLs among several pods on Redis: those of another pod are sent there.

A message to another pod goes into this slot's outbox, a file, before the page is finished, and is then delivered to
that pod's frontier at once, or later where its Redis is down or full. It is kept until that Redis has it in its
append-only file, as a server that is killed loses its last moments (see outbox.py). `deliver_waiting` delivers what
waits, repeats what was lost, and checks what is safe. The number of messages that are not safe is written to this pod's
own Redis before the page is finished, so that the crawl is not taken for finished.

    outboxes   hash   slot -> messages in its outbox that other pods may not have, or lose; in this pod's database
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from weft import urls
from weft.alive import Alive, silent
from weft.frontier.contract import Admission, RobotsRecord
from weft.frontier.outbox import PodMessage, RobotsNotice, encode_message, read_message
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.intake import CrawlGone
from weft.frontier.redis.pods.client import NotOpened, PodClient
from weft.frontier.redis.pods.other_pod import UNAVAILABLE, OtherPod
from weft.frontier.redis.pods.pod_outbox import ArrivalState, DeliveryState, FileOutbox, MessageLost
from weft.frontier.redis.scripts import ScriptArgument
from weft.records import Found, Purpose
from weft.telemetry import Log

ASK_EVERY_S = 1.0  # how often a pod that gets many messages is asked which are safe
_MOST_CACHED_ORIGINS = 200_000  # whose pods are remembered; then the cache is emptied
log = Log("weft.frontier.redis.pods.pod_routing")


class OutgoingMessages:
    """This slot's messages to other pods: the file, and the state of their delivery to each pod."""

    def __init__(self, link: PodLink, slot: str, outbox: Path, wall: Callable[[], float]) -> None:
        self._link = link
        self._slot = slot
        self._wall = wall
        self._file_outbox = FileOutbox(outbox, wall)
        self.by_pod = {pod: DeliveryState(self._file_outbox.message_numbers(pod)) for pod in range(link.pods)}
        self._reported = 0  # the number of unsafe messages that this pod's server has
        self._next_report = 0.0
        self._report_unsafe(at_once=True)

    @property
    def undelivered_messages(self) -> int:
        """How many messages are not delivered."""
        return sum(sent.undelivered_messages for sent in self.by_pod.values())

    def save_messages(self, messages: Mapping[int, PodMessage]) -> dict[int, int]:
        """Saves a message for each of these pods; returns their numbers."""
        numbers = self._file_outbox.save_messages({pod: encode_message(message) for pod, message in messages.items()})
        if any(message.scopes or message.robots or _is_for_robots(message) for message in messages.values()):
            self._file_outbox.sync()  # unlike links, these could not be read from the stored pages after a power cut
        for pod, number in numbers.items():
            self.by_pod[pod].add_message(number)
        if not self._reported:
            self._report_unsafe(at_once=True)
        return numbers

    def next_undelivered(self, pod: int) -> tuple[int, bytes] | None:
        """The first message that must be delivered to a pod."""
        sent = self.by_pod[pod]
        return self._file_outbox.next_message(pod, sent.required_predecessor) if sent.has_undelivered else None

    def mark_all_undelivered(self, pod: int) -> None:
        """Makes every stored message to a pod undelivered."""
        log.warning("another pod has lost what was sent to it: it is sent again", pod=pod)
        self.by_pod[pod].mark_all_undelivered()

    def delete_messages(self, numbers: Mapping[int, int]) -> None:
        """Deletes the messages up to a number for each pod, and reports how many are not safe."""
        if numbers:
            self._file_outbox.delete_messages(numbers)
        self._report_unsafe()

    def adopt_outbox(self, path: Path, alive: Alive = silent) -> None:
        """Takes over the outbox of a slot that no longer exists. May be repeated after a kill."""
        left = FileOutbox(path, self._wall)
        for pod, sent in self.by_pod.items():
            for _, body in left.all_messages(pod):
                alive()
                sent.add_message(self._file_outbox.save_messages({pod: body})[pod])
        self._file_outbox.sync()
        self._report_unsafe(at_once=True)
        self._link.run_command("HDEL", "outboxes", path.stem)
        left.close()
        for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
            file.unlink(missing_ok=True)

    def sync(self) -> None:
        """Makes what was put safe against a power cut; may be called from any thread."""
        self._file_outbox.sync()

    def close(self) -> None:
        """Closes the file, which remains for the next process of this slot."""
        self._file_outbox.close()

    def _report_unsafe(self, *, at_once: bool = False) -> None:
        """Writes an absolute number, and again every second while it is not 0: the server may have lost it."""
        unsafe = sum(sent.unsafe_messages for sent in self.by_pod.values())
        if unsafe != self._reported or (unsafe and self._link.now() >= self._next_report) or at_once:
            self._link.run_command("HSET", "outboxes", self._slot, unsafe)
            self._reported, self._next_report = unsafe, self._link.now() + 1.0


class PodRouter:
    """Routes URLs to pods; see the module. `home` is this process's own pod, `by_name` has the crawls that it has
    opened.
    """

    def __init__(
        self,
        home: PodClient,
        slot: str,
        by_name: Mapping[str, int],
        others: Mapping[int, OtherPod],
        outbox: Path,
        wall: Callable[[], float],
    ) -> None:
        self._own_pod = home
        self._link = home.link
        self._pod = home.link.pod
        self._slot = slot
        self._by_name = by_name
        self._other_pods = others
        self._wall = wall
        self.outgoing = OutgoingMessages(home.link, slot, outbox, wall)
        self._ask_at = dict.fromkeys(self.outgoing.by_pod, 0.0)
        self._by_origin: dict[str, int] = {}
        self._has_saved_messages = False  # since `deliver_waiting` last ran
        self.on_links_sent: Callable[[int, float], None] = lambda _links, _seconds: (
            None
        )  # called for links to another pod

    def pod_of(self, url: str) -> int:
        """The pod that a URL belongs to."""
        origin = url[: url.index("/", 8)]
        pod = self._by_origin.get(origin)
        if pod is None:
            if len(self._by_origin) > _MOST_CACHED_ORIGINS:
                self._by_origin.clear()
            pod = self._by_origin[origin] = urls.pod_of(urls.domain_of(url), self._link.pods)
        return pod

    def owns(self, url: str) -> bool:
        """Whether a URL belongs to this pod."""
        return self.pod_of(url) == self._pod

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """The URLs that this process does not know as seen in their pods."""
        by_pod: dict[int, list[str]] = {}
        for url in candidates:
            by_pod.setdefault(self.pod_of(url), []).append(url)
        new = self._own_pod.intake.unseen(crawl, by_pod.pop(self._pod, ()))
        for pod, some in by_pod.items():
            new += self._other_pods[pod].unseen(some, self._link.crawls[crawl].name)
        return new

    def admit(self, crawl: int, found_urls: Sequence[Found]) -> Admission:
        """Queues new URLs, each in its pod."""
        by_pod: dict[int, list[Found]] = {}
        for one in found_urls:
            by_pod.setdefault(self.pod_of(one.url), []).append(one)
        own = by_pod.pop(self._pod, [])
        admissions = [self._own_pod.intake.admit(crawl, own)] if own else []
        if own and admissions[0].full:
            by_pod[self._pod] = list(admissions[0].full)
        if by_pod:
            admissions += self._send_urls(crawl, by_pod)
        return Admission(
            sum(one.new for one in admissions),
            sum(one.duplicates for one in admissions),
            tuple(x for one in admissions for x in one.expand),
        )

    def extend_scope(self, crawl: int, url: str) -> None:
        """Extends a crawl's scope in every other pod."""
        names = {crawl: self._link.crawls[crawl].name}
        self._save_and_deliver({pod: PodMessage([], [], [(crawl, url)], [], names) for pod in self._other_pods})

    def send_robots(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> bool:
        """Sends an origin's robots.txt to its pod; False if that is this pod."""
        pod = self.pod_of(origin + "/")
        if pod == self._pod:
            return False
        self._save_and_deliver({pod: PodMessage([], [], [], [RobotsNotice(origin, record, crawl_delay_s)])})
        return True

    def call_address_slots(self, pod: int, arguments: Sequence[ScriptArgument]) -> list[bytes]:
        """Claims or releases slots of the addresses that a pod keeps."""
        if pod == self._pod:
            return self._own_pod.call_address_slots(arguments)
        return self._other_pods[pod].call(lambda client: client.call_address_slots(arguments))

    def deliver_waiting(self) -> list[Admission]:
        """Delivers waiting messages to the pods that answer; returns the results. Reports how many are not safe."""
        came: list[Admission] = []
        forgotten: dict[int, int] = {}
        now, hurry = self._link.now(), not self._has_saved_messages
        for pod, sent in self.outgoing.by_pod.items():
            try:
                self._deliver_to_pod(pod, came)
                if sent.is_due(now) and (hurry or now >= self._ask_at[pod]):
                    self._ask_at[pod] = now + ASK_EVERY_S
                    if number := sent.apply_arrival(self._read_arrival(pod), now):
                        forgotten[pod] = number
            except MessageLost:
                self.outgoing.mark_all_undelivered(pod)
            except UNAVAILABLE:
                continue
        self._has_saved_messages = False
        self.outgoing.delete_messages(forgotten)
        return came

    def _deliver_to_pod(self, pod: int, came: list[Admission]) -> None:
        while (entry := self.outgoing.next_undelivered(pod)) is not None:
            number, body = entry
            message = read_message(body)
            admission = self._deliver_message(pod, number, message, message.found_urls())
            came.append(admission)
            if admission.full:
                return

    def _read_arrival(self, pod: int) -> ArrivalState:
        if pod == self._pod:
            return self._own_pod.intake.last_arrival(self._slot)
        return self._other_pods[pod].call(lambda client: client.intake.last_arrival(self._slot))

    def _deliver_message(self, pod: int, number: int, message: PodMessage, found_urls: Sequence[Found]) -> Admission:
        """Delivers one message. It stays undelivered if a queue there was full."""
        sent = self.outgoing.by_pod[pod]
        if pod == self._pod:
            came = self._deliver_to_own_pod(number, message, found_urls, sent.required_predecessor)
        else:
            came = self._deliver_to_other_pod(
                self._other_pods[pod], number, message, found_urls, sent.required_predecessor
            )
        if not came.full:
            sent.mark_delivered(number)
        return came

    def _deliver_to_own_pod(
        self, number: int, message: PodMessage, found_urls: Sequence[Found], after: int
    ) -> Admission:
        crawl = self._by_name.get(message.crawl_name, 0)
        try:
            if not found_urls or crawl:
                return self._own_pod.intake.deliver_batch(crawl, self._slot, number, found_urls, after)
        except CrawlGone:
            pass
        raise NotOpened(f"{self._link.where}: crawl {message.crawl_name} has not been opened here yet")

    def _deliver_to_other_pod(
        self, other: OtherPod, number: int, message: PodMessage, found_urls: Sequence[Found], after: int
    ) -> Admission:
        for notice in message.robots:
            other.send_robots(notice, self._wall())
        for _, url in message.scopes:
            other.scope_extended(url, message.crawl_name)
        if not found_urls:
            return other.deliver_without_urls(self._slot, number, after)
        asked = self._link.now()
        came = other.deliver(self._slot, number, found_urls, after, message.crawl_name)
        self.on_links_sent(len(found_urls), self._link.now() - asked)
        return came

    def _send_urls(self, crawl: int, by_pod: Mapping[int, Sequence[Found]]) -> list[Admission]:
        """Sends URLs to other pods, or to this one if its queue was full."""
        going = {pod: self._not_in_outbox(crawl, pod, found_urls) for pod, found_urls in by_pod.items()}
        name = self._link.crawls[crawl].name
        messages = {pod: _make_message(crawl, name, found_urls) for pod, found_urls in going.items() if found_urls}
        came = self._save_and_deliver(messages, going)
        for pod, found_urls in by_pod.items():
            if pod not in came:
                came[pod] = Admission(len(going[pod]), len(found_urls) - len(going[pod]))
            elif came[pod].full:
                came[pod] = Admission(came[pod].new + len(came[pod].full), came[pod].duplicates, came[pod].expand)
            else:
                continue
            self._note_in_outbox(crawl, pod, going[pod])
        return list(came.values())

    def _save_and_deliver(
        self, messages: Mapping[int, PodMessage], found_urls: Mapping[int, Sequence[Found]] | None = None
    ) -> dict[int, Admission]:
        """Puts messages into the outbox and delivers them; returns the results of those that arrived."""
        came: dict[int, Admission] = {}
        if not messages:
            return came
        behind = {pod for pod in messages if self.outgoing.by_pod[pod].has_undelivered or pod == self._pod}
        numbers = self.outgoing.save_messages(messages)
        self._has_saved_messages = True
        for pod, message in messages.items():
            if pod in behind:
                continue
            try:
                came[pod] = self._deliver_message(pod, numbers[pod], message, found_urls[pod] if found_urls else ())
            except UNAVAILABLE:
                continue
            except MessageLost:
                self.outgoing.mark_all_undelivered(pod)
        return came

    def _not_in_outbox(self, crawl: int, pod: int, found_urls: Sequence[Found]) -> Sequence[Found]:
        """The URLs that do not wait for this pod in the outbox already."""
        if pod == self._pod or not (self._other_pods[pod].is_away or self.outgoing.by_pod[pod].has_undelivered):
            return found_urls
        kept = self._other_pods[pod].waiting_urls(self._link.crawls[crawl].name)
        links = [one for one in found_urls if not _is_urgent(one)]
        new = set(kept.unknown(self._outbox_key(crawl, one) for one in links))
        return [one for one in found_urls if _is_urgent(one) or self._outbox_key(crawl, one) in new]

    def _note_in_outbox(self, crawl: int, pod: int, found_urls: Sequence[Found]) -> None:
        if pod != self._pod:
            kept = self._other_pods[pod].waiting_urls(self._link.crawls[crawl].name)
            for one in found_urls:
                if not _is_urgent(one):
                    kept.add(self._outbox_key(crawl, one))

    def _outbox_key(self, crawl: int, one: Found) -> str:
        return f"{one.depth} {one.url}" if self._link.crawls[crawl].has_depths else one.url


def _make_message(crawl: int, name: str, found_urls: Sequence[Found]) -> PodMessage:
    message = PodMessage([], [], [], [], {crawl: name})
    for one in found_urls:
        message.add(crawl, one)
    return message


def _is_urgent(one: Found) -> bool:
    return bool(one.hops) or one.purpose is not Purpose.PAGE


def _is_for_robots(message: PodMessage) -> bool:
    return any(special.purpose is Purpose.ROBOTS for special in message.special_urls)
