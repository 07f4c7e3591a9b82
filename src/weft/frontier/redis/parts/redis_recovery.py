"""Resolves what an earlier process of a slot left in the pod's Redis, and what the server has lost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from weft.alive import Alive
from weft.frontier.redis.link import NUMBER_MASK, POD_BITS, OwnPodLink
from weft.frontier.redis.parts.address_slots import AddressSlots
from weft.frontier.redis.parts.held import HeldLeases
from weft.frontier.redis.parts.intake import PodIntake
from weft.frontier.redis.parts.pod_processes import PodProcesses
from weft.frontier.redis.parts.redis_durability import RedisDurability
from weft.frontier.redis.parts.redis_status import read_stats


class RedisRecovery:
    """See the contract."""

    def __init__(
        self,
        link: OwnPodLink,
        slot: str,
        intake: PodIntake,
        held: HeldLeases,
        crew: PodProcesses,
        durability: RedisDurability,
        places: AddressSlots | None,
        alive: Alive,
    ) -> None:
        """`alive` is called for each piece of work that grows with the crawl."""
        self._link = link
        self._slot = slot
        self._intake = intake
        self._held = held
        self._processes = crew
        self._durability = durability
        self._address_slots = places
        self._alive = alive
        self.lost_ends: list[int] = []  # stored items whose links may have been lost with the server's data

    def recover(
        self,
        done: Iterable[int] = (),
        pages: Mapping[int, int] | None = None,
        by_key: Mapping[str, int] | None = None,
        by_crawl: Mapping[int, Mapping[str, int]] | None = None,
        *,
        batch: int = 0,
    ) -> int:
        """Resolves what this slot's earlier process left open; returns the number queued.

        `done`: items that this slot's store has since the last acknowledged batch. `pages`: pages by crawl in this
        slot's store alone; `by_key`: likewise by site, used only where Redis has no count for the site; `by_crawl`: the
        same for each crawl. `batch`: the store's last one, which is on the disk. It is acknowledged here, unless there
        are `lost_ends`: then it is once their links were read again.
        """
        link = self._link
        numbers = [item & NUMBER_MASK for item in done if item > 0 and item >> POD_BITS == link.pod]
        stored = [count for pair in (pages or {}).items() for count in pair]
        if batch:
            # Links for other pods must be on the disk before their pages are acknowledged.
            self._durability.sync()
        in_flight, unsure = link.call_script(
            "recover", [self._slot, int(link.is_rebooted), batch, len(stored) // 2, *stored, *numbers]
        )
        link.has_worked = True
        self._held.log_expired(in_flight)
        self.lost_ends = [link.item_of_number(int(number)) for number in unsure]
        for key, count in (by_key or {}).items():
            link.call_script("budget", [key, count, *link.crawls])
            self._alive()
        for crawl, counts in (by_crawl or {}).items():
            for key, count in counts.items():
                link.call_script("budget", [key, count, crawl])
                self._alive()
        for earlier in (self._slot, self._slot + "#"):
            self._processes.release_owner(earlier, but=self._held.owner)
        if self._address_slots is not None:
            self._address_slots.release_earlier_slots()
        return read_stats(link).stats().queued

    def restore_stored(self, crawl: int, rows: Iterable[tuple[str, int, int]]) -> None:
        """Restores the pages of `lost_ends` (URL, depth, item) that the server has forgotten."""
        self._intake.restore_stored(crawl, rows)
        self._link.run_command("SREM", "settling", self._slot)

    def settled(self) -> bool:
        """Whether all processes of the pod have called `restore_stored` since the server lost data."""
        return not self._link.run_command("EXISTS", "settling")
