"""How the stages of an item ended, as a worker sends it, the journal keeps it and the parent reads it.

The value of a pool's result is an ItemRecord as msgpack, in one piece: the pool need not look into it, and the parent,
through which every result goes, decodes it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from weft.pipelines.files import WrittenFile
from weft.pipelines.stage import StageOutcome

RAN, CACHED, SKIPPED, SKIPPED_CACHED, SKIPPED_BY_CONDITION, SKIPPED_BY_NEED, FAILED, SKIPPED_BY_FAILURE = range(8)
GOOD = (RAN, CACHED)
_STATUS_OF_CODE = ("ok", "ok", "skipped", "skipped", "skipped", "skipped", "failed", "skipped")


class CachedOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The cache's entry of a stage's outcome."""

    skipped: bool
    digest: bytes
    """The hash of the body, which the keys of dependents are made of; empty if none read it when it was made."""
    body: bytes
    """The value as msgpack; the reason, where the stage was skipped."""
    files: list[WrittenFile]


class StageLine(StageOutcome, frozen=True, omit_defaults=True):
    """The outcome of a stage in a line of the results' file."""

    key: str | None = None


class SentStage(msgspec.Struct, array_like=True, gc=False):
    """The outcome of a stage as a worker sends it."""

    code: int
    duration_us: int = 0
    key: bytes | None = None
    """Where the cache has the value."""
    value: bytes | None = None
    """The hash of the value; empty if no stage reads it."""
    asked: bytes | None = None
    """The hash of its fingerprint."""
    text: str | None = None
    """Why it was skipped, or failed."""
    traceback: str | None = None
    entry: bytes | None = None
    """What the cache is to have under the key, as it is in its file; None where that was found there."""
    files: list[WrittenFile] | None = None
    at: int | None = None
    """The offset of the value in the cache."""


def stage_line(sent: SentStage) -> StageLine:
    """Converts the outcome of a stage for the results' file."""
    code, key = sent.code, sent.key
    if code == RAN and key is not None:
        return StageLine("ok", sent.duration_us / 1000, False, None, None, key.hex())
    failed = code == FAILED
    return StageLine(
        _STATUS_OF_CODE[code],
        sent.duration_us / 1000,
        code in (CACHED, SKIPPED_CACHED),
        None if failed else sent.text,
        sent.text if failed else None,
        None if key is None else key.hex(),
    )


class ItemRecord(msgspec.Struct, array_like=True, gc=False):
    """The outcomes of all stages of one item."""

    position: int
    """In the source."""
    kept: dict[str, Any]
    """Fields of the item that go along."""
    marks: msgspec.Raw
    """A checksum of each field by name, for `why` alone: a reader of results need not decode them."""
    stages: list[SentStage]
    """In the plan's order."""
    line: bytes
    """What the results' file says of the stages, as JSON; empty in the journal."""

    def checksums(self) -> dict[str, int]:
        """The decoded checksums of the item's fields (`marks`), by field."""
        return msgspec.msgpack.decode(self.marks, type=dict[str, int])


_decode = msgspec.msgpack.Decoder(ItemRecord).decode
_encode_json = msgspec.json.Encoder().encode
encode_record = msgspec.msgpack.Encoder().encode


def item_record(value: Any) -> ItemRecord | None:
    """Decodes the record in a result; None if the parent made the result (timeout, crash, bad input)."""
    return _decode(value) if type(value) is bytes else value


def line_of(names: Iterable[str], record: ItemRecord) -> bytes:
    """Encodes the stages of an item for the results' file, in the order of `names`."""
    return _encode_json({name: stage_line(stage) for name, stage in zip(names, record.stages, strict=True)})
