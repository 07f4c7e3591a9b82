"""What brain and hands say to each other about batches. Everything is JSON and signed (`signing`); items, results and
logs are bytes that nobody in between looks into, as base64.

A task names its run's facts (`SharedFacts`) by their SHA-256: they lie beside the run on the broker, as they may be
large and are the same for all of its tasks.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from weft.pipelines.pool.record import Death

KIND, RESULT_KIND = "batches", "batches-result"
WORK_S = 100.0
"""How long a task takes items; then it returns the rest."""
MARGIN_S = 20.0
LONGEST_S = 50 * 60.0
INLINE_BYTES = 256 * 1024
"""What is larger lies beside its message, under a name of its own."""


class CodeFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that the items' function needs."""

    module: str
    """Its name for `import`; empty for a script or another file."""
    path: str
    """Of a module: below the folder that it is imported from. Else: as it is read, from the current directory."""
    digest: str
    """SHA-256, hexadecimal."""


class ShippedCode(msgspec.Struct, frozen=True):
    """The zip in which code that hands may lack is sent to them."""

    digest: str
    size: int
    script: str | None = None
    """Of a function in a script: the script's name in the zip."""


class SharedFacts(msgspec.Struct, frozen=True):
    """The facts that all tasks of a run share."""

    module: str
    name: str
    script: str | None
    config: str
    """As the workers get it, in base64."""
    settings: dict[str, Any]
    code: list[CodeFile]
    shipped: ShippedCode | None
    too_large: int
    """Bytes of code that is too large to be shipped; 0 if it is not."""
    events: bool
    logs: bool
    folders: dict[str, str]
    """By the key of `config` that names it: a file that is in the folder where hand and brain share it."""


class BodyRef(msgspec.Struct, frozen=True):
    """A body: its bytes in the message itself, or the name under which it is stored beside it."""

    inline: str | None = None
    name: str | None = None
    digest: str = ""
    size: int = 0


class SentItem(msgspec.Struct, frozen=True, array_like=True):
    """One item of a task."""

    item_id: str | int
    tries: int


class BatchTask(msgspec.Struct, frozen=True):
    """Some items for a hand. `items` and the frames in `payloads` are in the same order."""

    run: str
    run_epoch: int
    facts: BodyRef
    items: list[SentItem]
    payloads: BodyRef
    alone: bool
    """The item is suspect: it gets a worker that has done nothing yet."""


class StrikeReport(msgspec.Struct, frozen=True):
    """A worker process died while it ran this item; the brain decides whether the item is to blame."""

    item_id: str | int
    outside: bool
    secluded: bool
    death: Death | None
    phase: str | None
    why: str
    duration_ms: float
    pid: int | None


class EventReport(msgspec.Struct, frozen=True):
    """What listeners of the run are told; events of results are the brain's own."""

    kind: str
    item_id: str | int | None = None
    pid: int | None = None
    phase: str | None = None
    text: str | None = None


class LogReport(msgspec.Struct, frozen=True):
    """The log of an item that has ended."""

    item_id: str | int
    pid: int
    body: BodyRef


class FileReport(msgspec.Struct, frozen=True):
    """A file that a stage has written, where the output's folder is not shared."""

    name: str
    body: BodyRef


class Records(msgspec.Struct, frozen=True):
    """Results, as a worker wrote them."""

    pid: int
    body: BodyRef


class HandStatus(msgspec.Struct, frozen=True):
    """The current state of a process of a hand."""

    hand: str
    task: str
    pid: int | None = None
    state: str = "starting"
    item_id: str | int | None = None
    stage: str | None = None
    seconds: float = 0.0
    finished: int = 0
    memory_mb: float = 0.0


class TaskEnd(msgspec.Struct, frozen=True):
    """The end of a task: the last part of its reports."""

    refused: str | None = None
    """Why its items cannot be run there at all."""
    broken: bool = False
    """Not for the code: its workers die at their start."""


class BatchReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a hand sends of a task, in order: events, logs, files, results, then strikes."""

    run: str
    epoch: int
    task: str
    number: int
    """0 for the claim, then counted up: none is accepted twice."""
    status: HandStatus
    events: list[EventReport] = []
    logs: list[LogReport] = []
    files: list[FileReport] = []
    records: list[Records] = []
    strikes: list[StrikeReport] = []
    innocent: bool = False
    """A worker was killed from outside while it held no item."""
    end: TaskEnd | None = None


def digest(data: bytes) -> str:
    """The digest by which bodies and code are named."""
    return hashlib.sha256(data).hexdigest()


def packed(payloads: list[bytes]) -> bytes:
    """Items, encoded as they were on arrival, in one piece."""
    return msgspec.msgpack.encode(payloads)


def unpacked(data: bytes) -> list[bytes]:
    """The items of `packed`."""
    return msgspec.msgpack.decode(data, type=list[bytes])
