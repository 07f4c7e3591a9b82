"""Chooses the hand of a request. Pure, except for its memory of failures.

A host is assigned to the same hand while that is connected and has room, so that its connections are reused; a host
with cookies or a login is never assigned to another. A hand that has failed three times is left out for a minute.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection
from hashlib import blake2b

FAILURES = 3
OUT_S = 60.0
REACHED_S = 30.0
TOGETHER_S = 1.0
HOSTS_KEPT = 100_000
# A hand without a network fails with these errors, whatever the site.
HAND_ERRORS = frozenset({"dns", "connect", "tls"})


class _Record:
    __slots__ = ("failures", "lost_at", "out_until", "reached")

    def __init__(self) -> None:
        self.failures = 0
        self.lost_at = float("-inf")
        self.out_until = 0.0
        self.reached: OrderedDict[str, float] = OrderedDict()  # the two hosts that it reached last, and when


class Routing:
    """Chooses hands for one process."""

    def __init__(self, in_flight: int) -> None:
        self.limit = in_flight
        self._records: dict[str, _Record] = {}
        self._kept: OrderedDict[str, str] = OrderedDict()  # hosts that are bound to one hand
        self.out: Counter[str] = Counter()  # pending requests of each hand
        self.failures: Counter[tuple[str, str]] = Counter()  # by hand and kind, since the start

    def room(self, hands: Collection[str], now: float) -> int:
        """How many requests the hands can accept now."""
        return sum(max(0, self.limit - self.out[hand]) for hand in hands if self._is_in(hand, now))

    def any_in(self, hands: Collection[str], now: float) -> bool:
        """Whether any hand is not left out."""
        return any(self._is_in(hand, now) for hand in hands)

    def choose(self, host: str, hands: Collection[str], now: float, *, keep: bool) -> str:
        """The hand for a request to a host; empty if none is available now. `keep`: the host has cookies or a login."""
        if (kept := self._kept.get(host)) is not None and kept in hands:
            return kept if self._has_room(kept, now) else ""
        order = sorted(hands, key=lambda hand: blake2b(f"{hand}\0{host}".encode(), digest_size=8).digest())
        chosen = next((hand for hand in order if self._has_room(hand, now)), "")
        if keep and chosen:
            self._kept[host] = chosen
            self._kept.move_to_end(host)
            if len(self._kept) > HOSTS_KEPT:
                self._kept.popitem(last=False)
        return chosen

    def reached(self, hand: str, host: str, now: float) -> None:
        """Records that a site has answered a hand: the hand works."""
        record = self._record(hand)
        record.failures = 0
        record.reached[host] = now
        record.reached.move_to_end(host)
        if len(record.reached) > 2:
            record.reached.popitem(last=False)

    def is_sites_fault(self, hand: str, host: str, now: float) -> bool:
        """Whether a host that a hand cannot reach is at fault: the hand has just reached another one."""
        return any(other != host and now - at <= REACHED_S for other, at in self._record(hand).reached.items())

    def failed(self, hand: str, kind: str, now: float) -> None:
        """Records a failure of a hand: it did not reach a site."""
        self.failures[hand, kind] += 1
        self._fail(self._record(hand), now)

    def lost(self, hand: str, kind: str, now: float) -> None:
        """Records that a request had no result. Those that are lost together count once: they were of one task, or of
        one process."""
        self.failures[hand, kind] += 1
        record = self._record(hand)
        if now - record.lost_at > TOGETHER_S:
            record.lost_at = now
            self._fail(record, now)

    def _fail(self, record: _Record, now: float) -> None:
        record.failures += 1
        if record.failures >= FAILURES:
            record.failures, record.out_until = 0, now + OUT_S

    def forget_all_but(self, hands: Collection[str]) -> None:
        """Forgets hands that are gone: a restarted worker has a new name."""
        for gone in [hand for hand in self._records if hand not in hands and not self.out[hand]]:
            del self._records[gone]
            del self.out[gone]

    def _record(self, hand: str) -> _Record:
        return self._records.setdefault(hand, _Record())

    def _is_in(self, hand: str, now: float) -> bool:
        return hand not in self._records or self._records[hand].out_until <= now

    def _has_room(self, hand: str, now: float) -> bool:
        return self._is_in(hand, now) and self.out[hand] < self.limit
