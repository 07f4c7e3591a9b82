"""The frontier of one embedded pod among several: what is another pod's goes into the outbox, the rest is its own.

`pod = md5(domain) % pods`, so a site, its clock and its budget are in one pod alone. A URL of another pod counts as
admitted here once it is in the outbox; whether it is new is for its pod to say. URLs sent lately are not sent again.

A crawl is opened in every pod before one of them is given its seeds: a message about a crawl that is not here is late,
and is about one that has ended.

Must stay true: what `commit` has made safe holds the links of every page that is committed after it, those for other
pods too; a received message is counted and admitted in one transaction, and acknowledged to its sender only once that
transaction is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from weft import urls
from weft.config import PolitenessSection, checks_pod_assignment
from weft.frontier.contract import Admission, FrontierStats, Item, PageLinks, RobotsRecord
from weft.frontier.embedded.frontier import EmbeddedFrontier
from weft.frontier.embedded.sites import Lane, Site
from weft.frontier.outbox import Links, Outbox, PodMessage, Recent, RobotsNotice, read_message
from weft.frontier.requests import boot_id
from weft.records import Found, Purpose, Reason
from weft.telemetry import Log

_FOREIGN_ROBOTS = (
    "errand:"  # meta keys: robots.txt fetches of this pod for an origin of another, which was redirected here
)
_MOST_ORIGINS = 200_000  # whose pods are cached
log = Log("weft.frontier.embedded.routing")


class Received(msgspec.Struct, frozen=True):
    """What a message has brought that the engine must act on."""

    scopes: list[tuple[int, str]]
    admissions: list[tuple[int, int, Admission]]  # crawl, URLs, and what became of them


class RoutedFrontier(EmbeddedFrontier):
    """See the contract; `receive`, `outbox` and `durable` are for the exchange with other pods."""

    def __init__(self, folder: Path, section: PolitenessSection, *, pod: int, pods: int, **clocks: Any) -> None:
        super().__init__(folder, section, pod=pod, **clocks)
        self._pod = pod
        self._pods = pods
        others = (other for other in range(pods) if other != pod)
        self.outbox = Outbox(self._journal, others, lambda crawl: self._queues.crawls[crawl].name)
        self._recent: dict[int, Recent] = {}
        self._pod_by_origin: dict[str, int] = {}
        # The last message number by sender.
        self._received: dict[int, int] = {int(sender): n for sender, n in (self._journal.meta("heard") or {}).items()}
        self._committed: dict[int, int] = dict(self._received)
        self.durable: dict[int, int] = dict(self._received)  # those on the disk, which may be acknowledged
        self._checks = checks_pod_assignment()

    def pod_of(self, url: str) -> int:
        """The pod that a URL belongs to."""
        origin = url[: url.index("/", 8)]
        pod = self._pod_by_origin.get(origin)
        if pod is None:
            if len(self._pod_by_origin) > _MOST_ORIGINS:
                self._pod_by_origin.clear()
            pod = self._pod_by_origin[origin] = urls.pod_of(urls.domain_of(url), self._pods)
        return pod

    def owns(self, url: str) -> bool:
        """Whether a URL belongs to this pod."""
        return self.pod_of(url) == self._pod

    def last_received(self, sender: int) -> int:
        """The number of the last message received from another pod."""
        return self._received.get(sender, 0)

    def recover(
        self,
        done: Iterable[int] = (),
        pages: Mapping[int, int] | None = None,
        by_key: Mapping[str, int] | None = None,
        by_crawl: Mapping[int, Mapping[str, int]] | None = None,
        *,
        batch: int = 0,
    ) -> int:
        """Also queues again the robots.txt fetches that other pods wait for."""
        # The message numbers used last are unknown after a rebuild or a reboot, and a receiver drops reused ones.
        if self.is_new or self._journal.meta("boot") not in (None, boot_id()):
            self.outbox.jump()
        queued = super().recover(done, pages, by_key, by_crawl, batch=batch)
        for name, value in list(self._journal.rows("meta")):
            if name.startswith(_FOREIGN_ROBOTS):
                crawl, url, depth, parent, hops = msgspec.msgpack.decode(value)
                about = name.removeprefix(_FOREIGN_ROBOTS)
                if crawl not in self._queues.crawls:
                    continue
                super().admit(crawl, [Found(url, depth, parent, hops, Purpose.ROBOTS, about)])
        return queued

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """This pod's URLs that are not in its seen set, and other pods' URLs that were not sent recently."""
        own: list[str] = []
        others: list[str] = []
        pods, here = self._pod_by_origin, self._pod
        for url in candidates:
            pod = pods.get(url[: url.index("/", 8)])
            if pod is None:
                pod = self.pod_of(url)
            (own if pod == here else others).append(url)
        new = super().unseen(crawl, own)
        return new + self._sent_to(crawl).unknown(others) if others else new

    def admit(self, crawl: int, found: Sequence[Found]) -> Admission:
        """Queues this pod's new URLs; puts those of other pods into the outbox."""
        own, sent = [], 0
        for one in found:
            pod = self.pod_of(one.url)
            if pod == self._pod:
                own.append(one)
            elif self._is_to_be_sent(crawl, one):
                self.outbox.add(pod, crawl, one)
                sent += 1
            if one.purpose is Purpose.ROBOTS:
                self._note_foreign_robots(crawl, one, here=pod == self._pod)
        admission = self._admit_own(crawl, own)
        if len(own) == len(found):
            return admission
        known = admission.duplicates + len(found) - len(own) - sent
        return Admission(admission.new + sent, known, admission.expand)

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """The same for what pages link to."""
        own, elsewhere, sent = list[PageLinks](), 0, 0
        for some in links:
            pod = self.pod_of(some.origin + "/")
            if pod == self._pod:
                own.append(some)
                continue
            elsewhere += len(some.urls)
            if going := self._to_be_sent(crawl, some):
                self.outbox.add_links(pod, Links(crawl, some.depth, some.parent, some.offsite, going))
                sent += len(going)
        admission = self._admit_own_links(crawl, own)
        return Admission(admission.new + sent, admission.duplicates + elsewhere - sent, admission.expand)

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept here, and sent to all pods."""
        super().scope_extended(crawl, url)
        self.outbox.add_scope(crawl, url)

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Kept here, or sent to the pod that owns the origin."""
        if self.owns(origin + "/"):
            super().robots_known(origin, record, crawl_delay_s)
            return
        self.outbox.add_robots(self.pod_of(origin + "/"), RobotsNotice(origin, record, crawl_delay_s))
        self._journal.delete("meta", _FOREIGN_ROBOTS + origin)

    def receive(self, sender: int, number: int, body: bytes) -> Received | None:
        """Applies a message; None for one that was applied before."""
        if number <= self.last_received(sender):
            return None
        message = read_message(body)
        admissions = []
        for links in message.links:
            if (crawl := self._crawl_of(message, links.crawl)) is not None:
                groups = [
                    PageLinks(start[:-1], there, links.depth, links.parent, links.offsite)
                    for start, there in urls.by_origin(links.urls).items()
                ]
                admissions.append((crawl, len(links.urls), self._admit_own_links(crawl, groups)))
        for special in message.special_urls:
            if (crawl := self._crawl_of(message, special.crawl)) is None:
                continue
            one = special.found()
            if one.purpose is Purpose.ROBOTS:
                self._note_foreign_robots(crawl, one, here=True)
            count = 0 if one.purpose is Purpose.ROBOTS else 1
            admissions.append((crawl, count, self._admit_own(crawl, [one])))
        named = ((self._crawl_of(message, crawl), url) for crawl, url in message.scopes)
        scopes = [(crawl, url) for crawl, url in named if crawl is not None]
        for crawl, url in scopes:
            super().scope_extended(crawl, url)
        for notice in message.robots:
            super().robots_known(notice.origin, notice.record, notice.crawl_delay_s)
        self._received[sender] = number
        self._journal.put_meta("heard", self._received)
        return Received(scopes, admissions)

    def _crawl_of(self, message: PodMessage, crawl: int) -> int | None:
        """The number here of a crawl that the sender numbers so; None if it is not open any more."""
        number = self._by_name.get(message.names[crawl]) if message.names else crawl
        here = self._queues.crawls.get(number) if number is not None else None
        return None if here is None or here.is_closed else here.number

    def commit(self) -> None:
        """Also writes the messages to other pods."""
        self.outbox.flush()
        super().commit()
        self.outbox.committed()
        if self._committed != self._received:
            self._committed = dict(self._received)

    def sync(self) -> None:
        """Also makes received messages durable, so that their senders may delete them."""
        committed = self._committed
        super().sync()
        self.durable = committed

    def stats(self) -> FrontierStats:
        """Adds the message counts."""
        return msgspec.structs.replace(super().stats(), sent=self.outbox.sent, received=sum(self._received.values()))

    def _admit_own(self, crawl: int, found: Sequence[Found]) -> Admission:
        if self._checks:
            self._check(one.url for one in found)
        return super().admit(crawl, found)

    def _admit_own_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        if self._checks:
            self._check(url for some in links for url in some.urls)
        return super().admit_links(crawl, links)

    def _check(self, own: Iterable[str]) -> None:
        for url in own:
            right = urls.pod_of(urls.domain_of(url), self._pods)
            if right != self._pod:
                log.error("a URL went to the wrong pod", url=url, pod=self._pod, right=right)

    def _to_be_sent(self, crawl: int, links: PageLinks) -> list[str]:
        """Those of a page's links to another pod that were not sent recently, or not at such a depth."""
        recent = self._sent_to(crawl)
        if self._queues.crawls[crawl].limits.max_depth is not None:
            return [url for url in links.urls if recent.add(f"{links.depth} {url}")]
        return [url for url in links.urls if recent.add(url)]

    def _is_to_be_sent(self, crawl: int, one: Found) -> bool:
        """Whether a URL must be sent: not if it was recently, unless it was found at a smaller depth that may matter.

        Redirect targets are always sent: their hop count differs each time.
        """
        if one.purpose is not Purpose.PAGE or one.hops:
            return True
        by_depth = self._queues.crawls[crawl].limits.max_depth is not None
        return self._sent_to(crawl).add(f"{one.depth} {one.url}" if by_depth else one.url)

    def _sent_to(self, crawl: int) -> Recent:
        if crawl not in self._recent:
            self._recent[crawl] = Recent()
        return self._recent[crawl]

    def _note_foreign_robots(self, crawl: int, one: Found, *, here: bool) -> None:
        """Makes a robots.txt fetch that another pod waits for survive a crash, in the pod that fetches it (`here`)."""
        if self.owns(one.about + "/"):
            return
        if here:
            self._journal.put_meta(_FOREIGN_ROBOTS + one.about, [crawl, one.url, one.depth, one.parent, one.hops])
        else:
            self._journal.delete("meta", _FOREIGN_ROBOTS + one.about)

    def _let_go(self, about: str, here: Site | None = None) -> None:
        """Another pod that waits for a robots.txt is told that it may ask again: by a record that is out of date."""
        if self.owns(about + "/"):
            super()._let_go(about, here)
        else:
            self.robots_known(about, RobotsRecord("unreachable", b"", 0.0, "let go"), None)

    def _reject_robots(self, item: Item, lane: Lane, reason: Reason, origin: str) -> None:
        """Whatever the reason: another pod that waits for one is told."""
        if self.owns(item.about + "/"):
            super()._reject_robots(item, lane, reason, origin)
        else:
            self._give_up_robots(item, reason)
