"""The live display of a task: a bar, its counts and what has come in last, on stderr; plain lines where that is no
terminal."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from weft.cli.output import visible
from weft.client.model import Event
from weft.client.telling import said
from weft.scraping import TaskStatus

LINE_EVERY_S = 2.0


class Nothing:
    """Shows nothing."""

    def __call__(self, status: TaskStatus) -> None:
        """Says nothing."""

    def happened(self, event: Event) -> None:
        """Says nothing."""


class Lines:
    """A line now and then; the last one, with how the task has ended, is said by the caller."""

    def __init__(self) -> None:
        self._shown = ""
        self._at = float("-inf")

    def __call__(self, status: TaskStatus) -> None:
        """Writes it, if it says something new."""
        if status.has_ended:
            return
        if status.status != self._shown or status.duration_seconds - self._at >= LINE_EVERY_S:
            self._shown, self._at = status.status, status.duration_seconds
            click.echo(said(status), err=True)

    def happened(self, event: Event) -> None:
        """Nothing is said about single pages."""


class Display:
    """The same, drawn."""

    def __init__(self, task_id: str) -> None:
        from rich.console import Console
        from rich.live import Live

        from weft.cli.display import Silence

        self._task_id = task_id
        self._recent: deque[str] = deque(maxlen=6)
        self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
        self._silence = Silence(2)
        self._live.start()

    def __call__(self, status: TaskStatus) -> None:
        """Draws it."""
        self._live.update(self._picture(status))

    def happened(self, event: Event) -> None:
        """Remembers what to show of it."""
        if event.kind in ("page", "error"):
            state = event.data.get("status") or event.data.get("error_class", "")
            self._recent.append(f"{state} {event.data.get('url', '')}")

    def close(self) -> None:
        """Takes it off the screen."""
        from rich.text import Text

        self._live.update(Text(), refresh=True)
        self._live.stop()
        self._silence.end()

    def _picture(self, status: TaskStatus) -> Any:
        from rich.console import Group, RenderableType
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        progress = status.progress
        errors = "  ".join(f"{kind} {count:,}" for kind, count in status.errors_by_class.items()) or "none"
        parts: list[RenderableType] = [
            Text(visible(status.url), style="bold", no_wrap=True, overflow="ellipsis"),
            ProgressBar(total=100, completed=progress.percent),
            Text(said(status)),
            Text(f"errors  {errors}", style="red" if status.errors_by_class else "dim"),
            Text(visible("\n".join(self._recent)), style="dim", no_wrap=True, overflow="ellipsis"),
        ]
        return Panel(Group(*parts), title=f"weft jobs · {status.status}", subtitle=self._task_id, title_align="left")


@contextmanager
def shower(task_id: str, *, silent: bool) -> Iterator[Nothing | Lines | Display]:
    """What fits stderr."""
    if silent or not sys.stderr.isatty():
        yield Nothing() if silent else Lines()
        return
    display = Display(task_id)
    try:
        yield display
    finally:
        display.close()
