"""Messages to other pods: gathered in memory, one for each pod and commit, kept until the receiver acknowledges it.

Messages to a pod are numbered. They are written in the transaction that commits the page on which the links were found,
sent from then on, and deleted when the receiver has them on its disk; so a kill, here or there, loses none. The
receiver remembers the last number of each sender. A power cut may take the last second of a journal, and with it
numbers that were used; after one, numbers continue far beyond them. What was acknowledged no power cut can take: a
receiver that does not have it any more has lost its journal, and with it URLs that no other process has.

Besides URLs, messages carry scope extensions by a seed's redirect, and the robots.txt of an origin that was redirected
to another pod's host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from weft.frontier.contract import RobotsRecord
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.seen.seen_set import SeenSet
from weft.records import Found, Purpose

REMEMBERED_URLS = 500_000
NUMBERS_SKIPPED = 1_000_000  # more messages than are sent between two syncs


class LinkMessage(msgspec.Struct, array_like=True, frozen=True):
    """Plain links of one page."""

    crawl: int
    depth: int
    parent: int
    offsite: int
    urls: list[str]


class SpecialUrl(msgspec.Struct, array_like=True, frozen=True):
    """A URL that carries more than a link does: a redirect's target, a sitemap, a robots.txt, a spider's request."""

    crawl: int
    url: str
    depth: int
    parent: int
    hops: int
    purpose: Purpose
    about: str
    offsite: int
    priority: int = 0
    key: str = ""
    request: bytes = b""

    def found(self) -> Found:
        """In the form that `admit` expects."""
        return Found(
            self.url, self.depth, self.parent, self.hops, self.purpose, self.about, self.offsite, self.priority,
            self.key, self.request,
        )  # fmt: skip


class RobotsNotice(msgspec.Struct, array_like=True, frozen=True):
    """An origin's robots.txt, fetched by a pod that does not own the origin."""

    origin: str
    record: RobotsRecord
    crawl_delay_s: float | None


class PodMessage(msgspec.Struct, array_like=True):
    """Everything for one pod from one commit. Crawls are numbered as by the sender; `names` maps these numbers to
    names.
    """

    links: list[LinkMessage] = []
    special_urls: list[SpecialUrl] = []
    scopes: list[tuple[int, str]] = []
    robots: list[RobotsNotice] = []
    names: dict[int, str] = {}  # by the sender's number

    @property
    def crawl_name(self) -> str:
        """The crawl of the message; empty if it belongs to none."""
        return next(iter(self.names.values()), "")

    def add(self, crawl: int, one: Found) -> None:
        """Adds a URL; links of one page share a record."""
        if one.hops or one.about or one.purpose is not Purpose.PAGE or one.request or one.key or one.priority:
            self.special_urls.append(
                SpecialUrl(
                    crawl,
                    one.url,
                    one.depth,
                    one.parent,
                    one.hops,
                    one.purpose,
                    one.about,
                    one.offsite,
                    one.priority,
                    one.key,
                    one.request,
                )
            )
            return
        last = self.links[-1] if self.links else None
        facts = (crawl, one.depth, one.parent, one.offsite)
        if last is not None and (last.crawl, last.depth, last.parent, last.offsite) == facts:
            last.urls.append(one.url)
        else:
            self.links.append(LinkMessage(*facts, [one.url]))

    def found_urls(self) -> list[Found]:
        """Its URLs; plain links come last."""
        found_urls = [special.found() for special in self.special_urls]
        for links in self.links:
            found_urls += [Found(url, links.depth, links.parent, offsite=links.offsite) for url in links.urls]
        return found_urls


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(PodMessage)


def encode_message(message: PodMessage) -> bytes:
    """A message as bytes."""
    return _ENCODER.encode(message)


def read_message(body: bytes) -> PodMessage:
    """Decodes a message."""
    return _DECODER.decode(body)


class PodOutbox:
    """One pod's messages to all others."""

    def __init__(self, journal: FrontierJournal, others: Iterable[int], name_of: Callable[[int], str]) -> None:
        self._journal = journal
        self._crawl_name_of = name_of
        self._last_numbers = {pod: int(journal.meta(f"sent:{pod}") or 0) for pod in others}
        self._committed = dict(self._last_numbers)
        self._pending_messages: dict[int, PodMessage] = {}
        self._link_counts: dict[tuple[int, int], int] = {}  # URLs in each message of this process, by pod and number
        self._acknowledged_numbers = {pod: self._number_before_first(pod) for pod in self._last_numbers}
        self._safe_numbers = {
            pod: int(journal.meta(f"safe:{pod}") or 0) for pod in self._last_numbers
        }  # on the other pods' disks

    @property
    def unacknowledged_messages(self) -> int:
        """How many messages other pods have not acknowledged."""
        return sum(number - self._acknowledged_numbers[pod] for pod, number in self._last_numbers.items())

    @property
    def sent_messages(self) -> int:
        """The last numbers to all pods, added up."""
        return sum(self._last_numbers.values())

    def add_url(self, pod: int, crawl: int, one: Found) -> None:
        """Adds a URL for another pod."""
        self._message_for(pod, crawl).add(crawl, one)

    def add_links(self, pod: int, links: LinkMessage) -> None:
        """Adds links of one page for another pod."""
        self._message_for(pod, links.crawl).links.append(links)

    def add_scope(self, crawl: int, url: str) -> None:
        """Extends the scope in all pods from now on."""
        for pod in self._last_numbers:
            self._message_for(pod, crawl).scopes.append((crawl, url))

    def add_robots(self, pod: int, notice: RobotsNotice) -> None:
        """Sends a robots.txt to the origin's pod."""
        self._message_for(pod).robots.append(notice)

    def skip_used_numbers(self) -> None:
        """Skips the numbers that may have been used before a power cut; an empty message announces the new ones."""
        for pod in self._last_numbers:
            self._last_numbers[pod] += NUMBERS_SKIPPED
            self._acknowledged_numbers[pod] += NUMBERS_SKIPPED
            self._message_for(pod)

    def flush_messages(self) -> None:
        """Encodes the collected messages; the journal's next commit writes them."""
        for pod, message in self._pending_messages.items():
            number = self._last_numbers[pod] = self._last_numbers[pod] + 1
            self._link_counts[pod, number] = sum(len(links.urls) for links in message.links) + len(message.special_urls)
            self._journal.put("outbox", (pod, number), encode_message(message))
            self._journal.put_meta(f"sent:{pod}", number)
        self._pending_messages.clear()

    def note_commit(self) -> None:
        """Flushed messages are in the journal, and may be sent."""
        self._committed.update(self._last_numbers)

    def next_message(self, pod: int, after: int) -> tuple[int, bytes] | None:
        """The next message to a pod, with its number."""
        return self._journal.next_message(pod, after) if after < self._committed[pod] else None

    def links_in(self, pod: int, number: int) -> int:
        """How many URLs a message carries; 0 for one of an earlier process. Valid once."""
        return self._link_counts.pop((pod, number), 0)

    def acknowledge_message(self, pod: int, number: int) -> None:
        """A pod has everything up to this number on its disk."""
        self._journal.drop_messages(pod, number)
        self._acknowledged_numbers[pod] = max(self._acknowledged_numbers[pod], number)
        self._safe_numbers[pod] = max(self._safe_numbers[pod], number)
        self._journal.put_meta(f"safe:{pod}", self._safe_numbers[pod])

    def has_lost(self, pod: int, received: int) -> bool:
        """Whether a pod that has received messages up to this number once had more of them on its disk."""
        return received < self._safe_numbers[pod]

    def _number_before_first(self, pod: int) -> int:
        first = self._journal.next_message(pod, 0)
        return first[0] - 1 if first else self._last_numbers[pod]

    def _message_for(self, pod: int, crawl: int = 0) -> PodMessage:
        message = self._pending_messages.get(pod)
        if message is None:
            message = self._pending_messages[pod] = PodMessage([], [], [], [], {})
        if crawl and crawl not in message.names:
            message.names[crawl] = self._crawl_name_of(crawl)
        return message


class RecentlySentUrls:
    """The URLs that were sent recently: between half a million and a million of them."""

    def __init__(self, limit: int = REMEMBERED_URLS) -> None:
        self._limit = limit
        self._newer, self._older = SeenSet(1), SeenSet(1)

    def unknown(self, urls: Iterable[str]) -> list[str]:
        """The URLs that were not sent recently, in order."""
        new = self._newer.unknown(urls)
        return self._older.unknown(new) if new and len(self._older) else new

    def add(self, url: str) -> bool:
        """Records one; False if it was sent recently."""
        if url in self._older or not self._newer.add(url):
            return False
        if len(self._newer) >= self._limit:
            self._newer, self._older = SeenSet(1), self._newer
        return True
