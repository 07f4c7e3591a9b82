"""Which URLs belong to this pod, and the messages between pods. A single frontier owns every URL.

`pod = md5(domain) % pods`, so a site, its clock and its budget are in one pod only.

Invariant: `commit` makes the links of a page, also those to other pods, safe before the page is committed; a received
message is counted and admitted in one transaction, and acknowledged to its sender only when that transaction is on the
disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from weft import urls
from weft.config import checks_pod_assignment
from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.outbox import PodOutbox, RecentlySentUrls, RobotsNotice
from weft.frontier.scheduling.sites import Crawl
from weft.records import Found, Purpose
from weft.telemetry import Log

# Prefix of keys in the journal's meta table: robots.txt fetches of this pod for an origin of another pod, which was
# redirected here.
_FOREIGN_ROBOTS_PREFIX = "errand:"
_MOST_CACHED_ORIGINS = 200_000  # whose pods are cached
log = Log("weft.frontier.embedded.embedded_routing")


class PodExchange:
    """This pod's share, its outbox, and the numbers of the messages that it has received."""

    def __init__(self, journal: FrontierJournal, crawls: Mapping[int, Crawl], pod: int, pods: int) -> None:
        self._journal = journal
        self.pod = pod
        self._pods = pods
        others = [other for other in range(pods) if other != pod] if pods > 1 else []
        self.outbox = PodOutbox(journal, others, lambda crawl: crawls[crawl].name)
        self._recently_sent: dict[int, RecentlySentUrls] = {}
        self.by_origin: dict[str, int] = {}
        # The last message number by sender.
        self._received_numbers: dict[int, int] = {int(sender): n for sender, n in (journal.meta("heard") or {}).items()}
        self.committed_numbers: dict[int, int] = dict(
            self._received_numbers
        )  # in the journal: a sync makes them durable
        self.durable_numbers: dict[int, int] = dict(
            self._received_numbers
        )  # those on the disk, which may be acknowledged
        self._checks_ownership = checks_pod_assignment() and pods > 1

    def pod_of(self, url: str) -> int:
        """The pod that a URL belongs to."""
        origin = url[: url.index("/", 8)]
        pod = self.by_origin.get(origin)
        if pod is None:
            if len(self.by_origin) > _MOST_CACHED_ORIGINS:
                self.by_origin.clear()
            pod = self.by_origin[origin] = urls.pod_of(urls.domain_of(url), self._pods)
        return pod

    def owns(self, url: str) -> bool:
        """Whether a URL belongs to this pod."""
        return self._pods == 1 or self.pod_of(url) == self.pod

    def check_ownership(self, own: Iterable[str]) -> None:
        """For debugging: URLs that are admitted here belong here."""
        for url in own if self._checks_ownership else ():
            right = urls.pod_of(urls.domain_of(url), self._pods)
            if right != self.pod:
                log.error("a URL went to the wrong pod", url=url, pod=self.pod, right=right)

    # ── messages ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def received_messages(self) -> int:
        """How many messages came from all pods."""
        return sum(self._received_numbers.values())

    def last_message_from(self, sender: int) -> int:
        """The number of the last message received from another pod."""
        return self._received_numbers.get(sender, 0)

    def record_received(self, sender: int, number: int) -> None:
        """Records that a message was applied; the next commit makes both safe."""
        self._received_numbers[sender] = number
        self._journal.put_meta("heard", self._received_numbers)

    def note_commit(self) -> None:
        """Everything so far is in the journal: messages in the outbox may be sent."""
        self.outbox.note_commit()
        if self.committed_numbers != self._received_numbers:
            self.committed_numbers = dict(self._received_numbers)

    def sent_lately(self, crawl: int) -> RecentlySentUrls:
        """Which of a crawl's URLs were sent recently."""
        if crawl not in self._recently_sent:
            self._recently_sent[crawl] = RecentlySentUrls()
        return self._recently_sent[crawl]

    # ── robots.txt that is redirected to another pod's host ────────────────────────────────────────────────────────

    def send_robots(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Sends an origin's robots.txt to the pod that owns the origin."""
        self.outbox.add_robots(self.pod_of(origin + "/"), RobotsNotice(origin, record, crawl_delay_s))
        self._journal.delete("meta", _FOREIGN_ROBOTS_PREFIX + origin)

    def note_robots(self, crawl: int, one: Found, *, here: bool) -> None:
        """Makes a robots.txt fetch that another pod waits for survive a crash, in the pod that fetches it (`here`)."""
        if self.owns(one.about + "/"):
            return
        if here:
            self._journal.put_meta(
                _FOREIGN_ROBOTS_PREFIX + one.about, [crawl, one.url, one.depth, one.parent, one.hops]
            )
        else:
            self._journal.delete("meta", _FOREIGN_ROBOTS_PREFIX + one.about)

    def awaited_robots(self) -> Iterator[tuple[int, Found]]:
        """The robots.txt fetches that other pods wait for, each with its crawl."""
        for name, value in list(self._journal.rows("meta")):
            if name.startswith(_FOREIGN_ROBOTS_PREFIX):
                crawl, url, depth, parent, hops = msgspec.msgpack.decode(value)
                yield crawl, Found(url, depth, parent, hops, Purpose.ROBOTS, name.removeprefix(_FOREIGN_ROBOTS_PREFIX))
