"""`weft.Engine`: every verb on one engine over one web, what bad input gets, what readers see, what a kill leaves."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from engines import END_S, asked, ended, host, kill, nothing, shared, until
from pace import patience

import weft
from weft.crawl.folder import CrawlFolder
from weft.engine.model import WAITING_FOR_SEEDS, CrawlEvent, CrawlState, EndReason
from weft.engine.process.channel import LONGEST_FRAME, socket_path
from weft.engine.process.link import EngineLink
from weft.errors import BadConfig, BadInput, WeftError
from weft.sealed import sealed_json
from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=10, pages=60, profile="calm", seed=9) as web:
        yield web


@pytest.fixture(scope="module")
def engine(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> Iterator[weft.Engine]:
    with weft.Engine(tmp_path_factory.mktemp("engine") / "data", **shared(web)) as engine:
        yield engine


# ── opening and seeding ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crawl_goes_from_open_to_its_end_and_is_opened_once(engine: weft.Engine, web: SyntheticWeb) -> None:
    standing = engine.open("once", max_pages=4)
    assert (standing.state, standing.queued) == (CrawlState.OPEN, 0)
    assert engine.open("once", max_pages=4).id == standing.id
    with pytest.raises(BadInput, match="'once' is there already, with other settings"):
        engine.open("once", max_pages=5)
    with pytest.raises(BadInput, match="with other settings"):
        engine.open("once", max_pages=4, weight=2)
    assert engine.open("once", host(web, 0), max_pages=4).state is CrawlState.RUNNING
    standing = ended(engine, "once")
    assert (standing.reason, standing.pages, standing.queued, standing.in_flight) == (EndReason.MAX_PAGES, 4, 0, 0)
    assert standing.ended_at and standing.ended_at >= standing.opened_at and standing.running_s > 0
    assert engine.open("once", host(web, 0), max_pages=4) == standing, "one that has ended stays as it is"
    assert len(list(engine.pages("once"))) == 4
    assert engine.open("once", max_pages=4) == standing
    crawled = next(engine.pages("once")).url
    assert engine.open("once", [crawled], max_pages=4) == standing, "it was crawled"
    with pytest.raises(BadInput, match=r"'once' has ended \(max_pages\) and accepts no more URLs: .* and 1 others? "):
        engine.open("once", [crawled, *nothing(web, 1, 2)], max_pages=4)


def test_an_ended_crawl_refuses_seeds_that_it_has_not_crawled_also_after_a_restart(
    engine: weft.Engine, web: SyntheticWeb
) -> None:
    """`open` of an ended crawl is the same crawl, and crawls nothing more."""
    first, second = nothing(web, 1, 3), nothing(web, 1, 2, "other")
    engine.open("seeded", seeded_urls_only=True)
    engine.pause("seeded")
    for seeds in (first, second):
        engine.open("seeded", seeds, seeded_urls_only=True)
    engine.resume("seeded")
    standing = ended(engine, "seeded")
    kill(engine)
    for seeds in (first, second, [*first, *second], [*reversed(second)]):
        again = engine.open("seeded", seeds, seeded_urls_only=True)
        assert (again.id, again.state, again.number) == (standing.id, CrawlState.ENDED, standing.number)
    with pytest.raises(BadInput, match="forget this one first"):
        engine.open("seeded", nothing(web, 1, 1, "new"), seeded_urls_only=True)
    engine.open("cut off", nothing(web, 1, 20), seeded_urls_only=True, delay=60)
    engine.cancel("cut off")
    assert engine.open("cut off", nothing(web, 1, 20), seeded_urls_only=True, delay=60).state is CrawlState.ENDED


@pytest.mark.parametrize("name", ["", "a/b", "a\\b", "a\0b", "n" * 300, "..", "a\nb", None, 7])
def test_a_name_that_cannot_be_used_is_refused(engine: weft.Engine, name: Any) -> None:
    for verb in (engine.open, engine.standing, engine.pause, engine.cancel, engine.forget):
        with pytest.raises(BadInput, match="name"):
            verb(name)


def test_settings_that_no_crawl_has_are_refused(engine: weft.Engine) -> None:
    with pytest.raises(BadConfig, match="no setting 'max_page'; did you mean 'max_pages'"):
        engine.open("settings", max_page=3)
    for setting in ("fetcher_workers", "politeness_scope", "store"):
        with pytest.raises(BadConfig, match="is a setting of the engine, not of one crawl"):
            engine.open("settings", **{setting: 3})  # type: ignore[arg-type]
    with pytest.raises(BadConfig, match="given twice"):
        engine.open("settings", delay=1, politeness_delay_seconds=1)
    with pytest.raises(BadInput, match="max_pages"):
        engine.open("settings", max_pages=-1)
    with pytest.raises(BadInput):
        engine.open("settings", max_pages=1 << 70)
    values: list[dict[str, Any]] = [
        {"weight": 0},
        {"in_flight": 0},
        {"deadline": time.time() - 5},
        {"deadline": "soon"},
    ]
    for wrong in values:
        with pytest.raises(BadInput, match=next(iter(wrong))):
            engine.open("settings", **wrong)
    lists: list[Any] = [5, [None], [b"http://127.0.0.1/"]]
    for seeds in lists:
        with pytest.raises(BadInput, match="seeds"):
            engine.open("settings", seeds)
    with pytest.raises(BadInput, match="there is no crawl 'settings'"):
        engine.standing("settings")


def test_seeds_are_taken_once_and_refused_with_reasons(engine: weft.Engine, web: SyntheticWeb) -> None:
    engine.open("seeds", delay=5, exclude=["*/out/*"])
    mine = nothing(web, 1, 3)
    given = [*mine, mine[0], "not a url", "ftp://127.0.0.1/", f"{host(web, 1)}out/1"]
    seeded = engine.seed("seeds", given)
    assert (seeded.new, seeded.known) == (3, 0)
    assert sorted(seeded.refused) == sorted(given[-3:]) and seeded.refused[given[-1]] == "pattern"
    assert engine.seed("seeds", mine).known == 3
    engine.cancel("seeds")
    for verb in (engine.pause, engine.resume, engine.edit):
        with pytest.raises(BadInput, match=r"'seeds' has ended \(cancelled\)"):
            verb("seeds")
    with pytest.raises(BadInput, match="has ended"):
        engine.seed("seeds", mine)


def test_a_seed_that_robots_txt_forbids_ends_its_crawl_with_a_row(engine: weft.Engine, web: SyntheticWeb) -> None:
    """The robots.txt is known from another crawl, so the seed is turned away as it comes."""
    engine.open("knows", host(web, 0), max_pages=2)
    ended(engine, "knows")
    forbidden = next(
        url for url, why in web.expect().never.items() if why == ["robots"] and url.startswith(host(web, 0))
    )
    pid = engine.pid
    engine.open("forbidden", forbidden)
    standing = ended(engine, "forbidden")
    assert (standing.reason, standing.refused, engine.pid) == (EndReason.DONE, 1, pid)
    assert [event.url for event in engine.events("forbidden") if event.kind == "refusal"] == [forbidden]


@pytest.mark.parametrize("verb", ["seed", "edit", "pause", "resume", "cancel", "forget", "standing", "wait", "pages"])
def test_a_crawl_that_is_not_there(engine: weft.Engine, verb: str) -> None:
    arguments: tuple[Any, ...] = ("nobody", ["http://127.0.0.1/"]) if verb == "seed" else ("nobody",)
    with pytest.raises(BadInput, match="there is no crawl 'nobody'"):
        list(getattr(engine, verb)(*arguments))
    with pytest.raises(BadInput, match="there is no crawl 'nobody'"):
        next(engine.events("nobody"))


# ── editing ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_exclusion_sets_queued_urls_aside_and_its_end_brings_them_back(
    engine: weft.Engine, web: SyntheticWeb
) -> None:
    keep, out = nothing(web, 2, 60, "keep"), nothing(web, 2, 30, "out")
    engine.open("edited", seeded_urls_only=True)
    engine.pause("edited")
    engine.seed("edited", out + keep)
    engine.edit("edited", exclude=["*/out/*"], delay=0.05)
    engine.resume("edited")
    until(lambda: engine.standing("edited").set_aside == 30 and engine.standing("edited").number > 8)
    kill(engine)
    assert engine.standing("edited").set_aside == 30
    early = [event.url for event in engine.events("edited", follow=False) if event.url]
    assert early and all("/keep/" in url for url in early), "what was excluded was asked for"
    engine.edit("edited", exclude=[], delay=0)
    assert engine.standing("edited").set_aside == 0
    kill(engine)
    standing = ended(engine, "edited")
    assert standing.reason is EndReason.DONE
    assert sorted(event.url for event in engine.events("edited") if event.url) == sorted(keep + out)


def test_limits_can_be_raised_and_what_is_fixed_is_refused(engine: weft.Engine, web: SyntheticWeb) -> None:
    engine.open("limits", host(web, 3), max_pages=500, delay=0.2)
    with pytest.raises(BadInput, match="user_agent_template: cannot be changed while a crawl runs"):
        engine.edit("limits", user_agent_template="x")
    values: list[dict[str, Any]] = [{"max_pages": -1}, {"exclude": ["re:("]}, {"weight": -1}, {"deadline": 1.0}]
    for wrong in [*values, {"delay": "soon"}]:
        with pytest.raises(BadInput):
            engine.edit("limits", **wrong)
    with pytest.raises(BadInput, match="max_depth can be changed, but not added"):
        engine.edit("limits", max_depth=2)
    before = engine.standing("limits")
    assert before.weight == 1.0 and before.deadline is None and before.state is CrawlState.RUNNING
    engine.edit("limits", max_pages=6, delay=0, weight=3)
    standing = ended(engine, "limits")
    assert (standing.reason, standing.pages, standing.weight) == (EndReason.MAX_PAGES, 6, 3.0)
    assert engine.open("limits", max_pages=500, delay=0.2).state is CrawlState.ENDED, "known by what it was opened with"


# ── pausing, clocks, ends ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_paused_crawl_asks_for_nothing_and_its_duration_stands_still(engine: weft.Engine, web: SyntheticWeb) -> None:
    engine.open("paused", nothing(web, 4, 400, "paused"), seeded_urls_only=True, delay=0.02)
    until(lambda: engine.standing("paused").requests > 3)
    assert engine.pause("paused").state is CrawlState.PAUSED
    until(lambda: engine.standing("paused").in_flight == 0)
    before, spent_s = asked(web, "paused"), engine.standing("paused").running_s
    engine.edit("paused", max_duration=spent_s + 0.5)
    time.sleep(0.8)
    kill(engine)
    standing = engine.standing("paused")
    assert (standing.state, asked(web, "paused")) == (CrawlState.PAUSED, before)
    assert (standing.waiting_for, standing.waiting_until) == ("paused", None)
    assert standing.running_s <= spent_s + 1e-6
    engine.resume("paused")
    standing = ended(engine, "paused")
    assert standing.reason is EndReason.MAX_DURATION and standing.running_s >= spent_s + 0.5 and standing.queued == 0


def test_a_deadline_ends_a_crawl_also_a_paused_one(engine: weft.Engine, web: SyntheticWeb) -> None:
    at = datetime.now() + timedelta(seconds=0.6)
    engine.open("deadline", nothing(web, 5, 50), delay=5, deadline=at)
    engine.pause("deadline")
    engine.open("no deadline", nothing(web, 5, 50), delay=5, deadline=at)
    assert engine.edit("no deadline", deadline=None).deadline is None
    standing = ended(engine, "deadline")
    assert standing.reason is EndReason.DEADLINE and standing.ended_at
    assert standing.ended_at >= at.timestamp() and standing.deadline == at.timestamp()
    assert engine.standing("no deadline").state is CrawlState.RUNNING
    until(lambda: engine.standing("no deadline").waiting_for.startswith("politeness delay of"))
    waiting_until = engine.standing("no deadline").waiting_until
    assert waiting_until is None or waiting_until - at.timestamp() > 0.0
    assert engine.cancel("no deadline").waiting_for == ""


def test_a_long_queue_is_cancelled_at_once_and_stays_so(engine: weft.Engine, web: SyntheticWeb) -> None:
    engine.open("long", nothing(web, 6, 12_000), delay=5, seeded_urls_only=True)
    assert engine.standing("long").queued > 11_000
    standing = engine.cancel("long")
    assert (standing.state, standing.reason, standing.queued) == (CrawlState.ENDED, EndReason.CANCELLED, 0)
    kill(engine)
    after = engine.standing("long")
    assert after == engine.cancel("long") == standing and standing.number == 3
    states = [(event.state, event.reason) for event in engine.events("long") if event.kind == "state"]
    assert states == [(CrawlState.OPEN, None), (CrawlState.RUNNING, None), (CrawlState.ENDED, EndReason.CANCELLED)]


def test_waiting_has_a_limit(engine: weft.Engine) -> None:
    engine.open("waits")
    for seconds in (0, 0.1):
        with pytest.raises(TimeoutError, match="'waits' has not ended"):
            engine.wait("waits", seconds)
    threading.Timer(0.2, engine.cancel, ["waits"]).start()
    assert ended(engine, "waits").reason is EndReason.CANCELLED


# ── events ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_events_are_numbered_without_gap_across_kills_and_resumed_anywhere(
    engine: weft.Engine, web: SyntheticWeb
) -> None:
    heard: list[CrawlEvent] = []
    engine.open("events", nothing(web, 7, 120, "events"), seeded_urls_only=True, delay=0.01)
    reader = threading.Thread(target=lambda: heard.extend(engine.events("events", progress=True)))
    reader.start()
    for requests in (20, 60):
        until(lambda requests=requests: engine.standing("events").number > requests)
        kill(engine)
    standing = ended(engine, "events")
    reader.join(patience(10))
    assert not reader.is_alive(), "the reader did not come to the end"
    numbered = [event for event in heard if event.kind != "progress"]
    assert [event.number for event in numbered] == list(range(1, standing.number + 1))
    snapshots = [event.standing for event in heard if event.kind == "progress"]
    assert snapshots and all(one is not None and one.name == "events" for one in snapshots)
    assert sorted(event.url for event in numbered if event.url) == sorted(nothing(web, 7, 120, "events"))
    for after in (0, 1, 57, standing.number - 1, standing.number):
        assert list(engine.events("events", after)) == numbered[after:]
    cursors: list[Any] = [-1, True, "3"]
    for cursor in cursors:
        with pytest.raises(BadInput, match="after"):
            next(engine.events("events", cursor))


def test_events_of_all_crawls_go_on_from_any_cursor_also_when_one_is_forgotten(
    engine: weft.Engine, web: SyntheticWeb
) -> None:
    for name in ("first", "second"):
        engine.open(name, nothing(web, 8, 20, name), seeded_urls_only=True)
    for name in ("first", "second"):
        ended(engine, name)
    everything = list(engine.events(follow=False))
    cursors = [event.cursor for event in everything]
    assert cursors == sorted(set(cursors)) and {"first", "second"} <= {event.crawl for event in everything}
    for at in range(0, len(everything), max(1, len(everything) // 7)):
        assert list(engine.events(after=cursors[at], follow=False)) == everything[at + 1 :]
    engine.forget("first")
    left = [event for event in everything if event.crawl != "first"]
    until(lambda: list(engine.events(follow=False)) == left)
    middle = next(at for at, event in enumerate(everything) if event.crawl == "second" and event.number == 5)
    rest = [event for event in everything[middle + 1 :] if event.crawl != "first"]
    assert list(engine.events(after=cursors[middle], follow=False)) == rest


def test_all_events_can_be_followed(engine: weft.Engine, web: SyntheticWeb) -> None:
    last = max((event.cursor for event in engine.events(follow=False)), default=0)
    found = engine.events(after=last)
    threading.Timer(0.2, engine.open, ["followed", host(web, 0)], {"max_pages": 3}).start()
    kinds = []
    for event in found:
        assert event.crawl == "followed"
        kinds.append(event.kind)
        if event.state is CrawlState.ENDED:
            break
    assert kinds[:2] == ["state", "state"] and kinds.count("page") >= 3


# ── forgetting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_forgotten_is_gone_and_its_name_is_free(engine: weft.Engine, web: SyntheticWeb) -> None:
    first = engine.open("forgotten", host(web, 1), max_pages=5)
    other = engine.open("stays", host(web, 2), max_pages=5)
    ended(engine, "forgotten"), ended(engine, "stays")
    folder = engine.data_dir / "warc" / str(first.id)
    kept = list(engine.events("stays"))
    assert list(folder.iterdir())
    engine.forget("forgotten")
    again = engine.open("forgotten", nothing(web, 3, 20), delay=5)
    assert again.id > max(first.id, other.id)
    kill(engine)
    until(lambda: not folder.exists())
    assert engine.standing("forgotten").id == again.id
    assert list(engine.events("stays")) == kept and len(list(engine.pages("stays"))) == 5
    engine.forget("forgotten")  # one that runs is cancelled first
    with pytest.raises(BadInput, match="there is no crawl 'forgotten'"):
        engine.forget("forgotten")


# ── the engine and its folder ──────────────────────────────────────────────────────────────────────────────────────


def test_a_second_handle_is_at_the_same_engine(engine: weft.Engine, web: SyntheticWeb) -> None:
    with weft.Engine(engine.data_dir, **shared(web)) as second:
        second.open("by another", host(web, 0), max_pages=1)
        assert second.pid is None and ended(engine, "by another").pages == 1
    assert engine.standing("by another").state is CrawlState.ENDED
    with pytest.raises(WeftError, match="closed"):
        second.standings()


def test_folders_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "crawl").mkdir()
    CrawlFolder([tmp_path / "crawl"]).start(["http://a.test/"])
    (tmp_path / "older crawl").mkdir()
    (tmp_path / "older crawl" / "crawl.json").write_text('{"layout": 1}')
    (tmp_path / "older").mkdir()
    (tmp_path / "older" / "engine.json").write_text('{"layout": 1, "engine_id": "x", "weft": "0.1", "created_at": 1}')
    (tmp_path / "later").mkdir()
    (tmp_path / "later" / "engine.json").write_bytes(sealed_json({"layout": 9, "id": "x", "weft": "9"}))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "engine.json").write_text('{"layout"')
    (tmp_path / "file").write_text("")
    for name, why in {
        "crawl": "holds a crawl of `weft crawl`",
        "later": r"has layout 9, this Weft reads 2: use the Weft that made it \(9\)",
        "older crawl": "has layout 1, this Weft reads 2: use the Weft that made it, or choose another data dir",
        "older": r"has layout 1, this Weft reads 2: use the Weft that made it \(0\.1\)",
        "broken": "cannot be read",
        "file": "there is a file of that name",
        "file/below": "there is a file of that name",
    }.items():
        with pytest.raises(BadInput, match=why):
            weft.Engine(tmp_path / name)
    with pytest.raises(BadConfig, match="an engine has no such setting"):
        weft.Engine(tmp_path / "pods", pods=3)


def test_rubbish_on_the_socket_costs_its_sender_alone(engine: weft.Engine, web: SyntheticWeb) -> None:
    def connected() -> socket.socket:
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        found.settimeout(patience(5))
        found.connect(str(socket_path(engine.data_dir)))
        return found

    def framed(value: object) -> bytes:
        body = msgspec.msgpack.encode(value)
        return struct.pack(">I", len(body)) + body

    assert socket_path(engine.data_dir).stat().st_mode & 0o777 == 0o600
    pid = engine.pid
    with closing(connected()) as half, closing(connected()) as stuck:
        half.sendall(framed([1, "cancel", {"name": "nobody"}])[:-3])
        stuck.sendall(framed([1, "subscribe", {}]))  # and never reads
        for wrong in (
            struct.pack(">I", LONGEST_FRAME + 1),
            framed("hello"),
            framed([1, 2]),
            struct.pack(">I", 2) + b"\xc1\xc1",
        ):
            with closing(connected()) as peer:
                peer.sendall(wrong + framed([2, "cancel", {"name": "x"}]))
                assert peer.recv(100) == b"", "it was not hung up on"
        with closing(connected()) as peer:
            for arguments in ({"nmae": "x"}, {}, {"name": 3}):
                peer.sendall(framed([1, "standing", arguments]) + framed([2, "explode", {}]))
            replies = b""
            while replies.count(b"error") < 6:
                replies += peer.recv(10_000)
            assert b"has no verb 'explode'" in replies
        engine.open("beside rubbish", host(web, 0), max_pages=2)
        assert ended(engine, "beside rubbish").pages == 2
    assert engine.pid == pid


def test_a_page_that_kills_its_parser_costs_that_page_alone_in_a_folder_with_a_long_path(
    web: SyntheticWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly, calm = host(web, 5), host(web, 8)
    folder = tmp_path / ("long" * 40) / "engine"
    with weft.Engine(folder, **shared(web)) as engine:
        engine.open("look", deadly, seeded_urls_only=True)
        engine.open("look at others", calm)
        ended(engine, "look"), ended(engine, "look at others")
        (page,), others = list(engine.pages("look")), list(engine.pages("look at others"))
    pieces = re.findall(rb"[ -~]{8,}", page.body)
    mark = next(piece for piece in pieces if not any(piece in other.body for other in others))
    monkeypatch.setenv("WEFT_TEST_DEADLY_MARK", mark.decode())
    with weft.Engine(folder, **shared(web)) as engine:
        assert len(str(socket_path(folder))) < 100 < len(str(folder))
        pid = engine.pid
        engine.open("deadly", deadly)
        engine.open("calm", calm, max_pages=5)
        assert ended(engine, "calm").pages == 5
        ended(engine, "deadly")
        rows = {event.url: event for event in engine.events("deadly") if event.url}
        assert engine.pid != pid and rows[deadly].status == 200, "the page is stored, unread"


def test_async_engine_has_the_same_verbs_and_lets_go_when_it_is_cancelled(
    web: SyntheticWeb, engine: weft.Engine
) -> None:
    async def story() -> None:
        async with weft.AsyncEngine(engine.data_dir, **shared(web)) as mine:
            await mine.open("async", host(web, 6), max_pages=3)
            assert (await mine.wait("async", patience(END_S))).pages == 3
            numbers = [event.number async for event in mine.events("async")]
            assert numbers == list(range(1, (await mine.standing("async")).number + 1))
            assert len([page async for page in mine.pages("async")]) == 3
            await mine.open("idle")
            await mine.pause("idle")
            await mine.resume("idle")
            await mine.edit("idle", delay=1)
            assert (await mine.seed("idle", [])).new == 0
            for endless in (mine.wait("idle"), _all(mine.events("idle"))):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(endless, 0.3)
            link = EngineLink(engine.data_dir)
            opened = await mine.open("kept", keep_open=True)
            linked = await link.open("linked", [], {}, deadline=None, in_flight=None, keep_open=True)
            assert opened.waiting_for == linked.waiting_for == WAITING_FOR_SEEDS
            await mine.close_seeds("kept")
            await link.close_seeds("linked")
            for name in ("kept", "linked"):
                assert (await mine.wait(name, patience(END_S))).reason is EndReason.DONE
            await link.close()
            assert (await mine.cancel("idle")).reason is EndReason.CANCELLED
            await mine.forget("idle")
            assert "idle" not in [standing.name for standing in await mine.standings()]

    async def _all(events: Any) -> list[CrawlEvent]:
        return [event async for event in events]

    asyncio.run(asyncio.wait_for(story(), patience(60)))


def test_numbers_of_crawls_are_used_once(engine: weft.Engine) -> None:
    ids = [standing.id for standing in engine.standings()]
    last = engine.open("last").id
    assert ids == sorted(set(ids)) and last > max(ids, default=0)
    engine.forget("last")
    kill(engine)
    assert engine.open("last").id > last
