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
                counts.has_room(rank)
                and rank in counts.classes_with_room()
                and counts.free_slots(rank) == count - counts.out_by_class[rank]
            )
            counts.out_by_class[rank] += 1
        assert not counts.has_room(rank) and rank not in counts.classes_with_room() and counts.free_slots(rank) == 0
    counts.limit(None)
    assert set(counts.classes_with_room()) == set(Responsiveness)
