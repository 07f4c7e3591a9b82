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
from weft.frontier.contract import SlotRequest, TransferEnd
from weft.frontier.redis.scripts import ScriptArgument
from weft.records import Lease, Purpose
from weft.telemetry import Log

UNAVAILABLE = (ServerAway, ServerFull)
AWAY_WAIT_US = 1_000_000  # microseconds to wait for an address whose pod did not answer
TOO_LONG = "x"
AddressWait = int | str  # microseconds, or TOO_LONG: longer than the maximum
log = Log("weft.frontier.redis.parts.address_slots")


class _HeldSlot:
    """A slot that this process holds."""

    __slots__ = ("address", "asks_s", "delay_s", "ended", "number", "origin")

    def __init__(self, address: str, number: int, origin: str, delay_s: float) -> None:
        self.address = address
        self.number = number
        self.delay_s = delay_s  # that of the crawl
        self.origin = origin  # whose robots.txt is fetched; else empty
        self.asks_s = 0.0  # the Crawl-delay in that robots.txt
        self.ended: TransferEnd | None = None


class AddressSlots:
    """The address slots of one process; `ask` calls a pod's script, and raises ServerAway if the pod is unavailable."""

    def __init__(
        self,
        slot: str,
        owner: str,
        pod: int,
        pods: int,
        ask: Callable[[int, Sequence[ScriptArgument]], list[bytes]],
        now: Callable[[], float],
        places_of: Callable[[Lease], int],
    ) -> None:
        self._slot = slot
        self._owner = owner
        self._pod, self._pods = pod, pods
        self._call_script_of_pod = ask
        self._now = now
        self._slots_of = places_of  # how many requests the crawl of a lease may have in flight
        self._number = 0
        self._unreleased_pods: set[int] = set()  # pods where an earlier process of this slot may hold slots
        self._held_slots: dict[int, _HeldSlot] = {}  # by item
        self._owed_releases: dict[int, list[_HeldSlot]] = {}  # by pod: to be released

    def release_earlier_slots(self) -> None:
        """Releases the slots of earlier processes: they are free after a full delay from now."""
        self._unreleased_pods = set(range(self._pods))
        self._release_owed()

    def claim(self, wanted: Sequence[SlotRequest]) -> list[AddressWait | None]:
        """For each request, None if it has its slot now, otherwise how long it must wait."""
        self._release_owed()
        waits: list[AddressWait | None] = [AWAY_WAIT_US] * len(wanted)
        by_pod: dict[int, list[int]] = {}
        for at, one in enumerate(wanted):
            by_pod.setdefault(urls.pod_of(one.address, self._pods), []).append(at)
        for pod, places in by_pod.items():
            if pod in self._owed_releases or pod in self._unreleased_pods:
                continue  # it did not answer `_give_back`
            for at, wait in zip(places, self._claim_at_pod(pod, [wanted[at] for at in places]), strict=True):
                waits[at] = wait
        return waits

    def end_transfers(self, ended: Iterable[TransferEnd]) -> None:
        """Transfers have ended. A robots.txt keeps its slot until it is parsed: it may raise the address's delay."""
        for one in ended:
            held = self._held_slots.get(one.lease.item)
            if held is not None and held.ended is None:
                held.ended = one
                if not held.origin:
                    self._note_owed_release(one.lease.item)
        self._release_owed()

    def record_crawl_delay(self, origin: str, crawl_delay_s: float) -> None:
        """Records the Crawl-delay of an origin's robots.txt."""
        if crawl_delay_s:
            for held in self._held_slots.values():
                if held.origin == origin:
                    held.asks_s = crawl_delay_s

    def release_finished(self, items: Iterable[int]) -> None:
        """Leases have ended: releases their slots, also of requests that were not sent."""
        for item in items:
            self._note_owed_release(item)
        self._release_owed()

    def _claim_at_pod(self, pod: int, wanted: list[SlotRequest]) -> list[AddressWait | None]:
        arguments: list[ScriptArgument] = ["take", self._owner, self._pod]
        asked = []
        for one in wanted:
            self._number += 1
            robots = one.lease.purpose is Purpose.ROBOTS
            asked.append(_HeldSlot(one.address, self._number, one.lease.about if robots else "", one.lease.delay_s))
            arguments += [one.address, self._number, int(one.crawl_delay_s * 1e6), int(one.lease.delay_s * 1e6)]
            arguments.append(self._slots_of(one.lease))
        try:
            answers = self._call_script_of_pod(pod, arguments)
        except UNAVAILABLE as why:
            log.warning("addresses wait for their pod", pod=pod, addresses=len(wanted), why=why)
            self._owed_releases.setdefault(pod, []).extend(asked)  # the call may have been carried out
            return [AWAY_WAIT_US] * len(wanted)
        waits: list[AddressWait | None] = []
        for one, held, answer in zip(wanted, asked, answers, strict=True):
            if answer == b"y":
                self._held_slots[one.lease.item] = held
                waits.append(None)
            else:
                waits.append(TOO_LONG if answer == b"x" else int(answer))
        return waits

    def _note_owed_release(self, item: int) -> None:
        held = self._held_slots.pop(item, None)
        if held is not None:
            self._owed_releases.setdefault(urls.pod_of(held.address, self._pods), []).append(held)

    def _release_owed(self) -> None:
        for pod in list(self._unreleased_pods):
            if self._call_pod(pod, ["release", self._owner, self._slot + "#"]):
                self._unreleased_pods.discard(pod)
        for pod, owed in list(self._owed_releases.items()):
            arguments: list[ScriptArgument] = ["end", self._owner]
            for held in owed:
                arguments += [
                    held.address,
                    held.number,
                    *_end_arguments(held.ended, self._now()),
                    int(held.asks_s * 1e6),
                ]
                arguments.append(int(held.delay_s * 1e6))
            if self._call_pod(pod, arguments):
                del self._owed_releases[pod]

    def _call_pod(self, pod: int, arguments: Sequence[ScriptArgument]) -> bool:
        """False if the pod did not answer."""
        try:
            self._call_script_of_pod(pod, arguments)
        except UNAVAILABLE:
            return False
        return True


def _end_arguments(ended: TransferEnd | None, now: float) -> list[ScriptArgument]:
    """Age, ok, slow, Retry-After, how long the answer took."""
    if ended is None:
        return ["-", 0, 0, 0, ""]
    age = max(0, int((now - ended.at) * 1e6))
    retry_after = int((ended.retry_after_s or 0.0) * 1e6)
    return [age, int(ended.ok is True), slow_argument(ended), retry_after, answer_time_argument(ended)]


def slow_argument(ended: TransferEnd) -> int:
    """Whether the site asked for fewer requests, encoded for the scripts: by a limit (1), by a fault (2)."""
    return 0 if not ended.slow_down else 2 if ended.in_trouble else 1


def answer_time_argument(ended: TransferEnd) -> ScriptArgument:
    """How long an answer took, encoded for lua/cool.lua and lua/address.lua."""
    if ended.took_s is not None:
        return int(ended.took_s * 1e6)
    if ended.ok is None:
        return ""
    return 0 if ended.ok else "-"
