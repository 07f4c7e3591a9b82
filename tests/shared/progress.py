"""What a run with several workers is doing: one line, renewed in place on a terminal, now and then in a log.

It takes the place of pytest's dots; a failure gets a line of its own at once. The summary at the end is pytest's.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from typing import Any

import pytest

ON_TERMINAL_S = 0.5
IN_LOG_S = 15.0
LONGEST = 110


class Progress:
    """Counts what the workers report, on the controller."""

    def __init__(self, config: pytest.Config) -> None:
        self._writer = config.get_terminal_writer()
        self._on_terminal = bool(config.pluginmanager.get_plugin("terminalreporter").isatty)  # type: ignore[union-attr]
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tell_again_and_again, name="progress", daemon=True)
        self._began = time.monotonic()
        self._running: dict[str, float] = {}
        self._total = self._done = self._failed = 0
        self.seconds_by_file: defaultdict[str, float] = defaultdict(float)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        with self._lock:
            self._total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        with self._lock:
            self._running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        with self._lock:
            self._done += 1
            self._running.pop(nodeid, None)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: Any) -> Generator[None, Any, Any]:
        category, letter, word = yield
        # Neither a dot nor a word while it runs: nothing is written for it. The summary needs them.
        return (category, letter, word) if self._over.is_set() else (category, "", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds_by_file[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            with self._lock:
                self._failed += 1
                self._write(
                    f"FAILED {report.nodeid}" + ("" if report.when == "call" else f" ({report.when})"), end="\n"
                )

    def pytest_sessionfinish(self) -> None:
        self._over.set()
        self._thread.join()
        with self._lock:
            self._write("" if self._on_terminal else self._line(), end="" if self._on_terminal else "\n")

    def _tell_again_and_again(self) -> None:
        while not self._over.wait(ON_TERMINAL_S if self._on_terminal else IN_LOG_S):
            with self._lock:
                self._write(self._line(), end="" if self._on_terminal else "\n")

    def _line(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        if not self._total:
            return f"{minutes}:{seconds:02} collecting"
        line = f"{minutes}:{seconds:02} {self._done}/{self._total}"
        if self._failed:
            line += f", {self._failed} FAILED"
        return f"{line}: {', '.join(self._what_runs()) or 'nothing runs'}"

    def _what_runs(self) -> list[str]:
        """The running tests, the longest first, those of more than a second with their seconds."""
        now, told = time.monotonic(), []
        for nodeid, since in sorted(self._running.items(), key=lambda pair: pair[1]):
            seconds = int(now - since)
            name = nodeid.removeprefix("tests/")
            name = name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"
            told.append(name + (f" ({seconds} s)" if seconds else ""))
        return told

    def _write(self, line: str, end: str) -> None:
        if self._on_terminal:
            width = max(20, self._writer.fullwidth - 1)
            line = "\r\x1b[K" + (line if end else line[:width])
        self._writer.write(line + end)
        self._writer.flush()


def is_wanted(config: pytest.Config) -> bool:
    """Only the controller of several workers sees all; with verbose output the line would disturb."""
    has_workers = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    return has_workers and config.getoption("verbose") <= 0
