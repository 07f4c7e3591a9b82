"""Figures of the service: quantiles of lists and of what was counted by size."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.jobs.health import bucketed, page_seconds, quantile
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
