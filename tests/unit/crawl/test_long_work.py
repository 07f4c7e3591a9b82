"""Work that grows with a crawl: heartbeats and a line for the user while it lasts, and a kill costs one step of it."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from log_lines import log_lines

from weft import alive as alive_module
from weft.config import load
from weft.crawl.folder import CrawlFolder
from weft.crawl.processes.fetcher import Fetcher
from weft.crawl.processes.process_spec import ControlInput, ProcessSpec
from weft.crawl.seeds import known_urls as again_module
from weft.crawl.seeds.known_urls import KnownUrlsFeed
from weft.crawl.start import prepare
from weft.engine.folder import CRAWL_SUFFIX
from weft.engine.loop.long_work import LOG_EVERY_S, REPORT_EVERY_S, LongWork
from weft.engine.loop.parser.suspects import Heartbeat, read_heartbeat, steps_of
from weft.engine.loop.progress import CrawlProgress, read_status
from weft.frontier.contract import CrawlLimits
from weft.frontier.durability.walk import URLS_PER_STEP
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.embedded.revisits import EmbeddedRevisits
from weft.frontier.requests import RequestLog, last_requests
from weft.records import FetchResult, Found, Row
from weft.store.pages import PageStore

PAGES = 2 * URLS_PER_STEP + 500
SITE = "http://127.0.0.1:9"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl with many stored pages, one in ten of them failed, and nothing in its queue."""
    home = tmp_path_factory.mktemp("crawl") / "data"
    prepare([f"{SITE}/0"], {"data_dirs": [str(home)], "allow_private": True, "prometheus_port": 0}).close()
    folder = CrawlFolder([home])
    frontier = EmbeddedFrontier(folder.pod_folder(0), load(None, {}, {}).config.politeness)
    number = frontier.crawls.open_crawl(CRAWL_SUFFIX, CrawlLimits())
    frontier.recovery.recover()
    store = PageStore.open([home], crawl_id=folder.identity().id)
    items = range(1, PAGES + 1)
    frontier.recovery.restore_stored(number, [(Found(f"{SITE}/{item}", 1), item) for item in items])
    for item in items:
        store.add(*visit(item, number))
    store.write()
    frontier.durability.commit()
    store.commit()
    store.close()
    frontier.close()
    return home


def visit(item: int, crawl: int) -> tuple[Row, FetchResult]:
    url, status, body = f"{SITE}/{item}", 200 if item % 10 else 503, b"A page."
    row = Row(item, crawl, url, url, status, time.time(), "text/html", "", "", "", 1, 0, "", len(body), "")
    head = b"HTTP/1.1 %d X\r\nContent-Type: text/html\r\n\r\n" % status
    return row, FetchResult(url, status, head, body, None, "", 0.0, 0.0, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")


def life(data_dir: Path, run: str, **flags: Any) -> tuple[int, int]:
    """A fetcher that opens the crawl, asks nobody and ends: its heartbeats, and what it leaves in the queue."""
    folder = CrawlFolder([data_dir])
    given = {"data_dirs": [str(data_dir)], "allow_private": True, "prometheus_port": 0, "resume": True, **flags}
    order = ProcessSpec(load(None, {}, given).config, folder.identity().id, os.getpid(), run, started_at=time.time())
    before = read_heartbeat(folder.frontier)[0]
    read, write = os.pipe()
    try:
        fetcher = Fetcher(order, ControlInput(read))
        while not fetcher.feed.is_over:
            fetcher.feed()
        fetcher.loop.drain()
        fetcher.run()
    finally:
        os.close(read)
        os.close(write)
    status = read_status(folder.status)
    assert status is not None
    return read_heartbeat(folder.frontier)[0] - before, status.queued


@pytest.mark.parametrize(("flag", "again"), [("recrawl", PAGES * 9 // 10), ("retry_failed", PAGES // 10)])
def test_a_walk_over_all_pages_has_heartbeats_and_is_made_once_for_a_run(
    data_dir: Path, tmp_path: Path, flag: str, again: int
) -> None:
    """A process that is started again in its run must not queue everything a second time."""
    copy = tmp_path / "data"
    shutil.copytree(data_dir, copy)
    life(copy, "first")
    usual, waiting = life(copy, "run")
    walking, more = life(copy, "run", **{flag: True})
    assert more - waiting == again
    assert walking - usual >= again // URLS_PER_STEP, "one for each step at least"
    assert life(copy, "run", **{flag: True})[1] == more, "what this run has queued is queued"
    assert life(copy, "next", **{flag: True})[1] == more, "and so is what an earlier run has queued and not visited"


def test_known_pages_are_queued_a_few_at_a_time_and_what_is_stored_meanwhile_is_not(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "data"
    shutil.copytree(data_dir, copy)
    monkeypatch.setattr(again_module, "SLICE_S", 0.0)
    folder = CrawlFolder([copy])
    config = load(None, {}, {"data_dirs": [str(copy)], "resume": True, "recrawl": True}).config
    order = ProcessSpec(config, folder.identity().id, os.getpid(), "run", started_at=time.time())
    with (
        closing(EmbeddedFrontier(folder.pod_folder(0), config.politeness)) as frontier,
        closing(PageStore.open([copy], crawl_id=folder.identity().id)) as store,
    ):
        number = frontier.crawls.open_crawl(CRAWL_SUFFIX, CrawlLimits())
        frontier.recovery.recover()
        frontier.queue.admit(number, [Found(f"{SITE}/new", 1)])
        before = frontier.status.stats().queued
        again = KnownUrlsFeed(order, folder, frontier, store, lambda _: True, number)
        again()
        assert 0 < frontier.status.stats().queued - before < PAGES // 10, "a crawl that runs does not wait for all"
        for item in (PAGES + 1, PAGES + 5000):  # one was queued before, the other is found by the recrawl
            store.add(*visit(item, number))
        store.write()
        store.commit()
        while not again.is_over:
            again()
        assert frontier.status.stats().queued - before == PAGES * 9 // 10


@pytest.mark.parametrize("run", ["run", "another"])
def test_a_recrawl_that_was_cut_off_is_completed_by_the_next_start(data_dir: Path, tmp_path: Path, run: str) -> None:
    """Also by one that was not asked for a recrawl: the pages that are queued are half of it."""
    copy = tmp_path / "data"
    shutil.copytree(data_dir, copy)
    waiting = life(copy, "first")[1]
    killed_after(URLS_PER_STEP + 1, lambda: life(copy, "run", recrawl=True))
    assert life(copy, run, recrawl=run == "run")[1] - waiting == PAGES * 9 // 10
    assert life(copy, "later")[1] - waiting == PAGES * 9 // 10


def killed_after(count: int, work: Callable[[], object]) -> None:
    """Does it in a process that is killed when its frontier has queued so many known pages."""
    pid = os.fork()
    if not pid:
        readmit, left = EmbeddedRevisits.readmit, count

        def counted(self: EmbeddedRevisits, *args: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            readmit(self, *args)

        EmbeddedRevisits.readmit = counted  # type: ignore[assignment, method-assign]
        try:
            work()
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(pid, 0)[1]) == signal.SIGKILL


def test_a_statement_that_reads_a_whole_index_has_heartbeats(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alive_module, "_SQLITE_STEPS", 1000)
    heartbeats = 0

    def beat() -> None:
        nonlocal heartbeats
        heartbeats += 1

    store = PageStore.open([data_dir], read_only=True, alive=beat)
    assert store.stats(9).hosts == [("127.0.0.1", PAGES * 9 // 10)]
    assert heartbeats >= PAGES // 1000
    store.abandon()


def test_a_long_request_log_has_heartbeats(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, 1.0)
    for item in range(1500):
        log.log_start(item, 2.0, "a.test", 1.0, 1, "http://a.test/")
        log.log_end(item, 3.0, "200")
    log.close()
    heartbeats: list[int] = []
    assert last_requests(tmp_path, 0.0, 9.0, lambda: heartbeats.append(1)).ended == {"a.test": 3.0}
    assert len(heartbeats) >= 3


def test_what_takes_long_is_reported_with_how_far_it_is(tmp_path: Path) -> None:
    now, path = 0.0, tmp_path / "status.json"
    work = LongWork(Heartbeat(tmp_path), CrawlProgress(path, 1), clock=lambda: now)
    work.begin("queueing known pages again", 3000)
    assert list(work.count_each(range(2500))) == list(range(2500))
    assert (read_heartbeat(tmp_path)[0], steps_of(tmp_path), path.exists()) == (3, 0, False), "it was over in a moment"
    now = REPORT_EVERY_S
    work()
    status = read_status(path)
    assert status is not None
    assert (status.state, status.note) == ("starting", "queueing known pages again: 2,500 of 3,000")
    work.begin("closing the queue", state="draining")
    now += LOG_EVERY_S
    with log_lines("weft.engine.loop.long_work") as lines:
        work()
    status = read_status(path)
    assert status is not None
    assert (status.state, status.note, steps_of(tmp_path)) == ("draining", "closing the queue", 1)
    assert lines == [("long work", {"what": "closing the queue", "done": 0, "of": 0})]
    path.unlink()
    work.end()
    now += LOG_EVERY_S
    work()
    assert (steps_of(tmp_path), path.exists()) == (2, False), "the loop reports then"
