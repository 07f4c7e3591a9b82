"""The live display of a task: a progress bar, its counts and its latest events."""

from __future__ import annotations

from collections import deque

from weft.cli.terminal.live import Part, Picture, ProgressLine, RegularLines, Size, TextLine
from weft.client.model import TaskEvent
from weft.client.progress_display import progress_text
from weft.scraping import TaskStatus

LINE_EVERY_S = 2.0


class TaskPicture:
    """Formats the display of a task; keeps its latest events."""

    def __init__(self, task_id: str) -> None:
        self._task_id = task_id
        self._recent: deque[str] = deque(maxlen=6)

    def happened(self, event: TaskEvent) -> None:
        """Adds an event."""
        if event.kind in ("page", "error"):
            state = event.data.get("status") or event.data.get("error_class", "")
            self._recent.append(f"{state} {event.data.get('url', '')}")

    def __call__(self, status: TaskStatus, _: Size) -> Picture:
        """The display of a status."""
        errors = "  ".join(f"{kind} {count:,}" for kind, count in status.errors_by_class.items()) or "none"
        parts: list[Part] = [
            TextLine(status.url, "bold"),
            ProgressLine(100, status.progress.percent),
            TextLine(progress_text(status), wraps=True),
            TextLine(f"errors  {errors}", "red" if status.errors_by_class else "dim", wraps=True),
            TextLine("\n".join(self._recent), "dim"),
        ]
        return Picture([f"weft jobs · {status.status}"], parts, self._task_id)


def task_lines() -> RegularLines[TaskStatus]:
    """Prints a line when the task's state changes, and regularly; the caller prints the last line, with the end."""
    return RegularLines(progress_text, LINE_EVERY_S, key=lambda status: status.status)
