"""Several services as one, with real processes on a clock of our own: order of start and stop, crash loops."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import pytest
from pace import patience

from weft.errors import BadInput
from weft.supervise.child import RestartPolicy
from weft.supervise.external import External
from weft.supervise.graph import Graph, Kept, state_of
from weft.supervise.service import HEALTHY, Command, HealthReport, Service, ServiceHealth

POLICY = RestartPolicy(
    first_delay_s=1, factor=2, max_delay_s=4, jitter=0, stable_after_s=10, max_failures=5, health_forgives=True
)
SLEEPS = ["/bin/sleep", "600"]


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def graph() -> Iterator[Graph]:
    graph = Graph()
    yield graph
    graph.kill()
    graph.turn()


def until(graph: Graph, condition: Callable[[], object]) -> None:
    limit = time.monotonic() + patience(10)
    while not condition():
        assert time.monotonic() < limit, [(one.name, state_of(one), one.report) for one in graph]
        graph.turn()
        time.sleep(0.002)


def service(name: str, clock: Clock, *needs: Kept, argv: list[str] | None = None, **options: object) -> Service:
    return Service(name, lambda: Command(argv or SLEEPS), policy=POLICY, needs=needs, clock=clock, **options)  # type: ignore[arg-type]


def test_a_service_is_started_after_what_it_needs_and_stopped_before_it(graph: Graph, clock: Clock) -> None:
    report = HealthReport(ServiceHealth.STARTING)
    first = service("redis", clock, health=lambda _: report)
    second = service("celery", clock, first)
    third = service("beat", clock, second)
    graph.add([first, second, third])
    until(graph, lambda: first.pid)
    for _ in range(5):
        graph.turn()
    assert [state_of(one) for one in graph] == ["starting", "waiting", "waiting"]
    report = HEALTHY
    until(graph, lambda: all(one.healthy for one in graph))
    ended: list[str] = []

    def note() -> bool:
        ended.extend(one.name for one in graph if one.has_ended and one.name not in ended)
        return graph.has_ended

    graph.stop()
    until(graph, note)
    assert ended == ["beat", "celery", "redis"]
    assert [state_of(one) for one in graph] == ["stopped"] * 3


def test_what_dies_while_all_are_stopped_is_not_started_again(graph: Graph, clock: Clock) -> None:
    """As under systemd, which signals every process at once, while what needs it takes its time."""
    patient = [sys.executable, "-Sc", "import signal, time; signal.signal(15, lambda *_: None); time.sleep(600)"]
    engine = service("engine", clock)
    api = service("api", clock, engine, argv=patient)
    graph.add([engine, api])
    until(graph, lambda: engine.healthy and api.healthy)
    graph.stop()
    graph.turn()
    assert engine.pid is not None and not engine.was_stopped
    os.kill(engine.pid, signal.SIGTERM)
    until(graph, lambda: engine.pid is None)
    clock.now_s += 5
    graph.turn()
    assert (engine.has_ended, engine.starts, state_of(engine)) == (True, 1, "stopped")


def test_who_needs_others_for_its_first_start_alone_comes_back_without_them(graph: Graph, clock: Clock) -> None:
    report = HEALTHY
    engine = service("engine", clock, health=lambda _: report)
    api, waits = service("api", clock, engine, needs_once=True), service("waits", clock, engine)
    graph.add([engine, api, waits])
    until(graph, lambda: all(one.healthy for one in graph))
    report = HealthReport(ServiceHealth.STARTING)
    for one in (api, waits):
        assert one.pid is not None
        os.kill(one.pid, signal.SIGKILL)
    until(graph, lambda: api.pid is None and waits.pid is None)
    clock.now_s += 5
    until(graph, lambda: api.pid)
    assert (engine.healthy, api.starts, waits.starts) == (False, 2, 1)


def test_a_crash_loop_is_given_up_with_its_last_words_and_the_others_go_on(graph: Graph, clock: Clock) -> None:
    dies = [sys.executable, "-Sc", "import sys; sys.exit('no such licence')"]
    bad = Service("bad", lambda: Command(dies, keeps_words=True), policy=POLICY, clock=clock, health=_never)
    good = service("good", clock)
    graph.add([bad, good])
    for death in range(1, 5):
        until(graph, lambda: state_of(bad) == "back-off")
        assert (bad.starts, bad.child.deaths_without_health) == (death, death)
        graph.turn()
        assert bad.starts == death  # not before its delay is over
        clock.now_s += 5
        graph.turn()
    until(graph, lambda: state_of(bad) == "failed")
    assert bad.starts == 5 and bad.last_error == "exited with code 1: no such licence"
    assert bad.failure == "bad exited with code 1, 5 times in a row: no such licence"
    assert good.healthy
    bad.restart()  # by hand
    until(graph, lambda: bad.starts == 6)


def _never(_: int) -> HealthReport:
    return HealthReport(ServiceHealth.STARTING)


def test_kills_after_health_never_make_a_crash_loop_and_delay_the_next_start(graph: Graph, clock: Clock) -> None:
    one = service("one", clock)
    graph.add([one])
    for death in range(7):
        until(graph, lambda: one.healthy)
        pid = one.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(graph, lambda: one.pid is None)
        assert state_of(one) == "back-off" and one.last_error == "killed by SIGKILL"
        clock.now_s += min(4, 2**death) - 0.5
        graph.turn()
        assert one.pid is None
        clock.now_s += 0.5
    until(graph, lambda: one.healthy)
    assert one.starts == 8


def test_an_unhealthy_one_is_replaced_and_the_reason_stays(graph: Graph, clock: Clock) -> None:
    stuck: set[int] = set()
    one = service(
        "one", clock,
        health=lambda pid: HealthReport(ServiceHealth.UNHEALTHY, "it takes no work") if pid in stuck else HEALTHY,
    )  # fmt: skip
    graph.add([one])
    until(graph, lambda: one.healthy)
    first = one.pid
    assert first is not None
    stuck.add(first)
    until(graph, lambda: one.pid is None)
    clock.now_s += 2
    until(graph, lambda: one.healthy)
    assert one.pid != first and one.last_error == "it takes no work"


def test_a_restart_is_in_good_order_and_never_has_two(graph: Graph, clock: Clock) -> None:
    one = service("one", clock)
    graph.add([one])
    until(graph, lambda: one.healthy)
    one.kill()
    until(graph, lambda: one.last_error)
    clock.now_s += 2
    until(graph, lambda: one.healthy)
    first = one.pid
    assert one.last_error == "killed by SIGKILL" and one.last_error_at > 0
    one.restart()  # what it has survived is not why it is stopped
    assert state_of(one) == "stopping" and not one.healthy and not one.last_error
    until(graph, lambda: one.healthy)
    assert one.pid != first and not one.last_error and not one.last_error_at
    assert one.starts == 3


def test_what_is_in_the_way_of_one_start_stops_no_other(graph: Graph, clock: Clock) -> None:
    def refused() -> Command:
        raise BadInput("its folder is full of stones")

    bad, good = Service("bad", refused, policy=POLICY, clock=clock), service("good", clock)
    graph.add([bad, good])
    until(graph, lambda: good.healthy)
    for _ in range(4):
        clock.now_s += 5
        graph.turn()
    assert state_of(bad) == "failed" and bad.last_error == "its folder is full of stones" and good.healthy
    assert graph.with_needs([good]) == [good]


def test_what_somebody_else_runs_is_never_started_or_stopped(graph: Graph, clock: Clock) -> None:
    report = HealthReport(ServiceHealth.LOADING, "is loading its data")
    other = External("redis", lambda: report)
    needs_it = service("celery", clock, other)
    graph.add([other, needs_it])
    until(graph, lambda: other.last_error == "is loading its data")
    assert state_of(other) == "external" and not other.healthy and needs_it.pid is None
    report = HEALTHY
    until(graph, lambda: needs_it.healthy)
    with pytest.raises(BadInput, match="Weft has not started it"):
        other.restart()
    graph.stop()
    until(graph, lambda: graph.has_ended)
    assert other.pid is None


def test_names_are_found_by_group_and_given_once(graph: Graph, clock: Clock) -> None:
    first, second = service("api0", clock), service("api1", clock)
    graph.add([first, second])
    assert graph.named("api") == [first, second] and graph.named("api1") == [second] and graph.named("ap") == []
    with pytest.raises(BadInput, match="already"):
        graph.add([service("api0", clock)])
    with pytest.raises(BadInput, match="not among the services"):
        graph.add([service("celery", clock, service("redis", clock))])
