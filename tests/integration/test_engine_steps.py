"""kill -9 of an engine at the named steps of each verb, of an end and of a deletion: after each, every crawl is in one
state, nothing is lost, and no number is used twice. One story, told once for each set of places to die at.

Each verb dies at two of the steps of its commit; with WEFT_TEST_CHAOS=1 at all of them.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pace import patience

import weft
from weft.engine.core import SLOT
from weft.engine.loop.steps import CRAWL_STEPS, STEPS, VERB_STEPS
from weft.engine.model import CrawlState, EndReason
from weft.frontier.requests import LogOpening, SettingsInForce, read_events
from weft.store.index.schema import index_path
from weft.testing.web import SyntheticWeb, synthetic_web

COMMIT = ("after-write", "after-links", "index-committed", "after-rows")
# Those steps that so small a crawl passes once are met the first time.
RARE = ("warc-registered", "warc-opened", "after-sync", "after-acknowledge")
COMMITS = {
    f"commits {first + 1}": [f"{verb}>{COMMIT[(first + turn) % len(COMMIT)]}" for turn, verb in enumerate(VERB_STEPS)]
    for first in range(len(COMMIT) if os.environ.get("WEFT_TEST_CHAOS") else 2)
}
STORIES = {
    "in memory": list(VERB_STEPS),
    **COMMITS,
    "an end and a deletion": list(CRAWL_STEPS),
    "an end's commit": [f"crawl-closed>{step}" for step in COMMIT],
    "pages": [f"{step}:{1 if step in RARE else 4}" for step in STEPS],
}


Rows = list[tuple[str, str, int]]


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=2, pages=20, profile="calm", seed=4) as web:
        yield web


@pytest.fixture(scope="module")
def undisturbed(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """What a crawl that nobody kills has."""
    with weft.Engine(tmp_path_factory.mktemp("calm"), **settings(web)) as engine:
        engine.open("whole", roots(web)[1])
        assert engine.wait("whole", patience(30)).reason is EndReason.DONE
        return rows(engine, "whole")


@pytest.mark.parametrize("story", STORIES)
def test_a_kill_there_leaves_every_crawl_in_one_state(
    story: str, web: SyntheticWeb, undisturbed: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    markers = {setting: tmp_path / f"died-{number}" for number, setting in enumerate(STORIES[story])}
    monkeypatch.setenv("WEFT_TEST_CRASH_AT", ",".join(f"{setting}@{marker}" for setting, marker in markers.items()))
    small, large = roots(web)
    waiting = [f"{small}nothing/{number}" for number in range(200)]
    with weft.Engine(tmp_path / "engine", **settings(web)) as engine:
        slow = engine.open("slow", waiting[:100], delay=5, seeded_urls_only=True)
        engine.seed("slow", waiting)
        engine.edit("slow", exclude=["*/nothing/1*"])
        assert engine.pause("slow").state is CrawlState.PAUSED
        assert engine.resume("slow").state is CrawlState.RUNNING
        whole = engine.open("whole", large, keep_open=True)
        engine.close_seeds("whole")
        few = engine.open("few", small, max_pages=3)
        assert engine.wait("few", patience(30)).reason is EndReason.MAX_PAGES
        assert engine.wait("whole", patience(30)).reason is EndReason.DONE
        assert engine.cancel("slow").reason is EndReason.CANCELLED
        engine.forget("few")
        again = engine.open("few", small, max_pages=2)
        assert engine.wait("few", patience(30)).reason is EndReason.MAX_PAGES
        until_deleted(tmp_path / "engine", few.id)
        ids = [slow.id, whole.id, few.id, again.id]
        assert ids == sorted(set(ids)), "a crawl's number was used twice"
        check(engine)
        assert rows(engine, "whole") == undisturbed
        missed = [setting for setting, marker in markers.items() if not marker.exists()]
        assert missed == [], "these steps were not reached"


def test_a_revision_that_a_kill_undid_is_named_by_no_request(
    web: SyntheticWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later edit would be given its number, and the requests be judged by settings that they never had."""
    marker = tmp_path / "died"
    monkeypatch.setenv("WEFT_TEST_CRASH_AT", f"settings-changed>after-links@{marker}")
    with weft.Engine(tmp_path / "engine", **settings(web)) as engine:
        engine.open("slow", roots(web)[0], delay=5)
        engine.edit("slow", delay=6)  # it is killed behind the request log's part of the commit, and then told again
        assert marker.exists()
    lives: list[list[int]] = []
    for event in read_events(tmp_path / "engine" / "frontier" / "requests"):
        if isinstance(event, LogOpening):
            lives.append([])
        elif isinstance(event, SettingsInForce):
            lives[-1].append(event.revision)
    assert lives == [[1], [1, 2]]


def settings(web: SyntheticWeb) -> dict[str, Any]:
    return {"allow_private": True, "resolve": web.resolve, "delay": 0.01, "scope": "host"}


def roots(web: SyntheticWeb) -> list[str]:
    return [seed for seed in web.seeds if seed.endswith(f":{web.port}/")][:2]


def rows(engine: weft.Engine, name: str) -> Rows:
    """A URL may have two: a redirect that leads back into its own chain."""
    return sorted((event.kind, event.url, event.status) for event in engine.events(name) if event.kind != "state")


def until_deleted(folder: Path, number: int) -> None:
    """Lines, rows and files of a crawl; that there was one is known to the last."""
    until = time.monotonic() + patience(10)
    while found("crawls", "number", folder, number):
        assert time.monotonic() < until, "what was forgotten is still there"
        time.sleep(0.02)
    assert not (folder / "warc" / str(number)).exists()
    assert not [table for table in ("pages", "changes", "tally", "files") if found(table, "crawl", folder, number)]
    with closing(sqlite3.connect(f"file:{folder / 'frontier' / 'frontier.db'}?mode=ro", uri=True)) as db:
        for table in ("journal", "retries", "aside"):
            assert not db.execute(f"SELECT 1 FROM {table} WHERE crawl = ?", (number,)).fetchone(), table


def found(table: str, column: str, folder: Path, number: int) -> bool:
    with closing(sqlite3.connect(f"file:{index_path(folder, SLOT.name)}?mode=ro", uri=True)) as db:
        return db.execute(f"SELECT 1 FROM {table} WHERE {column} = ?", (number,)).fetchone() is not None


def check(engine: weft.Engine) -> None:
    """One state each, numbers without gap or repeat, limits exact."""
    standings = {standing.name: standing for standing in engine.standings()}
    assert sorted(standings) == ["few", "slow", "whole"]
    for name, standing in standings.items():
        events = list(engine.events(name))
        assert [event.number for event in events] == list(range(1, standing.number + 1)), name
        states = [event.state for event in events if event.state is not None]
        assert states[0] is CrawlState.OPEN and states[-1] is CrawlState.ENDED is standing.state
        assert states.count(CrawlState.OPEN) == states.count(CrawlState.ENDED) == 1, states
    assert len(list(engine.pages("few"))) == standings["few"].pages == 2
    whole = list(engine.events(follow=False))
    assert len({event.cursor for event in whole}) == len(whole) == sum(one.number for one in standings.values())
