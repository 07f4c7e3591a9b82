"""What failed, once more, as the last thing that a run with several workers says.

Whoever is shown only the end of a long run (a CI log that is cut) sees the names and the ends of the tracebacks there,
and not the slowest tests and the warnings.
"""

from __future__ import annotations

import pytest

LINES = 40  # of a traceback, its last ones
CAPTURED = 10  # of each stream that a test has written to
MOST = 15  # a run in which everything fails says nothing by the hundredth traceback


class Failures:
    """Gathers them on the controller, and tells them when pytest has ended."""

    def __init__(self, config: pytest.Config) -> None:
        self._writer = config.get_terminal_writer()
        self._found: list[pytest.TestReport | pytest.CollectReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._found.append(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._found.append(report)

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        for report in self._found[:MOST]:
            self._writer.line(f"\n──── {told(report)}")
        if len(self._found) > MOST:
            self._writer.line(f"\n… and {len(self._found) - MOST} more")
        if self._found:
            self._writer.line(f"\n{len(self._found)} FAILED:")
        for report in self._found:
            self._writer.line(f"  {report.nodeid}")


def told(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Name, end of the traceback, ends of what was written."""
    where = "" if report.when == "call" else f" ({report.when})"
    parts = [f"{report.nodeid}{where}", _end_of(report.longreprtext, LINES)]
    parts += [f"-- {name}\n{_end_of(text, CAPTURED)}" for name, text in report.sections if text.strip()]
    return "\n".join(parts)


def _end_of(text: str, lines: int) -> str:
    return "\n".join(text.rstrip().splitlines()[-lines:])
