"""A crawl's figures as programs read them: the JSON of `weft crawl`, `weft stats` and `weft watch`.

The fields are documented in docs/crawl.md; SCHEMA grows when one changes its meaning or goes. What the processes tell
each other in their status files stays out of it.
"""

from __future__ import annotations

from typing import Any

from weft.engine.progress import PodStatus, Status

SCHEMA = 1
_POD = ("pod", "pages", "requests", "queued", "in_flight", "sites", "errors", "processes", "restarts", "state")


def document(status: Status, pods: int) -> dict[str, Any]:
    """The fields that all three share, of a crawl of so many pods."""
    return {
        "schema": SCHEMA,
        "state": status.state,
        "note": status.note,
        "started_at": round(status.started_at, 3),
        "updated_at": round(status.updated_at, 3),
        "elapsed_s": round(status.elapsed_s, 3),
        "pages": status.pages,
        "live_pages": status.live_pages,
        "pages_per_s": rate(status),
        "body_bytes": status.body_bytes,
        "requests": status.requests,
        "retries": status.retries,
        "redirects": status.redirects,
        "seen": status.seen,
        "admitted": status.admitted,
        "finished": status.finished,
        "queued": status.queued,
        "in_flight": status.in_flight,
        "sites": status.sites,
        "statuses": _some(status.statuses),
        "errors": _some(status.errors),
        "slowed": _some(status.slowed),
        "refused": _some(status.refused),
        "unparsed": status.poisoned,
        "repairs": _some(status.repairs),
        "pods": {"of": pods, "each": [_pod(pod) for pod in status.pods]},
    }


def rate(status: Status) -> float:
    """Pages for each second that the crawl has run, over all its runs."""
    return round(status.pages / status.elapsed_s, 3) if status.elapsed_s else 0.0


def _some(counts: dict[str, int]) -> dict[str, int]:
    """What there is any of, the most first."""
    return {name: count for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count}


def _pod(pod: PodStatus) -> dict[str, Any]:
    return {name: getattr(pod, name) for name in _POD}
