"""What a crawl's limit of memory leaves to its pages in flight."""

from __future__ import annotations

import pytest

from weft.engine.crawls.memory import LEAST_BYTES, PAGE_BYTES, check_memory, most_in_flight_within
from weft.errors import BadInput


@pytest.mark.parametrize(
    ("memory", "in_flight", "urls", "flight"),
    [
        (None, None, 0, None),
        (None, 4, 1 << 40, 4),
        (10 * PAGE_BYTES, None, 0, 10),
        (10 * PAGE_BYTES, 4, 0, 4),
        (10 * PAGE_BYTES, 4, 8 * PAGE_BYTES, 2),
        (10 * PAGE_BYTES, 4, 8 * PAGE_BYTES + 1, 1),
        (10 * PAGE_BYTES, 4, 9 * PAGE_BYTES + 1, 0),
        (10 * PAGE_BYTES, 4, 20 * PAGE_BYTES, 0),
        (LEAST_BYTES, 100, 0, 2),
    ],
)
def test_urls_and_pages_share_a_crawls_memory(
    memory: int | None, in_flight: int | None, urls: int, flight: int | None
) -> None:
    assert most_in_flight_within(memory, in_flight, urls) == flight


@pytest.mark.parametrize("given", [0, -1, LEAST_BYTES - 1, True, 1e9, "much"])
def test_a_limit_that_leaves_no_room_for_a_page_is_refused(given: object) -> None:
    with pytest.raises(BadInput, match=r"memory_bytes: .* is not accepted; use a whole number from 4,194,304"):
        check_memory(given)
    assert check_memory(None) is None and check_memory(LEAST_BYTES) == LEAST_BYTES
