"""Sites on a real engine: a schedule over days with planted changes, dependencies, stops, kills, webhooks, threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jobs import config_for, serving
from pace import patience
from receiver import receiver as receiving
from site_web import SiteWeb, linked

from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.files import site_of
from weft.jobs.sites.registry import SiteRegistry, SiteStatus

DAY = 86_400.0


class Days:
    """The wall clock, set forward by whole days."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


async def until(sites: SiteRegistry, holds: Callable[[dict[str, SiteStatus]], bool], limit_s: float = 20) -> None:
    limit = time.monotonic() + patience(limit_s)
    while not holds({one.name: one for one in await asyncio.to_thread(sites.status)}):
        assert time.monotonic() < limit, sites.status()
        await asyncio.sleep(0.02)


def add(sites: SiteRegistry, name: str, web: SiteWeb, **more: Any) -> None:
    sites.add([site_of({"name": name, "start_urls": [web.url], "scope": "host", **more}, time.time())])


def names(web: SiteWeb, urls: tuple[str, ...]) -> set[str]:
    return {url.removeprefix(web.url.rstrip("/")) for url in urls}


def test_a_schedule_over_days_finds_every_planted_change_and_invents_none(tmp_path: Path) -> None:
    """A page that nothing links to any more is asked, too; a day on which nothing changes reports nothing."""
    paths = [f"/{number}" for number in range(12)]
    web = SiteWeb({"/": linked(*paths), **{path: linked("/", text=path) for path in paths}})

    async def work() -> None:
        clock = Days()
        with receiving() as receiver:
            async with web, serving(config_for(tmp_path, breaker_failures=1000), clock=clock) as (service, _):
                sites = SiteRegistry(tmp_path, clock=clock, store=service.store)
                add(sites, "shop", web, schedule="@daily", webhook={"url": receiver.url, "events": ["completed"]})
                reports = [await a_day_later(clock, sites)]
                for change in (plant, lambda: None, fail, heal):
                    change()
                    reports.append(await a_day_later(clock, sites))
                limit = time.monotonic() + patience(20)
                while len(receiver.received) < len(reports) - 1:
                    assert time.monotonic() < limit, [
                        one.body["data"]["changes"]["counts"] for one in receiver.received
                    ]
                    await asyncio.sleep(0.05)
        first, planted, quiet, failing, healed = reports
        assert first.is_first and first.counts["new"] == 13
        assert names(web, planted.new) == {"/new", "/new/below", "/there"}
        assert names(web, planted.changed) == {"/", "/3", "/4"}
        assert names(web, planted.gone) == {"/5"}
        assert [(names(web, (old,)), names(web, (new,))) for old, new in planted.moved] == [({"/6"}, {"/there"})]
        assert planted.counts["unchanged"] == 8, "the others of 13"
        for report, unchanged, failed in ((quiet, 14, 0), (failing, 0, 14), (healed, 14, 0)):
            assert not (report.new or report.changed or report.gone or report.moved)
            assert (report.counts["unchanged"], report.counts["failed"]) == (unchanged, failed)
        told = [one.body["data"]["changes"] for one in receiver.received]
        assert [one["task"] for one in told] == [one.task for one in reports if one is not failing]
        assert told[1]["moved"] == [list(one) for one in planted.moved]

    def plant() -> None:
        web.pages |= {"/3": "changed", "/4": linked("/new"), "/new": linked("/new/below"), "/new/below": "x"}
        web.pages |= {"/there": "x", "/": linked(*paths[:7])}  # /7 to /11 are linked by nothing any more
        del web.pages["/5"], web.pages["/6"]
        web.moved["/6"] = "/there"

    def fail() -> None:
        web.status = 403

    def heal() -> None:
        web.status = 200

    async def a_day_later(clock: Days, sites: SiteRegistry) -> ChangeReport:
        before = sites.status()[0].runs
        clock.ahead_s += DAY
        await until(sites, lambda found: found["shop"].runs > before, 60)
        return sites.reports("shop", 1)[0]

    asyncio.run(work())


def test_a_stop_keeps_what_a_run_has_and_its_schedule(tmp_path: Path) -> None:
    paths = [f"/{number}" for number in range(400)]
    web = SiteWeb({"/": linked(*paths), **{path: path for path in paths}}, delay_s=0.02)

    async def work() -> None:
        async with web, serving(config_for(tmp_path)) as (service, _):
            sites = SiteRegistry(tmp_path, store=service.store)
            add(sites, "long", web, schedule="@daily", max_concurrent_articles=1)
            task = sites.run(["long"])["long"]
            await until(sites, lambda found: found["long"].pages >= 3)
            key = f"scrape_long:{task}:"
            assert sites.progress("long")[key + "status"] == "PROCESSING"
            assert sites.stop() == ["long"]
            assert await asyncio.to_thread(sites.wait_stopped, ["long"], patience(10))
            (status,) = sites.status()
            assert (status.state, status.last_state) == ("idle", "CANCELLED")
            assert status.next_at is not None and status.health.is_healthy
            results = await service.results(task, limit=1000)
            assert 3 <= len(results.results) == status.pages < 400
            assert len(sites.reports("long")[0].new) == status.pages

    asyncio.run(work())


def test_a_service_that_was_away_over_due_times_makes_one_run(tmp_path: Path) -> None:
    """Two workers take up the same store after it: the lease lets one of them begin it."""
    web = SiteWeb({"/": linked("/a"), "/a": "x"})

    async def work() -> None:
        clock = Days()
        async with web:
            async with serving(config_for(tmp_path), clock=clock) as (service, _):
                sites = SiteRegistry(tmp_path, clock=clock, store=service.store)
                add(sites, "shop", web, schedule="@hourly")
            clock.ahead_s += 3 * DAY
            async with serving(config_for(tmp_path), workers=2, clock=clock) as (service, _):
                sites = SiteRegistry(tmp_path, clock=clock, store=service.store)
                await until(sites, lambda found: found["shop"].runs == 1)
                await asyncio.sleep(0.5)  # a second one would have begun by now
                assert (sites.status()[0].runs, sites.status()[0].state) == (1, "idle")
                assert web.statuses("/a") == [200]

    asyncio.run(work())
