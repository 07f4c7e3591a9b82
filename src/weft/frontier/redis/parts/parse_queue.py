"""The queue of fetched pages of a pod on Redis, for parsers that are processes of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft.frontier.contract import HandedTransfer, LeasedPage
from weft.frontier.redis.link import NUMBER_MASK, PodLink
from weft.frontier.redis.parts.held import HeldLease, HeldLeases
from weft.frontier.redis.parts.redis_crawls import RedisCrawls
from weft.frontier.redis.parts.redis_leases import RedisLeases, cooling_arguments
from weft.frontier.redis.scripts import ScriptArgument
from weft.frontier.requests import RequestLog

_YES_BYTE = ord("1")


class RedisParseQueue:
    """See the contract."""

    def __init__(
        self, link: PodLink, held: HeldLeases, requests: RequestLog, crawls: RedisCrawls, leases: RedisLeases
    ) -> None:
        self._link = link
        self._held = held
        self._requests = requests
        self._crawls = crawls
        self._leases = leases

    def fetched(self, handed: Iterable[HandedTransfer]) -> list[bool]:
        """Cools transfers whose pages lie in a spool, and queues the pages for a parser. False: the lease had ended."""
        arguments: list[ScriptArgument] = []
        valid: list[bool] = []
        given = list(handed)
        for one in given:
            held = self._held.held_state(one.ended.lease)
            valid.append(held is not None)
            if held is None:
                continue
            if not held.cooled:
                self._requests.log_end(one.ended.lease.item, one.ended.at, one.ended.outcome or "-")
            self._held.free_slot(held)
            arguments += cooling_arguments(self._link, held, one.ended, one.reference)
        if not arguments:
            return valid
        self._leases.log_ends(one.ended for one, was in zip(given, valid, strict=True) if was)
        (letters,) = self._link.call_script("cool", arguments)
        self._link.next_claim.allow_after(self._crawls.shortest_delay_s)
        answers = iter(letters)
        for one, was in zip(given, valid, strict=True):
            if was:
                self._held.by_item.pop(one.ended.lease.item, None)
        return [was and next(answers) == _YES_BYTE for was in valid]

    def claim(self, limit: int) -> list[LeasedPage]:
        """Leases fetched pages to this process for parsing, the oldest first."""
        owner = self._held.owner
        deadline, rows = self._link.call_script("take", [owner, limit])
        until = self._link.to_local_time(int(deadline))
        taken = []
        for fields in rows:
            lease = self._held.lease_of(fields, owner, until, int(fields[10]) / 1e6)
            self._held.add(HeldLease(lease, fields[1], cooled=True))
            taken.append(LeasedPage(lease, fields[11], int(fields[12])))
        return taken

    def died_on(self, item: int) -> int:
        """Counts a parser that died on this page; returns how many have."""
        deaths: Any = self._link.run_command("HINCRBY", "deaths", str(item & NUMBER_MASK), 1)
        return int(deaths)

    def awaited(self, items: Sequence[int]) -> list[bool]:
        """Whether each item is fetched and not parsed yet; True for a leased one, which may be."""
        numbers = [self._link.number_of_item(item) for item in items]
        waiting, held = (
            self._link.run_command("HMGET", "fetched", *numbers),
            self._link.run_command("HMGET", "lease", *numbers),
        )
        return [one is not None or other is not None for one, other in zip(waiting, held, strict=True)]
