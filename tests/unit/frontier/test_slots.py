"""The slots of each class of sites."""

from __future__ import annotations

import pytest

from weft.frontier.contract import Slots
from weft.frontier.politeness import Responsiveness
from weft.frontier.slots import ClassSlots


@pytest.mark.parametrize(("slots", "most"), [((3, 2), (3, 2)), ((0, 0), (1, 1)), ((5, 0), (5, 1))])
def test_a_class_has_its_slots_and_never_none(slots: tuple[int, int], most: tuple[int, int]) -> None:
    counts = ClassSlots()
    counts.limit(Slots(unknown=slots[0], slow=slots[1]))
    for rank, count in zip((Responsiveness.UNKNOWN, Responsiveness.SLOW), most, strict=True):
        for _ in range(count):
            assert (
                counts.has_room(rank) and rank in counts.with_room() and counts.room(rank) == count - counts.out[rank]
            )
            counts.out[rank] += 1
        assert not counts.has_room(rank) and rank not in counts.with_room() and counts.room(rank) == 0
    counts.limit(None)
    assert set(counts.with_room()) == set(Responsiveness)
