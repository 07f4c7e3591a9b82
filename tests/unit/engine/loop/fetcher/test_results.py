"""How many answers are read together."""

from __future__ import annotations

import pytest

from weft.engine.loop.fetcher.results import MOST_AT_ONCE, most_read_together
from weft.engine.loop.parser.parsing import MOST_PAGES_TOGETHER


@pytest.mark.parametrize(
    ("read", "spent_s", "expected"),
    [
        (8, 0.0, MOST_AT_ONCE),  # a clock that did not move
        (8, 0.004, MOST_AT_ONCE),  # forty would fit
        (32, 0.04, 16),
        (16, 0.02, 16),
        (32, 0.32, MOST_PAGES_TOGETHER),  # two would fit: so few are dearer than the transfers' wait
        (1, 5.0, MOST_PAGES_TOGETHER),
    ],
)
def test_as_many_answers_are_read_together_as_fit_into_a_slice(read: int, spent_s: float, expected: int) -> None:
    assert most_read_together(read, spent_s, slice_s=0.02) == expected
