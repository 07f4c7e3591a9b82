"""A crawl's counts: what a process takes up from its store when it starts again, and the line of every minute."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from log_lines import log_lines

from weft.engine.loop.fetcher.verdict import failure_of, refusal_of
from weft.engine.loop.progress import CrawlProgress, CrawlStatus, ProgressLines, read_status
from weft.frontier.contract import FrontierStats
from weft.records import Row
from weft.store.contract import Stats

KINDS = {
    (200, ""): 5,
    (200, "noindex"): 1,
    (404, ""): 2,
    (503, ""): 1,
    (503, "retry-after"): 1,
    (0, "timeout"): 3,
    (0, "robots: Disallow: /a (line 3)"): 4,
    (0, "address: 10.0.0.1"): 1,
    (302, "redirect to scope"): 1,
}
HELD = Stats(19, 5, 900, 99, 0.0, 0.0, {}, {}, {}, {}, [], KINDS, 800)


def row(status: int, error: str, length: int = 10) -> Row:
    return Row(1, 1, "http://a/", "http://a/", status, 0.0, "", "", "", "", 0, 0, "", length, error, 0)


def test_a_row_is_a_failure_or_a_refusal_or_neither() -> None:
    told = {kind: (failure_of(*kind), refusal_of(*kind)) for kind in KINDS}
    assert told == {
        (200, ""): ("", ""),
        (200, "noindex"): ("noindex", ""),
        (404, ""): ("http_4xx", ""),
        (503, ""): ("http_5xx", ""),
        (503, "retry-after"): ("retry-after", ""),
        (0, "timeout"): ("timeout", ""),
        (0, "robots: Disallow: /a (line 3)"): ("", "robots"),
        (0, "address: 10.0.0.1"): ("", "address"),
        (302, "redirect to scope"): ("redirect to scope", ""),
    }


def test_a_process_that_was_killed_takes_up_what_its_store_holds(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    first = CrawlProgress(path, 1, "run 1")
    first.count_page("http://a/", 100)
    first.statuses["200"] += 1
    first.refused.update({"robots": 9, "duplicate": 70})
    first.write("running")  # and more was committed before it died
    second = CrawlProgress(path, 2, "run 1")
    second.restore(HELD)
    second.write("running")
    status = read_status(path)
    assert status is not None
    assert (status.pages, status.body_bytes, status.pages_at_start) == (5, 800, 0)
    assert status.statuses == {"200": 6, "404": 2, "503": 2, "0": 8, "302": 1}
    assert status.errors == {
        "noindex": 1, "http_4xx": 2, "http_5xx": 1, "retry-after": 1, "timeout": 3, "redirect to scope": 1,
    }  # fmt: skip
    assert status.refused == {"robots": 9, "duplicate": 70, "address": 1}, "what has no row is not forgotten"
    assert status.started_at == first.status.started_at, "the run goes on"
    third = CrawlProgress(path, 3, "run 2")
    third.restore(HELD)
    assert third.status.pages_at_start == 5
    assert third.status.started_at > first.status.started_at


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_is_dropped_is_not_counted(tmp_path: Path, kind: tuple[int, str]) -> None:
    progress = CrawlProgress(tmp_path / "status.json", 1)
    progress.restore(HELD)
    progress.uncount_row(row(*kind))
    fewer = {key: rows - (key == kind) for key, rows in KINDS.items()}
    is_page = kind == (200, "")
    held = Stats(18, 5 - is_page, 0, 0, 0.0, 0.0, {}, {}, {}, {}, [], fewer, 800 - 10 * is_page)
    after = CrawlProgress(tmp_path / "other.json", 1)
    after.restore(held)
    assert (progress.status.pages, progress.status.body_bytes) == (after.status.pages, after.status.body_bytes)
    assert (+progress.statuses, +progress.errors, +progress.refused) == (+after.statuses, +after.errors, +after.refused)


def test_at_the_end_what_did_not_come_home_is_queued(tmp_path: Path) -> None:
    progress = CrawlProgress(tmp_path / "status.json", 1)
    progress.note_frontier(FrontierStats(10, 3, 50, 4, 50, 37, 30), 3)
    assert (progress.status.queued, progress.status.in_flight) == (10, 3)
    progress.record_final_stats(FrontierStats(10, 2, 50, 4, 50, 37, 30, to_parse=1))
    status = progress.status
    assert (status.queued, status.in_flight) == (13, 0)
    assert status.admitted == status.finished + status.queued


def test_what_a_crawl_waits_for_is_in_the_lines_and_forgotten_when_it_ends(tmp_path: Path) -> None:
    now = [0.0]
    waits = CrawlStatus(state="running", waiting_for="circuit breaker of a:8080", waiting_until=time.time() + 100.0)
    with log_lines("weft.engine.loop.progress") as logged:
        lines = ProgressLines(clock=lambda: now[0])
        for status in (waits, waits, CrawlStatus(state="running", waiting_for="paused"), CrawlStatus(state="running")):
            lines(status)
            now[0] += 60.0
    told = [(fields.get("waiting_for"), "for_s" in fields) for _, fields in logged]
    assert told == [("circuit breaker of a:8080", True), ("paused", False), (None, False)]
    progress = CrawlProgress(tmp_path / "status.json", 1)
    progress.status.waiting_for, progress.status.waiting_until = waits.waiting_for, waits.waiting_until
    progress.write("running")
    assert (read_status(tmp_path / "status.json") or waits).waiting_for == waits.waiting_for
    progress.write("interrupted")
    ended = read_status(tmp_path / "status.json") or waits
    assert (ended.waiting_for, ended.waiting_until) == ("", None)


def test_a_line_a_minute() -> None:
    now = [0.0]
    with log_lines("weft.engine.loop.progress") as logged:
        lines = ProgressLines(clock=lambda: now[0])
        for at, pages in ((0, 10), (30, 20), (59.9, 60), (60, 70), (90, 80), (125, 200)):
            now[0] = at
            lines(CrawlStatus(state="running", pages=pages, queued=5, errors={"dns": 2, "timeout": 1}))
    assert [tuple(fields[name] for name in ("pages", "pages_per_s", "queued", "errors")) for _, fields in logged] == [
        (70, 1.0, 5, 3),
        (200, 2.0, 5, 3),
    ]
