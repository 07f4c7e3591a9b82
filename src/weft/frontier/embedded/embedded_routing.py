"""An embedded pod among several: URLs of other pods go into the outbox, its own into its queue.

A URL of another pod counts as admitted here once it is in the outbox; whether it is new is for its pod to say. Recently
sent URLs are not sent again.

A crawl is opened in every pod before one of them gets its seeds: a message about a crawl that is not open here is late,
and its crawl has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from weft import urls
from weft.frontier.contract import Admission, PageLinks
from weft.frontier.embedded.crawls import EmbeddedCrawls
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.notes import EmbeddedNotes
from weft.frontier.embedded.pods import PodExchange
from weft.frontier.embedded.queue import EmbeddedQueue
from weft.frontier.outbox import LinkMessage, PodMessage, read_message
from weft.frontier.seen.seen_set import seen_key
from weft.records import Found, Purpose


class RoutedQueue(EmbeddedQueue):
    """The queue of a pod among several: this pod's URLs are queued, those of others go into the outbox."""

    def unseen(self, crawl: int, candidates: Iterable[str]) -> list[str]:
        """This pod's URLs that are not in its seen set, and other pods' URLs that were not sent recently."""
        own: list[str] = []
        others: list[str] = []
        by_origin, here = self._pods.by_origin, self._pods.pod
        for url in candidates:
            pod = by_origin.get(url[: url.index("/", 8)])
            if pod is None:
                pod = self._pods.pod_of(url)
            (own if pod == here else others).append(url)
        new = super().unseen(crawl, own)
        return new + self._pods.sent_lately(crawl).unknown(others) if others else new

    def admit(self, crawl: int, found_urls: Sequence[Found]) -> Admission:
        """Queues this pod's new URLs; puts those of other pods into the outbox."""
        pods, own, sent = self._pods, list[Found](), 0
        for one in found_urls:
            pod = pods.pod_of(one.url)
            if pod == pods.pod:
                own.append(one)
            elif self._must_send(crawl, one):
                pods.outbox.add_url(pod, crawl, one)
                sent += 1
            if one.purpose is Purpose.ROBOTS:
                pods.note_robots(crawl, one, here=pod == pods.pod)
        pods.check_ownership(one.url for one in own)
        admission = super().admit(crawl, own)
        if len(own) == len(found_urls):
            return admission
        known = admission.duplicates + len(found_urls) - len(own) - sent
        return Admission(admission.new + sent, known, admission.expand)

    def admit_links(self, crawl: int, links: Sequence[PageLinks]) -> Admission:
        """Queues or sends the links of pages."""
        pods, own, elsewhere, sent = self._pods, list[PageLinks](), 0, 0
        for some in links:
            pod = pods.pod_of(some.origin + "/")
            if pod == pods.pod:
                own.append(some)
                continue
            elsewhere += len(some.urls)
            if going := self._links_to_send(crawl, some):
                pods.outbox.add_links(pod, LinkMessage(crawl, some.depth, some.parent, some.offsite, going))
                sent += len(going)
        pods.check_ownership(url for some in own for url in some.urls)
        admission = super().admit_links(crawl, own)
        return Admission(admission.new + sent, admission.duplicates + elsewhere - sent, admission.expand)

    def _links_to_send(self, crawl: int, links: PageLinks) -> list[str]:
        """Those of a page's links to another pod that were not sent recently, or not at such a depth."""
        recent = self._pods.sent_lately(crawl)
        if self._queues.crawls[crawl].limits.max_depth is not None:
            return [url for url in links.urls if recent.add(f"{links.depth} {url}")]
        return [url for url in links.urls if recent.add(url)]

    def _must_send(self, crawl: int, one: Found) -> bool:
        """Whether a URL must be sent: not if it was recently, unless it was found at a smaller depth that may matter.

        Redirect targets are always sent: their hop count differs each time.
        """
        if one.purpose is not Purpose.PAGE or one.hops:
            return True
        by_depth = self._queues.crawls[crawl].limits.max_depth is not None and not one.key
        known = seen_key(one)
        return self._pods.sent_lately(crawl).add(f"{one.depth} {known}" if by_depth else known)


class ReceivedEffects(msgspec.Struct, frozen=True):
    """The effects of a message that the engine must handle."""

    scopes: list[tuple[int, str]]
    admissions: list[tuple[int, int, Admission]]  # crawl, URLs, and the result of their admission


class PodInbox:
    """Applies the messages of other pods."""

    def __init__(
        self,
        pods: PodExchange,
        queue: EmbeddedQueue,
        crawls: EmbeddedCrawls,
        notes: EmbeddedNotes,
        sites: EmbeddedSites,
    ) -> None:
        self._pods = pods
        self._queue = queue
        self._crawls = crawls
        self._notes = notes
        self._sites = sites

    def receive(self, sender: int, number: int, body: bytes) -> ReceivedEffects | None:
        """Applies a message; None if it was applied before."""
        if number <= self._pods.last_message_from(sender):
            return None
        message = read_message(body)
        admissions = []
        for links in message.links:
            if (crawl := self._own_crawl_number(message, links.crawl)) is not None:
                groups = [
                    PageLinks(start[:-1], there, links.depth, links.parent, links.offsite)
                    for start, there in urls.by_origin(links.urls).items()
                ]
                self._pods.check_ownership(links.urls)
                admissions.append((crawl, len(links.urls), EmbeddedQueue.admit_links(self._queue, crawl, groups)))
        for special in message.special_urls:
            if (crawl := self._own_crawl_number(message, special.crawl)) is None:
                continue
            one = special.found()
            if one.purpose is Purpose.ROBOTS:
                self._pods.note_robots(crawl, one, here=True)
            self._pods.check_ownership([one.url])
            count = 0 if one.purpose is Purpose.ROBOTS else 1
            admissions.append((crawl, count, EmbeddedQueue.admit(self._queue, crawl, [one])))
        named = ((self._own_crawl_number(message, crawl), url) for crawl, url in message.scopes)
        scopes = [(crawl, url) for crawl, url in named if crawl is not None]
        for crawl, url in scopes:
            self._notes.extend_here(crawl, url)
        for notice in message.robots:
            self._sites.learn_robots(notice.origin, notice.record, notice.crawl_delay_s)
        self._pods.record_received(sender, number)
        return ReceivedEffects(scopes, admissions)

    def _own_crawl_number(self, message: PodMessage, crawl: int) -> int | None:
        """This pod's number of a crawl that the sender numbers differently; None if it is not open any more."""
        return self._crawls.open_number(message.names[crawl])
