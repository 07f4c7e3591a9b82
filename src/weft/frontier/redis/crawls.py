"""The crawls of a pod on Redis: opened, changed, paused, ended, forgotten. Keys: lua/common.lua; why: decision 0019.

A crawl is known by its name, and has a number in this pod that is never used twice. Its settings lie in Redis: a change
is in force for all processes with their next script. Ending it is one step (`close_crawl`), which the next process of
this slot undoes unless `closed` was called; what is left of it is deleted in pieces.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.contract import CAUSES, CrawlLimits, CrawlStanding, Waiting
from weft.frontier.redis import bloom
from weft.frontier.redis.client import CrawlFacts, PodClient, section_text
from weft.frontier.redis.lead import Lead
from weft.frontier.redis.scripts import Argument

_SITES = 500  # that one script is about
_LINES = ("unknown", "slow", "due")  # of sites that wait, by what they have shown
_PURGED = 500  # keys of ended crawls that the lead deletes at a time


class RedisCrawls(PodClient):
    """What a pod's own processes do with whole crawls."""

    _slot: str
    _bloom: tuple[int, float] | None = None
    _lead: Lead
    _by_name: dict[str, int]
    _shortest_delay_s = 0.0  # after which a crawl may ask again, as far as this process knows

    def open_crawl(
        self, name: str, limits: CrawlLimits, section: PolitenessSection | None = None, weight: float = 1.0
    ) -> int:
        """The number of the crawl of that name, created where there is none; these settings replace its earlier ones.

        Without a `section` it is as polite as the process that claims.
        """
        wanted = ""
        if self._bloom is not None:
            wanted = bloom.shape(self._client, self._where, *self._bloom)
        return self._set_crawl(name, "", limits, section, weight, wanted)

    def reopen_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Brings back one of `kept_crawls`."""
        self._set_crawl("", crawl, limits, section, weight)

    def change_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Holds a crawl to other settings from now on, in all processes."""
        self._set_crawl("", crawl, limits, section, weight)

    def _set_crawl(
        self,
        name: str,
        number: int | str,
        limits: CrawlLimits,
        section: PolitenessSection | None,
        weight: float,
        filter_wanted: str = "",
    ) -> int:
        bounds = [
            limits.max_pages, limits.max_pages_per_domain, limits.max_depth, limits.in_flight, limits.max_sitemaps,
        ]  # fmt: skip
        polite = "" if section is None else section_text(section)
        found, seed, kind, known_as, moving, has_depths = self._call(
            "crawl",
            [
                name, number, random.getrandbits(63), *("" if bound is None else bound for bound in bounds), polite,
                repr(weight), filter_wanted,
            ],
        )  # fmt: skip
        if found < 0:
            raise BadInput("max_depth can be changed, but not added to a crawl that has begun without one")
        if not found:
            raise KeyError(number)
        facts = CrawlFacts(int(found), int(seed), limits, (kind or b"").decode(), known_as.decode(), section)
        facts.has_depths = bool(has_depths)
        self._learn(facts)
        if moving:
            self._schedule_anew(int(found))
        self._due_after(0.0)
        return int(found)

    def _learn(self, crawl: CrawlFacts) -> None:
        existing = self._crawls.get(crawl.number)
        if existing is not None:
            existing.limits, existing.section = crawl.limits, crawl.section
            existing.has_depths = crawl.has_depths
        else:
            self._crawls[crawl.number] = crawl
            self._by_name[crawl.name] = crawl.number
            if crawl.bloom == "server" and self._bloom is not None:
                bloom.reserve(self._client, self._where, crawl.number, *self._bloom)
        section = crawl.section or self._section
        delay_s = section.delay_s if section.places == 1 else 0.0
        self._shortest_delay_s = delay_s if len(self._crawls) == 1 else min(self._shortest_delay_s, delay_s)

    def _schedule_anew(self, crawl: int) -> None:
        """After a change of the delay; where a kill interrupts it, the next process that opens the crawl does it."""
        for sites in self._sites_of(crawl):
            self._call("schedule", [crawl, *sites])
        self._call("schedule", [crawl])

    def _sites_of(self, crawl: int) -> Iterator[list[bytes]]:
        """All of them, and one that moves to another line meanwhile perhaps twice: they are read in the direction in
        which a site that answers moves, and then the other way."""
        for line in (*_LINES, *reversed(_LINES[:-1])):
            cursor: Any = 0
            while True:
                cursor, found = self._ask("ZSCAN", f"{line}:{crawl}", cursor, "COUNT", _SITES)
                if found:
                    yield [site for site, _ in found]
                if not int(cursor):
                    break

    def kept_crawls(self) -> list[int]:
        """Every crawl that is kept, opened here or not. Two may have one name: a kill came before one was `closed`."""
        return sorted(int(number) for number in self._ask("HKEYS", "numbers"))

    def close_crawl(self, crawl: int) -> None:
        """Ends a crawl: what is queued of it, and what it has seen, is dropped in one step, and its name is free.

        After a kill of this process it is there again as it was, until `closed` is committed.
        """
        self._call("close", [crawl, self._slot])
        facts = self._crawls.pop(crawl, None)
        if facts is not None and self._by_name.get(facts.name) == crawl:
            del self._by_name[facts.name]

    def closed(self, crawl: int) -> None:
        """Its owner knows, for good, that a crawl has ended: it does not come back after the next commit."""
        self._scripts.later("close", lambda: [crawl, ""])

    def forget_crawl(self, crawl: int, at_most: int = 200) -> bool:
        """Deletes a part of what is kept of a closed crawl; True when nothing is left of it."""
        done, segments = self._call("forget", [crawl, at_most])
        self._lead.discard(segments)
        return bool(done)

    def purge(self) -> None:
        """For the pod's lead: deletes a part of what has ended, so that it takes no memory where nobody forgets it."""
        for crawl in self._ask("SRANDMEMBER", "over", 1):
            self.forget_crawl(int(crawl), _PURGED)

    def crawl_standing(self, crawl: int) -> CrawlStanding:
        """Where one crawl stands, from what is counted."""
        is_open, *figures = self._call("standing", [crawl])
        if not is_open:
            raise KeyError(crawl)
        return CrawlStanding(*figures)

    def waits_for(self, crawl: int) -> Waiting | None:
        """What a crawl waits for that has URLs queued; None while it does not."""
        cause, about, until = self._call("waiting", [crawl])
        if not cause:
            return None
        return Waiting(CAUSES[cause.decode()].format(about.decode()), self._local(int(until)) if until else None)

    def has_work(self, crawl: int) -> bool:
        """Whether something that is queued of a crawl may still be claimed; a look at all its sites."""
        if not self.crawl_standing(crawl).queued:
            return False
        if self._crawls[crawl].limits.max_pages_per_domain is None:
            return True
        return any(self._call("work", [crawl, *sites])[0] for sites in self._sites_of(crawl))

    def pause(self, crawl: int, paused: bool = True) -> None:
        """Nothing of a paused crawl is claimed."""
        self._call("pause", [crawl, int(paused)])
        self._due_after(0.0)

    def drop(self, crawl: int) -> None:
        """Rejects everything that is queued for a crawl: a row for each. Whether it is paused does not change."""
        for sites in self._sites_of(crawl):
            self._call("drop", [crawl, *sites])

    def _queue_again(self, crawl: int, items: Iterable[int]) -> int:
        """Items that were set aside come back; how many."""
        arguments: list[Argument] = ["back", crawl, *(self._number(item) for item in items)]
        back = int(self._call("aside", arguments)[0]) if len(arguments) > 2 else 0
        if back:
            self._due_after(0.0)
        return back
