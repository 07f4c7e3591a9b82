"""How the suite is run: who gets which tests, what is told meanwhile, and how limits follow the machine."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import failures
import pace
import progress
import pytest
import schedule


class Node:
    """A worker that writes down what it is sent."""

    shutting_down = False

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent += indices

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduled(config: Any, tests: list[str], workers: int) -> tuple[schedule.SlowFirst, list[Node]]:
    scheduler = schedule.SlowFirst(config)
    nodes = [Node() for _ in range(workers)]
    scheduler.numnodes = workers
    for node in nodes:
        scheduler.add_node(node)
        scheduler.add_node_collection(node, tests)
    scheduler.schedule()
    return scheduler, nodes


@pytest.fixture
def config() -> Any:
    return SimpleNamespace(option=SimpleNamespace(loadscopereorder=True, tx=["popen"]), getvalue=lambda _: ["popen"])


def test_files_go_out_in_order_and_nobody_with_work_gets_another(config: Any) -> None:
    tests = ["a.py::1", "a.py::2", "a.py::3", "b.py::1", "b.py::2", "c.py::1", "c.py::2"]
    scheduler, (first, second) = scheduled(config, tests, 2)
    assert (first.sent, second.sent) == ([0, 1, 2], [3, 4])
    scheduler.mark_test_complete(first, 0)
    assert first.sent == [0, 1, 2], "it knows what comes next"
    scheduler.mark_test_complete(second, 3)
    assert second.sent == [3, 4, 5, 6]


def test_files_whose_tests_share_nothing_are_spread(config: Any) -> None:
    docs = "tests/integration/test_docs.py"
    pods = "tests/integration/test_pods_redis.py"
    tests = [f"{docs}::t[a]", f"{docs}::t[b]", f"{pods}::t[a]", f"{pods}::t[b]", f"{pods}::u"]
    scheduler, _ = scheduled(config, tests, 1)
    assert len({scheduler._split_scope(test) for test in tests}) == 4


def test_slow_files_come_first_and_unknown_ones_by_their_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"tests/integration/test_slow.py": 99.0, "tests/integration/test_quick.py": 1.0}
    monkeypatch.setattr(schedule, "_durations", lambda: known)
    names = [
        "tests/unit/test_new.py::a",
        "tests/integration/test_quick.py::a",
        "tests/integration/test_new.py::b",
        "tests/integration/test_new.py::a",
        "tests/integration/test_slow.py::a",
    ]
    items: list[Any] = [SimpleNamespace(nodeid=name) for name in names]
    schedule.sort(items)
    assert [item.nodeid for item in items] == [names[4], names[2], names[3], names[1], names[0]]


def test_the_line_tells_what_runs_and_what_failed() -> None:
    written = io.StringIO()
    writer = SimpleNamespace(write=written.write, flush=written.flush, fullwidth=80)
    reporter = SimpleNamespace(isatty=False)
    config: Any = SimpleNamespace(
        get_terminal_writer=lambda: writer, pluginmanager=SimpleNamespace(get_plugin=lambda _: reporter)
    )
    line = progress.Progress(config)
    assert line._line().endswith("collecting")
    line.pytest_xdist_node_collection_finished(None, ["a", "b", "c"])
    line.pytest_runtest_logstart("tests/unit/test_a.py::test_x")
    line.pytest_runtest_logstart("tests/unit/test_b.py::test_y")
    line.pytest_runtest_logfinish("tests/unit/test_a.py::test_x")
    report: Any = SimpleNamespace(nodeid="tests/unit/test_a.py::test_x", failed=True, when="setup", duration=1.5)
    line.pytest_runtest_logreport(report)
    assert line._line() == "0:00 1/3, 1 FAILED: unit/test_b.py::test_y"
    assert written.getvalue() == "FAILED tests/unit/test_a.py::test_x (setup)\n"
    assert line.seconds_by_file == {"tests/unit/test_a.py": 1.5}


def test_what_failed_is_told_last_with_the_end_of_its_traceback() -> None:
    written: list[str] = []
    config: Any = SimpleNamespace(get_terminal_writer=lambda: SimpleNamespace(line=written.append))
    told = failures.Failures(config)

    def report(name: str, **how: Any) -> Any:
        text = "\n".join(f"line {number}" for number in range(100))
        return SimpleNamespace(nodeid=name, longreprtext=text, sections=[("stdout", "said\n"), ("log", " ")], **how)

    told.pytest_runtest_logreport(report("test_a.py::good", failed=False, when="call"))
    told.pytest_unconfigure()
    assert written == []
    told.pytest_runtest_logreport(report("test_a.py::bad", failed=True, when="setup"))
    told.pytest_collectreport(report("test_b.py", failed=True, when="collect"))
    told.pytest_unconfigure()
    first = written[0].strip().splitlines()
    assert first[0] == "──── test_a.py::bad (setup)" and first[-2:] == ["-- stdout", "said"]
    assert first[1:-2] == [f"line {number}" for number in range(60, 100)]
    assert written[-3:] == ["\n2 FAILED:", "  test_a.py::bad", "  test_b.py"]


def test_patience_is_stretched_by_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pace.patience(2) >= 2 * pace.LEAST
    pace.factor.cache_clear()
    monkeypatch.delenv(pace.VARIABLE)
    monkeypatch.setattr(pace, "_measured_s", lambda: 3 * pace.REFERENCE_S)
    try:
        assert pace.patience(2) == pytest.approx(2 * 3 * pace.LEAST)
    finally:
        pace.factor.cache_clear()
