"""URLs of a pod on Redis that end without a request: refusals, kept on disk, and rejected items, whose rows the caller
stores."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft.frontier.contract import Item, Rejection, RobotsRecord
from weft.frontier.politeness import UNREACHABLE_S
from weft.frontier.redis.link import OwnPodLink
from weft.frontier.redis.parts.held import HeldLeases
from weft.frontier.redis.parts.redis_sites import RedisSites
from weft.frontier.redis.parts.shelf import SharedRecords
from weft.frontier.redis.scripts import ScriptArgument
from weft.records import Found, Purpose, Reason

_REJECTED_AT_ONCE = 1000


class RedisRejected:
    """See the contract. Rejected items are leased to this process until it calls `ended`."""

    def __init__(
        self,
        link: OwnPodLink,
        slot: str,
        held: HeldLeases,
        shelf: SharedRecords,
        sites: RedisSites,
        wall: Callable[[], float],
    ) -> None:
        self._link = link
        self._slot = slot
        self._held = held
        self._shared_records = shelf
        self._sites = sites
        self._wall = wall
        self._lease_stamps: dict[int, int] = {}  # of items that are rejected, and whose rows are not stored

    def refused(self, crawl: int, reason: Reason, url: str, parent: int) -> None:
        """Recorded on disk, for `weft explain`."""
        self._shared_records.record_refusal(crawl, reason, url, parent)

    def left_sitemaps(self, crawl: int) -> list[Found]:
        """The sitemaps over the limit, up to a bound: for a crawl whose limit is raised."""
        return self._shared_records.recorded_sitemaps(crawl)

    def rejections(self) -> list[Rejection]:
        """Items removed from their queues since the last call."""
        if not self._link.has_waiting_rejects:
            self._link.send_deferred()
        if not self._link.has_waiting_rejects:
            return []
        (rows,) = self._link.call_script("rejected", [self._held.owner, _REJECTED_AT_ONCE])
        rejected = []
        for fields in rows:
            lease = self._held.lease_of(fields, self._held.owner, 0.0, 0.0)
            self._lease_stamps[lease.item] = fields[1]
            item = Item(
                lease.item, lease.url, lease.depth, lease.parent, lease.hops, lease.purpose, lease.about, lease.attempt,
                lease.offsite,
            )  # fmt: skip
            name, _, cause = fields[10].decode().partition(": ")
            if item.purpose is Purpose.ROBOTS:
                self._give_up_robots(item, Reason(name))
            else:
                rejected.append(Rejection(item, lease.crawl, Reason(name), cause))
        return rejected

    def end_stored(self, items: Iterable[int], commit_batch: int = 0) -> None:
        """Ends the leases of rejected items whose rows are stored. `commit_batch`: the store's batch with those rows,
        whose `acknowledge` makes the end final; 0: at once.
        """
        arguments: list[ScriptArgument] = [self._slot, commit_batch]
        for item in items:
            if (stamp := self._lease_stamps.pop(item, None)) is not None:
                arguments += [self._link.number_of_item(item), stamp, "o", 0]
        if len(arguments) > 2:
            self._link.call_script("finish", arguments)

    def _give_up_robots(self, item: Item, reason: Reason) -> None:
        """A redirect has led to an origin that was given up: the robots.txt of the redirecting origin is
        unavailable.
        """
        until = self._wall() + UNREACHABLE_S
        record = RobotsRecord("unreachable", b"", until, f"{reason} at {item.url}")
        self._sites.robots_known(item.about, record, None)
        self.end_stored([item.item])
