"""Known URLs of a pod on Redis that are queued once more. How far that has come is noted in the call that queues."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from weft import urls
from weft.alive import Alive
from weft.frontier.contract import Stored
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.intake import PodIntake
from weft.frontier.redis.parts.notes import RedisNotes
from weft.frontier.redis.parts.sites import RedisSites
from weft.frontier.redis.parts.status import figures
from weft.frontier.walk import STEP, Walk, is_cut_off
from weft.records import Found


class RedisRevisits:
    """See the contract."""

    def __init__(self, link: PodLink, intake: PodIntake, sites: RedisSites, notes: RedisNotes, alive: Alive) -> None:
        self._link = link
        self._intake = intake
        self._sites = sites
        self._notes = notes
        self._alive = alive

    def readmit(self, crawl: int, found: Found) -> None:
        """Queues a URL, seen or not, as a new visit under a new number."""
        self._sites.ask_robots_again(crawl, urls.origin_of(found.url))
        self._intake.admit_again(crawl, [found])

    def readmit_once(self, crawl: int, name: str, what: str, stored: Stored, *, continues: bool = False) -> None:
        """Queues URLs once more, those of which the note `name` does not say that they (`what`) are already."""
        walk = Walk.of(self._notes.note(name), what, continues=continues)
        if not walk.is_over:
            self._readmit_all(crawl, name, walk, stored)

    def recrawl(self, crawl: int, run: str, known: Stored, begin: Callable[[int], None]) -> None:
        """Queues known pages again, once for each run; `begin` is called with the last item before. One that was cut
        off, in whichever run, continues where it was."""
        name = f"recrawl:{crawl}"
        note = self._notes.note(name)
        walk = Walk.of(note, run, continues=True)
        if walk.is_over:
            return
        if not walk.after and note != walk.at(0):
            begin(self._link.item(figures(self._link).counters[5]))
            self._notes.note(name, walk.at(0))
        self._readmit_all(crawl, name, walk, known)

    def is_recrawled(self, crawl: int) -> bool:
        """Whether known pages of this crawl are being visited again."""
        return bool(self._notes.note(f"recrawl:{crawl}"))

    def is_recrawl_cut_off(self, crawl: int) -> bool:
        """Whether some known pages were queued again, and others not yet."""
        return is_cut_off(self._notes.note(f"recrawl:{crawl}"))

    def _readmit_all(self, crawl: int, name: str, walk: Walk, stored: Stored) -> None:
        """In steps, each with its place: a kill costs one step."""
        left = iter(stored(walk.after))
        while some := list(islice(left, STEP)):
            for _, found in some:
                self._sites.ask_robots_again(crawl, urls.origin_of(found.url))
            self._intake.admit_again(crawl, [found for _, found in some], (name, walk.at(some[-1][0])))
            self._alive()
        self._notes.note(name, walk.what)
