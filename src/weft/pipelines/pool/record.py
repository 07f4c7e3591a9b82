"""What a pool returns: a Result for each item; and Record, its form in the slot and in the journal.

Invariant: a Result of one item is the same whether it came from a worker, from the parent (timeout, crash, bad input)
or out of the journal on a resume. Records carry no parent-side knowledge but the ticket, so that a journal block is the
worker's own bytes.
"""

from __future__ import annotations

import enum
from typing import Any, Literal

import msgspec

MAX_ERROR_CHARS = 4_000
MAX_TRACEBACK_CHARS = 16_000


class Status(enum.StrEnum):
    """The outcome of an item."""

    OK = "ok"
    SKIPPED = "skipped"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CRASHED = "crashed"

    # faster than Enum's own, which is a Python function: statuses are hashed for every item
    __hash__ = str.__hash__


STATUSES = tuple(Status)
OK, SKIPPED, FAILED, TIMEOUT, CRASHED = range(5)
STARTED, STAGE = 100, 101
"""Record.status beyond the results: an item began, an item entered the stage named in `phase`."""
Code = Literal[0, 1, 2, 3, 4, 100, 101]


class Death(msgspec.Struct, frozen=True):
    """How the worker that held the item ended."""

    exit_code: int | None = None
    signal: str | None = None
    peak_memory_mb: float = 0.0


class Result(msgspec.Struct, frozen=True):
    """The result of one item."""

    item_id: str | int
    status: Status
    value: Any = None
    failure_phase: str | None = None
    error: str | None = None
    attempts: int = 1
    duration_ms: float = 0.0
    worker_pid: int | None = None
    traceback: str | None = None
    log: str | None = None
    death: Death | None = None

    @property
    def good(self) -> bool:
        """Whether the item succeeded, or needed no work."""
        return self.status is Status.OK or self.status is Status.SKIPPED


class ResultRecord(msgspec.Struct, array_like=True, omit_defaults=True):
    """One result (or event) as a worker writes it; missing tail fields have their defaults."""

    ticket: int
    item_id: str | int
    status: Code
    attempts: int
    duration_us: int
    value: Any = None
    phase: str | None = None
    error: str | None = None
    traceback: str | None = None
    log: str | None = None
    death: Death | None = None


_OF_THE_RECORD = object()


def to_result(record: ResultRecord, pid: int | None, value: Any = _OF_THE_RECORD) -> Result:
    """Converts a record into the result that users get; its value may be stored elsewhere than in the record."""
    if value is _OF_THE_RECORD:
        value = record.value
    return Result(
        record.item_id, STATUSES[record.status], value, record.phase, record.error, record.attempts,
        record.duration_us / 1000, pid, record.traceback, record.log, record.death,
    )  # fmt: skip


def cut(text: str, limit: int) -> str:
    """Shortens a text to a limit by removing its middle, because both ends of a traceback matter."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"


def over_limit(limit_s: float) -> str:
    """The error text of a timeout, the same from the worker and from the parent."""
    return f"took longer than its limit of {limit_s:g} s"
