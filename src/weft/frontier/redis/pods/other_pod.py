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
from weft.frontier.outbox import RecentlySent, RobotsNotice
from weft.frontier.redis.connection import Emptied
from weft.frontier.redis.parts.intake import CrawlGone
from weft.frontier.redis.parts.shelf import Shelf
from weft.frontier.redis.pods.client import NotOpened, PodClient
from weft.records import Found
from weft.telemetry import Log

AWAY_S = 1.0  # how long a pod that did not answer is not called
ABSENT = (ServerAway, ServerFull)
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
        self._shelf: Shelf | None = None
        self._numbers: dict[str, int] = {}  # of crawls, by name: each pod assigns its own numbers
        self._here = threading.Event()
        self._here.set()
        self._kept: dict[str, RecentlySent] = {}  # by crawl: URLs that wait for it in the outbox

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
                self._numbers.clear()  # another database assigns other numbers
            self._here.clear()
            threading.Thread(target=self._wait, name=f"pod {self.pod}", daemon=True).start()
            log.warning("another pod does not answer", pod=self.pod, why=why)
            raise

    def _wait(self) -> None:
        """Polls until it answers. A full server answers, and is called again."""
        time.sleep(AWAY_S)
        while not self._client.link.answers():
            time.sleep(AWAY_S)
        self._here.set()

    def number_of(self, crawl: str) -> int:
        """The pod's number of a crawl; ServerAway if the pod has not opened it."""
        if crawl not in self._numbers:
            self._numbers[crawl] = self.ask(lambda client: client.find_crawl(crawl))
        return self._numbers[crawl]

    def kept(self, crawl: str) -> RecentlySent:
        """The URLs of a crawl that wait for it in the outbox."""
        if crawl not in self._kept:
            self._kept[crawl] = RecentlySent()
        return self._kept[crawl]

    def deliver(self, sender: str, number: int, found: Sequence[Found], after: int, crawl: str) -> Admission:
        """Admits URLs of a crawl there, once for each message number."""
        at = self.number_of(crawl)
        try:
            return self.ask(lambda client: client.intake.deliver(at, sender, number, found, after))
        except CrawlGone:
            # The pod has lost the crawl, and may assign it another number.
            del self._numbers[crawl]
            raise NotOpened(f"pod {self.pod} has lost crawl {crawl}") from None

    def skip(self, sender: str, number: int, after: int) -> Admission:
        """Delivers a message without URLs: only its number is recorded."""
        return self.ask(lambda client: client.intake.deliver(0, sender, number, (), after))

    def scope_extended(self, url: str, crawl: str) -> None:
        """Extends a crawl's scope there."""
        at = self.number_of(crawl)
        self.ask(lambda client: client.notes.scope_extended(at, url))

    def unseen(self, candidates: list[str], crawl: str) -> list[str]:
        """The URLs that this process does not know as seen there, and that do not wait in the outbox."""
        new = self.kept(crawl).unknown(candidates)
        at = self._numbers.get(crawl)
        return self._client.intake.unseen(at, new) if at is not None else new

    def tell_robots(self, notice: RobotsNotice, wall: float) -> None:
        """Sends an origin's robots.txt to its pod: first the body to disk, then its version."""
        if self._shelf_path is None:
            self.ask(lambda client: client.mail_robots(msgspec.msgpack.encode(notice)))
            return
        if self._shelf is None:
            self._shelf = Shelf(self._shelf_path)
        version = self._shelf.keep(notice.origin, notice.record, wall)
        expires_s = notice.record.expires - wall
        self.ask(lambda client: client.tell_robots(notice.origin, version, expires_s, notice.crawl_delay_s or 0.0))
