"""What the service's log files say about one task: the lines of their ends that name it."""

from __future__ import annotations

from pathlib import Path

from weft.jobs.dashboard.text import shown

TAIL_BYTES = 512 * 1024  # of each file
MOST_LINES = 100
MOST_FILES = 40


def lines_about(log_dir: Path | None, task_id: str) -> list[str]:
    """The last of them, newest last; a line begins with its time, so their order is that of the text."""
    if log_dir is None:
        return []
    found: list[str] = []
    for path in sorted(log_dir.rglob("*.log*"))[:MOST_FILES]:
        found += _lines(path, task_id.encode())
    return [shown(line, 400) for line in sorted(found)[-MOST_LINES:]]


def _lines(path: Path, word: bytes) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - TAIL_BYTES))
            tail = file.read(TAIL_BYTES)
    except OSError:
        return []  # turned over a moment ago
    if word not in tail:  # most files say nothing about most tasks
        return []
    lines = tail.split(b"\n")[0 if size <= TAIL_BYTES else 1 :]
    return [line.decode("utf-8", "replace") for line in lines if word in line]
