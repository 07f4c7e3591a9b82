"""Known URLs that an embedded frontier queues once more. How far it has come is in the transaction that queues them."""

from __future__ import annotations

from collections.abc import Callable

from weft.frontier.contract import Stored
from weft.frontier.embedded.durability import EmbeddedDurability
from weft.frontier.embedded.known_sites import EmbeddedSites
from weft.frontier.embedded.queue import EmbeddedQueue
from weft.frontier.embedded.resources import Resources
from weft.frontier.walk import STEP, Walk, is_cut_off
from weft.records import Found


class EmbeddedRevisits:
    """See the contract."""

    def __init__(
        self, base: Resources, queue: EmbeddedQueue, sites: EmbeddedSites, durability: EmbeddedDurability
    ) -> None:
        self._base = base
        self._journal = base.journal
        self._queue = queue
        self._sites = sites
        self._durability = durability

    def readmit(self, crawl: int, found: Found) -> None:
        """Queues a URL, seen or not, as a new visit under a new number."""
        self._sites.ask_robots_again(crawl, found.url[: found.url.index("/", 8)])
        owner = self._base.queues.crawls[crawl]
        owner.seen.add(found.url)
        self._base.queues.enqueue(owner, found, self._queue.numbered(owner, found))

    def readmit_once(self, crawl: int, name: str, what: str, stored: Stored, *, continues: bool = False) -> None:
        """Queues URLs once more, those of which the note `name` does not say that they (`what`) are already."""
        note = f"note:{name}"
        walk = Walk.of(self._journal.meta(note) or "", what, continues=continues)
        if not walk.is_over:
            self._readmit_all(crawl, note, walk, stored)

    def recrawl(self, crawl: int, run: str, known: Stored, begin: Callable[[int], None]) -> None:
        """Queues known pages again, once for each run."""
        name = f"recrawl:{crawl}"
        walk = Walk.of(self._journal.meta(name), run, continues=True)
        if walk.is_over:
            return
        if not walk.after:
            self._durability.commit()
            begin(self._base.counts.next_item - 1)
        self._readmit_all(crawl, name, walk, known)

    def is_recrawled(self, crawl: int) -> bool:
        """Whether known pages of this crawl are being visited again."""
        return self._journal.meta(f"recrawl:{crawl}") is not None

    def is_recrawl_cut_off(self, crawl: int) -> bool:
        """Whether some known pages were queued again, and others not yet."""
        return is_cut_off(self._journal.meta(f"recrawl:{crawl}"))

    def _readmit_all(self, crawl: int, name: str, walk: Walk, stored: Stored) -> None:
        """In steps, each with its place in the journal's meta: a kill costs one step."""
        for number, (item, found) in enumerate(stored(walk.after), 1):
            self.readmit(crawl, found)
            if number % STEP == 0:
                self._journal.put_meta(name, walk.at(item))
                self._durability.commit()
                self._base.alive()
        self._journal.put_meta(name, walk.what)
        self._durability.commit()
