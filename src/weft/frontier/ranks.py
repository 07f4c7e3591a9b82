"""The order within a site: by priority, then by depth, as one number. Without a priority it is the depth."""

from __future__ import annotations

_DEPTH_BITS = 24  # for the depth; above them is the priority
_DEPTH_MASK = (1 << _DEPTH_BITS) - 1


def rank_of(depth: int, priority: int) -> int:
    """The rank of an item in its site's queue: those of higher priority come first, then those of lesser depth."""
    return depth if not priority else (-priority << _DEPTH_BITS) + depth


def depth_in(rank: int) -> int:
    """The depth of a queued item, by its rank."""
    return rank & _DEPTH_MASK


def priority_in(rank: int) -> int:
    """The priority of a queued item, by its rank."""
    return -(rank >> _DEPTH_BITS)
