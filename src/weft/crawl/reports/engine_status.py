"""The status of an engine's crawls in the form of `weft crawl`: from the running engine, or as it was stored last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from weft.crawl.reports.crawls import ReportCrawl, ReportFolder
from weft.engine.crawls.tenant import TenantRecord
from weft.engine.loop.progress import CrawlStatus, counts_of, failures_by_kind
from weft.engine.model import CrawlSnapshot, CrawlState, EndReason

_STATE_BY_REASON = {
    EndReason.DONE: "finished",
    EndReason.CANCELLED: "cancelled",
    EndReason.FAILED: "failed",
}  # others: limit
_SUMMED_FIELDS = (
    "pages", "requests", "body_bytes", "queued", "in_flight", "retries", "redirects", "seen", "admitted", "finished",
    "rate",
)  # fmt: skip
_COUNTED_FIELDS = ("statuses", "errors", "refused")


def statuses(report: ReportFolder, crawls: Iterable[ReportCrawl]) -> dict[str, CrawlStatus]:
    """The status of each crawl by name: running ones from the engine, if it answers."""
    asked = list(crawls)
    live = report.live_snapshots([crawl.name for crawl in asked if crawl.state is not CrawlState.ENDED])
    return {crawl.name: _status_of(report, crawl, live) for crawl in asked}


def _status_of(report: ReportFolder, crawl: ReportCrawl, live: Mapping[str, CrawlSnapshot] | None) -> CrawlStatus:
    assert isinstance(crawl.record, TenantRecord)
    snapshot = (live or {}).get(crawl.name) or crawl.record.last
    if snapshot is not None:
        return status_from_snapshot(snapshot)
    status = _stored_status(crawl, crawl.record)
    if crawl.record.state is not CrawlState.ENDED and live is None:
        status.state, status.note = "interrupted", "no process is running it"
    settle_crawl(report, crawl.number, status)
    return status


def _stored_status(crawl: ReportCrawl, record: TenantRecord) -> CrawlStatus:
    """The stored status; what the crawl has stored is counted in the index."""
    snapshot = CrawlSnapshot(
        name=crawl.name, id=crawl.number, state=record.state, reason=record.reason, requests=record.requests,
        retries=record.retries, reasons=record.refused, opened_at=record.opened_at, ended_at=record.ended_at,
        running_s=record.running_s,
    )  # fmt: skip
    return status_from_snapshot(snapshot)


def status_from_snapshot(snapshot: CrawlSnapshot) -> CrawlStatus:
    """Converts an engine's snapshot into the status of a crawl."""
    ended = sum(snapshot.ends.values())
    known = ended + snapshot.queued + snapshot.in_flight + snapshot.left
    return CrawlStatus(
        state=_state_of(snapshot), note=snapshot.note or str(snapshot.reason or ""), waiting_for=snapshot.waiting_for,
        waiting_until=snapshot.waiting_until, started_at=snapshot.opened_at,
        updated_at=snapshot.ended_at or time.time(), elapsed_s=snapshot.running_s, pages=snapshot.pages,
        requests=snapshot.requests, body_bytes=snapshot.body_bytes, queued=snapshot.queued or snapshot.left,
        in_flight=snapshot.in_flight, rate=snapshot.rate, statuses=dict(snapshot.statuses),
        errors=dict(snapshot.errors), refused=dict(snapshot.reasons), retries=snapshot.retries,
        redirects=sum(count for status, count in snapshot.statuses.items() if status.startswith("3")),
        seen=known, admitted=known, finished=ended,
    )  # fmt: skip


def _state_of(snapshot: CrawlSnapshot) -> str:
    if snapshot.state is not CrawlState.ENDED:
        return {CrawlState.OPEN: "starting"}.get(snapshot.state, str(snapshot.state))
    return _STATE_BY_REASON.get(snapshot.reason, "limit") if snapshot.reason is not None else "finished"


def settle_crawl(report: ReportFolder, crawl: int, status: CrawlStatus) -> None:
    """Sets pages, bytes, statuses and errors to those in the index, of one crawl or of all (0)."""
    held, current = report.store.stats(0, crawl=crawl), report.store.current(crawl=crawl)
    status.pages, status.body_bytes, status.live_pages = held.pages, held.page_bytes, current.pages
    status.statuses, status.errors = dict(counts_of(held)[0]), dict(failures_by_kind(current.kinds))


def total_status(each: Iterable[CrawlStatus], is_running: bool) -> CrawlStatus:
    """The combined status of all crawls of an engine."""
    listed = list(each)
    total = CrawlStatus(updated_at=max((one.updated_at for one in listed), default=0.0))
    total.started_at = min((one.started_at for one in listed), default=0.0)
    total.elapsed_s = total.updated_at - total.started_at
    for name in _SUMMED_FIELDS:
        setattr(total, name, sum(getattr(one, name) for one in listed))
    for name in _COUNTED_FIELDS:
        counts: Counter[str] = Counter()
        for one in listed:
            counts.update(getattr(one, name))
        setattr(total, name, dict(counts))
    interrupted = any(one.state == "interrupted" for one in listed)
    total.state = "running" if is_running else "interrupted" if interrupted else "finished"
    return total
