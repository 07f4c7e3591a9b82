"""The items of a resumed run: what is passed over must be what was done."""

from __future__ import annotations

import pytest

from weft.errors import BadInput
from weft.pipelines.feed import EarlierItems, ItemFeed, PendingItem
from weft.pipelines.pool.record import Result


class Written:
    """A writer that has ended two items."""

    next = 2

    def add(self, pending: PendingItem, result: Result) -> None:
        raise AssertionError((pending, result))


def feed(*ids: str) -> ItemFeed:
    return ItemFeed(iter([{"id": one} for one in ids]), [], EarlierItems(2, ["a", "b"]), Written(), resumed=True)


def test_items_that_are_done_are_passed_over() -> None:
    assert [given["id"] for given in feed("a", "b", "c")] == ["c"]


@pytest.mark.parametrize(
    ("ids", "said"), [("bcd", "item 1 was 'a' and is 'b' now"), ("acbd", "item 2 was 'b' and is 'c'")]
)
def test_a_source_that_has_lost_or_gained_an_item_among_them_is_refused(ids: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        list(feed(*ids))
