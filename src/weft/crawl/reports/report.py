"""A crawl's status as JSON for programs: `weft crawl`, `weft stats` and `weft watch`.

The fields are documented in docs/json.md. Values that the processes only exchange in their status files are left out,
and so are internal row numbers.
"""

from __future__ import annotations

from typing import Any

from weft.engine.loop.progress import CrawlStatus, PodStatus
from weft.records import Row
from weft.store.export.facts import extracted_fields, iso_time
from weft.store.export.request import RULE_COLUMNS
from weft.store.pages import PageStore

_ROW_FIELDS = (
    "url", "final_url", "status", "fetched_at", "content_type", "charset", "language", "title", "depth", "parent",
    "digest", "length", "warc_file", "warc_offset", "error",
)  # fmt: skip
_POD_FIELDS = ("pod", "pages", "requests", "queued", "in_flight", "sites", "errors", "processes", "restarts", "state")


def status_document(status: CrawlStatus, pods: int) -> dict[str, Any]:
    """The fields that all three commands share; `pods`: the number of pods of the crawl."""
    return {
        "state": status.state,
        "note": status.note,
        "waiting_for": status.waiting_for if status.state == "running" else "",
        "waiting_until": _waiting_until(status),
        "started_at": iso_time(status.started_at) if status.started_at else None,
        "updated_at": iso_time(status.updated_at) if status.updated_at else None,
        "elapsed_s": round(status.elapsed_s, 3),
        "pages": status.pages,
        "live_pages": status.live_pages,
        "pages_per_s": pages_per_second(status),
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
        "statuses": _nonzero_counts(status.statuses),
        "errors": _nonzero_counts(status.errors),
        "slowed": _nonzero_counts(status.slowed),
        "refused": _nonzero_counts(status.refused),
        "unparsed": status.poisoned,
        "repairs": _nonzero_counts(status.repairs),
        "pods": {"of": pods, "each": [_pod_document(pod) for pod in status.pods]},
    }


def _waiting_until(status: CrawlStatus) -> str | None:
    """When the wait of a running crawl ends, as far as known."""
    is_known = status.state == "running" and status.waiting_for and status.waiting_until is not None
    return iso_time(status.waiting_until) if is_known and status.waiting_until is not None else None


def row_document(row: Row, store: PageStore) -> dict[str, Any]:
    """A row under the field names of the exports: times in ISO 8601 (UTC), a parent as a URL, missing values as
    null."""
    facts: dict[str, Any] = {name: getattr(row, name) or None for name in _ROW_FIELDS}
    facts |= {"status": row.status, "depth": row.depth, "length": row.length, "fetched_at": iso_time(row.fetched_at)}
    facts["parent"] = store.url_of(row.parent) if row.parent else None
    facts["warc_offset"] = row.warc_offset if row.warc_file else None
    return facts | extracted_fields(row, RULE_COLUMNS) if row.fields else facts


def pages_per_second(status: CrawlStatus) -> float:
    """Pages per second of run time, over all runs."""
    return round(status.pages / status.elapsed_s, 3) if status.elapsed_s else 0.0


def _nonzero_counts(counts: dict[str, int]) -> dict[str, int]:
    """The nonzero counts, largest first."""
    return {name: count for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if count}


def _pod_document(pod: PodStatus) -> dict[str, Any]:
    return {name: getattr(pod, name) for name in _POD_FIELDS}
