"""Which visit stands for a URL, and where a URL has several."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from weft.store.index.visits import Visit, current_visit, repeated_hashes


def visits(*told: str) -> list[Visit]:
    """`200`, `404`, `304`, `0` (refused), `200 timeout`, `200 noindex`: one after the other."""
    found = []
    for number, one in enumerate(told, 1):
        status, _, error = one.partition(" ")
        stored = status not in ("0", "304") and error != "noindex"
        found.append(Visit("http://a.test/", number, int(status), float(number), error, stored, "", 0, 1))
    return found


@pytest.mark.parametrize(
    ("told", "stands"),
    [
        (["200"], 1),
        (["404"], 1),
        (["0 robots"], 1),
        (["302", "200"], 2),  # a cookie wall
        (["200", "200"], 2),
        (["200", "304", "304"], 1),
        (["200", "503"], 1),
        (["200", "0 robots-unreachable"], 1),
        (["200", "200 truncated"], 1),
        (["200 truncated"], 1),
        (["500", "200"], 2),
        (["0 dns", "404"], 2),  # never was a page
        (["200", "301"], 2),  # it has moved
        (["200", "301", "200"], 3),
        (["200", "200 noindex"], 2),
        (["200", "404"], None),
        (["200", "304", "410"], None),
        (["200", "404", "200"], 3),  # it is back
        (["200", "404", "503"], 1),
    ],
)
def test_the_visit_that_stands_for_a_url(told: list[str], stands: int | None) -> None:
    chosen = current_visit(reversed(visits(*told)))
    assert (chosen and chosen.item) == stands


class Held:
    """An index that has these hashes."""

    def __init__(self, *hashes: int) -> None:
        self._hashes = sorted(hashes)

    def hashes(self) -> Iterator[int]:
        return iter(self._hashes)


@pytest.mark.parametrize(
    ("indexes", "found"),
    [
        ([Held()], []),
        ([Held(1, 2, 2, -3, -3, -3)], [-3, 2]),
        ([Held(1, 5), Held(2, 5), Held(5, 7, 7)], [5, 7]),
        ([Held(1), Held(), Held(2)], []),
    ],
)
def test_urls_with_several_rows_are_found_over_indexes(indexes: list[Held], found: list[int]) -> None:
    assert list(repeated_hashes(indexes)) == found
