"""Displays the progress of a task: on a line of the terminal, or through the caller's function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from weft.scraping import TaskStatus

Progress = Callable[[TaskStatus], None]


@contextmanager
def progress_display(progress: Progress | bool | None) -> Iterator[Progress]:
    """The function to call with each status: the caller's, one that displays a line on the terminal, or none."""
    if callable(progress):
        yield progress
    elif progress or (progress is None and sys.stderr.isatty()):
        line = TerminalLine(sys.stderr)
        try:
            yield line
        finally:
            line.close()
    else:
        yield lambda _: None


class TerminalLine:
    """One line on a terminal that is overwritten with each status."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __call__(self, status: TaskStatus) -> None:
        """Displays a status."""
        self._out.write("\r\x1b[2K" + progress_text(status)[:110])
        self._out.flush()

    def close(self) -> None:
        """Ends the line, which stays on the terminal."""
        self._out.write("\n")


def progress_text(status: TaskStatus) -> str:
    """`RUNNING 40 % · 10 pages, 2 failed, 13 queued · 0:12, 29:48 left`."""
    progress = status.progress
    parts = [f"{status.status} {progress.percent:.0f} %", f"{progress.completed:,} pages"]
    counts = [("gone", progress.gone), ("failed", progress.failed), ("refused", progress.refused)]
    parts[1] += "".join(f", {count:,} {name}" for name, count in [*counts, ("queued", progress.queued)] if count)
    times = _duration_text(status.duration_seconds)
    if status.remaining_seconds is not None:
        times += f", {_duration_text(status.remaining_seconds)} left"
    if status.waiting_before is not None:
        times = f"{status.waiting_before:,} tasks before it"
    waits = [status.message] if status.waiting_for and status.message and not status.has_ended else []
    return " · ".join([*parts, times, *waits])


def _duration_text(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
