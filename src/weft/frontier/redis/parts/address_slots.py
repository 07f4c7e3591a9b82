"""Politeness by address, over all pods: the address slots that this process holds, and those it must release.

The slots of an address are kept in the pod that `md5(address)` names (lua/address.lua), for all pods that have hosts
there. A slot is claimed after the lease and before the request, and released with the age of the transfer's end; each
is one call per pod and round. Invariants: no request is sent without its slot; a slot whose pod did not answer is not
held (it is released when the pod answers, or expires there); a late release makes the address due later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft import urls
from weft.errors import ServerAway, ServerFull
from weft.frontier.contract import Ended, Wanted
from weft.frontier.redis.scripts import Argument
from weft.records import Lease, Purpose
from weft.telemetry import Log

ABSENT = (ServerAway, ServerFull)
AWAY_WAIT = 1_000_000  # microseconds to wait for an address whose pod did not answer
TOO_LONG = "x"
Wait = int | str  # microseconds, or TOO_LONG: longer than the maximum
log = Log("weft.frontier.redis.parts.address_slots")


class _Held:
    """A slot that this process holds."""

    __slots__ = ("address", "asks_s", "delay_s", "ended", "number", "origin")

    def __init__(self, address: str, number: int, origin: str, delay_s: float) -> None:
        self.address = address
        self.number = number
        self.delay_s = delay_s  # that of the crawl
        self.origin = origin  # whose robots.txt is fetched; else empty
        self.asks_s = 0.0  # the Crawl-delay in that robots.txt
        self.ended: Ended | None = None


class AddressSlots:
    """The address slots of one process; `ask` calls a pod's script, and raises ServerAway if the pod is unavailable."""

    def __init__(
        self,
        slot: str,
        owner: str,
        pod: int,
        pods: int,
        ask: Callable[[int, Sequence[Argument]], list[bytes]],
        now: Callable[[], float],
        places_of: Callable[[Lease], int],
    ) -> None:
        self._slot = slot
        self._owner = owner
        self._pod, self._pods = pod, pods
        self._ask = ask
        self._now = now
        self._places_of = places_of  # how many requests the crawl of a lease may have in flight
        self._number = 0
        self._unsettled: set[int] = set()  # pods where an earlier process of this slot may hold slots
        self._held: dict[int, _Held] = {}  # by item
        self._owed: dict[int, list[_Held]] = {}  # by pod: to be released

    def settle(self) -> None:
        """Releases the slots of earlier processes: they are free after a full delay from now."""
        self._unsettled = set(range(self._pods))
        self._give_back()

    def claim(self, wanted: Sequence[Wanted]) -> list[Wait | None]:
        """For each request, None if it has its slot now, otherwise how long it must wait."""
        self._give_back()
        waits: list[Wait | None] = [AWAY_WAIT] * len(wanted)
        by_pod: dict[int, list[int]] = {}
        for at, one in enumerate(wanted):
            by_pod.setdefault(urls.pod_of(one.address, self._pods), []).append(at)
        for pod, places in by_pod.items():
            if pod in self._owed or pod in self._unsettled:
                continue  # it did not answer `_give_back`
            for at, wait in zip(places, self._claim_at(pod, [wanted[at] for at in places]), strict=True):
                waits[at] = wait
        return waits

    def ended(self, ended: Iterable[Ended]) -> None:
        """Transfers have ended. A robots.txt keeps its slot until it is parsed: it may raise the address's delay."""
        for one in ended:
            held = self._held.get(one.lease.item)
            if held is not None and held.ended is None:
                held.ended = one
                if not held.origin:
                    self._owe(one.lease.item)
        self._give_back()

    def asks(self, origin: str, crawl_delay_s: float) -> None:
        """Records the Crawl-delay of an origin's robots.txt."""
        if crawl_delay_s:
            for held in self._held.values():
                if held.origin == origin:
                    held.asks_s = crawl_delay_s

    def finished(self, items: Iterable[int]) -> None:
        """Leases have ended: releases their slots, also of requests that were not sent."""
        for item in items:
            self._owe(item)
        self._give_back()

    def _claim_at(self, pod: int, wanted: list[Wanted]) -> list[Wait | None]:
        arguments: list[Argument] = ["take", self._owner, self._pod]
        asked = []
        for one in wanted:
            self._number += 1
            robots = one.lease.purpose is Purpose.ROBOTS
            asked.append(_Held(one.address, self._number, one.lease.about if robots else "", one.lease.delay_s))
            arguments += [one.address, self._number, int(one.crawl_delay_s * 1e6), int(one.lease.delay_s * 1e6)]
            arguments.append(self._places_of(one.lease))
        try:
            answers = self._ask(pod, arguments)
        except ABSENT as why:
            log.warning("addresses wait for their pod", pod=pod, addresses=len(wanted), why=why)
            self._owed.setdefault(pod, []).extend(asked)  # the call may have been carried out
            return [AWAY_WAIT] * len(wanted)
        waits: list[Wait | None] = []
        for one, held, answer in zip(wanted, asked, answers, strict=True):
            if answer == b"y":
                self._held[one.lease.item] = held
                waits.append(None)
            else:
                waits.append(TOO_LONG if answer == b"x" else int(answer))
        return waits

    def _owe(self, item: int) -> None:
        held = self._held.pop(item, None)
        if held is not None:
            self._owed.setdefault(urls.pod_of(held.address, self._pods), []).append(held)

    def _give_back(self) -> None:
        for pod in list(self._unsettled):
            if self._call(pod, ["release", self._owner, self._slot + "#"]):
                self._unsettled.discard(pod)
        for pod, owed in list(self._owed.items()):
            arguments: list[Argument] = ["end", self._owner]
            for held in owed:
                arguments += [held.address, held.number, *_end_of(held.ended, self._now()), int(held.asks_s * 1e6)]
                arguments.append(int(held.delay_s * 1e6))
            if self._call(pod, arguments):
                del self._owed[pod]

    def _call(self, pod: int, arguments: Sequence[Argument]) -> bool:
        """False if the pod did not answer."""
        try:
            self._ask(pod, arguments)
        except ABSENT:
            return False
        return True


def _end_of(ended: Ended | None, now: float) -> list[Argument]:
    """Age, ok, slow, Retry-After, how long the answer took."""
    if ended is None:
        return ["-", 0, 0, 0, ""]
    age = max(0, int((now - ended.at) * 1e6))
    retry_after = int((ended.retry_after_s or 0.0) * 1e6)
    return [age, int(ended.ok is True), slow_of(ended), retry_after, took_of(ended)]


def slow_of(ended: Ended) -> int:
    """Whether the site asked for fewer requests, encoded for the scripts: by a limit (1), by a fault (2)."""
    return 0 if not ended.slow_down else 2 if ended.in_trouble else 1


def took_of(ended: Ended) -> Argument:
    """How long an answer took, encoded for lua/cool.lua and lua/address.lua."""
    if ended.took_s is not None:
        return int(ended.took_s * 1e6)
    if ended.ok is None:
        return ""
    return 0 if ended.ok else "-"
