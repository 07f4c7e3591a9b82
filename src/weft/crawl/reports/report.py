"""A crawl's figures as programs read them: the JSON of `weft crawl`, `weft stats` and `weft watch`.

The fields are documented in docs/json.md. What the processes tell each other in their status files stays out of it, and
so do the numbers by which rows know each other.
"""

from __future__ import annotations

from typing import Any

from weft.engine.loop.progress import CrawlStatus, PodStatus
from weft.records import Row
from weft.store.export.facts import iso, read_fields
from weft.store.export.request import RULE_COLUMNS
from weft.store.pages import PageStore

_ROW = (
    "url", "final_url", "status", "fetched_at", "content_type", "charset", "language", "title", "depth", "parent",
    "digest", "length", "warc_file", "warc_offset", "error",
)  # fmt: skip
_POD = ("pod", "pages", "requests", "queued", "in_flight", "sites", "errors", "processes", "restarts", "state")


def document(status: CrawlStatus, pods: int) -> dict[str, Any]:
    """The fields that all three share, of a crawl of so many pods."""
    return {
        "state": status.state,
        "note": status.note,
        "waiting_for": status.waiting_for if status.state == "running" else "",
        "waiting_until": _waiting_until(status),
        "started_at": iso(status.started_at) if status.started_at else None,
        "updated_at": iso(status.updated_at) if status.updated_at else None,
        "elapsed_s": round(status.elapsed_s, 3),
        "pages": status.pages,
        "live_pages": status.live_pages,
        "pages_per_s": rate(status),
        "body_bytes": status.body_bytes,
        "requests": status.requests,
        "retries": status.retries,
        "redirects": status.redirects,
        "need_javascript": status.shells,
        "rendered": {"pages": status.rendered, "seconds": round(status.rendering_s, 3), "parts": status.parts},
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


def _waiting_until(status: CrawlStatus) -> str | None:
    """When what a running crawl waits for is over, as far as known."""
    is_known = status.state == "running" and status.waiting_for and status.waiting_until is not None
    return iso(status.waiting_until) if is_known and status.waiting_until is not None else None


def row_facts(row: Row, store: PageStore) -> dict[str, Any]:
    """A row under the names of the exports: times are ISO 8601 in UTC, a parent is a URL, what is not there is null."""
    facts: dict[str, Any] = {name: getattr(row, name) or None for name in _ROW}
    facts |= {"status": row.status, "depth": row.depth, "length": row.length, "fetched_at": iso(row.fetched_at)}
    facts["parent"] = store.url_of(row.parent) if row.parent else None
    facts["warc_offset"] = row.warc_offset if row.warc_file else None
    return facts | read_fields(row, RULE_COLUMNS) if row.fields else facts


def rate(status: CrawlStatus) -> float:
    """Pages for each second that the crawl has run, over all its runs."""
    return round(status.pages / status.elapsed_s, 3) if status.elapsed_s else 0.0


def _some(counts: dict[str, int]) -> dict[str, int]:
    """What there is any of, the most first."""
    return {name: count for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count}


def _pod(pod: PodStatus) -> dict[str, Any]:
    return {name: getattr(pod, name) for name in _POD}
