"""Back-pressure by the limits of the parse queue."""

from __future__ import annotations

from log_lines import log_lines

from weft.engine.loop.parser.pressure import Pressure, PressureLevel


class Queue:
    """A queue whose length the test sets."""

    def __init__(self) -> None:
        self.length = 0
        self.time = 0.0
        self.pressure = Pressure(lambda: self.length, 100, 300)

    def share(self, length: int) -> float:
        self.length = length
        self.time += 1.0
        return self.pressure.transfer_share(self.time)


def test_between_the_limits_it_slows_down_in_proportion() -> None:
    queue = Queue()
    assert [queue.share(length) for length in (0, 99, 100, 200, 250, 299)] == [1.0, 1.0, 1.0, 0.5, 0.25, 0.005]
    assert queue.share(50) == 1.0
    assert queue.pressure.events == {"soft": 1, "hard": 0}


def test_above_the_hard_limit_it_waits_until_it_is_below_the_soft_one() -> None:
    queue = Queue()
    assert [queue.share(length) for length in (300, 299, 150, 100, 99)] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert queue.pressure.level is PressureLevel.NONE
    assert queue.share(400) == 0.0
    assert queue.pressure.events == {"soft": 0, "hard": 2}


def test_what_it_has_handed_over_itself_counts_between_two_looks() -> None:
    queue = Queue()
    assert queue.share(90) == 1.0
    queue.pressure.add_pages(60)
    assert queue.pressure.transfer_share(queue.time) == 0.75
    queue.pressure.add_pages(200)
    assert queue.pressure.transfer_share(queue.time) == 0.0


def test_the_log_is_told_when_it_begins_and_when_it_has_been_over_for_a_while() -> None:
    with log_lines("weft.engine.loop.parser.pressure") as lines:
        queue = Queue()
        for length in (50, 99, 120, 90, 120, 99, 350, 320, 40, 40, 40, 120, 40, 40, 40, 40, 40, 40, 40):
            queue.share(length)
    assert [(message, str(fields["level"]), fields["waiting"]) for message, fields in lines] == [
        ("back-pressure entered", "soft", 120),
        ("back-pressure entered", "hard", 350),
        ("back-pressure left", "hard", 40),
    ], "a queue that swings around its limit is not told of each time"
