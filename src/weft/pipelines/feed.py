"""The items of a run on their way to the pool, each with its position in the source.

Invariants: positions count what the source gives, good or bad, so that a position means the same in every run over the
same source; an item that an earlier try of this run has ended is not given to the pool again; no more items are under
way than the output, which goes in order, can wait for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool.engine.task import BadItem, Pause, id_problem, new_ids
from weft.pipelines.pool.record import Result

_MAX_AHEAD = 20_000
_END_OF_ITEMS = object()
_LARGEST_PLAIN_INT = 1 << 63  # a whole number below it, as above its negative, may be an id
_EARLIER_READ_AT_ONCE = 1_000
"""How many known items are passed over before the pool gets its turn."""


class PendingItem(msgspec.Struct, frozen=True, gc=False):
    """An item that was given to the pool, and its position in the source."""

    position: int
    item_id: str | int
    kept: dict[str, Any]


class EarlierItems:
    """The items that earlier attempts of this run have finished: the first `positions` are all in the output, the rest
    by position, or by id where only the pool's parent knew of it (timeouts, crashes).
    """

    def __init__(self, positions: int = 0, ids: Iterable[str] = ()) -> None:
        self.positions = positions
        self.ids = iter(ids)
        """Those of the items up to there."""
        self.by_position: dict[int, Result] = {}
        self.by_id: dict[str, Result] = {}


class ResultWriter(Protocol):
    """The receiver of results, which writes them in order."""

    next: int
    """The position that is written next."""

    def add(self, pending: PendingItem, result: Result) -> None:
        """Adds the result of an item."""


class ItemFeed:
    """The iterator of items that the pool reads."""

    def __init__(
        self,
        items: Iterator[Any],
        keep: list[str],
        known: EarlierItems,
        writer: ResultWriter,
        *,
        only: set[str] | None = None,
        resumed: bool = False,
    ) -> None:
        self._items = items
        self._keep = keep
        self._known = known
        self._only = only
        self._writer = writer
        # the pool looks for ids that are there twice; of a run that is resumed it does not see all
        self._seen = new_ids() if resumed else None
        self.pending: dict[str, PendingItem] = {}
        self.position = 0
        """How many items the source has given."""
        self._given = self._give_items()

    def __iter__(self) -> Iterator[Any]:
        return self._given

    def __next__(self) -> Any:
        return next(self._given)

    def _give_items(self) -> Iterator[Any]:
        passed = 0
        while True:
            if passed >= _EARLIER_READ_AT_ONCE or self.position - self._writer.next > _MAX_AHEAD:
                passed = 0
                yield Pause.LATER
                continue
            item = next(self._items, _END_OF_ITEMS)
            if item is _END_OF_ITEMS:
                return
            if item is Pause.LATER:
                yield item
                continue
            if self._only is not None and not self._is_wanted(item):
                if not self._only:
                    return
                passed += 1
                continue
            self.position += 1
            given = self._item_for_pool(self.position - 1, item)
            if given is None:
                passed += 1
            else:
                passed = 0
                yield given

    def _is_wanted(self, item: Any) -> bool:
        assert self._only is not None
        name = str(item.get("id")) if isinstance(item, Mapping) else None
        if name not in self._only:
            return False
        self._only.discard(name)
        return True

    def _item_for_pool(self, position: int, item: Any) -> Any:
        """The value to give to the pool for an item; None if the item was finished before."""
        item_id: Any = item.get("id") if type(item) is dict else None
        problem: str | None = None
        if type(item_id) is str and item_id.isascii():
            fields, key = item, item_id
        elif type(item_id) is int and -_LARGEST_PLAIN_INT < item_id < _LARGEST_PLAIN_INT:
            fields, key = item, str(item_id)
        else:
            fields, item_id, problem = _read_item(position, item)
            key = str(item_id)
        if problem is None and (key in self.pending or (self._seen is not None and not self._seen.add(key))):
            problem = "there was an item with this id before"
        if position < self._known.positions:
            return self._check_unchanged(position, next(self._known.ids, None), item_id)
        kept = {name: fields[name] for name in self._keep if name in fields} if self._keep else {}
        pending = PendingItem(position, item_id, kept)
        if problem is not None:
            name = f"\0{position}"  # the id may be that of an item that is under way
            self.pending[name] = pending
            return BadItem(name, problem)
        if (result := self._known.by_position.pop(position, None)) is not None:
            self._check_unchanged(position, result.item_id, item_id)
            return self._writer.add(pending, result)
        if (result := self._known.by_id.pop(key, None)) is not None:
            return self._writer.add(pending, result)
        self.pending[key] = pending
        return {"id": item_id, "n": position, "item": fields}

    def _check_unchanged(self, position: int, before: str | int | None, now: str | int) -> None:
        if str(before) != str(now):
            raise BadInput(
                f"the source has changed since the run began: item {position + 1} was {before!r} and is {now!r} now; "
                "start a new run, what has not changed is cached"
            )


def _read_item(position: int, item: Any) -> tuple[dict[str, Any], str | int, str | None]:
    """The fields of an item, its id (without one, its position), and what is wrong with it."""
    if type(item) is dict and id_problem(item.get("id")) is None:
        return item, item["id"], None
    if isinstance(item, BadItem):
        return {}, item.name, item.error
    if not isinstance(item, Mapping):
        return {}, f"#{position}", f"an item must be a mapping with an id, this is {type(item).__name__}"
    try:
        fields = dict(item)
    except Exception as error:
        return {}, f"#{position}", f"the item cannot be read: {type(error).__name__}: {error}"
    problem = id_problem(fields.get("id"))
    return (fields, fields["id"], None) if problem is None else ({}, f"#{position}", problem)
