"""Watches a run of pytest inside the worker's fork: which lines each test runs, or which tests are wanted.

Lines are told by a trace function, for modules of the plan alone. What a fixture runs that several tests share counts
for all tests of the file. Of a Lua script it is known that it was called, not which lines. What runs in another Python
process is not seen: a test that starts one is noted as such.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

Lines = dict[str, set[int]]
LUA = "frontier/redis/lua/{}.lua"
SHARED = ("common", "sites", "items")  # every script begins with these


class Recorder:
    """Notes for each test its time, its lines, and whether it starts Python processes."""

    def __init__(self, source: Path, modules: list[str], result: Path) -> None:
        self._files = {str(source / module): module for module in modules if module.endswith(".py")}
        self._scripts = str(source / "frontier" / "redis" / "scripts.py")
        self._result = result
        self._lines: Lines = {}
        self._shared: Lines = {}
        self._starts_python = False
        self._tests: dict[str, dict[str, Any]] = {}

    def pytest_sessionstart(self) -> None:
        sys.addaudithook(self._audit)
        threading.settrace(self._trace)
        sys.settrace(self._trace)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._lines, self._starts_python = {}, False
        sys.settrace(self._trace)  # a test may have taken it away
        began = time.monotonic()
        result = yield
        self._tests[item.nodeid] = {
            "seconds": time.monotonic() - began,
            "starts_python": self._starts_python,
            "lines": self._lines,
        }
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[Any]:
        if fixturedef.scope == "function":
            return (yield)
        own, self._lines = self._lines, {}
        result = yield
        for module, lines in self._lines.items():
            self._shared.setdefault(module, set()).update(lines)
        self._lines = own
        return result

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        threading.settrace(None)
        for test in self._tests.values():
            lines = {module: test["lines"].get(module, set()) | self._shared.get(module, set())
                     for module in {*test["lines"], *self._shared}}  # fmt: skip
            test["lines"] = {module: sorted(lines[module]) for module in sorted(lines)}
        self._result.write_text(json.dumps(self._tests))

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.fork" or (event == "subprocess.Popen" and "python" in str(arguments[:2])):
            self._starts_python = True

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        module = self._files.get(frame.f_code.co_filename)
        if module is None:
            return None
        if frame.f_code.co_name == "_send" and frame.f_code.co_filename == self._scripts:
            for name in (*SHARED, *(name for name, _ in frame.f_locals["calls"])):
                self._lines.setdefault(LUA.format(name), set()).add(1)
        return self._local(module)

    def _local(self, module: str) -> Any:
        lines = self._lines.setdefault(module, set())

        def local(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return local

        return local


class Selection:
    """Runs the wanted tests alone, in their order; the first failure, or one that takes too long, ends the process."""

    def __init__(self, limits_s: dict[str, float], result: Path) -> None:
        self._limits_s = limits_s
        self._place = {test: number for number, test in enumerate(limits_s)}
        self._result = result
        self._deadline: tuple[float, str] | None = None

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._place), key=lambda i: self._place[i.nodeid])
        threading.Thread(target=self._watch, daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._deadline = (time.monotonic() + self._limits_s[nodeid], nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._end(report.nodeid, str(report.longrepr))

    def _watch(self) -> None:
        while True:
            time.sleep(0.2)
            if self._deadline is not None and time.monotonic() > self._deadline[0]:
                self._end("time: " + self._deadline[1])

    def _end(self, by: str, output: str = "") -> None:
        self._result.write_text(json.dumps({"by": by, "output": output[-4000:]}))
        os._exit(1)
