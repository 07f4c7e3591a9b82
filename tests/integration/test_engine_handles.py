"""Handles on one engine: what a reply's number means, seeds in pieces, settings that differ, who runs the engine, and
how soon it sees the end of the one who does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engines import ended, host, kill, nothing, shared, until
from pace import patience

import weft
from weft.engine import core, handle
from weft.engine.crawls import settings
from weft.engine.loop.commit import Committer
from weft.engine.loop.rows import RowMaker
from weft.engine.model import WAITING_FOR_SEEDS, CrawlSnapshot, CrawlState, EndReason
from weft.engine.process.channel import ChannelServer, Connection, socket_path
from weft.errors import BadInput, DiskFull, WeftError
from weft.store.pages import PageStore
from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=6, pages=40, profile="calm", seed=9) as web:
        yield web


@pytest.fixture(scope="module")
def engine(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[weft.Engine]:
    with weft.Engine(tmp_path_factory.mktemp("engine") / "data", **shared(web)) as engine:
        yield engine


# ── calls of several threads ───────────────────────────────────────────────────────────────────────────────────────


def test_calls_of_several_threads_wait_for_their_replies_side_by_side(tmp_path: Path) -> None:
    """An engine that replies when all of them have asked, as one does whose replies wait for the same sync."""
    threads, asked = 8, list[str]()

    def carry_out(_peer: object, verb: str, arguments: dict[str, Any]) -> object:
        if verb == "settings":
            return {}
        asked.append(arguments["name"])
        return msgspec.to_builtins(CrawlSnapshot(name=arguments["name"], id=len(asked), state=CrawlState.OPEN))

    server = ChannelServer(socket_path(tmp_path), carry_out, at_once={"settings"})
    is_over, has_failed = threading.Event(), threading.Event()

    def serve() -> None:
        while not is_over.wait(0.005):
            server.turn()
            server.reply_to_reads()
            if len(asked) % threads == 0 or has_failed.is_set():
                server.seal_replies()
                server.send_sealed_replies()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        engine = weft.Engine(tmp_path)
        with ThreadPoolExecutor(threads) as pool:
            calls = [pool.submit(engine.standing, f"crawl {n}") for n in range(3 * threads)]
            done, waiting = wait(calls, patience(20))
            if waiting:
                has_failed.set()  # or the threads would never end
            assert not waiting, f"{len(done)} of {len(calls)} calls have had their replies"
        assert [call.result().name for call in calls] == [f"crawl {n}" for n in range(3 * threads)]
        engine.close()
        with pytest.raises(WeftError, match="was closed"):
            engine.standing("crawl 0")
    finally:
        is_over.set()
        serving.join()
        server.close()


# ── numbers of replies ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reply_has_the_number_of_its_own_change(engine: weft.Engine, web: SyntheticWeb) -> None:
    replies = [engine.open("numbered")]
    replies.append(engine.pause("numbered"))
    replies.append(engine.pause("numbered"))
    engine.seed("numbered", nothing(web, 1, 30))
    replies.append(engine.resume("numbered"))
    replies.append(engine.edit("numbered", delay=5))
    replies.append(engine.cancel("numbered"))
    events = list(engine.events("numbered"))
    states = {event.number: event.state for event in events}
    for reply in replies[:4] + replies[-1:]:
        assert states[reply.number] is reply.state, reply
    assert replies[1].number == replies[2].number == 2
    for reply in replies:
        assert list(engine.events("numbered", reply.number)) == events[reply.number :]
    assert replies[-1].number == len(events)


def test_of_two_changes_in_one_commit_each_reply_has_its_own_number(engine: weft.Engine) -> None:
    """Both commands are there before the engine looks, and are committed together."""
    engine.open("together")
    connections = [Connection(socket_path(engine.data_dir)) for _ in range(2)]
    pid = connections[0].pid
    assert pid == engine.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        replies: dict[str, Any] = {}
        threads = []
        for connection, verb in zip(connections, ("pause", "resume"), strict=True):
            call = threading.Thread(
                target=lambda c=connection, v=verb: replies.__setitem__(v, c.call(v, name="together"))
            )
            call.start()
            time.sleep(0.1)  # in this order
            threads.append(call)
    finally:
        os.kill(pid, signal.SIGCONT)
    for thread in threads:
        thread.join(patience(10))
    assert [(replies[verb]["state"], replies[verb]["number"]) for verb in ("pause", "resume")] in (
        [("paused", 2), ("open", 3)],
        [("paused", 2), ("open", 1)],  # the resume was first, and changed nothing
    )
    for connection in connections:
        connection.close()
    engine.forget("together")


# ── seeds in pieces ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crawl_does_not_end_before_its_last_seeds_have_come(
    engine: weft.Engine, web: SyntheticWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "SEEDS_AT_ONCE", 2)
    first_piece_done = threading.Event()

    def slowly(self: weft.Engine, name: str, given: list[str], start: int) -> Any:
        until(lambda: self.standing(name).in_flight == self.standing(name).queued == 0)
        if start:
            kill(engine)  # the promise of more outlives the engine
        first_piece_done.set()
        until(lambda: self.standing(name).in_flight == self.standing(name).queued == 0)
        assert self.standing(name).state is CrawlState.RUNNING
        return some(self, name, given, start)

    some = weft.Engine._seed_first_piece
    monkeypatch.setattr(weft.Engine, "_seed_first_piece", slowly)
    urls = nothing(web, 2, 7, "pieces")
    standing = engine.open("pieces", urls, seeded_urls_only=True)
    assert first_piece_done.is_set() and standing.state in (CrawlState.RUNNING, CrawlState.ENDED)
    assert ended(engine, "pieces").reason is EndReason.DONE
    assert sorted(event.url for event in engine.events("pieces") if event.url) == sorted(urls)


def test_a_crawl_that_ends_while_its_seeds_are_sent_needs_no_more(
    engine: weft.Engine, web: SyntheticWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle, "SEEDS_AT_ONCE", 1)
    some = weft.Engine._seed_first_piece

    def late(self: weft.Engine, name: str, given: list[str], start: int) -> Any:
        ended(self, name)
        return some(self, name, given, start)

    monkeypatch.setattr(weft.Engine, "_seed_first_piece", late)
    standing = engine.open("enough", [host(web, 3), *nothing(web, 3, 4)], max_pages=1)
    assert (standing.state, standing.reason) == (CrawlState.ENDED, EndReason.MAX_PAGES)


def test_a_list_whose_sender_died_is_waited_for_until_it_is_sent_again_or_closed(
    engine: weft.Engine, web: SyntheticWeb
) -> None:
    urls = nothing(web, 4, 3)
    connection = Connection(socket_path(engine.data_dir))
    for name in ("left", "given up"):
        connection.call("open", name=name, seeds=urls[:2], settings={"seeded_urls_only": True}, more=True)
        until(lambda name=name: engine.standing(name).waiting_for == WAITING_FOR_SEEDS)
    connection.close()
    engine.open("left", urls, seeded_urls_only=True)
    engine.close_seeds("given up")
    for name, crawled in (("left", urls), ("given up", urls[:2])):
        assert ended(engine, name).reason is EndReason.DONE
        assert sorted(event.url for event in engine.events(name) if event.url) == sorted(crawled)


# ── crawls that are kept open ──────────────────────────────────────────────────────────────────────────────────────


def test_a_crawl_that_is_kept_open_ends_when_its_seeds_are_closed(engine: weft.Engine, web: SyntheticWeb) -> None:
    urls = nothing(web, 5, 3, "kept")

    def is_waiting() -> bool:
        return bool(engine.standing("kept").waiting_for == WAITING_FOR_SEEDS)

    def open_it() -> Any:
        return engine.open("kept", keep_open=True, seeded_urls_only=True)

    opened = open_it()
    assert (opened.state, opened.waiting_for) == (CrawlState.RUNNING, WAITING_FOR_SEEDS)
    for count, url in enumerate(urls, 1):
        assert engine.seed("kept", url).new == 1
        until(is_waiting)
        assert len([event for event in engine.events("kept", follow=False) if event.url]) == count
        if count == 1:
            kill(engine)  # that more seeds may come outlives the engine
            assert open_it().id == opened.id and is_waiting()
        if count == 2:
            engine.pause("kept")
            assert engine.resume("kept").state is CrawlState.RUNNING
    with pytest.raises(BadInput, match="with other settings"):
        engine.open("kept", seeded_urls_only=True)
    engine.close_seeds("kept")
    assert ended(engine, "kept").reason is EndReason.DONE
    assert engine.close_seeds("kept").state is CrawlState.ENDED
    assert open_it().state is CrawlState.ENDED


def test_a_crawl_that_is_kept_open_ends_by_its_limits_without_a_seed(engine: weft.Engine) -> None:
    engine.open("by deadline", keep_open=True, deadline=time.time() + 0.5)
    engine.open("by duration", keep_open=True, max_duration=0.5)
    engine.open("cancelled", keep_open=True)
    engine.open("closed", keep_open=True)
    engine.open("never seeded")
    assert engine.cancel("cancelled").reason is EndReason.CANCELLED
    for name, reason in {
        "by deadline": EndReason.DEADLINE,
        "by duration": EndReason.MAX_DURATION,
        "closed": EndReason.DONE,
        "never seeded": EndReason.DONE,
    }.items():
        if reason is EndReason.DONE:
            engine.close_seeds(name)
        assert ended(engine, name).reason is reason
    with pytest.raises(BadInput, match="keep_open: 1 is not accepted"):
        engine.open("mistaken", keep_open=1)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="there is no crawl 'nowhere'"):
        engine.close_seeds("nowhere")


@contextmanager
def served(web: SyntheticWeb, data_dir: Path) -> Iterator[Connection]:
    """An engine in a thread of this process, so that its parts can be changed."""
    engines: list[core.Core] = []

    def serve() -> None:
        engines.append(core.Core(data_dir, settings.storable_settings(settings.engine_settings_of(shared(web))), "id"))
        engines[0].serve(socket_path(data_dir))
        engines[0].run()

    thread = threading.Thread(target=serve)
    thread.start()
    until(socket_path(data_dir).exists)
    connection = Connection(socket_path(data_dir))
    try:
        yield connection
    finally:
        connection.close()
        engines[0].stop()
        thread.join(patience(20))


def test_a_standing_counts_as_ended_what_no_kill_takes_back(
    web: SyntheticWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, record, has_page, has_room = Committer.commit, RowMaker.make_row, threading.Event(), threading.Event()

    def commit_or_wait(self: Committer) -> None:
        if has_page.is_set() and not has_room.is_set():
            raise DiskFull(tmp_path)
        commit(self)

    def recorded(self: RowMaker, *args: Any, **more: Any) -> None:
        record(self, *args, **more)
        has_page.set()

    monkeypatch.setattr(Committer, "commit", commit_or_wait)
    monkeypatch.setattr(RowMaker, "make_row", recorded)
    with served(web, tmp_path) as connection:
        urls = [host(web, number) for number in range(3)]
        connection.call("open", name="counted", seeds=urls, settings={"max_depth": 0, "politeness_delay_seconds": 1})
        until(lambda: connection.call("standing", name="counted")["pages"] > 0)
        found = connection.call("standing", name="counted")
        assert found["ends"] == {} and found["in_flight"] >= found["pages"], "nothing of it is committed"
        assert found["queued"] + found["in_flight"] >= 3
        has_room.set()
        until(lambda: connection.call("standing", name="counted")["state"] == "ended")
        found = connection.call("standing", name="counted")
        assert (found["ends"], found["in_flight"]) == ({"200": 3}, 0)


def test_what_a_seed_adds_to_the_scope_is_kept_with_it(engine: weft.Engine, web: SyntheticWeb) -> None:
    engine.open("scope", host(web, 0), delay=5)
    engine.seed("scope", [host(web, 5)])
    kill(engine)
    engine.edit("scope", delay=0)
    ended(engine, "scope")
    found = {event.url for event in engine.events("scope") if event.kind == "page"}
    assert sum(url.startswith(host(web, 5)) for url in found) > 1, "links of the added site were refused"


# ── who runs the engine ────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_that_differ_from_those_of_the_engine_that_runs_are_refused_by_name(
    engine: weft.Engine, web: SyntheticWeb
) -> None:
    with pytest.raises(BadInput, match=r"runs with other settings \(max_depth, politeness_delay_seconds\)"):
        weft.Engine(engine.data_dir, **{**shared(web), "delay": 3, "max_depth": 2})
    for same in ({}, shared(web), {"politeness_delay_seconds": 0.0, "log_level": "INFO"}):
        with weft.Engine(engine.data_dir, **same) as second:
            assert second.pid is None and second.standings() == engine.standings()


def test_a_handle_that_takes_an_engine_over_keeps_its_settings(web: SyntheticWeb, tmp_path: Path) -> None:
    first = weft.Engine(tmp_path / "engine", **shared(web))
    with weft.Engine(tmp_path / "engine") as second:
        first.open("over", host(web, 0), max_pages=3)
        first.close()
        assert ended(second, "over").pages == 3, "without the first one's settings the host is out of reach"
        assert second.pid is not None


def test_of_handles_that_start_at_once_one_runs_the_engine_and_all_work(web: SyntheticWeb, tmp_path: Path) -> None:
    handles: list[weft.Engine] = []
    threads = [
        threading.Thread(target=lambda: handles.append(weft.Engine(tmp_path / "engine", **shared(web))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert len(handles) == 3
    for number, each in enumerate(handles):
        each.open(f"crawl {number}", host(web, number), max_pages=2)
    for each in handles:
        assert [ended(each, f"crawl {number}").pages for number in range(3)] == [2, 2, 2]
    running = [each for each in handles if each.pid is not None]
    assert len(running) == 1, "exactly one has an engine"
    running[0].close()
    others = [each for each in handles if each is not running[0]]
    assert [len(each.standings()) for each in others] == [3, 3], "one of the others runs it now"
    for each in others:
        each.close()


_OWNER = """
import sys, weft
with weft.Engine(sys.argv[1]) as engine:
    print(engine.pid, flush=True)
    sys.stdin.read()
"""
_BUSY = """
import sys
from weft.engine.process import host
host.STOP_GRACE_S = 0.2
parent = host.ParentWatch(0)
if sys.argv[1] == "runs":
    steps = iter([1, 2, 3, 3])  # progress with its end, until there is none
    parent.stop_when_gone(lambda: print("asked to end", flush=True), lambda: next(steps))
print("ready", flush=True)
while True:
    pass
"""


def test_an_engine_ends_when_the_process_of_its_handle_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _OWNER, str(tmp_path / "engine")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.kill()
    until(lambda: not Path(f"/proc/{pid}").exists(), 30)


@pytest.mark.parametrize("phase", ["starts", "runs"])
def test_an_engine_whose_loop_is_busy_sees_the_end_of_its_parent(phase: str) -> None:
    command = [sys.executable, "-c", _BUSY, phase]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "ready\n"
        child.stdin.close()
        assert child.wait(patience(20)) == 1
        assert child.stdout.read() == ("asked to end\n" if phase == "runs" else "")


# ── readers ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reader_does_not_list_the_files_of_all_crawls(
    engine: weft.Engine, web: SyntheticWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine.open("read", host(web, 0), max_pages=2)
    ended(engine, "read")

    def listed(folder: Path) -> Iterator[str]:
        raise AssertionError(f"{folder} was listed")

    monkeypatch.setattr("weft.store.corpus.files_in", listed)
    assert len(list(engine.pages("read"))) == 2
    assert list(engine.events("read", follow=False)) == list(engine.events("read"))
    assert any(event.crawl == "read" for event in engine.events(follow=False))


def test_the_events_of_all_crawls_are_read_without_the_records_of_all(
    engine: weft.Engine, web: SyntheticWeb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may hold thousands of settings and seeds, and each event may be another crawl's."""
    for name in ("some", "other", "gone"):
        engine.open(name, nothing(web, 2, 4, name), seeded_urls_only=True)
        ended(engine, name)
    engine.forget("gone")
    read = list[int]()
    happened = PageStore.rows_and_changes

    def counted(store: PageStore, crawl: int, after: int, limit: int) -> Any:
        rows, changes = happened(store, crawl, after, limit)
        read.append(len(rows) + len(changes))
        return rows, changes

    def all_records(_store: PageStore) -> list[tuple[int, str, bytes]]:
        raise AssertionError("the records of all crawls were read")

    monkeypatch.setattr(PageStore, "crawls", all_records)
    monkeypatch.setattr(PageStore, "rows_and_changes", counted)
    events = list(engine.events(follow=False))
    assert {"some", "other"} <= {event.crawl for event in events} and "gone" not in {event.crawl for event in events}
    assert sum(read) <= 2 * len(events), "what is read is in proportion to the events"
