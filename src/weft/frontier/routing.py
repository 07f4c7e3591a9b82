"""The frontier of one embedded pod among several: what is another pod's goes into the outbox, the rest is its own.

`pod = md5(domain) % pods`, so a site, its clock and its budget are in one pod alone. A URL of another pod counts as
admitted here once it is in the outbox; whether it is new is for its pod to say. URLs sent lately are not sent again.

Must stay true: what `commit` has made safe holds the links of every page that is committed after it, those for other
pods too; a message that was received is counted and admitted in one transaction, and told to be there for good only
when that transaction is on the disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from weft import urls
from weft.config import PolitenessSection, checks_pod_assignment
from weft.frontier.contract import Admission, FrontierStats, RobotsRecord
from weft.frontier.embedded import EmbeddedFrontier
from weft.frontier.outbox import Outbox, Recent, Told, read_message
from weft.frontier.requests import boot_id
from weft.frontier.sites import Lane
from weft.records import Found, Purpose, Reason
from weft.telemetry import Log

UNREACHABLE_S = 600.0
_ERRAND = "errand:"
_MOST_ORIGINS = 200_000  # whose pods are remembered; then it begins anew
log = Log("weft.frontier.routing")


class Received(msgspec.Struct, frozen=True):
    """What a message has brought that the engine must act on."""

    scopes: list[tuple[int, str]]
    admissions: list[tuple[int, int, Admission]]  # crawl, URLs, and what became of them


class RoutedFrontier(EmbeddedFrontier):
    """See the contract; `receive`, `outbox` and `durable` are for the exchange with other pods."""

    def __init__(self, folder: Path, section: PolitenessSection, *, pod: int, pods: int) -> None:
        super().__init__(folder, section, pod=pod)
        self._pod = pod
        self._pods = pods
        self.outbox = Outbox(self._journal, (other for other in range(pods) if other != pod))
        self._recent: dict[int, Recent] = {}
        self._pod_by_origin: dict[str, int] = {}
        self._heard: dict[int, int] = {int(sender): n for sender, n in (self._journal.meta("heard") or {}).items()}
        self._committed: dict[int, int] = dict(self._heard)
        self.durable: dict[int, int] = dict(self._heard)  # last numbers that are on the disk, by sender
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

    def heard(self, sender: int) -> int:
        """The last number that was received from another pod."""
        return self._heard.get(sender, 0)

    def recover(
        self, done: Iterable[int] = (), pages: Mapping[int, int] | None = None, by_key: Mapping[str, int] | None = None
    ) -> int:
        """Also takes up the errands that other pods sent this one on."""
        # A frontier that was made anew has forgotten which numbers it had heard, and others wait for those it had used.
        if self.is_new or self._journal.meta("boot") not in (None, boot_id()):
            self.outbox.jump()
        queued = super().recover(done, pages, by_key)
        for name, value in list(self._journal.rows("meta")):
            if name.startswith(_ERRAND):
                crawl, url, depth, parent, hops = msgspec.msgpack.decode(value)
                about = name.removeprefix(_ERRAND)
                super().admit(crawl, [Found(url, depth, parent, hops, Purpose.ROBOTS, about)])
        return queued

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """Those that this pod does not know, and those of others that were not sent lately."""
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
        """Queues what is this pod's and new; sends on what is another's."""
        own, sent = [], 0
        for one in found:
            pod = self.pod_of(one.url)
            if pod == self._pod:
                own.append(one)
            elif self._is_to_be_sent(crawl, one):
                self.outbox.add(pod, crawl, one)
                sent += 1
            if one.purpose is Purpose.ROBOTS:
                self._note_errand(crawl, one, here=pod == self._pod)
        admission = self._admit_own(crawl, own)
        if len(own) == len(found):
            return admission
        known = admission.duplicates + len(found) - len(own) - sent
        return Admission(admission.new + sent, known, admission.expand)

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept here, and told to all."""
        super().scope_extended(crawl, url)
        self.outbox.add_scope(crawl, url)

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Kept in the origin's pod."""
        if self.owns(origin + "/"):
            super().robots_known(origin, record, crawl_delay_s)
            return
        self.outbox.add_robots(self.pod_of(origin + "/"), Told(origin, record, crawl_delay_s))
        self._journal.delete("meta", _ERRAND + origin)

    def receive(self, sender: int, number: int, body: bytes) -> Received | None:
        """Takes a message in; None if it was there before."""
        if number <= self.heard(sender):
            return None
        message = read_message(body)
        admissions = []
        for links in message.links:
            found = [Found(url, links.depth, links.parent, offsite=links.offsite) for url in links.urls]
            admissions.append((links.crawl, len(found), self._admit_own(links.crawl, found)))
        for errand in message.errands:
            one = errand.found()
            if one.purpose is Purpose.ROBOTS:
                self._note_errand(errand.crawl, one, here=True)
            count = 0 if one.purpose is Purpose.ROBOTS else 1
            admissions.append((errand.crawl, count, self._admit_own(errand.crawl, [one])))
        for crawl, url in message.scopes:
            super().scope_extended(crawl, url)
        for told in message.robots:
            super().robots_known(told.origin, told.record, told.crawl_delay_s)
        self._heard[sender] = number
        self._journal.put_meta("heard", self._heard)
        return Received(message.scopes, admissions)

    def commit(self) -> None:
        """Messages to others too."""
        self.outbox.flush()
        super().commit()
        self.outbox.committed()
        if self._committed != self._heard:
            self._committed = dict(self._heard)

    def sync(self) -> None:
        """Then what was received until the last commit need not be sent again."""
        committed = self._committed
        super().sync()
        self.durable = committed

    def stats(self) -> FrontierStats:
        """With the messages."""
        return msgspec.structs.replace(super().stats(), sent=self.outbox.sent, received=sum(self._heard.values()))

    def _admit_own(self, crawl: int, found: Sequence[Found]) -> Admission:
        if self._checks:
            for one in found:
                right = urls.pod_of(urls.domain_of(one.url), self._pods)
                if right != self._pod:
                    log.error("a URL went to the wrong pod", url=one.url, pod=self._pod, right=right)
        return super().admit(crawl, found)

    def _is_to_be_sent(self, crawl: int, one: Found) -> bool:
        """Not what was sent lately; where depth decides, a shorter way is news. Redirects count their hops."""
        if one.purpose is not Purpose.PAGE or one.hops:
            return True
        by_depth = self._queues.crawls[crawl].limits.max_depth is not None
        return self._sent_to(crawl).add(f"{one.depth} {one.url}" if by_depth else one.url)

    def _sent_to(self, crawl: int) -> Recent:
        if crawl not in self._recent:
            self._recent[crawl] = Recent()
        return self._recent[crawl]

    def _note_errand(self, crawl: int, one: Found, *, here: bool) -> None:
        """A robots.txt that another pod waits for is kept through a crash, by the pod that is asking for it."""
        if self.owns(one.about + "/"):
            return
        if here:
            self._journal.put_meta(_ERRAND + one.about, [crawl, one.url, one.depth, one.parent, one.hops])
        else:
            self._journal.delete("meta", _ERRAND + one.about)

    def _reject(self, lane: Lane, reason: Reason) -> None:
        """An errand that cannot be done is answered, since another pod waits."""
        errands = [item for _, _, item in lane.robots or () if not self.owns(item.about + "/")]
        super()._reject(lane, reason)
        for item in errands:
            record = RobotsRecord("unreachable", b"", self._wall() + UNREACHABLE_S, f"{reason} at {item.url}")
            self.robots_known(item.about, record, None)
