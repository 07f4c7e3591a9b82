"""A pod as processes of all pods use it: admits URLs, reads notes and statistics, manages permits and ownership."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.errors import Busy, ServerAway
from weft.frontier.contract import CrawlLimits
from weft.frontier.redis.link import CrawlFacts, PodLink
from weft.frontier.redis.parts.intake import PodIntake
from weft.frontier.redis.parts.permits import PodPermits
from weft.frontier.redis.parts.redis_notes import RedisNotes
from weft.frontier.redis.parts.redis_status import RedisStatus
from weft.frontier.redis.scripts import ScriptArgument
from weft.records import Found


class NotOpened(ServerAway):
    """The pod does not have the crawl yet."""


class PodClient:
    """One pod."""

    def __init__(
        self, link: PodLink, *, is_afar: bool = False, refused: Callable[[int, Found], None] | None = None
    ) -> None:
        """`is_afar` and `refused`: see `PodIntake`."""
        self.link = link
        self.intake = PodIntake(link, is_afar=is_afar, refused=refused)
        self.notes = RedisNotes(link)
        self.status = RedisStatus(link)
        self.permits = PodPermits(link)

    def find_crawl(self, name: str) -> int:
        """The number of a crawl that the pod's own processes have opened."""
        link = self.link
        link.read_claim()
        number: Any = link.run_command("HGET", "crawls", name)
        if number is None:
            raise NotOpened(f"{link.where}: pod {link.pod} has not been opened yet")
        seed, kind, depth = link.run_command("HMGET", f"c:{int(number)}", "seed", "bloom", "depth")
        limits = CrawlLimits(max_depth=int(depth) if depth and depth != b"any" else None)
        facts = CrawlFacts(int(number), int(seed), limits, (kind or b"").decode(), name)
        facts.has_depths = bool(depth)
        link.crawls[facts.number] = facts
        return facts.number

    def announce_robots(self, origin: str, version: int, expires_s: float, crawl_delay_s: float) -> None:
        """Announces the version of an origin's robots.txt that is on the pod's shelf."""
        key, code = self.link.keys.key_and_code(origin)
        self.link.call_script("robots", [key, code, int(expires_s * 1e6), int(crawl_delay_s * 1e6), version])

    def mail_robots(self, notice: bytes) -> None:
        """Sends an origin's robots.txt from a node that does not have the pod's files."""
        self.link.run_command("RPUSH", "told", notice)

    def call_address_slots(self, arguments: Sequence[ScriptArgument]) -> list[bytes]:
        """Claims or releases slots of the addresses that this pod keeps (see lua/address.lua)."""
        answers: list[bytes] = self.link.call_script("address", arguments)[0]
        return answers

    def hold_pod(self, node: str, ttl_s: float) -> None:
        """Makes this node the owner of the pod for a time; Busy if another is. A time of 0 releases it."""
        holder = self._hold_lock("owner", node, ttl_s)
        if holder not in (node, ""):
            where = holder.rpartition("@")[2]
            raise Busy(f"{self.link.where}: pod {self.link.pod} is run by node {where}; stop it there first")

    def elect_decider(self, node: str, ttl_s: float) -> bool:
        """Elects this node, for a time, to decide when the crawl is over; whether it is elected. A time of 0
        resigns.
        """
        return self._hold_lock("decider", node, ttl_s) == node

    def _hold_lock(self, key: str, node: str, ttl_s: float) -> str:
        return str(self.link.call_script("hold", [key, node, int(ttl_s * 1000)])[0].decode())
