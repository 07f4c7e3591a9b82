"""Leases of a pod's frontier on Redis: claims items that are due, and ends leases.

A claim is in this slot's request log before it is returned, and the end of a request before another process may send
one to its site.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from weft import urls
from weft.errors import BadInput, DiskFull
from weft.frontier.contract import End, EndedLease, HandRouter, SlotRequest, Slots, TransferEnd
from weft.frontier.politeness import Responsiveness
from weft.frontier.redis.link import NUMBER_MASK, PodLink
from weft.frontier.redis.parts.address_slots import AddressSlots, answer_time_argument, slow_argument
from weft.frontier.redis.parts.held import HeldLease, HeldLeases
from weft.frontier.redis.parts.redis_crawls import RedisCrawls
from weft.frontier.redis.parts.redis_sites import RedisSites
from weft.frontier.redis.scripts import ScriptArgument
from weft.frontier.requests import RequestLog
from weft.frontier.seen.seen_set import seen_key
from weft.frontier.slots import CLASS_TURNS
from weft.records import Found, Lease, Purpose

_END_LETTERS = {End.PAGE: "p", End.OTHER: "o", End.RETRY: "y", End.RELEASE: "l"}
_YES_BYTE = ord("1")


class RedisLeases:
    """See the contract."""

    def __init__(
        self,
        link: PodLink,
        slot: str,
        held: HeldLeases,
        requests: RequestLog,
        crawls: RedisCrawls,
        sites: RedisSites,
        places: AddressSlots | None,
        idle_s: float,
    ) -> None:
        """`places`: for politeness by address. `idle_s`: a claim without result is not repeated sooner."""
        self._link = link
        self._slot = slot
        self._held = held
        self._requests = requests
        self._crawls = crawls
        self._sites = sites
        self._address_slots = places
        self._idle_s = idle_s
        self._class_turn = 0

    def claim(
        self,
        owner: str,
        limit: int,
        slots: Slots | None = None,
        route: HandRouter | None = None,  # noqa: ARG002 - no workers with pods on Redis
    ) -> list[Lease]:
        """Leases for what is due, in the request log before it returns.

        The responsiveness of sites is shared by all processes; the slots per class are this process's own.
        """
        link, held, next_claim = self._link, self._held, self._link.next_claim
        held.slots.limit(slots)
        held.free_expired()
        if limit <= 0 or link.now() < next_claim.idle_until:
            return []
        room = [held.slots.free_slots(rank) if slots else "" for rank in (Responsiveness.SLOW, Responsiveness.UNKNOWN)]
        due, deadline, expired, taken = link.call_script(
            "claim",
            [owner, limit, link.pod, link.limits.moved_at_once, link.limits.refill_below, self._class_turn, *room],
        )
        self._class_turn = (self._class_turn + len(taken)) % len(CLASS_TURNS)
        next_claim.due = link.to_local_time(int(due)) if due else None
        if len(taken) < limit:
            wait = link.now() + self._idle_s
            next_claim.idle_until = wait if next_claim.due is None else min(wait, next_claim.due)
        held.log_expired(expired)
        until = link.to_local_time(int(deadline))
        leases = [self._register_lease(fields, owner, until) for fields in taken]
        if leases or expired:
            try:
                self._requests.flush()
            except DiskFull:
                self.finish(EndedLease(lease, End.RELEASE) for lease in leases)
                raise
        return self._with_readable_robots(leases)

    def next_due(self) -> float | None:
        """When `claim` may next return something, judged by the last claim and this process's operations since."""
        return self._link.next_claim.due

    def claim_slots(self, wanted: Sequence[SlotRequest]) -> list[bool]:
        """Asks the pods that keep the addresses. A lease without a slot ends, and its site waits for the address."""
        assert self._address_slots is not None, "politeness is not by address"
        helds = [self._held.held_state(one.lease) for one in wanted]
        waits = iter(
            self._address_slots.claim([one for one, held in zip(wanted, helds, strict=True) if held is not None])
        )
        granted: list[bool] = []
        arguments: list[ScriptArgument] = []
        for one, held in zip(wanted, helds, strict=True):
            wait = next(waits) if held is not None else None
            granted.append(held is not None and wait is None)
            if held is not None and wait is not None:
                held.cooled = True  # its end is logged
                self._held.end_unsent(held)
                arguments += [self._link.number_of_item(one.lease.item), held.stamp, one.address, wait]
        if arguments:
            self._requests.try_flush()  # before another process may send a request to the site
            self._link.call_script("wait", arguments)
            self._link.next_claim.allow_after(0.0)
        for one, held, has_place in zip(wanted, helds, granted, strict=True):
            if held is not None and not has_place:
                self._held.by_item.pop(one.lease.item, None)
        return granted

    def depth_of(self, lease: Lease) -> int:
        """From the server's known depths, which exist with a `max_depth`; otherwise the lease's own."""
        crawl = self._link.crawls.get(lease.crawl)
        if crawl is None or not crawl.has_depths:
            return lease.depth
        url_at_depth = Found(lease.url, lease.depth, lease.parent, lease.hops, lease.purpose, lease.about)
        fingerprint = crawl.fingerprint(seen_key(url_at_depth))
        bucket = int(fingerprint.rpartition(":")[2].lstrip("-")[-12:]) % 16384
        known: Any = self._link.run_command("HGET", f"k:{lease.crawl}:{bucket}", fingerprint)
        if known is None:
            return lease.depth
        number, depth, _ = known.split(b":")
        return min(int(depth), lease.depth) if int(number) == lease.item & NUMBER_MASK else lease.depth

    def cool(self, ended: Iterable[TransferEnd]) -> None:
        """Frees the slots and sets the clocks: with the next call, or at once after a failure or a slow-down."""
        cooling: list[tuple[HeldLease, TransferEnd]] = []
        for one in ended:
            held = self._held.held_state(one.lease)
            if held is None or held.cooled:
                continue
            held.cooled = True
            self._requests.log_end(one.lease.item, one.at, one.outcome or "-")
            self._held.free_slot(held)
            cooling.append((held, one))
        if not cooling:
            return
        self.log_ends(one for _, one in cooling)
        link = self._link
        link.scripts.defer(
            "cool", lambda: [field for held, one in cooling for field in cooling_arguments(link, held, one)]
        )
        if any(one.slow_down or one.ok is False for _, one in cooling):
            link.send_deferred()
        link.next_claim.allow_after(self._crawls.shortest_delay_s)

    def log_ends(self, ended: Iterable[TransferEnd]) -> None:
        """Before another process may send a request to the sites of these."""
        self._requests.try_flush()
        if self._address_slots is not None:
            self._address_slots.end_transfers(ended)

    def sending(self, leases: Sequence[Lease]) -> None:  # noqa: ARG002
        """Not supported on Redis yet: the process that starts a crawl refuses crawls that need it."""
        raise BadInput("pods on Redis do not keep requests with a body yet: run the crawl without `pods`")

    def not_sent(self, lease: Lease) -> None:
        """See `sending`."""

    def finish(self, outcomes: Iterable[EndedLease], batch: int = 0) -> list[bool]:
        """Ends leases. With a batch they are prepared by this slot for it, until `acknowledge` or `recover`."""
        given = list(outcomes)
        arguments: list[ScriptArgument] = [self._slot, batch]
        helds = [self._held.held_state(outcome.lease) for outcome in given]
        has_unasked = False
        for outcome, held in zip(given, helds, strict=True):
            if held is None:
                continue
            if held.cooled:
                self._held.free_slot(held)
            else:
                self._held.end_unsent(held)
                has_unasked = True
            arguments += [
                self._link.number_of_item(held.lease.item),
                held.stamp,
                _END_LETTERS[outcome.end],
                int(outcome.wait_s * 1e6),
            ]
            if outcome.end in (End.RETRY, End.RELEASE) or not held.cooled or self._is_limited(held.lease.crawl):
                self._link.next_claim.allow_after(0.0)
        if len(arguments) == 2:
            return [False] * len(given)
        if has_unasked:
            self._requests.try_flush()  # before another process may send a request to the site
        if self._address_slots is not None:
            self._address_slots.release_finished(held.lease.item for held in helds if held is not None)
        (letters,) = self._link.call_script("finish", arguments)
        answers = iter(letters)
        for outcome, held in zip(given, helds, strict=True):
            if held is not None:
                self._held.by_item.pop(outcome.lease.item, None)
        return [held is not None and next(answers) == _YES_BYTE for held in helds]

    def exclude(self, leases: Iterable[Lease]) -> None:
        """Excludes items that an edit no longer admits, until `restore_excluded`; no request was sent for them."""
        arguments: list[ScriptArgument] = ["out"]
        for lease in leases:
            held = self._held.held_state(lease)
            if held is not None and not held.cooled:
                del self._held.by_item[lease.item]
                self._held.end_unsent(held)
                arguments += [self._link.number_of_item(lease.item), held.stamp]
        if len(arguments) > 1:
            self._requests.try_flush()  # before another process may send a request to the site
            self._link.call_script("aside", arguments)
            self._link.next_claim.allow_after(0.0)

    def _register_lease(self, fields: list[Any], owner: str, deadline: float) -> Lease:
        lease = self._held.lease_of(fields, owner, deadline, fields[10] / 1e6)
        self._held.add(HeldLease(lease, fields[1], cooled=False, places=int(fields[11]), rank=fields[14]))
        self._sites.note_versions(lease, int(fields[12]), int(fields[13]))
        self._requests.log_start(
            lease.item, self._link.now(), lease.key, lease.delay_s, fields[11], lease.url, lease.crawl
        )
        return lease

    def _with_readable_robots(self, leases: list[Lease]) -> list[Lease]:
        """The leases whose robots.txt is on this node's disk. The others are released, their robots.txt expired."""
        missing = [
            lease
            for lease in leases
            if lease.purpose is not Purpose.ROBOTS and self._sites.robots(urls.origin_of(lease.url)) is None
        ]
        if not missing:
            return leases
        for lease in missing:
            self._sites.forget_robots(urls.origin_of(lease.url))
        self.finish([EndedLease(lease, End.RELEASE) for lease in missing])
        return [lease for lease in leases if lease.item in self._held.by_item]

    def _is_limited(self, crawl: int) -> bool:
        """Whether the end of a lease may allow the crawl another claim."""
        facts = self._link.crawls.get(crawl)
        return facts is not None and not (
            facts.limits.max_pages is None
            and facts.limits.in_flight is None
            and facts.limits.max_pages_per_domain is None
        )


def cooling_arguments(
    link: PodLink, held: HeldLease, ended: TransferEnd, reference: bytes = b""
) -> list[ScriptArgument]:
    """The arguments of lua/cool.lua for one transfer, as of now: they contain its age."""
    age = max(0, int((link.now() - ended.at) * 1e6))
    retry_after = "" if ended.retry_after_s is None else int(ended.retry_after_s * 1e6)
    ok = "" if ended.ok is None else 1 if ended.ok else ended.failure or 0
    number = link.number_of_item(held.lease.item)
    return [number, held.stamp, age, ok, slow_argument(ended), retry_after, answer_time_argument(ended), reference]
