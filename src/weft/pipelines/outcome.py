"""How the stages of an item ended, as a worker sends it, the journal keeps it and the parent reads it.

The value of a pool's result is an array: the item's place in the source, the fields that are kept, a mark for each
field (for `why`), and a StageRecord for each stage in the plan's order.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weft.pipelines.files import WrittenFile
from weft.pipelines.stage import StageOutcome

RAN, CACHED, SKIPPED, SKIPPED_CACHED, SKIPPED_BY_CONDITION, SKIPPED_BY_NEED, FAILED, FAILED_BY_NEED = range(8)
GOOD = (RAN, CACHED)
_STATUS = ("ok", "ok", "skipped", "skipped", "skipped", "skipped", "failed", "failed")


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """What the cache has under a key."""

    skipped: bool
    digest: bytes
    """The hash of the body: what the keys of dependents are made of."""
    body: bytes
    """The value as msgpack; the reason, where the stage was skipped."""
    files: list[WrittenFile]


class StageRecord:
    """One stage of one item, while it is being made."""

    __slots__ = ("asked", "body", "code", "duration_us", "entry", "files", "key", "text", "traceback", "value")

    def __init__(
        self,
        code: int,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        body: bytes | None = None,
        asked: bytes | None = None,
        text: str | None = None,
        traceback: str | None = None,
        entry: bytes | None = None,
        files: list[WrittenFile] | None = None,
    ) -> None:
        self.code = code
        self.duration_us = 0
        self.key = key
        self.value = value
        self.body = body
        self.asked = asked
        self.text = text
        self.traceback = traceback
        self.entry = entry
        self.files = files or None

    def plain(self) -> tuple[Any, ...]:
        """As it is sent: `SentStage`."""
        return (
            self.code, self.duration_us, self.key, self.value, self.asked, self.text, self.traceback, self.entry,
            self.files,
        )  # fmt: skip


class SentStage(msgspec.Struct, array_like=True):
    """One stage of one item, at the parent."""

    code: int
    duration_us: int
    key: bytes | None
    value: bytes | None
    asked: bytes | None
    text: str | None
    traceback: str | None
    entry: bytes | None
    files: list[WrittenFile] | None = None

    def outcome(self) -> StageOutcome:
        """As a collector and the results' file see it."""
        failed = self.code >= FAILED
        return StageOutcome(
            _STATUS[self.code],
            self.duration_us / 1000,
            self.code in (CACHED, SKIPPED_CACHED),
            None if failed else self.text,
            self.text if failed else None,
        )


class ItemRecord(msgspec.Struct, array_like=True):
    """The value of a pool's result, at the parent."""

    place: int
    kept: dict[str, Any]
    marks: dict[str, int]
    stages: list[SentStage]


def item_record(value: Any) -> ItemRecord | None:
    """The record of a result; None for one that the parent made (timeout, crash, bad input)."""
    return None if value is None else msgspec.convert(value, ItemRecord)
