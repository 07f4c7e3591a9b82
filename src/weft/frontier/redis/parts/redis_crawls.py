"""The crawls of a pod on Redis: opened, changed, paused. Keys: lua/common.lua; why: decision 0019.

A crawl is known by its name, and has a number in this pod that is never used twice. Its settings lie in Redis: a change
applies to all processes from their next script on. Nothing of a crawl is deleted while the database is in use: a crawl
of pods is the only one in its databases, and `fresh=True` empties them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits
from weft.frontier.redis import bloom
from weft.frontier.redis.link import CrawlFacts, PodLink, section_text
from weft.frontier.requests import RequestLog

_SITES_PER_CALL = 500  # sites per call of a script
_WAITING_QUEUES = ("unknown", "slow", "due")  # of waiting sites, by their responsiveness


class RedisCrawls:
    """See the contract."""

    def __init__(self, link: PodLink, requests: RequestLog, bloom_filter: tuple[int, float] | None) -> None:
        self._link = link
        self._requests = requests
        self._bloom = bloom_filter
        self.by_name: dict[str, int] = {}
        self.shortest_delay_s = 0.0  # the shortest time after which a crawl may ask again, as far as this process knows

    def open_crawl(
        self, name: str, limits: CrawlLimits, section: PolitenessSection | None = None, weight: float = 1.0
    ) -> int:
        """The number of the crawl of that name, created where there is none; these settings replace its earlier ones.

        Without a `section` it is as polite as the process that claims.
        """
        wanted = ""
        if self._bloom is not None:
            wanted = bloom.filter_shape(self._link.client, self._link.where, *self._bloom)
        return self._write_crawl(name, "", limits, section, weight, wanted)

    def change_crawl(self, crawl: int, limits: CrawlLimits, section: PolitenessSection, weight: float) -> None:
        """Applies other settings to a crawl, in all processes."""
        self._write_crawl("", crawl, limits, section, weight)

    def follow(self, crawl: int, revision: int, trust: str = "") -> None:
        """See the contract. The log records it before the settings change, which happens for all processes at once."""
        self._requests.log_crawl(self._link.now(), crawl, revision, trust)
        self._requests.flush()

    def pause(self, crawl: int, paused: bool = True) -> None:
        """Pauses or continues a crawl."""
        self._link.call_script("pause", [crawl, int(paused)])
        self._link.next_claim.allow_after(0.0)

    def _write_crawl(
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
        crawl, seed, kind, known_as, moving, has_depths = self._link.call_script(
            "crawl",
            [
                name, number, random.getrandbits(63), *("" if bound is None else bound for bound in bounds), polite,
                repr(weight), filter_wanted,
            ],
        )  # fmt: skip
        if crawl < 0:
            raise BadInput("max_depth can be changed, but not added to a crawl that has begun without one")
        if not crawl:
            raise KeyError(number)
        facts = CrawlFacts(int(crawl), int(seed), limits, (kind or b"").decode(), known_as.decode(), section)
        facts.has_depths = bool(has_depths)
        self._register_crawl(facts)
        if moving:
            self._reschedule_sites(facts.number)
        self._link.next_claim.allow_after(0.0)
        return facts.number

    def _register_crawl(self, crawl: CrawlFacts) -> None:
        existing = self._link.crawls.get(crawl.number)
        if existing is not None:
            existing.limits, existing.section = crawl.limits, crawl.section
            existing.has_depths = crawl.has_depths
        else:
            self._link.crawls[crawl.number] = crawl
            self.by_name[crawl.name] = crawl.number
            if crawl.bloom == "server" and self._bloom is not None:
                bloom.reserve_filter(self._link.client, self._link.where, crawl.number, *self._bloom)
        section = crawl.section or self._link.section
        delay_s = section.delay_s if section.places == 1 else 0.0
        self.shortest_delay_s = delay_s if len(self._link.crawls) == 1 else min(self.shortest_delay_s, delay_s)

    def _reschedule_sites(self, crawl: int) -> None:
        """Reschedules all sites after a change of the delay; if a kill interrupts it, the next process that opens the
        crawl does it.
        """
        for sites in sites_of(self._link, crawl):
            self._link.call_script("schedule", [crawl, *sites])
        self._link.call_script("schedule", [crawl])


def sites_of(link: PodLink, crawl: int) -> Iterator[list[bytes]]:
    """All sites of a crawl. A site that changes its queue meanwhile may come twice: the queues are read in the
    direction in which a responsive site moves, and then in the other direction.
    """
    for line in (*_WAITING_QUEUES, *reversed(_WAITING_QUEUES[:-1])):
        cursor: Any = 0
        while True:
            cursor, sites = link.run_command("ZSCAN", f"{line}:{crawl}", cursor, "COUNT", _SITES_PER_CALL)
            if sites:
                yield [site for site, _ in sites]
            if not int(cursor):
                break
