"""Many crawls in one engine over messy hosts while the engine is killed: each crawl has what its own oracle says and
its limits are exact, and the sites see one polite visitor. A few crawls and kills always; 200 and 30 on demand."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pace import patience

import weft
from weft.engine.model import CrawlEvent, CrawlSnapshot, CrawlState, EndReason
from weft.testing.judge import judge
from weft.testing.web import SyntheticWeb, synthetic_web

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
DELAY_S = 0.02 if FULL else 0.04
SIZE: dict[str, int] = (
    {"hosts": 60, "pages": 600, "crawls": 200, "kills": 30}  # ten crawls or more at each host
    if FULL
    else {"hosts": 3, "pages": 24, "crawls": 4, "kills": 3}
)


class Killer(threading.Thread):
    """Kills the engine's process at random moments, so often."""

    def __init__(self, engine: weft.Engine, kills: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self._kills = kills
        self._chance = random.Random(seed)
        self.killed = 0
        self._over = threading.Event()

    def run(self) -> None:
        while self.killed < self._kills and not self._over.wait(self._chance.uniform(0.5, 3.0)):
            pid = self._engine.pid
            if pid is not None:
                os.kill(pid, signal.SIGKILL)
                self.killed += 1

    def stop(self) -> None:
        self._over.set()
        self.join()


def plans(web: SyntheticWeb, crawls: int, chance: random.Random) -> dict[str, dict[str, Any]]:
    """What each crawl wants: some of all hosts, and for every third a limit of pages."""
    roots = sorted(site.home for site in web.world.ordinary)
    found: dict[str, dict[str, Any]] = {}
    for number in range(crawls):
        wanted: dict[str, Any] = {
            "seeds": chance.sample(roots, min(len(roots), chance.choice((1, 3, 5) if FULL else (1, 1, 2, 3))))
        }
        if number % 3 == 0:
            wanted["max_pages"] = chance.randrange(1, 30)
        found[f"crawl {number}"] = wanted
    return found


@pytest.mark.timeout(1800)
def test_every_crawl_is_right_and_all_are_polite_while_the_engine_is_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    with synthetic_web(hosts=SIZE["hosts"], pages=SIZE["pages"], seed=11, profile="messy") as web:
        wanted = plans(web, SIZE["crawls"], chance)
        shared: dict[str, Any] = {"allow_private": True, "resolve": web.resolve, "delay": DELAY_S, "scope": "host"}
        with weft.Engine(tmp_path / "engine", **shared) as engine:
            killer = Killer(engine, SIZE["kills"], seed=3)
            killer.start()
            for name, plan in wanted.items():
                engine.open(name, **plan)
            ended = {name: engine.wait(name, patience(400 if FULL else 60)) for name in wanted}
            killer.stop()
            assert killer.killed, "the crawls were over before anything was killed"
            events = {name: list(engine.events(name)) for name in wanted}
            whole = list(engine.events(follow=False))
        web.stop()
        for name, plan in wanted.items():
            check(web, plan, ended[name], events[name])
        assert Counter(event.crawl for event in whole) == {name: len(found) for name, found in events.items()}
        seeds = tuple(sorted({seed for plan in wanted.values() for seed in plan["seeds"]}))
        verdict = judge(web.arrivals(), web.expect(seeds=seeds, scope="host"), DELAY_S, complete=False)
        # Several crawls ask for one URL; what each may ask for was checked above.
        impolite = {kind: found for kind, found in verdict.faults().items() if kind != "duplicates"}
        assert not impolite, impolite
        print(f"{len(wanted)} crawls, {killer.killed} kills, {verdict.requests} requests, {len(whole)} events")


def check(web: SyntheticWeb, plan: dict[str, Any], ended: CrawlSnapshot, events: list[CrawlEvent]) -> None:
    """One crawl, against its own oracle."""
    assert [event.number for event in events] == list(range(1, len(events) + 1)), ended.name
    states = [event.state for event in events if event.kind == "state"]
    assert states == [CrawlState.OPEN, CrawlState.RUNNING, CrawlState.ENDED], (ended.name, states)
    rows = [event for event in events if event.kind != "state"]
    pages = [event.url for event in rows if event.kind == "page" and event.error not in ("noindex", "too_large")]
    assert ended.pages == len(pages), (ended.name, ended.pages, len(pages))
    expected = web.expect(seeds=tuple(plan["seeds"]), scope="host")
    # What is of no type that is wanted was asked for as well: it ended at its head.
    requested = Counter(event.url for event in rows if event.kind != "refusal" or "content-type" in (event.error or ""))
    trap = re.compile("|".join(expected.may_patterns) or r"(?!)")
    more = [url for url in requested if url not in {*expected.must, *expected.may} and not trap.fullmatch(url)]
    assert not more, (ended.name, sorted(more)[:5])
    if "max_pages" in plan:
        assert len(pages) <= plan["max_pages"], (ended.name, len(pages))
        assert ended.reason is (EndReason.MAX_PAGES if len(pages) == plan["max_pages"] else EndReason.DONE)
    else:
        assert ended.reason is EndReason.DONE
    if ended.reason is EndReason.DONE:
        missing = {url for url in expected.must if not url.endswith("/robots.txt")} - set(requested)
        assert not missing, (ended.name, sorted(missing)[:5])
