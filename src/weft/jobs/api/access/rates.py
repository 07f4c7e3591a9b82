"""How often a key may submit: a token bucket for each, in memory. The worst that a restart gives is one more burst."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from weft.jobs.api.problems import Refusal

MOST_BUCKETS = 10_000


class Rate:
    """So many tokens a second for each owner; what is not used adds up to a burst."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float] = monotonic) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # owner -> tokens, at a time

    def check(self, owner: str) -> None:
        """Takes a token; a Refusal where there is none."""
        if (waits := self.take(owner)) > 0:
            raise Refusal(429, "too many submissions: try again later", retry_after_s=waits)

    def take(self, owner: str) -> float:
        """0.0 if a token was there, which is taken; else the seconds until there is one."""
        now = self._clock()
        tokens, at = self._buckets.pop(owner, (self._burst, now))
        tokens = min(self._burst, tokens + (now - at) * self._per_s)
        waits = 0.0 if tokens >= 1 else (1 - tokens) / self._per_s
        self._buckets[owner] = (tokens if waits else tokens - 1, now)
        if len(self._buckets) > MOST_BUCKETS:
            del self._buckets[next(iter(self._buckets))]  # the one that was used least recently
        return waits
