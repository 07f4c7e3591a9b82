"""An item on its way through the pool, and the way in: what is checked before it may become work.

Invariants: an item without a usable id, with an id that was there before, or that cannot be encoded becomes a failed
result and never reaches a worker; the item's bytes are made once and serve every try.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from weft.pipelines.record import Result, Status
from weft.pipelines.seen import SeenIds
from weft.pipelines.slot import BANK_BYTES

_encode = msgspec.msgpack.Encoder().encode


class Pause(enum.Enum):
    """A source that has nothing just now gives LATER instead of an item and is asked again."""

    LATER = "later"


class BadItem(msgspec.Struct, frozen=True):
    """Stands in a source for something that was meant to be an item: a broken line, say."""

    name: str
    error: str


class Task(msgspec.Struct):
    """One item that is to be done. Changed only by the engine."""

    position: int
    item_id: str | int
    payload: bytes
    ticket: int = -1
    tries: int = 0
    """How often it was begun and not ended."""
    strikes: int = 0
    """How often a worker died with it."""
    outside: int = 0
    """How many of those deaths may well have come from outside."""


class Intake:
    """Turns what the source gives into tasks and failed results."""

    def __init__(self, items: Iterator[Any], done: SeenIds | None) -> None:
        self._items = items
        self._done = done
        self._seen = SeenIds()
        self.position = 0
        self.exhausted = False

    def next(self) -> Task | Result | Pause | tuple[int, str] | None:
        """A task, a result that failed on arrival, the place and key of an item done in an earlier run, LATER, or
        None at the end."""
        try:
            item = next(self._items)
        except StopIteration:
            self.exhausted = True
            return None
        if item is Pause.LATER:
            return Pause.LATER
        position, self.position = self.position, self.position + 1
        try:
            return self._checked(position, item)
        except _Refused as refused:
            return Result(refused.name, Status.FAILED, None, "input", refused.why, attempts=0)

    def _checked(self, position: int, item: Any) -> Task | tuple[int, str]:
        item_id = _id_of(position, item)
        key = item_id if type(item_id) is str else str(item_id)
        if not self._seen.add(key):
            raise _Refused(item_id, "there was an item with this id before")
        if self._done is not None and key in self._done:
            return position, key
        try:
            payload = _encode(item)
        except Exception as error:
            raise _Refused(item_id, f"the item cannot be encoded: {type(error).__name__}: {error}") from None
        if len(payload) > BANK_BYTES:
            raise _Refused(item_id, f"the item is too large: {len(payload)} bytes, at most {BANK_BYTES} can be sent")
        return Task(position, item_id, payload)


class _Refused(Exception):
    def __init__(self, name: str | int, why: str) -> None:
        self.name = name
        self.why = why


def _id_of(position: int, item: Any) -> str | int:
    """The item's id; an item that has none is called by its place."""
    if not isinstance(item, Mapping):
        if isinstance(item, BadItem):
            raise _Refused(item.name, item.error)
        raise _Refused(f"#{position}", f"an item must be a mapping with an id, this is {type(item).__name__}")
    item_id = item.get("id")
    if type(item_id) is str or type(item_id) is int:
        return item_id
    if item_id is None:
        raise _Refused(f"#{position}", "the item has no id")
    raise _Refused(f"#{position}", f"an id must be a text or a whole number, this is {type(item_id).__name__}")
