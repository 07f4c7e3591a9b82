"""Back-pressure by the limits of the parse queue."""

from __future__ import annotations

from weft.engine.pressure import Level, Pressure


class Queue:
    """A queue whose length the test sets."""

    def __init__(self) -> None:
        self.length = 0
        self.time = 0.0
        self.pressure = Pressure(lambda: self.length, 100, 300)

    def share(self, length: int) -> float:
        self.length = length
        self.time += 1.0
        return self.pressure.share(self.time)


def test_between_the_limits_it_slows_down_in_proportion() -> None:
    queue = Queue()
    assert [queue.share(length) for length in (0, 99, 100, 200, 250, 299)] == [1.0, 1.0, 1.0, 0.5, 0.25, 0.005]
    assert queue.share(50) == 1.0
    assert queue.pressure.events == {"soft": 1, "hard": 0}


def test_above_the_hard_limit_it_waits_until_it_is_below_the_soft_one() -> None:
    queue = Queue()
    assert [queue.share(length) for length in (300, 299, 150, 100, 99)] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert queue.pressure.level is Level.NONE
    assert queue.share(400) == 0.0
    assert queue.pressure.events == {"soft": 0, "hard": 2}


def test_what_it_has_handed_over_itself_counts_between_two_looks() -> None:
    queue = Queue()
    assert queue.share(90) == 1.0
    queue.pressure.grew(60)
    assert queue.pressure.share(queue.time) == 0.75
    queue.pressure.grew(200)
    assert queue.pressure.share(queue.time) == 0.0
