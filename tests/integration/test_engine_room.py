"""What an engine's crawls take of memory and disk: given back by `forget`, and what a full disk does to all of them."""

from __future__ import annotations

import gc
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from engines import ended, host, kill, nothing, shared, until
from pace import patience

import weft
from weft.config import PolitenessSection
from weft.engine.model import CrawlState, EndReason
from weft.frontier.contract import CrawlLimits
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.scheduling.sites import Crawl
from weft.records import Found
from weft.supervise.process import rss_bytes
from weft.testing.web import SyntheticWeb, synthetic_web

QUEUED = 20_000
LEFT = 800_000


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=6, pages=120, profile="calm", seed=9) as web:
        yield web


def held_bytes(folder: Path) -> int:
    """What pages, rows and queues take up; logs and the request log are of the engine, not of a crawl."""
    kept = [path for path in folder.rglob("*") if not {"logs", "metrics", "requests"} & set(path.parts)]
    return sum(path.stat().st_blocks * 512 for path in kept if path.is_file())


# ── forgetting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_forgotten_gives_its_memory_and_its_disk_back(web: SyntheticWeb, tmp_path: Path) -> None:
    folder, long = tmp_path / "engine", "x" * 60
    with weft.Engine(folder, **shared(web)) as engine:
        engine.open("stays", host(web, 0), max_pages=5)
        ended(engine, "stays")
        kept = [page.body for page in engine.pages("stays")]
    before, sizes, full = held_bytes(folder), list[int](), 0
    with weft.Engine(folder, **shared(web)) as engine:
        for turn in range(4):
            engine.open("stored", host(web, 1))
            standing = ended(engine, "stored")
            urls = nothing(web, 2, QUEUED, f"{long}/{turn}")
            queued = engine.open("queued", urls, delay=5, seeded_urls_only=True)
            assert standing.pages > 5 and queued.queued > QUEUED - 100
            full = max(full, held_bytes(folder))
            for name, number in (("stored", standing.id), ("queued", queued.id)):
                engine.forget(name)
                until(lambda number=number: not (folder / "warc" / str(number)).exists())
            sizes.append(rss_bytes(engine.pid or 0))
    # A queue of that length takes several megabytes; what one turn needs, the next uses again.
    one = QUEUED * len(long)
    assert sizes[-1] - sizes[0] < 2 * one, f"memory grows with each: {sizes}"
    with weft.Engine(folder, **shared(web)) as engine:  # what was left to be deleted is deleted
        assert [standing.name for standing in engine.standings()] == ["stays"]
        assert [page.body for page in engine.pages("stays")] == kept
    after = held_bytes(folder)
    for path in (folder / "index-pod0-engine0.db", folder / "frontier" / "frontier.db"):
        with closing(sqlite3.connect(path)) as db:
            free, pages = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("freelist_count", "page_count"))
        assert free <= 20 + pages // 10, f"{path.name}: {free} of {pages} pages are free, and still on the disk"
    assert full > before + 300_000
    assert after < before + (full - before) / 4, f"{before:,} bytes before, {full:,} with it, {after:,} after"


def held(frontier: EmbeddedFrontier) -> list[Crawl]:
    """The crawls that are in memory, whoever holds them."""
    blobs = frontier._base.blobs
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is Crawl and one.blobs is blobs]


def test_a_closed_crawl_leaves_no_seen_set_and_no_queue_behind(tmp_path: Path) -> None:
    frontier = EmbeddedFrontier(tmp_path / "frontier", PolitenessSection(delay_s=1.0, places=1))
    stays, goes = (frontier.crawls.open_crawl(name, CrawlLimits(max_depth=3)) for name in ("stays", "goes"))
    frontier.recovery.recover()
    for crawl in (stays, goes):
        frontier.queue.admit(
            crawl, [Found(f"http://{host}.test/{number}", 0) for host in "ab" for number in range(2000)]
        )
    frontier.durability.commit()
    assert {one.number for one in held(frontier)} == {stays, goes}
    frontier.crawls.close_crawl(goes)
    frontier.crawls.forget_closed_crawl(goes)
    while not frontier.crawls.forget_crawls([goes]):
        pass
    assert {one.number for one in held(frontier)} == {stays}, "its seen set is still held"
    assert all(queue.crawl.number == stays for site in frontier._base.queues.sites.values() for queue in site.queues)
    assert frontier.status.stats().queued == 4000 and len(list(frontier.queue.items(stays))) == 4000
    frontier.close()


# ── a full disk ────────────────────────────────────────────────────────────────────────────────────────────────────


def fill(folder: Path, leave: int) -> Path:
    """Ballast that takes all room but a little."""
    path, free = folder / "ballast", os.statvfs(folder)
    path.write_bytes(b"\0" * max(0, free.f_bavail * free.f_frsize - leave))
    return path


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_full_disk_pauses_every_crawl_and_loses_none(
    web: SyntheticWeb, mount_disk: Callable[[str], Path], is_killed: bool
) -> None:
    disk = mount_disk("24m")
    with weft.Engine(disk / "engine", **{**shared(web), "delay": 0.01}) as engine:
        engine.open("waits")
        engine.open("late", host(web, 4), delay=30, deadline=time.time() + 4)
        ballast = fill(disk, LEFT)
        for number in range(4):
            engine.open(f"crawl {number}", host(web, number))
        names = [f"crawl {number}" for number in range(4)]
        until(lambda: any(standing.note for standing in engine.standings()), 60)
        assert all("no space left on the device" in engine.standing(name).note for name in names)
        until(lambda: engine.standing("late").reason is EndReason.DEADLINE, 20)
        count = len(web.arrivals())
        time.sleep(1.0)
        assert len(web.arrivals()) - count < 12, "a paused engine asks for nothing more"
        if is_killed:
            kill(engine)
        ballast.unlink()
        assert engine.pause("waits").state is CrawlState.PAUSED, "a verb is carried out when there is room"
        for number, name in enumerate(names):
            assert engine.wait(name, patience(60)).reason is EndReason.DONE
            events = list(engine.events(name))
            assert [event.number for event in events] == list(range(1, len(events) + 1))
            must = {
                url for url in web.expect(seeds=(host(web, number),), scope="host").must if "/robots.txt" not in url
            }
            assert must <= {event.url for event in events}
        assert all(not standing.note for standing in engine.standings())
