"""The meaning of a transfer's result. Pure."""

from __future__ import annotations

from enum import StrEnum

from weft.records import RETRYABLE, FetchResult, Reason

# What ends before the site was asked: a kept connection had ended, a proxy does not work, no worker could be asked.
UNREQUESTED_ERRORS = frozenset({"stale", "bad_proxy", "unasked"})
LOST = "lost"  # a worker has lost the request: whether the site was asked is not known, but it is not at fault
# What says something about the site, not about one page of it.
SITE_FAILURES = frozenset({"timeout", "connect", "dns", "reset", "tls"})
_REASONS = frozenset(Reason)
LONGEST_BACKOFF_S = 60.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})


class VerdictKind(StrEnum):
    """What to do with a result."""

    PAGE = "page"
    REDIRECT = "redirect"
    SLOW_DOWN = "slow-down"  # 429, 503: the site wants fewer requests; tried again
    RETRY = "retry"
    AGAIN = "again"  # the site was not asked, or nobody knows, and is not at fault: tried again after the delay
    ANSWER = "answer"  # a response that is not a page: 404 and the like
    FAILED = "failed"  # no usable response


def kind_of(result: FetchResult) -> VerdictKind:
    """The kind of a result."""
    if result.error in UNREQUESTED_ERRORS or result.error == LOST:
        return VerdictKind.AGAIN
    if result.error:
        return VerdictKind.RETRY if result.error in RETRYABLE else VerdictKind.FAILED
    status = result.status
    if 200 <= status < 300:
        return VerdictKind.PAGE
    if status in REDIRECTS:
        return VerdictKind.REDIRECT
    if status in (429, 503):
        return VerdictKind.SLOW_DOWN
    if status >= 500 or status == 408:
        return VerdictKind.RETRY
    return VerdictKind.ANSWER


def site_health(result: FetchResult) -> bool | None:
    """For the breaker: True if the site is healthy, False if it failed, None if the result does not show it."""
    if result.error:
        return False if result.error in SITE_FAILURES else True if result.error == Reason.CONTENT_TYPE else None
    if result.status in (502, 503, 504):
        return False
    return None if result.status == 429 else True


def failure_of(status: int, error: str) -> str:
    """The kind of failure that an ended item counts as, from its row; empty if it is none.

    A URL that was rejected without a request is no failure: it counts under its reason (`refusal_of`).
    """
    if not error:
        return f"http_{status // 100}xx" if status >= 400 else ""
    return "" if refusal_of(status, error) else error.partition(":")[0]


def refusal_of(status: int, error: str) -> str:
    """The reason why an item was rejected, without a request or at the head of its answer; empty for any other."""
    kind = error.partition(":")[0]
    return kind if kind in _REASONS and (not status or kind == Reason.CONTENT_TYPE) else ""


def backoff_s(first_s: float, attempt: int, chance: float) -> float:
    """The wait before a retry: doubles from the first, at most a minute, with jitter of up to half."""
    return float(min(LONGEST_BACKOFF_S, first_s * 2 ** min(attempt, 64))) * (0.5 + chance / 2)
