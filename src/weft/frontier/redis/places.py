"""Politeness by address, over all pods: the places of addresses that this process holds, and what it owes for them.

An address's place is kept in the pod that `md5(address)` names (lua/address.lua), for whichever pods its hosts are in.
It is taken after the claim and before the request, and given back with the age of the transfer's end; each is one call
for each pod and round. Invariants: nothing is sent without its place; what a pod did not answer is not held (its place
is given back once it answers, or taken back there at the deadline); a place that is given back late is due later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from weft import urls
from weft.errors import ServerAway, ServerFull
from weft.frontier.contract import Ended, Wanted
from weft.frontier.redis.scripts import Argument
from weft.records import Purpose
from weft.telemetry import Log

ABSENT = (ServerAway, ServerFull)
AWAY_WAIT = 1_000_000  # microseconds after which an address is tried again whose pod did not answer
TOO_LONG = "x"
Wait = int | str  # microseconds, or that nobody waits so long
log = Log("weft.frontier.redis.places")


class _Held:
    """A place that this process has."""

    __slots__ = ("address", "asks_s", "ended", "number", "origin")

    def __init__(self, address: str, number: int, origin: str) -> None:
        self.address = address
        self.number = number
        self.origin = origin  # of which a robots.txt is asked for; else empty
        self.asks_s = 0.0  # the Crawl-delay that it turned out to have
        self.ended: Ended | None = None


class AddressPlaces:
    """The places of one process; `ask` calls the script of a pod, and raises ServerAway where it is away."""

    def __init__(
        self,
        slot: str,
        owner: str,
        pod: int,
        pods: int,
        ask: Callable[[int, Sequence[Argument]], list[bytes]],
        now: Callable[[], float],
    ) -> None:
        self._slot = slot
        self._owner = owner
        self._pod, self._pods = pod, pods
        self._ask = ask
        self._now = now
        self._number = 0
        self._unsettled: set[int] = set()  # pods in which an earlier process of this slot may hold something
        self._held: dict[int, _Held] = {}  # by item
        self._owed: dict[int, list[_Held]] = {}  # by pod: to be given back

    def settle(self) -> None:
        """What earlier processes of this slot held is free a full delay from now."""
        self._unsettled = set(range(self._pods))
        self._give_back()

    def take(self, wanted: Sequence[Wanted]) -> list[Wait | None]:
        """None for each that has its place now, else how long it must wait."""
        self._give_back()
        waits: list[Wait | None] = [AWAY_WAIT] * len(wanted)
        by_pod: dict[int, list[int]] = {}
        for at, one in enumerate(wanted):
            by_pod.setdefault(urls.pod_of(one.address, self._pods), []).append(at)
        for pod, places in by_pod.items():
            if pod in self._owed or pod in self._unsettled:
                continue  # it has just not answered
            for at, wait in zip(places, self._take_of(pod, [wanted[at] for at in places]), strict=True):
                waits[at] = wait
        return waits

    def ended(self, ended: Iterable[Ended]) -> None:
        """Transfers are over. A robots.txt keeps its place until it was read: it may raise the address's delay."""
        for one in ended:
            held = self._held.get(one.lease.item)
            if held is not None and held.ended is None:
                held.ended = one
                if not held.origin:
                    self._owe(one.lease.item)
        self._give_back()

    def asks(self, origin: str, crawl_delay_s: float) -> None:
        """What an origin's robots.txt asks for."""
        if crawl_delay_s:
            for held in self._held.values():
                if held.origin == origin:
                    held.asks_s = crawl_delay_s

    def finished(self, items: Iterable[int]) -> None:
        """Leases are over: what was not sent gives its place back too."""
        for item in items:
            self._owe(item)
        self._give_back()

    def _take_of(self, pod: int, wanted: list[Wanted]) -> list[Wait | None]:
        arguments: list[Argument] = ["take", self._owner, self._pod]
        asked = []
        for one in wanted:
            self._number += 1
            robots = one.lease.purpose is Purpose.ROBOTS
            asked.append(_Held(one.address, self._number, one.lease.about if robots else ""))
            arguments += [one.address, self._number, int(one.crawl_delay_s * 1e6)]
        try:
            answers = self._ask(pod, arguments)
        except ABSENT as why:
            log.warning("addresses wait for their pod", pod=pod, addresses=len(wanted), why=why)
            self._owed.setdefault(pod, []).extend(asked)  # nobody knows whether it has heard
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
            if self._told(pod, ["release", self._owner, self._slot + "#"]):
                self._unsettled.discard(pod)
        for pod, owed in list(self._owed.items()):
            arguments: list[Argument] = ["end", self._owner]
            for held in owed:
                arguments += [held.address, held.number, *_end_of(held.ended, self._now()), int(held.asks_s * 1e6)]
            if self._told(pod, arguments):
                del self._owed[pod]

    def _told(self, pod: int, arguments: Sequence[Argument]) -> bool:
        try:
            self._ask(pod, arguments)
        except ABSENT:
            return False
        return True


def _end_of(ended: Ended | None, now: float) -> list[Argument]:
    """Age, ok, slow, Retry-After."""
    if ended is None:
        return ["-", 0, 0, 0]
    age = max(0, int((now - ended.at) * 1e6))
    return [age, int(ended.ok is True), int(ended.slow_down), int((ended.retry_after_s or 0.0) * 1e6)]
