"""The lines in the service's log files that name one task."""

from __future__ import annotations

from pathlib import Path

from weft.jobs.dashboard.text import one_line

TAIL_BYTES = 512 * 1024  # The bytes that are read from the end of each file.
MOST_LINES = 100
MOST_FILES = 40


def lines_about(log_dir: Path | None, task_id: str) -> list[str]:
    """The latest of these lines, newest last. A line begins with its time, so sorting them as text sorts them by
    time."""
    if log_dir is None:
        return []
    lines: list[str] = []
    for path in sorted(log_dir.rglob("*.log*"))[:MOST_FILES]:
        lines += _lines_in_file(path, task_id.encode())
    return [one_line(line, 400) for line in sorted(lines)[-MOST_LINES:]]


def _lines_in_file(path: Path, word: bytes) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
    except OSError:
        return []  # rotated a moment ago
    if word not in tail:  # cheap test: most files do not mention the task
        return []
    lines = tail.split(b"\n")[0 if size <= TAIL_BYTES else 1 :]
    return [line.decode("utf-8", "replace") for line in lines if word in line]
