"""Known URLs that an embedded frontier queues once more. The position is written in the transaction that queues
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.frontier.contract import StoredUrls
from weft.frontier.durability.walk import URLS_PER_STEP, RevisitWalk
from weft.frontier.embedded.durability import EmbeddedDurability
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.queue import EmbeddedQueue
from weft.frontier.embedded.resources import FrontierResources
from weft.frontier.seen.seen_set import seen_key
from weft.records import Found

_QUEUED_AT_ONCE = 50  # queued without checking whether the crawl has other work


class EmbeddedRevisits:
    """See the contract."""

    def __init__(
        self, base: FrontierResources, queue: EmbeddedQueue, sites: EmbeddedSites, durability: EmbeddedDurability
    ) -> None:
        self._base = base
        self._journal = base.journal
        self._queue = queue
        self._sites = sites
        self._durability = durability

    def readmit(self, crawl: int, found_url: Found) -> None:
        """Queues a URL, seen or not, as a new visit under a new number."""
        self._sites.ask_robots_again(crawl, found_url.url[: found_url.url.index("/", 8)])
        owner = self._base.queues.crawls[crawl]
        if not owner.seen.add(found_url.url):
            owner.seen.note_new_line(found_url.url)
        self._base.queues.enqueue(owner, found_url, self._queue.number_new_item(owner, found_url))

    @property
    def last_number(self) -> int:
        """The last item number that was used."""
        return self._base.counts.next_item - 1

    def number_again(self, crawl: int, found_url: Found) -> int:
        """A new number for a stored page that is read again, without a request. `found` has a key of its own.

        The commit that writes the number down writes its end, too: a crash before the page's row never queues it.
        """
        owner = self._base.queues.crawls[crawl]
        owner.seen.add(seen_key(found_url))
        item = self._queue.number_new_item(owner, found_url)
        self._base.counts.finished += 1
        self._journal.done[crawl].append(item)
        return item

    def readmit_once(self, crawl: int, name: str, what: str, stored: StoredUrls) -> Iterator[None]:
        """Queues URLs once more, unless the note `name` says that these (`what`) are queued already."""
        note = f"note:{name}"
        walk = RevisitWalk.parse_note(self._journal.meta(note) or "", what, continues=False)
        if not walk.is_over:
            yield from self._readmit_all(crawl, note, walk, stored)

    def walk(self, crawl: int, name: str, run: str, stored: StoredUrls, begin: Callable[[int], None]) -> Iterator[None]:
        """Queues known URLs again, once for each run."""
        note = f"note:{name}"
        walk = RevisitWalk.parse_note(self._journal.meta(note), run, continues=True)
        if walk.is_over:
            return
        if not walk.after:
            self._durability.commit()
            begin(self._base.counts.next_item - 1)
            self._journal.put_meta(note, walk.note_at(0))
        yield from self._readmit_all(crawl, note, walk, stored)

    def _readmit_all(self, crawl: int, note: str, walk: RevisitWalk, stored: StoredUrls) -> Iterator[None]:
        """Queues them in steps, each committed with its position in the journal's meta table: a kill costs one step."""
        for number, (item, found_url) in enumerate(stored(walk.after), 1):
            if found_url is not None:
                self.readmit(crawl, found_url)
            self._journal.put_meta(
                note, walk.note_at(item)
            )  # at each: URLs queued before an error are not queued again
            if number % URLS_PER_STEP == 0:
                self._durability.commit()
                self._base.alive()
            if number % _QUEUED_AT_ONCE == 0:
                yield
        self._journal.put_meta(note, walk.what)
        self._durability.commit()
