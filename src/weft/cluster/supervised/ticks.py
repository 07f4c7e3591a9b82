"""The times at which the scheduler's entries are due, each claimed at the broker by the hand that runs it.

    weft:{cluster}:tick:{entry}:{time}    the hand that ran it; SET NX, kept for an hour and at least three periods
    weft:{cluster}:ticks                  hash: {entry}:ran, {entry}:refused, {entry}:last (the time that ran last)

Times are multiples of an entry's period, so that every scheduler, before and after a kill, names the same ones. A tick
is claimed where it runs, not where it is sent: a scheduler that dies after it has sent one sends it again, and the
second message is refused; one that dies before has sent nothing. Of times that were missed the latest runs, once.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from weft.cluster.broker import Broker

KEPT_S = 3600
WANTED = "wanted"  # hash: what the supervisor is to begin; read and deleted by it


class TickEntry(Struct, frozen=True):
    """Something that is sent again and again."""

    name: str
    every_s: int

    def latest(self, wall_s: float) -> int:
        """The last time at which it was due."""
        return int(wall_s // self.every_s) * self.every_s


class Ticks:
    """The claims of one cluster; ServerAway while the broker does not answer."""

    def __init__(self, broker: Broker) -> None:
        self._broker, self._client = broker, broker.client

    def claim(self, entry: str, at: int, every_s: int, hand: str) -> bool:
        """Whether the caller is the one that runs this tick."""
        counts = self._broker.key("ticks")
        with self._broker.asking():
            is_first = self._client.set(self._key(entry, at), hand, nx=True, ex=max(KEPT_S, 3 * every_s))
            with self._client.pipeline() as batch:
                batch.hincrby(counts, f"{entry}:{'ran' if is_first else 'refused'}", 1)
                if is_first:
                    batch.hset(counts, f"{entry}:last", str(at))
                batch.execute()
        return bool(is_first)

    def has_run(self, entry: str, at: int) -> bool:
        """Whether it was claimed."""
        with self._broker.asking():
            return bool(self._client.exists(self._key(entry, at)))

    def counts(self, entry: str) -> tuple[int, int, int]:
        """How many ticks ran, how many messages came twice, and the time that ran last (0: none)."""
        names = [f"{entry}:{name}" for name in ("ran", "refused", "last")]
        with self._broker.asking():
            counts: Any = self._client.hmget(self._broker.key("ticks"), names)
        ran, refused, last = (int(value) if value and value.isdigit() else 0 for value in counts)
        return ran, refused, last

    def _key(self, entry: str, at: int) -> str:
        return self._broker.key(f"tick:{entry}:{at}")
