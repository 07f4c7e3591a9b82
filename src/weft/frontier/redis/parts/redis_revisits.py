"""Known URLs of a pod on Redis that are queued once more. The position is noted in the call that queues them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from weft import urls
from weft.alive import Alive
from weft.frontier.contract import StoredUrls
from weft.frontier.durability.walk import URLS_PER_STEP, RevisitWalk
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.intake import PodIntake
from weft.frontier.redis.parts.redis_notes import RedisNotes
from weft.frontier.redis.parts.redis_sites import RedisSites
from weft.frontier.redis.parts.redis_status import read_stats
from weft.records import Found


class RedisRevisits:
    """See the contract."""

    def __init__(self, link: PodLink, intake: PodIntake, sites: RedisSites, notes: RedisNotes, alive: Alive) -> None:
        self._link = link
        self._intake = intake
        self._sites = sites
        self._notes = notes
        self._alive = alive

    def readmit(self, crawl: int, found_url: Found) -> None:
        """Queues a URL, seen or not, as a new visit under a new number."""
        self._sites.ask_robots_again(crawl, urls.origin_of(found_url.url))
        self._intake.admit_again(crawl, [found_url])

    def readmit_once(self, crawl: int, name: str, what: str, stored: StoredUrls) -> Iterator[None]:
        """Queues URLs once more, unless the note `name` says that these (`what`) are queued already."""
        walk = RevisitWalk.parse_note(self._notes.note(name), what, continues=False)
        if not walk.is_over:
            yield from self._readmit_all(crawl, name, walk, stored)

    def walk(self, crawl: int, name: str, run: str, stored: StoredUrls, begin: Callable[[int], None]) -> Iterator[None]:
        """Queues known URLs again, once for each run; `begin` is called with the last item before. An interrupted walk
        of any run is continued.
        """
        note = self._notes.note(name)
        walk = RevisitWalk.parse_note(note, run, continues=True)
        if walk.is_over:
            return
        if not walk.after and note != walk.note_at(0):
            begin(self._link.item_of_number(read_stats(self._link).counters[5]))
            self._notes.note(name, walk.note_at(0))
        yield from self._readmit_all(crawl, name, walk, stored)

    def _readmit_all(self, crawl: int, name: str, walk: RevisitWalk, stored: StoredUrls) -> Iterator[None]:
        """Queues them in steps, each with its position: a kill costs one step."""
        left = iter(stored(walk.after))
        while some := list(islice(left, URLS_PER_STEP)):
            again = [found_url for _, found_url in some if found_url is not None]
            for origin in dict.fromkeys(urls.origin_of(found_url.url) for found_url in again):
                self._sites.ask_robots_again(crawl, origin)
            self._intake.admit_again(crawl, again, (name, walk.note_at(some[-1][0])))
            self._alive()
            yield
        self._notes.note(name, walk.what)
