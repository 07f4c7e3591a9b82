"""Limits how often a key may submit: an in-memory token bucket for each key. A restart allows one more burst."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from weft.jobs.api.problems import Refusal

MOST_BUCKETS = 10_000


class Rate:
    """Token buckets: `per_s` tokens a second for each owner; unused tokens accumulate up to `burst`."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # owner → tokens, and the time of that count

    def check(self, owner: str) -> None:
        """Consumes a token; raises Refusal (429) if there is none."""
        if (waits := self.consume(owner)) > 0:
            raise Refusal(429, "too many submissions: try again later", retry_after_s=waits)

    def consume(self, owner: str) -> float:
        """Consumes a token and returns 0.0; if there is none, returns the seconds until the next one."""
        now = self._clock()
        tokens, at = self._buckets.pop(owner, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._per_s)
        waits = 0.0 if tokens >= 1 else (1 - tokens) / self._per_s
        self._buckets[owner] = (tokens if waits else tokens - 1, now)
        if len(self._buckets) > MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]  # the least recently used bucket
        return waits
