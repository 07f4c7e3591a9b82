"""The status of an engine's crawls in the words of `weft crawl`: as the engine says, or as it was last written down."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping

from weft.crawl.reports.crawls import ReportCrawl, ReportFolder
from weft.engine.crawls.tenant import TenantRecord
from weft.engine.loop.progress import CrawlStatus, counts_of, failures_in
from weft.engine.model import CrawlSnapshot, CrawlState, EndReason

_ENDED = {EndReason.DONE: "finished", EndReason.CANCELLED: "cancelled", EndReason.FAILED: "failed"}  # others: limit
_SUMMED = (
    "pages", "requests", "body_bytes", "queued", "in_flight", "retries", "redirects", "seen", "admitted", "finished",
    "rate",
)  # fmt: skip
_COUNTED = ("statuses", "errors", "refused")


def statuses(report: ReportFolder, crawls: Iterable[ReportCrawl]) -> dict[str, CrawlStatus]:
    """The status of each crawl by name: of the running ones from the engine, where it answers."""
    asked = list(crawls)
    live = report.live([crawl.name for crawl in asked if crawl.state is not CrawlState.ENDED])
    return {crawl.name: _status(report, crawl, live) for crawl in asked}


def _status(report: ReportFolder, crawl: ReportCrawl, live: Mapping[str, CrawlSnapshot] | None) -> CrawlStatus:
    assert isinstance(crawl.record, TenantRecord)
    standing = (live or {}).get(crawl.name) or crawl.record.last
    if standing is not None:
        return of_standing(standing)
    status = _written(crawl, crawl.record)
    if crawl.record.state is not CrawlState.ENDED and live is None:
        status.state, status.note = "interrupted", "no process is running it"
    settle_crawl(report, crawl.number, status)
    return status


def _written(crawl: ReportCrawl, record: TenantRecord) -> CrawlStatus:
    """As far as the record knows; what it has stored is counted by the index."""
    standing = CrawlSnapshot(
        name=crawl.name, id=crawl.number, state=record.state, reason=record.reason, requests=record.requests,
        retries=record.retries, reasons=record.refused, opened_at=record.opened_at, ended_at=record.ended_at,
        running_s=record.running_s,
    )  # fmt: skip
    return of_standing(standing)


def of_standing(standing: CrawlSnapshot) -> CrawlStatus:
    """A standing as the status of a crawl."""
    ended = sum(standing.ends.values())
    known = ended + standing.queued + standing.in_flight + standing.left
    return CrawlStatus(
        state=_state(standing), note=standing.note or str(standing.reason or ""), waiting_for=standing.waiting_for,
        waiting_until=standing.waiting_until, started_at=standing.opened_at,
        updated_at=standing.ended_at or time.time(), elapsed_s=standing.running_s, pages=standing.pages,
        requests=standing.requests, body_bytes=standing.body_bytes, queued=standing.queued or standing.left,
        in_flight=standing.in_flight, rate=standing.rate, statuses=dict(standing.statuses),
        errors=dict(standing.errors), refused=dict(standing.reasons), retries=standing.retries,
        redirects=sum(count for status, count in standing.statuses.items() if status.startswith("3")),
        seen=known, admitted=known, finished=ended,
    )  # fmt: skip


def _state(standing: CrawlSnapshot) -> str:
    if standing.state is not CrawlState.ENDED:
        return {CrawlState.OPEN: "starting"}.get(standing.state, str(standing.state))
    return _ENDED.get(standing.reason, "limit") if standing.reason is not None else "finished"


def settle_crawl(report: ReportFolder, crawl: int, status: CrawlStatus) -> None:
    """Makes pages, bytes, statuses and errors what the index holds of a crawl, or of all (0)."""
    held, current = report.store.stats(0, crawl=crawl), report.store.current(crawl=crawl)
    status.pages, status.body_bytes, status.live_pages = held.pages, held.page_bytes, current.pages
    status.statuses, status.errors = dict(counts_of(held)[0]), dict(failures_in(current.kinds))


def total_of(each: Iterable[CrawlStatus], is_running: bool) -> CrawlStatus:
    """What all crawls of an engine come to."""
    listed = list(each)
    total = CrawlStatus(updated_at=max((one.updated_at for one in listed), default=0.0))
    total.started_at = min((one.started_at for one in listed), default=0.0)
    total.elapsed_s = total.updated_at - total.started_at
    for name in _SUMMED:
        setattr(total, name, sum(getattr(one, name) for one in listed))
    for name in _COUNTED:
        counts: Counter[str] = Counter()
        for one in listed:
            counts.update(getattr(one, name))
        setattr(total, name, dict(counts))
    interrupted = any(one.state == "interrupted" for one in listed)
    total.state = "running" if is_running else "interrupted" if interrupted else "finished"
    return total
