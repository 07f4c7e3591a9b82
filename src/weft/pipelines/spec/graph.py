"""The graph of a pipeline's stages: their order, what depends on what, and its picture as text. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from weft.names import nearest


class Node(Protocol):
    """The part of a stage that the graph needs."""

    @property
    def after(self) -> list[str]:
        """Those of `before` that may fail."""

    @property
    def before(self) -> list[str]:
        """The stages that must have ended before it begins."""


def order_of(stages: Mapping[str, Node]) -> tuple[list[str], list[str]]:
    """Sorts the stages, each after those it depends on and otherwise in the file's order; also returns the problems of
    the graph.
    """
    problems = [
        f"stages.{name}.{'after' if other in stage.after else 'needs'}: "
        f"there is no stage {other!r}{_similar_name(other, stages)}"
        for name, stage in stages.items()
        for other in stage.before
        if other not in stages
    ]
    problems += [
        f"stages.{name}.needs: {other!r} is named twice"
        for name, stage in stages.items()
        for other in sorted({one for one in stage.before if stage.before.count(one) > 1})
    ]
    order: list[str] = []
    waiting = list(stages)
    while waiting:
        free = next((one for one in waiting if not set(stages[one].before) & set(waiting)), None)
        if free is None:
            problems.append(f"stages.{waiting[0]}: the stages form a cycle: {' → '.join(_find_cycle(stages, waiting))}")
            break
        waiting.remove(free)
        order.append(free)
    return order, problems


def _similar_name(name: str, stages: Mapping[str, Node]) -> str:
    near = nearest(name, stages)
    return f"; did you mean {near!r}?" if near else f"; there are: {', '.join(stages)}"


def _find_cycle(stages: Mapping[str, Node], waiting: list[str]) -> list[str]:
    """Finds a cycle among the waiting stages, each of which depends on another one of them."""
    path = [waiting[0]]
    while path[-1] not in path[:-1]:
        path.append(next(one for one in stages[path[-1]].before if one in waiting))
    return path[path.index(path[-1]) :]


def dependents(stages: Mapping[str, Node], name: str) -> set[str]:
    """The stages that depend on this one, directly or indirectly."""
    reached: set[str] = set()
    while more := {one for one, stage in stages.items() if (reached | {name}) & set(stage.before)} - reached:
        reached |= more
    return reached


def picture(stages: Mapping[str, Node], order: Iterable[str]) -> list[str]:
    """Draws the graph as lines of text: each stage under the last one that it depends on, other dependencies named.

    clone
    ├─ enrich
    │  └─ catalogue  (and analyse)
    └─ analyse
    """
    order = list(order)
    place = {name: number for number, name in enumerate(order)}
    under: dict[str | None, list[str]] = {}
    for name in order:
        before = sorted(stages[name].before, key=place.__getitem__)
        under.setdefault(before[-1] if before else None, []).append(name)

    def lines(name: str, lead: str, branch: str) -> list[str]:
        others = sorted(stages[name].before, key=place.__getitem__)[:-1]
        shown = [f"{lead}{branch}{name}" + (f"  (and {', '.join(others)})" if others else "")]
        children = under.get(name, [])
        inner = lead + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        for child in children:
            shown += lines(child, inner, "└─ " if child == children[-1] else "├─ ")
        return shown

    return [line for root in under.get(None, []) for line in lines(root, "", "")]
