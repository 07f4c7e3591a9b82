"""How many transfers are in flight: what bounds it, and when it grows and shrinks."""

from __future__ import annotations

import resource

import pytest

from weft.engine.loop.fetcher import flight
from weft.engine.loop.fetcher.flight import FIRST_TARGET, POLL_EVERY_S, FlightControl, most_in_flight


class Thread:
    """A thread that is as busy as the test says."""

    def __init__(self) -> None:
        self.now = 100.0
        self.busy = 0.0

    def pass_by(self, share: float) -> float:
        self.now += POLL_EVERY_S
        self.busy += share * POLL_EVERY_S
        return self.now


def looked(most: int, *looks: tuple[float, int]) -> list[int]:
    """The target after each look: the share of time that the loop was busy, and how many sites were due."""
    thread = Thread()
    one = FlightControl(most, busy=lambda: thread.busy)
    one.poll(thread.now, 0, 0)
    targets = []
    for share, due in looks:
        one.poll(thread.pass_by(share), due, one.target)
        targets.append(one.target)
    return targets


def test_it_grows_while_sites_wait_and_there_is_time() -> None:
    assert looked(1500, (0.2, 900), (0.5, 900), (0.5, 900), (0.5, 900)) == [512, 1024, 1500, 1500]


def test_it_does_not_grow_for_the_few_that_are_due_at_any_moment() -> None:
    assert looked(5000, (0.1, 0), (0.1, 8), (0.1, FIRST_TARGET // 16)) == [FIRST_TARGET] * 3


def test_a_loop_without_time_takes_no_more_and_gives_back_down_to_the_start() -> None:
    assert looked(5000, (0.93, 900)) == [FIRST_TARGET], "neither time to spare, nor none"
    targets = looked(5000, (0.1, 900), (0.1, 900), *([(1.0, 900)] * 40))
    assert targets[1] == 4 * FIRST_TARGET > targets[2] > targets[5] > targets[-1] == FIRST_TARGET


def test_a_setting_is_the_most_and_every_class_has_a_part_of_it() -> None:
    few = FlightControl(8)
    assert (few.target, few.slots.unknown, few.slots.slow) == (8, 4, 2)
    assert (few.room(5), few.room(8), few.room(9)) == (3, 0, 0)
    one = FlightControl(1)
    assert (one.target, one.slots.unknown, one.slots.slow) == (1, 1, 1)
    assert looked(8, (0.1, 900), (0.1, 900)) == [8, 8]


@pytest.mark.parametrize(
    ("files", "memory", "workers", "most"),
    [
        (256, 1 << 40, None, 48),
        (20_000, 1 << 40, None, 4984),
        (1 << 20, 1 << 40, None, 10_000),
        (1 << 20, 1 << 30, None, 128),
        (1 << 20, 0, None, 16),
        (70, 1 << 40, None, 1),
        (1 << 20, 1 << 30, 5000, 5000),
        (256, 1 << 40, 200, 48),
        (20_000, 1 << 40, 3, 3),
    ],
)
def test_descriptors_and_memory_bound_it(
    files: int, memory: int, workers: int | None, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    monkeypatch.setattr(flight, "available_bytes", lambda: memory)
    assert most_in_flight(workers) == most
