"""The leases that one process holds, and the slots of their requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.frontier.redis.item_packing import unpack_entry
from weft.frontier.redis.link import LETTER_PURPOSES, OwnPodLink
from weft.frontier.requests import RequestLog
from weft.frontier.slots import ClassSlots
from weft.records import Lease, Purpose

UNSENT_STATUS = "unasked"  # for the request log: nothing was sent


class HeldLease:
    """A lease that this process holds."""

    __slots__ = ("cooled", "lease", "places", "rank", "stamp")

    def __init__(self, lease: Lease, stamp: int, cooled: bool, places: int = 1, rank: int | None = None) -> None:
        self.lease = lease
        self.stamp = stamp
        self.cooled = cooled
        self.places = places  # requests that its crawl may have in flight there
        self.rank = rank  # the class whose slot it uses; None: its request is over


class HeldLeases:
    """The held leases by item, in the order of their deadlines."""

    def __init__(self, link: OwnPodLink, owner: str, requests: RequestLog) -> None:
        self._link = link
        self._requests = requests
        self.owner = owner
        self.slots = ClassSlots()
        self.by_item: dict[int, HeldLease] = {}

    def lease_of(self, fields: list[Any], owner: str, deadline: float, delay_s: float) -> Lease:
        """A lease from a script's reply."""
        number, _, crawl, site, depth, hops, letter, attempt, about, rest = fields[:10]
        key = site.decode()
        origin, path, parent, offsite = unpack_entry(rest, key)
        purpose = LETTER_PURPOSES[letter]
        subject = about.decode() or (origin if purpose is Purpose.ROBOTS else "")
        return Lease(
            self._link.item_of_number(int(number)), int(crawl), origin + path, key, depth, parent, hops, purpose,
            subject,
            offsite, attempt, owner, self._link.epoch, deadline, delay_s,
        )  # fmt: skip

    def add(self, held: HeldLease) -> None:
        """Adds a lease; an earlier one of its item has expired."""
        self.by_item.pop(held.lease.item, None)  # the order is that of the deadlines
        self.by_item[held.lease.item] = held
        if held.rank is not None:
            self.slots.out_by_class[held.rank] += 1
        self._link.has_worked = True

    def held_state(self, lease: Lease) -> HeldLease | None:
        """The held state of a lease; None: it has ended."""
        held = self.by_item.get(lease.item)
        return held if held is not None and (held.lease is lease or held.lease == lease) else None

    def slots_of(self, lease: Lease) -> int:
        """How many requests the crawl of a lease may have in flight at its site."""
        return self.by_item[lease.item].places

    def end_unsent(self, held: HeldLease) -> None:
        """Frees the slot of a lease for which nothing was sent."""
        self._requests.log_end(held.lease.item, self._link.now(), UNSENT_STATUS)
        self.free_slot(held)

    def free_slot(self, held: HeldLease) -> None:
        """Frees the slot of a request that is over. Items that waited for a slot of its class may be claimed now."""
        if held.rank is not None:
            if not self.slots.has_room(held.rank):
                self._link.next_claim.allow_after(0.0)
            self.slots.out_by_class[held.rank] -= 1
            held.rank = None

    def free_expired(self) -> None:
        """Frees the slots of leases that have expired."""
        now = self._link.now()
        for held in self.by_item.values():
            if held.lease.deadline > now:
                return
            self.free_slot(held)

    def log_expired(self, numbers: Iterable[bytes]) -> None:
        """Logs that the server has ended leases whose requests were in flight."""
        for number in numbers:
            self._requests.log_end(self._link.item_of_number(int(number)), self._link.sent_at, "expired")
