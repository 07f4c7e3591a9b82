"""The memory of one crawl among many, as far as it can be attributed: its pages in flight and its URLs. Pure.

A page counts from its claim until its row is made, with the most that it may use: a connection with its buffers, and a
body (a larger one is in a file). URLs count as the frontier has them in memory. What all crawls share is attributed to
no crawl: the parsers, pages that wait for a commit, robots.txt files.
"""

from __future__ import annotations

from weft.bodies import ALONE_BYTES
from weft.engine.loop.fetcher.flight import TRANSFER_BYTES
from weft.errors import BadInput

PAGE_BYTES = TRANSFER_BYTES + ALONE_BYTES
LEAST_BYTES = 4 << 20  # two pages, and room for URLs


def check_memory(given: object) -> int | None:
    """Checks a crawl's memory limit; None: it has none."""
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < LEAST_BYTES:
        raise BadInput(f"memory_bytes: {given!r} is not accepted; use a whole number from {LEAST_BYTES:,}")
    return given


def most_in_flight_within(memory_bytes: int | None, in_flight: int | None, url_bytes: int = 0) -> int | None:
    """How many pages may be in flight: `in_flight`, or as many as there is room for besides the URLs."""
    if memory_bytes is None:
        return in_flight
    room = max(0, memory_bytes - url_bytes) // PAGE_BYTES
    return room if in_flight is None else min(room, in_flight)
