"""Why a loop ends or is paused, and which conditions it waits for: separate, so that a process that starts others need
not import the loop.
"""

from __future__ import annotations

from enum import StrEnum

from weft.errors import DiskFull, ServerAway, ServerFull

CALLBACK_ERROR = "callback_error"  # the count of pages whose callback failed
PAUSED = "paused"  # the state of a process whose crawl is paused
BY_COMMAND = "by a command"  # the note of that state, if no other reason is known
BLOCKING = (DiskFull, ServerAway, ServerFull)  # conditions that must end before a loop continues


class Stop(StrEnum):
    """Why a loop ended; for a crawl of an engine with many see `model.EndReason`."""

    DONE = "done"  # nothing is left
    MAX_PAGES = "max_pages"
    CALLBACK_ERRORS = "callback_errors"  # the user's code has failed on too many pages
    MAX_ITEMS = "max_items"
    CLOSED = "closed"  # the user's code has ended it
    LOGIN_FAILED = "login_failed"  # and nobody is there who could correct it
    BUDGET = "budget"  # all that is left waits behind a limit per domain
    MAX_DURATION = "max_duration"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"  # for good: the queue is discarded


# A crawl that ends for one of these does not wait until a full disk has room: unwritten pages are fetched again.
NOT_IN_LOG_STOPS = frozenset({Stop.INTERRUPTED, Stop.MAX_DURATION, Stop.CANCELLED})
