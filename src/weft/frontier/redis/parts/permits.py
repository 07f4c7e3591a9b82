"""How many pages crawls may have: of this pod, and in pod 0's database of each pod (lua/permits.lua)."""

from __future__ import annotations

from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.redis_status import read_stats

_NO_LIMIT = 1_000_000_000


class PodPermits:
    """See the contract; the last four methods are for pod 0."""

    def __init__(self, link: PodLink) -> None:
        self._link = link

    def allow(self, crawl: int, max_pages: int) -> None:
        """Sets how many pages the pod may have."""
        self._link.call_script("permits", ["set", crawl, max_pages])
        self._link.next_claim.allow_after(0.0)

    def left(self, crawl: int) -> int:
        """How many more pages of a crawl may be started in this pod."""
        for number, pages, _, most, flight, given in read_stats(self._link).crawls:
            bound = given if given >= 0 else most
            if number == crawl and bound >= 0:
                return bound - pages - flight
        return _NO_LIMIT

    def exhausted(self) -> bool:
        """Whether every crawl has reached the number of pages that it may have."""
        return all(
            most >= 0 and pages >= (given if given >= 0 else most)
            for _, pages, _, most, _, given in read_stats(self._link).crawls
        )

    def permit_counts(self, crawl: int) -> tuple[int, int, int]:
        """Pages stored, pages in flight, and how many this pod may have in all (-1: not set)."""
        for number, pages, _, _, flight, given in read_stats(self._link).crawls:
            if number == crawl:
                return pages, flight, given
        return 0, 0, -1

    def lower_permits(self, crawl: int, wanted: int) -> int:
        """Called before pod 0 lowers its record: gives up unused permits; returns what is left."""
        return int(self._link.call_script("permits", ["lower", crawl, wanted])[0])

    def give_permits(self, crawl: int, pod: int, wanted: int) -> int:
        """Grants a pod up to the wanted total of pages, and returns the total; may be repeated."""
        return int(self._link.call_script("permits", ["give", crawl, pod, wanted])[0])

    def limit_pages(self, crawl: int, max_pages: int) -> None:
        """From any node: sets how many pages all pods may have together."""
        self._link.run_command("HSET", f"c:{crawl}", "max", max_pages)

    def pods_with_permits(self, crawl: int) -> set[int]:
        """The pods that have an entry for permits, be it 0."""
        return {int(pod) for pod in self._link.run_command("HKEYS", f"permits:{crawl}")}

    def record_permits(self, crawl: int, pod: int, used: int) -> None:
        """Records what a pod has used, unless it has an entry already."""
        self._link.run_command("HSETNX", f"permits:{crawl}", pod, used)
