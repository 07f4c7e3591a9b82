"""Another pod, which may be down: delivers messages to it, and never waits for its answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from weft.errors import ServerAway, ServerFull
from weft.frontier.contract import Admission
from weft.frontier.outbox import RecentlySentUrls, RobotsNotice
from weft.frontier.redis.connection import Emptied
from weft.frontier.redis.parts.intake import CrawlGone
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.redis.pods.client import NotOpened, PodClient
from weft.records import Found
from weft.telemetry import Log

NOT_CALLED_S = 1.0  # how long a pod that did not answer is not called
UNAVAILABLE = (ServerAway, ServerFull)
T = TypeVar("T")
log = Log("weft.frontier.redis.pods.pod_routing")


class OtherPod:
    """Another pod, which may be down.

    When it does not answer, a thread polls it: each call to a server that is stopped, or behind a network that drops
    packets, would block for a whole timeout, and this pod has pages to fetch meanwhile.
    """

    def __init__(self, pod: int, client: PodClient, shelf: Path | None) -> None:
        """`shelf`: the file of the pod's robots.txt on this node; None: the pod is another node's."""
        self.pod = pod
        self._client = client
        self._shelf_path = shelf
        self._shared_records: SharedRecords | None = None
        self._crawl_numbers: dict[str, int] = {}  # of crawls, by name: each pod assigns its own numbers
        self._is_answering = threading.Event()
        self._is_answering.set()
        self._waiting_urls: dict[str, RecentlySentUrls] = {}  # by crawl: URLs that wait for it in the outbox

    @property
    def is_away(self) -> bool:
        """Whether it does not answer."""
        return not self._is_answering.is_set()

    def call(self, what: Callable[[PodClient], T]) -> T:
        """Calls it; ServerAway at once while it is known not to answer."""
        if not self._is_answering.is_set():
            raise ServerAway(f"pod {self.pod} is away")
        try:
            return what(self._client)
        except UNAVAILABLE as why:
            if isinstance(why, NotOpened) and self._crawl_numbers:
                raise  # it works on other crawls
            if isinstance(why, Emptied):
                self._crawl_numbers.clear()  # another database assigns other numbers
            self._is_answering.clear()
            threading.Thread(target=self._poll_until_answer, name=f"pod {self.pod}", daemon=True).start()
            log.warning("another pod does not answer", pod=self.pod, why=why)
            raise

    def _poll_until_answer(self) -> None:
        """Polls until it answers. A full server answers, and is called again."""
        time.sleep(NOT_CALLED_S)
        while not self._client.link.is_server_answering():
            time.sleep(NOT_CALLED_S)
        self._is_answering.set()

    def number_of(self, crawl: str) -> int:
        """The pod's number of a crawl; ServerAway if the pod has not opened it."""
        if crawl not in self._crawl_numbers:
            self._crawl_numbers[crawl] = self.call(lambda client: client.find_crawl(crawl))
        return self._crawl_numbers[crawl]

    def waiting_urls(self, crawl: str) -> RecentlySentUrls:
        """The URLs of a crawl that wait for it in the outbox."""
        if crawl not in self._waiting_urls:
            self._waiting_urls[crawl] = RecentlySentUrls()
        return self._waiting_urls[crawl]

    def deliver(self, sender: str, number: int, found_urls: Sequence[Found], after: int, crawl: str) -> Admission:
        """Admits URLs of a crawl there, once for each message number."""
        at = self.number_of(crawl)
        try:
            return self.call(lambda client: client.intake.deliver_batch(at, sender, number, found_urls, after))
        except CrawlGone:
            # The pod has lost the crawl, and may assign it another number.
            del self._crawl_numbers[crawl]
            raise NotOpened(f"pod {self.pod} has lost crawl {crawl}") from None

    def deliver_without_urls(self, sender: str, number: int, after: int) -> Admission:
        """Delivers a message without URLs: only its number is recorded."""
        return self.call(lambda client: client.intake.deliver_batch(0, sender, number, (), after))

    def scope_extended(self, url: str, crawl: str) -> None:
        """Extends a crawl's scope there."""
        at = self.number_of(crawl)
        self.call(lambda client: client.notes.scope_extended(at, url))

    def unseen(self, candidates: list[str], crawl: str) -> list[str]:
        """The URLs that this process does not know as seen there, and that do not wait in the outbox."""
        new = self.waiting_urls(crawl).unknown(candidates)
        at = self._crawl_numbers.get(crawl)
        return self._client.intake.unseen(at, new) if at is not None else new

    def send_robots(self, notice: RobotsNotice, wall: float) -> None:
        """Sends an origin's robots.txt to its pod: first the body to disk, then its version."""
        if self._shelf_path is None:
            self.call(lambda client: client.mail_robots(msgspec.msgpack.encode(notice)))
            return
        if self._shared_records is None:
            self._shared_records = SharedRecords(self._shelf_path)
        version = self._shared_records.save_robots(notice.origin, notice.record, wall)
        expires_s = notice.record.expires - wall
        self.call(lambda client: client.announce_robots(notice.origin, version, expires_s, notice.crawl_delay_s or 0.0))
