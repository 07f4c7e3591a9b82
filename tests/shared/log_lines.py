"""What is logged under a name, kept for a test: each line's message and its fields."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

Line = tuple[str, dict[str, object]]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[Line] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append((record.getMessage(), dict(getattr(record, "fields", {}))))


@contextmanager
def log_lines(name: str, level: str = "INFO") -> Iterator[list[Line]]:
    """Every line, in order, until the block ends."""
    logger, handler = logging.getLogger(name), _Lines()
    before = logger.level
    logger.setLevel(level)
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
