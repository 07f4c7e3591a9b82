"""Figures of the service: quantiles of lists and of what was counted by size."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.jobs.health import IDLE_S, WORKERS_FAULTS, Standstill, bucketed, page_seconds, quantile
from weft.jobs.service import LaneHealth
from weft.telemetry import Metrics, Slot


def test_a_quantile_of_a_list() -> None:
    assert quantile([], 0.5) is None
    assert quantile([3.0], 0.95) == 3.0
    ordered = [float(n) for n in range(100)]
    assert (quantile(ordered, 0.5), quantile(ordered, 0.95)) == (50.0, 95.0)


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        ([0, 0, 0], 0.5, None),
        ([10, 0, 0], 0.5, 0.5),
        ([10, 10, 0], 0.5, 1.0),
        ([10, 10, 0], 0.75, 1.5),
        ([0, 0, 5], 0.5, 2.0),  # beyond the last bound: no less than that
    ],
)
def test_a_quantile_of_buckets(counts: list[float], share: float, expected: float | None) -> None:
    assert bucketed([1.0, 2.0], counts, share) == expected


def test_the_time_of_a_page_is_read_from_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "pod0-engine.metrics"
    assert page_seconds(path, 0.5) is None
    metrics = Metrics(tmp_path, Slot(0, "engine"))
    for kind, seconds in (("page", 0.03), ("robots", 9.0)):
        metrics.histogram("weft_fetch_seconds", "Time.", kind=kind).observe(seconds)
    metrics.save()
    found = page_seconds(next(tmp_path.glob("*.metrics")), 0.5)
    assert found is not None and found < 0.1


def test_tasks_that_wait_for_free_slots_are_a_standstill_and_others_are_none() -> None:
    def lane(pending: int, available: int) -> LaneHealth:
        return LaneHealth(
            slots=5, available=available, running=5 - available, paused=0, pending=pending,
            is_claimable=bool(pending and available),
        )  # fmt: skip

    seen = Standstill()
    started = {"task": 3}
    assert seen.problems({"task": lane(2, 1)}, started, 100.0) == []
    assert seen.problems({"task": lane(9, 1)}, started, 100.0 + IDLE_S) == []  # more have come: that is no progress
    (problem,) = seen.problems({"task": lane(9, 1)}, started, 101.0 + IDLE_S)
    assert "9 tasks of lane task wait, 1 slots are free" in problem and problem.startswith(WORKERS_FAULTS)
    assert seen.problems({"task": lane(8, 1)}, {"task": 4}, 102.0 + IDLE_S) == []  # one was started
    assert seen.problems({"task": lane(8, 0)}, {"task": 4}, 200.0) == []  # all slots are taken
    assert seen.problems({"task": lane(0, 5)}, {"task": 4}, 300.0) == []  # nothing waits
