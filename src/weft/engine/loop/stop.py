"""Why a loop ends, and what it waits for instead: for whoever starts processes, without what they are made of."""

from __future__ import annotations

from enum import StrEnum

from weft.errors import DiskFull, ServerAway, ServerFull

CALLBACK_ERROR = "callback_error"  # what a page whose callback failed is counted under
BLOCKING = (DiskFull, ServerAway, ServerFull)  # what must pass before a loop goes on


class Stop(StrEnum):
    """Why a loop ended; a crawl of an engine with many has `model.EndReason`."""

    DONE = "done"  # nothing is left
    MAX_PAGES = "max_pages"
    CALLBACK_ERRORS = "callback_errors"  # the user's code has failed at too many pages
    MAX_ITEMS = "max_items"
    CLOSED = "closed"  # the user's code has ended it
    BUDGET = "budget"  # what is left waits behind a limit for each domain
    MAX_DURATION = "max_duration"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"  # for good: what is queued is not wanted any more


# A crawl that ends for one of these does not wait until a full disk has room: what is not written is fetched again.
UNWRITTEN = frozenset({Stop.INTERRUPTED, Stop.MAX_DURATION, Stop.CANCELLED})
