"""What a run counts: the same whether items are counted one by one or many at once."""

from __future__ import annotations

import random

import msgspec

from weft.pipelines.output.outcome import (
    CACHED,
    FAILED,
    RAN,
    SKIPPED,
    SKIPPED_BY_CONDITION,
    SKIPPED_BY_FAILURE,
    SKIPPED_BY_NEED,
    SKIPPED_CACHED,
    SentStage,
)
from weft.pipelines.output.stats import RunStats, StageStats


def test_each_outcome_counts_as_what_it_was_and_only_work_is_timed() -> None:
    stats = StageStats()
    times_us = {
        RAN: 1000, SKIPPED: 3000, FAILED: 5000, CACHED: 70, SKIPPED_CACHED: 70, SKIPPED_BY_CONDITION: 70,
        SKIPPED_BY_NEED: 0, SKIPPED_BY_FAILURE: 0,
    }  # fmt: skip
    stats.add([SentStage(code, us, b"key") for code, us in times_us.items()])
    assert (stats.ran, stats.cached, stats.skipped, stats.failed) == (1, 2, 4, 1)
    assert (stats.total_ms, stats.max_ms, sum(stats.buckets.values())) == (9.0, 5.0, 3)


def test_many_at_once_count_as_one_after_the_other() -> None:
    chance = random.Random(5)
    stages = [SentStage(chance.choice((RAN, CACHED, FAILED)), chance.randrange(10**6)) for _ in range(500)]
    together, single = StageStats(), StageStats()
    together.add(stages)
    for stage in stages:
        single.add([stage])
    assert together.buckets == single.buckets
    assert (together.ran, together.cached, together.failed) == (single.ran, single.cached, single.failed)
    assert (round(together.total_ms, 3), together.max_ms) == (round(single.total_ms, 3), single.max_ms)
    assert together.percentile_ms(0.5) == single.percentile_ms(0.5)


def test_a_run_keeps_the_slowest_items_and_counts_the_unchanged() -> None:
    ended: list[tuple[str, bool, float, str | int]] = [("ok", False, float(number), number) for number in range(300)]
    ended += [("skipped", True, 0.0, "same"), ("skipped", False, 0.0, "unwanted"), ("failed", False, 1000.0, "bad")]
    random.Random(5).shuffle(ended)
    stats = RunStats({})
    for at in range(0, len(ended), 7):
        stats.add(ended[at : at + 7])
    assert stats.items == 303
    assert (stats.by_status, stats.unchanged) == ({"ok": 300, "skipped": 2, "failed": 1}, 1)
    assert sorted(name for _, name in stats.slowest) == sorted(["bad", *(str(number) for number in range(281, 300))])
    again = msgspec.json.decode(msgspec.json.encode(stats), type=RunStats)  # as a checkpoint keeps it
    again.add([("ok", False, 500.0, "late")])
    assert len(again.slowest) == 20 and (500.0, "late") in again.slowest and (281.0, "281") not in again.slowest
