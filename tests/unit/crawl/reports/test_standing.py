"""How the status of a crawl of several processes is made of theirs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from weft.config import load
from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.process import CrawlProcess
from weft.crawl.processes.process_spec import ProcessSpec
from weft.crawl.reports.combined_status import CombinedStatus, begin_alone, end_alone
from weft.engine.loop.progress import CrawlStatus, read_status, write_status
from weft.frontier.contract import FrontierStats


@pytest.fixture
def folder(tmp_path: Path) -> CrawlFolder:
    return CrawlFolder([tmp_path])


def standing(folder: CrawlFolder, told: dict[tuple[int, str, int], CrawlStatus]) -> CombinedStatus:
    """Of processes that have told this; none of them is there."""
    config, processes = load(None, {}, {"data_dirs": [str(folder.home)]}).config, []
    for number, ((pod, role, index), status) in enumerate(told.items()):
        path = folder.home / f"{number}.json"
        write_status(path, status)
        order = ProcessSpec(config, "c", 1, "run", pod, role, index, 2)
        processes.append(CrawlProcess(order, folder.home, path, stuck_s=1.0))
    return CombinedStatus(folder.status, processes)


def test_what_a_pods_processes_share_counts_once_by_who_told_it_last(folder: CrawlFolder) -> None:
    shared = CrawlStatus(queued=7, seen=90, sites=3, admitted=100, finished=80, reported_at=5.0)
    later = msgspec.structs.replace(shared, queued=2, seen=95, admitted=105, finished=103, reported_at=6.0)
    other = CrawlStatus(queued=1, seen=10, sites=1, admitted=10, finished=9, pages=4, requests=9, reported_at=5.5)
    status = standing(
        folder,
        {
            (0, "fetcher", 0): msgspec.structs.replace(shared, requests=50, errors={"dns": 1}),
            (0, "fetcher", 1): msgspec.structs.replace(shared, requests=40, errors={"dns": 2}),
            (0, "parser", 0): msgspec.structs.replace(later, pages=30),
            (1, "fetcher", 0): other,
        },
    ).update()
    assert (status.pages, status.requests, status.errors) == (34, 99, {"dns": 3})
    assert (status.queued, status.seen, status.sites) == (3, 105, 4)
    assert (status.admitted, status.finished) == (115, 112)
    assert [(pod.pod, pod.pages, pod.queued) for pod in status.pods] == [(0, 30, 2), (1, 4, 1)]


def test_what_holds_one_process_up_is_told_of_the_crawl(folder: CrawlFolder) -> None:
    idle, held_up = CrawlStatus(state="running"), CrawlStatus(state="running", note="no proxy is usable")
    status = standing(folder, {(0, "fetcher", 0): idle, (1, "fetcher", 0): held_up}).update()
    assert (status.state, status.note) == ("running", "no proxy is usable")


def test_a_crawl_waits_when_all_its_fetchers_do_for_what_ends_first(folder: CrawlFolder) -> None:
    later = CrawlStatus(state="running", queued=5, waiting_for="circuit breaker of a", waiting_until=500.0)
    sooner = CrawlStatus(state="running", queued=5, waiting_for="Retry-After of b", waiting_until=300.0)
    unknown = CrawlStatus(state="running", queued=5, waiting_for="robots.txt of c")
    works, idle = CrawlStatus(state="running", queued=5, in_flight=1), CrawlStatus(state="running")

    def waits(*statuses: CrawlStatus) -> tuple[str, float | None]:
        told = {(pod, "fetcher", 0): status for pod, status in enumerate(statuses)}
        whole = standing(folder, told | {(0, "parser", 0): CrawlStatus(state="running", queued=5)}).update()
        return whole.waiting_for, whole.waiting_until

    assert waits(later, sooner, unknown, idle) == ("Retry-After of b", 300.0)
    assert waits(unknown, idle) == ("robots.txt of c", None)
    assert waits(later, works) == waits(idle) == ("", None)
    assert waits(later, CrawlStatus(state="paused", queued=5)) == ("", None)


def test_at_the_end_the_pods_themselves_have_the_last_word(folder: CrawlFolder) -> None:
    stale = CrawlStatus(state="running", queued=9, seen=50, admitted=50, finished=40, in_flight=3, pages=5)
    whole = standing(folder, {(0, "fetcher", 0): stale, (1, "fetcher", 0): stale})
    pods = {0: FrontierStats(4, 1, 60, 2, 60, 54, 6, to_parse=1), 1: FrontierStats(0, 0, 70, 3, 70, 70, 5)}
    whole.end("interrupted", "interrupted", folder, pods)
    status = read_status(folder.status)
    assert status is not None and status == whole.status == whole.update()
    assert (status.state, status.note, status.in_flight) == ("interrupted", "interrupted", 0)
    assert (status.queued, status.seen, status.admitted, status.finished, status.sites) == (6, 130, 130, 124, 5)
    assert status.admitted == status.finished + status.queued
    assert [(pod.queued, pod.state) for pod in status.pods] == [(6, "interrupted"), (0, "interrupted")]


def test_a_pod_that_does_not_answer_leaves_what_its_processes_told(folder: CrawlFolder) -> None:
    stale = CrawlStatus(queued=9, seen=50, admitted=50, finished=40)
    whole = standing(folder, {(0, "fetcher", 0): stale, (1, "fetcher", 0): stale})
    whole.end("failed", "", folder, {0: FrontierStats(4, 0, 60, 2, 60, 56, 6)})
    assert (whole.status.queued, whole.status.admitted) == (18, 100)


def test_a_process_that_is_alone_and_was_killed_has_ended_all_the_same(folder: CrawlFolder) -> None:
    write_status(folder.status, CrawlStatus(state="limit", note="max_pages", pages=3, elapsed_s=2.0))
    begin_alone(folder.status)
    status = read_status(folder.status)
    assert status is not None and (status.state, status.note, status.pages) == ("starting", "", 3)
    write_status(folder.status, msgspec.structs.replace(status, state="running", in_flight=4))
    end_alone(folder.status, "interrupted", "interrupted", folder)
    status = read_status(folder.status)
    assert status is not None and (status.state, status.note, status.in_flight) == ("interrupted", "interrupted", 0)
    write_status(folder.status, CrawlStatus(state="failed", note="its own words"))
    end_alone(folder.status, "failed", "", folder)
    status = read_status(folder.status)
    assert status is not None and status.note == "its own words"
