"""A task's past as a few bars, and the charts that are drawn of it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from weft.jobs.dashboard import text
from weft.jobs.dashboard.charts import HEIGHT, WIDTH, ceiling, chart, charts_of
from weft.jobs.dashboard.history import BARS, History
from weft.jobs.service import Second


def test_bars_are_rates_of_their_seconds() -> None:
    history = History()
    history.add([Second(100, 2, 1, 500), Second(102, 4, 0, 700)], number=7)
    history.add([Second(102, 1, 0, 0)], number=8)  # a second may come in two stretches
    assert [tuple(bar) for bar in history.bars(None)] == [(2, 1, 500), (0, 0, 0), (5, 0, 700)]
    assert (history.number, history.errors, history.body_bytes) == (8, 1, 1200)


@pytest.mark.parametrize("seconds", [BARS, BARS + 1, 1000, 7200, 100_000])
def test_a_long_past_has_no_more_bars_and_loses_nothing(seconds: int) -> None:
    history = History()
    history.add((Second(1_000 + at, 3, 0, 10) for at in range(seconds)), number=seconds)
    bars = history.bars(None)
    assert len(bars) <= BARS
    assert sum(bar.pages for bar in bars) * history.width_s == 3 * seconds
    assert history.length_s >= seconds


def test_what_comes_late_or_of_a_clock_that_was_set_back_is_counted() -> None:
    history = History()
    history.add([Second(1000, 1, 0, 0), Second(990, 1, 0, 0)], number=2)
    assert sum(bar.pages for bar in history.bars(None)) == 2


def test_while_a_task_runs_the_second_that_has_just_begun_is_left_out() -> None:
    history = History()
    history.add([Second(100, 5, 0, 0), Second(101, 5, 0, 0), Second(102, 1, 0, 0)], number=3)
    assert [bar.pages for bar in history.bars(102.3)] == [5, 5]
    assert [bar.pages for bar in history.bars(105.0)] == [5, 5, 1, 0, 0]  # nothing has come since
    assert len(history.bars(100.5)) == 1
    assert len(history.bars(10_000_000.0)) == BARS


def test_a_chart_stays_within_its_frame() -> None:
    found = chart([0, 3, 7, 2], text.decimal)
    points = [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", found["line"])]
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert (points[0], points[-1][0]) == ((0, HEIGHT), WIDTH)
    assert found["area"].startswith(found["line"]) and (found["top"], found["half"], found["zero"]) == (
        "10/s",
        "5/s",
        "0/s",
    )


def test_charts_of_nothing_and_of_one_bar() -> None:
    empty = charts_of(History(), None)
    assert [(one["line"], one["said"]) for one in empty] == [("", "nothing yet")] * 3
    history = History()
    history.add([Second(100, 5, 0, 9)], number=1)
    assert charts_of(history, None)[0]["line"] == f"M0 0L{WIDTH} 0"
    history.add([Second(189, 0, 0, 4_000_000)], number=2)
    pages, _, size = charts_of(history, None)
    assert [pages[name] for name in ("title", "begin", "middle", "length")] == [
        "Pages a second",
        "0 s",
        "45 s",
        "1 min 30 s",
    ]
    assert [size[name] for name in ("zero", "half", "top")] == ["0 B/s", "2.5 MB/s", "5.0 MB/s"]


def test_the_ceiling_is_the_next_round_number() -> None:
    assert [ceiling(one) for one in (0, 0.3, 1, 1.1, 3, 99, 101, 20)] == pytest.approx([1, 0.5, 1, 2, 5, 100, 200, 20])
    values = [ceiling(1.01**power) for power in range(1000)]
    assert all(low <= high for low, high in pairwise(values))
    assert all(1.01**power <= value * 1.000001 for power, value in enumerate(values))
