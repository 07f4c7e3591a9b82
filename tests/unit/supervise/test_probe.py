"""Health that is asked for beside the loop: given time, excused, and named when it is over."""

from __future__ import annotations

import time

from pace import patience

from weft.supervise.probe import HealthProbe, Patience
from weft.supervise.service import HEALTHY, HealthReport, Moving, ServiceHealth

AWAY = HealthReport(ServiceHealth.FAILING, "no answer in 2 s")


class Asked:
    """Answers by hand, on a clock by hand."""

    def __init__(self, patience_s: float = 25.0) -> None:
        self.now_s = 100.0
        self.found: tuple[float, HealthReport] | None = None
        self.is_excused = False
        self.check = Patience(lambda: self.found, patience_s, excused=lambda: self.is_excused, clock=lambda: self.now_s)

    def after(self, seconds: float, report: HealthReport, pid: int = 7) -> HealthReport:
        self.now_s += seconds
        self.found = self.now_s, report
        return self.check(pid)


def test_a_process_is_starting_until_it_was_asked_itself() -> None:
    asked = Asked()
    asked.found = 99.0, HEALTHY  # of the one before it
    assert asked.check(7).health is ServiceHealth.STARTING
    assert asked.after(1, AWAY) == HealthReport(ServiceHealth.STARTING, AWAY.reason)
    assert asked.after(1, HealthReport(ServiceHealth.LOADING, "loading")).health is ServiceHealth.LOADING
    assert asked.after(1, HEALTHY) == HEALTHY


def test_one_that_fails_is_given_time_and_then_named() -> None:
    asked = Asked()
    assert asked.after(1, HEALTHY) == HEALTHY
    assert asked.after(10, AWAY) == AWAY
    assert asked.after(15, AWAY) == AWAY
    assert asked.after(1, AWAY) == HealthReport(ServiceHealth.UNHEALTHY, "no answer in 2 s, for 26 s")
    assert asked.after(0, HEALTHY) == HEALTHY
    assert asked.after(20, AWAY) == AWAY


def test_the_time_does_not_run_while_the_cause_lies_elsewhere() -> None:
    asked = Asked()
    asked.after(1, HEALTHY)
    asked.is_excused = True
    for _ in range(10):
        assert asked.after(20, AWAY) == AWAY
    asked.is_excused = False
    assert asked.after(20, AWAY) == AWAY
    assert asked.after(10, AWAY).health is ServiceHealth.UNHEALTHY


def test_a_start_has_no_time_limit_while_the_cause_lies_elsewhere() -> None:
    asked = Asked()
    asked.is_excused = True
    assert asked.check(7).health is ServiceHealth.STARTING  # it has not answered at all
    assert asked.after(1, AWAY) == HealthReport(ServiceHealth.LOADING, AWAY.reason)
    asked.is_excused = False
    assert asked.after(1, AWAY) == HealthReport(ServiceHealth.STARTING, AWAY.reason)


def test_an_answer_that_is_too_old_is_none() -> None:
    asked = Asked()
    asked.after(1, HEALTHY)
    asked.now_s += 25
    assert asked.check(7) == HEALTHY
    asked.now_s += 1  # the probe has not been asked since
    assert asked.check(7) == HealthReport(ServiceHealth.UNHEALTHY, "no answer, for 26 s")


def test_a_probe_asks_again_and_again_and_an_exception_is_no_health() -> None:
    answers = iter([HEALTHY, None])

    def ask() -> HealthReport:
        answer = next(answers, AWAY)
        if answer is None:
            raise ValueError("a defect")
        return answer

    seen: list[HealthReport] = []
    probe, limit = HealthProbe(ask), time.monotonic() + patience(10)
    try:
        while not seen or seen[-1] != AWAY:
            assert time.monotonic() < limit
            if (found := probe.answer()) is not None and found[1] not in seen:
                seen.append(found[1])
    finally:
        probe.close()
    assert seen == [HEALTHY, HealthReport(ServiceHealth.FAILING, "ValueError: a defect"), AWAY]


def test_a_worker_that_lives_and_does_nothing_is_named_within_30_s() -> None:
    now_s, done = 100.0, 0
    moving = Moving(lambda: done, 25.0, must_move_first=True, late_s=5.0, clock=lambda: now_s)
    assert moving(7).health is ServiceHealth.STARTING
    now_s, done = 101.0, 1
    assert moving(7) == HEALTHY
    now_s = 106.0
    assert moving(7) == HEALTHY
    now_s = 126.0
    assert moving(7) == HealthReport(ServiceHealth.FAILING, "it has stood still for 25.0 s")
    now_s = 126.5
    report = moving(7)
    assert report.health is ServiceHealth.UNHEALTHY and "stood still for 25.5 s" in report.reason
    assert moving(8).health is ServiceHealth.STARTING  # its successor
