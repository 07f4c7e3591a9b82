"""Looking things up in decoded JSON-LD, without recursion: pages may nest it as deep as they like."""

from __future__ import annotations

from collections.abc import Iterator

from weft.extract.metadata import Json

ANY = "*"


def objects(blocks: list[Json], kind: str) -> Iterator[dict[str, Json]]:
    """The objects of a type, wherever they are, in the order in which they are written; of all types for `*`."""
    left: list[Json] = list(reversed(blocks))
    while left:
        value = left.pop()
        if isinstance(value, dict):
            if kind == ANY or _is_a(value, kind):
                yield value
            left.extend(reversed(value.values()))
        elif isinstance(value, list):
            left.extend(reversed(value))


def values_at(values: list[Json], keys: tuple[str, ...]) -> list[Json]:
    """The values under the keys; lists on the path are entered, null is skipped."""
    for key in keys:
        found: list[Json] = []
        for value in _flat(values):
            if isinstance(value, dict) and key in value:
                found.append(value[key])
        values = found
    return [value for value in _flat(values) if value is not None]


def _flat(values: list[Json]) -> Iterator[Json]:
    left = list(reversed(values))
    while left:
        value = left.pop()
        if isinstance(value, list):
            left.extend(reversed(value))
        else:
            yield value


def _is_a(value: dict[str, Json], kind: str) -> bool:
    given = value.get("@type")
    kinds = given if isinstance(given, list) else [given]
    return any(isinstance(one, str) and one.rpartition("/")[2] == kind for one in kinds)
