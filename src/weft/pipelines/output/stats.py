"""What a run's stages did and how long they took, counted as items end, in a few kilobytes however many there are."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from weft.pipelines.output.outcome import FAILED, RAN, SKIPPED, SentStage

_BUCKETS_PER_DOUBLING = 4
"""Buckets of durations for each doubling: a percentile is right to a quarter."""
_COUNTED_AS = ("ran", "cached", "skipped", "cached", "skipped", "skipped", "failed", "skipped")
"""By the code of an outcome: a stage behind one that failed was not run."""
_TIMED_CODES = (RAN, SKIPPED, FAILED)
"""Those that the stage's own code has made."""
_FAILURES_KEPT = 500
_SLOWEST_KEPT = 20


class StageStats(msgspec.Struct):
    """The counts and times of one stage over all items."""

    ran: int = 0
    cached: int = 0
    skipped: int = 0
    failed: int = 0
    total_ms: float = 0.0
    """Of the times that it was run."""
    max_ms: float = 0.0
    buckets: dict[int, int] = {}

    def add(self, stages: Sequence[SentStage]) -> None:
        """Adds the outcomes of more items."""
        for code, count in Counter([stage.code for stage in stages]).items():
            counted = _COUNTED_AS[code]
            setattr(self, counted, getattr(self, counted) + count)
        took_us = Counter([stage.duration_us for stage in stages if stage.code in _TIMED_CODES])
        if not took_us:
            return
        self.total_ms += sum(us * count for us, count in took_us.items()) / 1000
        self.max_ms = max(self.max_ms, max(took_us) / 1000)
        for us, count in took_us.items():
            bits = us.bit_length()
            bucket = bits * _BUCKETS_PER_DOUBLING + (us >> bits - 3 & 3 if bits > 2 else 0)
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count

    def percentile_ms(self, share: float) -> float:
        """The duration that this share of the runs did not exceed, roughly."""
        wanted, seen = share * sum(self.buckets.values()), 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= wanted:
                bits, quarter = divmod(bucket, _BUCKETS_PER_DOUBLING)
                return float(min(self.max_ms, 2 ** (bits - 1) * (1 + (quarter + 1) / _BUCKETS_PER_DOUBLING) / 1000))
        return 0.0


class ItemFailure(msgspec.Struct):
    """An item that failed, for the report."""

    id: str | int
    status: str
    phase: str | None
    error: str | None
    log: str | None = None


class RunStats(msgspec.Struct):
    """The counts and times of a run."""

    stages: dict[str, StageStats]
    items: int = 0
    by_status: dict[str, int] = {}
    unchanged: int = 0
    """Of the skipped: those for which nothing had to be done."""
    by_phase: dict[str, int] = {}
    """Failures by the stage that failed."""
    failures: list[ItemFailure] = []
    """The first ones."""
    slowest: list[tuple[float, str]] = []
    """Milliseconds and id."""

    def add(self, ended: list[tuple[str, bool, float, str | int]]) -> None:
        """Adds items: status, whether nothing had to be done, milliseconds and id of each."""
        self.items += len(ended)
        for (status, unchanged), count in Counter([(one[0], one[1]) for one in ended]).items():
            self.by_status[status] = self.by_status.get(status, 0) + count
            self.unchanged += count if unchanged and status == "skipped" else 0
        least_ms = self.slowest[0][0] if len(self.slowest) >= _SLOWEST_KEPT else -1.0
        slow = [(one[2], str(one[3])) for one in ended if one[2] > least_ms]
        self.slowest = sorted(heapq.nlargest(_SLOWEST_KEPT, [*self.slowest, *slow]))

    def add_failure(self, failure: ItemFailure) -> None:
        """Counts a failed item, and keeps the first ones for the report."""
        phase = failure.phase or "?"
        self.by_phase[phase] = self.by_phase.get(phase, 0) + 1
        if len(self.failures) < _FAILURES_KEPT:
            self.failures.append(failure)

    @property
    def bad(self) -> int:
        """How many items failed."""
        return sum(self.by_status.get(status, 0) for status in ("failed", "timeout", "crashed"))

    def plain(self) -> dict[str, Any]:
        """The statistics as plain values, for the report."""
        document: dict[str, Any] = msgspec.to_builtins(self)
        for name, stage in self.stages.items():
            document["stages"][name] |= {
                "p50_ms": stage.percentile_ms(0.5), "p95_ms": stage.percentile_ms(0.95), "buckets": None,
            }  # fmt: skip
            del document["stages"][name]["buckets"]
        document["slowest"] = [{"id": name, "duration_ms": ms} for ms, name in sorted(self.slowest, reverse=True)]
        return document
