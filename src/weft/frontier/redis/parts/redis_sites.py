"""Facts about the sites of a pod on Redis: robots.txt, cookies, politeness keys.

A lease names the newest versions of its site's robots.txt and cookies, so a process reads them only after a change by
another process.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from weft.frontier.contract import RobotsRecord
from weft.frontier.redis.link import PodLink
from weft.frontier.redis.parts.address_slots import AddressSlots
from weft.frontier.redis.parts.held import HeldLeases
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.redis.scripts import ScriptArgument
from weft.frontier.requests import RequestLog
from weft.records import Lease, Purpose, RenderedPart

_KEPT_IN_MEMORY = 20_000  # robots.txt files, and copies of cookies
SendRobots = Callable[[str, RobotsRecord, float | None], bool]


class RedisSites:
    """See the contract."""

    def __init__(
        self,
        link: PodLink,
        held: HeldLeases,
        shelf: SharedRecords,
        requests: RequestLog,
        places: AddressSlots | None,
        wall: Callable[[], float],
        elsewhere: SendRobots | None = None,
    ) -> None:
        """`elsewhere` sends a robots.txt to the pod of its origin; False: that is this pod."""
        self._link = link
        self._held = held
        self._shared_records = shelf
        self._requests = requests
        self._address_slots = places
        self._wall = wall
        self._send_robots = elsewhere
        self._robots: dict[str, tuple[int, RobotsRecord]] = {}
        self._robots_versions: dict[str, int] = {}
        self._cookies: dict[tuple[int, str], tuple[int, bytes]] = {}
        self._cookie_versions: dict[tuple[int, str], int] = {}

    def key_of(self, url: str) -> str:
        """The politeness key of a URL."""
        return self._link.key_of(url)

    def note_versions(self, lease: Lease, robots: int, cookies: int) -> None:
        """Records the newest versions of what a claimed lease needs."""
        if lease.purpose is not Purpose.ROBOTS:
            self._robots_versions[lease.url[: lease.url.index("/", 8)]] = robots
        if cookies > 0:
            self._cookie_versions[lease.crawl, lease.key] = cookies

    def robots(self, origin: str) -> RobotsRecord | None:
        """From memory, or from the disk if the last claim named a newer version."""
        known = self._robots.get(origin)
        wanted = self._robots_versions.get(origin, 0)
        if known is None or known[0] < wanted:
            read = self._shared_records.robots(origin)
            if read is None or read[0] < wanted:
                return None
            known = self._remember_robots(origin, *read)
        return known[1]

    def robots_known(self, origin: str, record: RobotsRecord, crawl_delay_s: float | None) -> None:
        """Records an origin's robots.txt in its pod; its Crawl-delay raises the site's delay."""
        if self._send_robots is not None and self._send_robots(origin, record, crawl_delay_s):
            return
        version = self._shared_records.save_robots(origin, record, self._wall(), self._requests.deleted_until)
        self._requests.log_robots(self._link.now(), origin, record)
        self._remember_robots(origin, version, record)
        key, code = self._link.keys.key_and_code(origin)
        delay = int((crawl_delay_s or 0.0) * 1e6)
        if self._address_slots is not None:
            self._address_slots.record_crawl_delay(origin, crawl_delay_s or 0.0)
        self._link.scripts.defer(
            "robots", lambda: [key, code, int((record.expires - self._wall()) * 1e6), delay, version]
        )
        self._link.next_claim.allow_after(0.0)

    def ask_robots_again(self, _crawl: int, origin: str) -> None:
        """A robots.txt that could not be fetched is fetched once more, for all crawls of the pod."""
        record = self.robots(origin)
        if record is not None and record.status in ("unreachable", "address"):
            self.forget_robots(origin)

    def forget_robots(self, origin: str) -> None:
        """Forgets a robots.txt: it is fetched before the next page of its origin."""
        key, code = self._link.keys.key_and_code(origin)
        self._link.scripts.defer("robots", lambda: [key, code, "-", 0, 0])

    def held(self, crawl: int, url: str) -> str:
        """Judged by this pod's state; the site of another pod is never held here."""
        key, code = self._link.keys.key_and_code(url[: url.index("/", 8)])
        (why,) = self._link.scripts.call("held", [key, code, crawl])
        return bytes(why).decode()

    def asked(self, crawl: int, parts: Sequence[RenderedPart]) -> None:
        """Deferred like `cool`."""
        last: dict[str, float] = {}
        for part in parts:
            key = self.key_of(part.url)
            self._requests.log_part(crawl, key, part, self._link.now())
            last[key] = max(part.ended, last.get(key, part.ended))
        for key, at in last.items():
            self._link.scripts.defer("asked", partial(self._age_arguments, key, at))

    def _age_arguments(self, key: str, at: float) -> list[ScriptArgument]:
        return [key, int(max(0.0, self._link.now() - at) * 1e6)]

    def cookies_of(self, lease: Lease) -> tuple[int, bytes] | None:
        """The cookies last kept for this lease's site by any process, with their version."""
        site = (lease.crawl, lease.key)
        wanted = self._cookie_versions.get(site)
        if wanted is None:
            return None
        known = self._cookies.get(site)
        if known is None or known[0] != wanted:
            stored: Any = self._link.run_command("GET", f"C:{lease.crawl}:{lease.key}")
            if stored is None:
                return None
            number, _, data = stored.partition(b" ")
            known = self._remember_cookies(site, int(number), data)
        return known

    def keep_cookies(self, crawl: int, key: str, data: bytes) -> int:
        """Saves a site's cookies; other processes get them with their next lease there. Returns their version."""
        number = random.getrandbits(48) | 1
        self._link.scripts.defer("cookies", lambda: [crawl, key, number, data])
        self._remember_cookies((crawl, key), number, data)
        return number

    def _remember_robots(self, origin: str, version: int, record: RobotsRecord) -> tuple[int, RobotsRecord]:
        if len(self._robots) > _KEPT_IN_MEMORY:
            self._robots.clear()
            self._robots_versions.clear()
        entry = self._robots[origin] = (version, record)
        return entry

    def _remember_cookies(self, site: tuple[int, str], version: int, data: bytes) -> tuple[int, bytes]:
        if len(self._cookies) > _KEPT_IN_MEMORY:
            self._cookies.clear()
            leased = {(held.lease.crawl, held.lease.key) for held in self._held.by_item.values()}
            self._cookie_versions = {one: wanted for one, wanted in self._cookie_versions.items() if one in leased}
        self._cookie_versions[site] = version
        entry = self._cookies[site] = (version, data)
        return entry
