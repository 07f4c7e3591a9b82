"""The cursor behind a number of pages, among errors and changes of state that have numbers, too."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from weft.jobs.reading.results import COUNTED_TOGETHER, PageCounts


class Numbers:
    """A crawl of which every third event is no page; counts the numbers that are read."""

    def __init__(self, last: int) -> None:
        self.last = last
        self.read = 0

    @property
    def pages(self) -> list[int]:
        return [number for number in range(1, self.last + 1) if number % 3]

    def page_numbers(self, crawl: int, after: int, upto: int) -> list[int]:
        assert crawl == 7
        pages = self.pages
        found = pages[bisect_right(pages, after) : bisect_right(pages, upto)]
        self.read += len(found)
        return found

    def last_number(self, crawl: int) -> int:
        assert crawl == 7
        return self.last


def test_the_cursor_lies_behind_the_wanted_page() -> None:
    numbers: Any = Numbers(3 * COUNTED_TOGETHER + 500)
    counts = PageCounts()
    pages = numbers.pages
    for skip in (
        1,
        2,
        COUNTED_TOGETHER,
        len(pages) - 1,
        5,
        len(pages),
        2 * COUNTED_TOGETHER // 3,
        2 * COUNTED_TOGETHER // 3 + 1,
    ):
        assert counts.cursor_behind(numbers, 7, skip) == pages[skip - 1]
    assert counts.cursor_behind(numbers, 7, 0) == 0
    assert counts.cursor_behind(numbers, 7, len(pages) + 1) == numbers.last == counts.cursor_behind(numbers, 7, 1 << 40)
    empty: Any = Numbers(0)
    assert counts.cursor_behind(empty, 7, 5) == 0


def test_what_was_counted_is_not_read_again_and_what_is_new_is_counted() -> None:
    numbers: Any = Numbers(20 * COUNTED_TOGETHER)
    counts = PageCounts()
    far = len(numbers.pages) - 10
    assert counts.cursor_behind(numbers, 7, far) == numbers.pages[far - 1]
    for skip in (far, far - 5000, 3, far):
        numbers.read = 0
        assert counts.cursor_behind(numbers, 7, skip) == numbers.pages[skip - 1]
        assert numbers.read <= COUNTED_TOGETHER, "as much for a page far behind as for one of the first"
    numbers.last += 2 * COUNTED_TOGETHER
    far = len(numbers.pages) - 10
    assert counts.cursor_behind(numbers, 7, far) == numbers.pages[far - 1]
