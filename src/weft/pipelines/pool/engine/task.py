"""Tasks: items inside the pool, and the checks before an item becomes one.

Invariants: an item without a usable id, with an id that was there before, or that cannot be encoded becomes a failed
result and never reaches a worker; the item's bytes are made once and serve every try.
"""

from __future__ import annotations

import enum
import secrets
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from weft.frontier.seen.seen_set import SeenSet
from weft.pipelines.pool.record import Death, Result, Status
from weft.pipelines.pool.worker.slot import BANK_BYTES

_encode = msgspec.msgpack.Encoder().encode
_END_OF_ITEMS = object()
_MAX_BATCH_BYTES = 4 * 1024 * 1024
_LEAST_INT, _MOST_INT = -(2**63), 2**64 - 1
"""What msgpack can carry."""


class Pause(enum.Enum):
    """What a source without an item at the moment yields: LATER; it is asked again."""

    LATER = "later"


class BadItem(msgspec.Struct, frozen=True):
    """Represents in a source an unusable item, such as a broken line."""

    name: str
    error: str


class PoolTask(msgspec.Struct):
    """An item in the pool, with its attempts. Only the engine changes it."""

    position: int
    item_id: str | int
    payload: bytes
    tries: int = 0
    """How often it was begun and not ended."""
    strikes: int = 0
    """How often a worker died with it."""
    outside: int = 0
    """How many of those deaths may well have come from outside."""
    death: Death | None = None
    """The most informative of those deaths."""
    secluded: bool = False
    """The fork server died while it was running: from then on it runs with nothing beside it."""


class Intaken(NamedTuple):
    """The result of reading some items: new tasks, refused items, and items done before; numbers are positions in the
    source.
    """

    tasks: list[PoolTask]
    refused: list[tuple[int, Result]]
    known: list[tuple[int, str]]
    """Items that were done in an earlier run, with their keys."""


class TaskSource(Protocol):
    """A source of tasks for workers."""

    position: int
    """How many items it has given."""
    exhausted: bool

    def take(self, looks: int, wanted: int) -> Intaken:
        """Makes at most `wanted` tasks, and reads at most `looks` items for them."""


class Intake:
    """Converts the items of the source into tasks, or failed results."""

    def __init__(self, items: Iterator[Any], done: SeenSet | None) -> None:
        self._items = items
        self._done = done
        self._seen = new_ids()
        self.position = 0
        self.known = 0
        """How many of them were done in an earlier run."""
        self.exhausted = False

    def take(self, looks: int, wanted: int) -> Intaken:
        """Reads at most `looks` items of the source, for at most `wanted` tasks and a few megabytes."""
        intaken = Intaken([], [], [])
        tasks, room_bytes = intaken.tasks, _MAX_BATCH_BYTES
        while looks > 0 and wanted > 0 and room_bytes > 0:
            item = next(self._items, _END_OF_ITEMS)
            if item is _END_OF_ITEMS or item is Pause.LATER:
                self.exhausted = item is _END_OF_ITEMS
                break
            looks -= 1
            got = self._check_item(item)
            if type(got) is PoolTask:
                wanted -= 1
                room_bytes -= len(got.payload)
                tasks.append(got)
            elif type(got) is Result:
                intaken.refused.append((self.position - 1, got))
            else:
                self.known += 1
                intaken.known.append((self.position - 1, str(got)))
        return intaken

    def _check_item(self, item: Any) -> PoolTask | Result | str:
        """Checks an item: returns a task, a failed result, or the key of an item that is done already."""
        position = self.position
        self.position = position + 1
        if type(item) is not dict:
            if not isinstance(item, Mapping):
                return _result_without_id(position, item)
            try:
                item = dict(item)
            except Exception as error:
                return _refusal_result(f"#{position}", f"the item cannot be read: {type(error).__name__}: {error}")
        item_id = item.get("id")
        if type(item_id) is str:
            key = item_id
        elif type(item_id) is int:
            key = str(item_id)
        else:
            return _refusal_result(f"#{position}", str(id_problem(item_id)))
        try:
            if not self._seen.add(key):
                return _refusal_result(item_id, "there was an item with this id before")
        except UnicodeEncodeError:
            return _refusal_result(f"#{position}", str(id_problem(item_id)))
        if self._done is not None and key in self._done:
            return key
        try:
            payload = _encode(item)
        except Exception as error:
            if (problem := id_problem(item_id)) is not None:  # then nothing that is written may have it
                return _refusal_result(f"#{position}", problem)
            return _refusal_result(item_id, f"the item cannot be encoded: {type(error).__name__}: {error}")
        if len(payload) > BANK_BYTES:
            return _refusal_result(
                item_id, f"the item is too large: {len(payload)} bytes, at most {BANK_BYTES} can be sent"
            )
        return PoolTask(position, item_id, payload)


def new_ids() -> SeenSet:
    """A set of ids in under eight bytes each: a million of them cost the parent little memory."""
    return SeenSet(secrets.randbits(64))


def _refusal_result(name: str | int, why: str) -> Result:
    return Result(name, Status.FAILED, None, "input", why, attempts=0)


def _result_without_id(position: int, thing: Any) -> Result:
    """The result of an item without an id, which is named by its position."""
    if isinstance(thing, BadItem):
        return _refusal_result(thing.name, thing.error)
    return _refusal_result(f"#{position}", f"an item must be a mapping with an id, this is {type(thing).__name__}")


def id_problem(item_id: Any) -> str | None:
    """What is wrong with an id; None if nothing is."""
    if type(item_id) is str:
        return (
            None if item_id.isascii() or _is_writable(item_id) else f"the id {item_id!r} is no text: half a character"
        )
    if type(item_id) is int:
        return None if _LEAST_INT <= item_id <= _MOST_INT else f"the id {item_id} has more than 64 bits"
    if item_id is None:
        return "the item has no id"
    return f"an id must be a text or a whole number, this is {type(item_id).__name__}"


def _is_writable(item_id: str) -> bool:
    """Whether an id can be written as UTF-8; a lone surrogate, which JSON can contain, cannot."""
    try:
        item_id.encode()
    except UnicodeEncodeError:
        return False
    return True
