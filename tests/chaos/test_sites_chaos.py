"""Sites under everything at once: eight side by side of which three are ill, a supervisor killed over a due time, and
threads that start, stop and read as they like. Small always, in full size with WEFT_TEST_CHAOS=1; only then times are
looked at."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from crawling import until
from jobs import config_for, serving
from pace import patience
from site_web import SiteWeb, linked
from supervised import System

from weft import Supervisor
from weft.jobs.model import Lane
from weft.jobs.sites.files import site_of
from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.status import SiteStatus
from weft.jobs.store.sqlite_sites import SqliteLedger

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
PAGES = 60 if FULL else 6
DELAY_S = 0.25 if FULL else 0.05
HAMMERED_S = 30.0 if FULL else 2.0
THREADS = 8
WITHIN = 0.1


def web_of(number: int, **more: Any) -> SiteWeb:
    paths = [f"/{page}" for page in range(PAGES)]
    pages = {"/": linked(*paths), **{path: linked("/", text=path) for path in paths}}
    return SiteWeb(pages, address=f"127.9.1.{number + 1}", **more)


def add(sites: SiteRegistry, name: str, url: str, *needs: str, **more: Any) -> None:
    given = {
        "name": name, "start_urls": [url], "scope": "host", "delay_seconds": DELAY_S, "max_concurrent_articles": 1,
        "retry_attempts": 0, "depends_on": list(needs), **more,
    }  # fmt: skip
    sites.add([site_of(given, time.time())])


async def holds(sites: SiteRegistry, what: Callable[[dict[str, SiteStatus]], bool], limit_s: float) -> None:
    limit = time.monotonic() + patience(limit_s)
    while not what({one.name: one for one in await asyncio.to_thread(sites.status)}):
        assert time.monotonic() < limit, sites.status()
        await asyncio.sleep(0.05)


def lasted(sites: SiteRegistry, name: str) -> float:
    task = sites.progress(name)
    values = {key.rpartition(":")[2]: value for key, value in task.items()}
    assert values["status"] == "COMPLETE" and values["result_count"] == PAGES + 1, values
    return float(values["completed_at"] - values["started_at"])


def test_eight_sites_three_of_them_ill_leave_the_others_their_time(tmp_path: Path) -> None:
    """`well0` alone, then all: dead (nobody listens), slow (answers late), blocking (403), and two that need others."""

    async def work() -> tuple[float, dict[str, float]]:
        well = [web_of(number) for number in range(4)]
        slow, blocking, below = web_of(5, delay_s=4 * DELAY_S), web_of(6, status=403), web_of(7)
        for web in (*well, slow, blocking, below):
            await web.__aenter__()
        async with serving(config_for(tmp_path)) as (service, _):
            sites = SiteRegistry(tmp_path, store=service.store)
            for number, web in enumerate(well):
                add(sites, f"well{number}", web.url)
            sites.run(["well0"])
            await holds(sites, lambda found: found["well0"].runs == 1, 60)
            alone = lasted(sites, "well0")
            add(sites, "dead", "http://127.9.1.99:9/")
            add(sites, "slow", slow.url)
            add(sites, "blocking", blocking.url)
            add(sites, "below", below.url, "well1", "well2")
            add(sites, "never", below.url, "dead")
            for web in well:
                web.pages |= {path: body + "!" for path, body in web.pages.items()}
            sites.run()
            ended = {"well0": 2, "well1": 1, "well2": 1, "well3": 1, "below": 1, "dead": 1, "blocking": 1}
            await holds(sites, lambda found: all(found[name].runs >= runs for name, runs in ended.items()), 90)
            status = {one.name: one for one in sites.status()}
            assert [status[name].state for name in ("dead", "blocking", "never")] == ["paused", "paused", "waiting"]
            assert status["never"].waits_for == ("dead",)
            assert status["dead"].health.errors_by_class.keys() <= {"connection", "robots", "blocked"}
            assert status["blocking"].health.errors_by_class == {"http_4xx": 1}
            times = {name: lasted(sites, name) for name in ("well0", "well1", "well2", "well3", "below")}
            sites.stop()
            await asyncio.to_thread(sites.wait_stopped, sites.names(), patience(10))
        for web in (*well, slow, blocking, below):
            await web.__aexit__()
        return alone, times

    alone, times = asyncio.run(work())
    if FULL:
        print(f"alone {alone:.1f} s, beside the others { ({name: round(one, 1) for name, one in times.items()}) }")
        assert all(abs(one - alone) <= WITHIN * alone for one in times.values()), (alone, times)


def test_a_supervisor_killed_over_a_due_time_makes_one_run(tmp_path: Path) -> None:
    """Everything is killed, the time passes, everything comes back: two workers, and one run."""
    system = System(tmp_path, "--workers", "2", "--services", "api")
    system.up()
    try:
        with SiteRegistry(tmp_path) as sites:
            add(sites, "shop", "http://127.9.1.99:9/", schedule="@yearly")
            for round_ in range(5 if FULL else 1):
                until(lambda: sites.is_served, patience(20), "a runner")
                os.kill(system.supervisor, signal.SIGKILL)
                due = _come_due(sites)
                time.sleep(max(0.0, due - time.time()))
                system.up()
                until(partial(_has_run, sites, round_ + 1), patience(30), "the run")
                time.sleep(0.5)  # a second one would have begun by now
                (status,) = sites.status()
                tasks = sites._jobs.counts()
                assert (
                    status.runs == sum(count for (lane, _), count in tasks.items() if lane is Lane.SITE) == round_ + 1
                )
                assert (status.next_at or 0) > time.time()
    finally:
        system.down()
    system.is_gone()


def _has_run(sites: SiteRegistry, times: int) -> bool:
    return sites.status()[0].runs >= times


def _come_due(sites: SiteRegistry) -> float:
    """Sets the next time of the schedule to half a second from now: the schedules themselves go by minutes."""
    due = time.time() + 0.5

    def step(ledger: SqliteLedger) -> None:
        ledger.put(msgspec.structs.replace(ledger.sites["shop"], next_at=due, wanted_at=None, paused_until=None))

    sites._jobs.sites.change(step)
    return due


def test_threads_start_stop_and_read_sites_as_they_like(tmp_path: Path) -> None:
    """No call fails, no run is doubled, and nothing is left: threads, descriptors, runs."""
    names = [f"s{number}" for number in range(4)]
    errors: list[BaseException] = []
    with Supervisor(data_dir=str(tmp_path), port=0, allow_private=True) as supervisor:
        supervisor.start("api")
        with SiteRegistry(tmp_path) as sites:
            for name in names:
                add(sites, name, "http://127.9.1.98:9/")
        supervisor.sites()
        before = threading.active_count(), len([*Path("/proc/self/fd").iterdir()])
        over = time.monotonic() + HAMMERED_S

        def hammer(seed: int) -> None:
            chance = random.Random(seed)
            calls: list[Callable[[str], object]] = [
                supervisor.start_site_scraper, supervisor.stop_site_scraper, supervisor.site_progress,
                supervisor.health, lambda _: supervisor.sites(),
            ]  # fmt: skip
            try:
                while time.monotonic() < over:
                    chance.choice(calls)(chance.choice(names))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        for name in names:
            until(partial(supervisor.stop_site_scraper, name), patience(20), f"the end of {name}")
        until(lambda: not any(one.state in ("running", "stopping") for one in supervisor.sites()), patience(20), "rest")
        until(lambda: threading.active_count() <= before[0], 10, "the end of the threads")
        assert (
            len([*Path("/proc/self/fd").iterdir()]) <= before[1] + 3 * THREADS
        )  # a connection for each that read at once
