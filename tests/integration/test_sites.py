"""Sites on a real engine: a schedule over days with planted changes, dependencies, stops, kills, webhooks, threads."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from jobs import config_for, serving
from pace import patience
from receiver import receiver as receiving
from site_web import SiteWeb, linked

from weft.engine.crawls.memory import LEAST_BYTES
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.files import site_of
from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.status import SiteStatus

DAY = 86_400.0
NOT_PAGES = ("/robots.txt", "/sitemap.xml")


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


class Shop:
    """A site whose changes are planted day by day; of its first pages /8 links to one that is not there yet, and /9 to
    one that leads to /0."""

    paths = tuple(f"/{number}" for number in range(12))

    def __init__(self, number: int, validators: Any) -> None:
        pages = {"/": linked(*self.paths), **{path: linked("/", text=path) for path in self.paths}}
        pages |= {"/8": linked("/later"), "/9": linked("/way")}
        self.name = validators
        self.web = SiteWeb(pages, {"/way": "/0"}, address=f"127.9.0.{number + 1}", validators=validators)

    def plant(self) -> None:
        pages = self.web.pages
        pages |= {"/3": "changed", "/4": linked("/new"), "/new": linked("/new/below"), "/new/below": "x"}
        pages |= {"/there": "x", "/": linked(*self.paths[:7])}  # /7 to /11 are linked by nothing any more
        del pages["/5"], pages["/6"]
        self.web.moved["/6"] = "/there"

    def plant_behind_unchanged_pages(self) -> None:
        self.web.pages |= {"/later": linked("/later/below"), "/later/below": "x", "/elsewhere": "x"}
        self.web.moved["/way"] = "/elsewhere"

    def nothing(self) -> None:
        self.web.sent_bytes = 0
        self.web.asked.clear()

    def fail(self) -> None:
        self.web.status = 403

    def heal(self) -> None:
        self.web.status = 200

    def paths_of(self, urls: tuple[str, ...]) -> set[str]:
        return names(self.web, urls)

    def check(self, reports: list[ChangeReport]) -> None:
        first, planted, behind, quiet, failing, healed = reports
        assert (first.is_first, first.why_full, first.counts["new"]) == (True, "no page is known", 13)
        assert self.paths_of(planted.new) == {"/new", "/new/below", "/there"}
        assert self.paths_of(planted.changed) == {"/", "/3", "/4"}
        assert self.paths_of(planted.gone) == {"/5"}
        assert [(self.paths_of((old,)), self.paths_of((to,))) for old, to in planted.moved] == [({"/6"}, {"/there"})]
        assert planted.counts["unchanged"] == 8, "the others of 13"
        assert self.paths_of(behind.new) == {"/later", "/later/below", "/elsewhere"}
        assert not (behind.changed or behind.gone or behind.moved) and behind.counts["unchanged"] == 14
        for report, unchanged, failed in ((quiet, 17, 0), (failing, 0, 17), (healed, 17, 0)):
            assert not (report.new or report.changed or report.gone or report.moved)
            assert (report.counts["unchanged"], report.counts["failed"]) == (unchanged, failed)
        assert [one.why_full for one in (planted, behind, quiet, failing)] == [""] * 4
        assert healed.why_full == "the run before was not complete"


def test_a_schedule_over_days_finds_every_planted_change_and_invents_none(tmp_path: Path) -> None:
    """Whatever the server says of its pages. A page that nothing links to any more is asked, too; so is what was no
    page behind one that has not changed. When nothing has changed nothing is reported, and nothing is sent."""
    shops = [Shop(number, one) for number, one in enumerate(("etag", "date", "changing", "none"))]

    async def work() -> None:
        clock = Days()
        with receiving() as receiver:
            async with AsyncExitStack() as stack:
                for shop in shops:
                    await stack.enter_async_context(shop.web)
                config = config_for(tmp_path, breaker_failures=1000)
                service, _ = await stack.enter_async_context(serving(config, clock=clock))
                sites = SiteRegistry(tmp_path, clock=clock, store=service.store)
                for shop in shops:
                    hook = {"url": receiver.url, "events": ["completed", "page"]} if shop is shops[0] else None
                    add(sites, shop.name, shop.web, schedule="@daily", webhook=hook)
                reports = [await a_day_later(clock, sites)]
                for day in (Shop.plant, Shop.plant_behind_unchanged_pages, Shop.nothing, Shop.fail, Shop.heal):
                    for shop in shops:
                        day(shop)
                    reports.append(await a_day_later(clock, sites))
                    if day is Shop.nothing:
                        check_log(shops)
                await told(receiver, reports)
        for shop in shops:
            shop.check([day[shop.name] for day in reports])

    def check_log(shops: list[Shop]) -> None:
        by_content, no_validators = shops[:2], shops[3]
        for shop in by_content:
            statuses = sorted(status for _, path, status in shop.web.asked if path not in NOT_PAGES)
            assert statuses == [*[301] * 2, *[304] * 17, 404], shop.web.asked
            assert shop.web.sent_bytes == 0
        assert no_validators.web.sent_bytes > 0

    async def told(receiver: Any, reports: list[dict[str, ChangeReport]]) -> None:
        """By webhook: the report of each run that ended well, and of each page once, unless it has changed."""

        def of(kind: str) -> list[dict[str, Any]]:
            return [one.body["data"] for one in receiver.received if one.body["type"] == kind]

        wanted = [one["etag"] for one in reports if not one["etag"].counts["failed"]]
        limit = time.monotonic() + patience(20)
        while len(of("completed")) < len(wanted):
            assert time.monotonic() < limit, [one["changes"]["counts"] for one in of("completed")]
            await asyncio.sleep(0.05)
        # In any order: a run does not wait until the one before it was told.
        changes = {one["changes"]["task"]: one["changes"] for one in of("completed")}
        assert sorted(changes) == sorted(one.task for one in wanted)
        assert changes[wanted[1].task]["moved"] == [list(one) for one in wanted[1].moved]
        assert len(of("page")) == 13 + 6 + 3 + 0 + 17, "the last run has read all of them"

    async def a_day_later(clock: Days, sites: SiteRegistry) -> dict[str, ChangeReport]:
        before = sites.status()[0].runs
        clock.ahead_s += DAY
        await until(sites, lambda found: all(one.runs > before for one in found.values()), 60)
        return {name: sites.reports(name, 1)[0] for name in sites.names()}

    asyncio.run(work())


def test_after_a_change_of_rules_no_server_can_keep_a_page_back(tmp_path: Path) -> None:
    """A server that calls everything unchanged is believed, until the rules change: then it is not asked whether."""
    web = SiteWeb({"/": linked("/a"), "/a": "<h1>old</h1>"}, validators="stubborn")

    async def work() -> None:
        async with web, serving(config_for(tmp_path)) as (service, _):
            sites = SiteRegistry(tmp_path, store=service.store)

            async def run(**more: Any) -> tuple[ChangeReport, dict[str, Any]]:
                add(sites, "shop", web, **more)
                runs, task = sites.status()[0].runs, sites.run(["shop"])["shop"]
                await until(sites, lambda found: found["shop"].runs > runs)
                results = await service.results(task, limit=100)
                return sites.reports("shop", 1)[0], {one.url: one.document for one in results.results}

            _, first = await run()
            web.pages["/a"] = "<h1>new</h1>"
            believed, second = await run()
            ruled, third = await run(extract={"title": {"css": "h1"}})
            assert (len(first), second, len(third)) == (2, {}, 2), "only what was read has results"
            assert believed.counts["unchanged"] == 2 and web.statuses("/a") == [200, 304, 200]
            assert (ruled.why_full, names(web, ruled.changed)) == ("its rules have changed", {"/a"})
            assert third[web.url + "a"]["fields"] == {"title": "new"}

    asyncio.run(work())


def test_an_engine_that_is_killed_still_knows_what_was_found_before(tmp_path: Path) -> None:
    paths = [f"/{number}" for number in range(40)]
    web = SiteWeb({"/": linked(*paths), **{path: path for path in paths}})

    async def work() -> None:
        async with web, serving(config_for(tmp_path)) as (service, engine):
            sites = SiteRegistry(tmp_path, store=service.store)
            add(sites, "shop", web, max_concurrent_articles=1)
            sites.run(["shop"])
            await until(sites, lambda found: found["shop"].runs == 1)
            web.asked.clear()
            web.delay_s = 0.02
            sites.run(["shop"])
            await until(sites, lambda _: len(web.asked) > 5)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)
            await until(sites, lambda found: found["shop"].runs == 2, 60)
            assert {status for _, path, status in web.asked if path not in NOT_PAGES} == {304}
            assert sites.reports("shop", 1)[0].counts["unchanged"] == 41

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


def test_a_sites_memory_bounds_its_pages_in_flight_and_its_urls(tmp_path: Path) -> None:
    """As little as may be: two pages at a time, and an end when the URLs leave no room for one. Others go on."""
    paths = [f"/{number}" for number in range(40)]
    small = SiteWeb({"/": linked(*paths), **{path: path for path in paths}}, delay_s=0.02)
    hubs = {hub: linked(*(f"{hub}/{number}" for number in range(9_000))) for hub in ("/a", "/b")}
    many = SiteWeb({"/": linked(*hubs), **hubs}, address="127.9.0.2", delay_s=0.02)

    async def work() -> None:
        async with small, many, serving(config_for(tmp_path)) as (service, _):
            sites = SiteRegistry(tmp_path, store=service.store)
            for name, web in (("small", small), ("many", many)):
                add(sites, name, web, max_memory_bytes=LEAST_BYTES, max_concurrent_articles=50)
            sites.run()
            await until(sites, lambda found: 0 < found["small"].memory_bytes <= LEAST_BYTES or found["small"].runs > 0)
            await until(sites, lambda found: all(one.runs == 1 for one in found.values()))
            found = {one.name: one for one in sites.status()}
            assert (found["small"].last_state, found["small"].pages, small.most_waiting) == ("COMPLETED", 41, 2)
            assert (found["many"].last_state, found["many"].state) == ("PARTIAL", "paused")
            assert "(its URLs leave no room for a page: raise max_memory_bytes" in found["many"].health.message
            assert found["many"].max_memory_bytes == LEAST_BYTES

    asyncio.run(work())
