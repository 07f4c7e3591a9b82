"""Sites on a real store beside a model of their tasks: dependencies, schedules, pauses, reports, by their own clock."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from weft.engine.model import CrawlSnapshot, CrawlState
from weft.errors import BadInput
from weft.jobs.errors import LeaseLost, SiteConflict
from weft.jobs.model import STARTED, JobProgress, Lane, Task, TaskSpec
from weft.jobs.sites import site_model
from weft.jobs.sites.changes import ChangeReport, Comparison, Learnt
from weft.jobs.sites.files import site_of
from weft.jobs.sites.panel import SitesPanel
from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.scheduler import SiteScheduler
from weft.jobs.store.contract import TaskFinish
from weft.jobs.store.sqlite import SqliteJobStore
from weft.records import PastVisit, Row
from weft.scraping import FinishReason, TaskState

START = 1_800_000_000.0  # 2027-01-15 08:00 UTC
DAY = 86_400.0
WELL = TaskFinish(reason=FinishReason.DONE, progress=JobProgress(completed=9, gone=1), errors_by_class={"http_4xx": 1})
BAD = TaskFinish(
    reason=FinishReason.TOO_MANY_ERRORS, progress=JobProgress(failed=3), errors_by_class={"connection": 3}, message=""
)


class World:
    """A store, its registry and the runner's part of sites; tasks end as the test says."""

    def __init__(self, folder: Path) -> None:
        self.now = START
        self.store = SqliteJobStore(folder / "jobs.db")
        self.sites = SiteRegistry(folder, clock=lambda: self.now, store=self.store)
        self.proxies = True
        engine: Any = self
        self._scheduler = SiteScheduler(
            self.store, engine, folder / "engine", has_proxies=lambda: self.proxies, clock=lambda: self.now
        )
        lease = self.store.lease("me", 3.0, now=START)
        assert lease is not None
        self.epoch = lease.epoch
        self.cancelled: list[str] = []

    async def cancel(self, name: str) -> CrawlSnapshot:
        """As an engine does; the runner would write the end down."""
        self.cancelled.append(name)
        finish = TaskFinish(reason=FinishReason.CANCELLED, progress=JobProgress(completed=2))
        self.store.move(name, TaskState.CANCELLED, expect=STARTED, at=self.now, finish=finish)
        return CrawlSnapshot(name=name, id=1, state=CrawlState.ENDED)

    def add(self, name: str, *needs: str, **more: Any) -> None:
        given = {"name": name, "start_urls": [f"https://{name}.example/"], "depends_on": list(needs), **more}
        self.sites.add([site_of(given, self.now)])

    def turn(self, epoch: int | None = None) -> None:
        asyncio.run(self._scheduler.turn(self.epoch if epoch is None else epoch))

    def running(self) -> list[str]:
        return [site.name for site in self.store.sites.all().values() if site.task]

    def end(self, name: str, finish: TaskFinish = WELL, state: TaskState = TaskState.COMPLETED) -> None:
        task = self.store.sites.all()[name].task
        self.store.claim(Lane.SITE, 100, at=self.now, fence=self.epoch)
        # without a start of its own: no engine has rows of it
        assert self.store.move(task, state, expect=STARTED, at=self.now, finish=finish) is not None
        self.turn()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    found = World(tmp_path)
    monkeypatch.setattr(
        SiteScheduler, "_compare_run", lambda _, site, __: Comparison(found.store.sites.pages(site.name))
    )
    yield found
    found.store.close()


# ── dependencies ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_site_starts_when_those_it_depends_on_have_ended_well(world: World) -> None:
    world.add("a")
    world.add("b", "a")
    world.add("c", "a", "b")
    assert world.sites.run()["c"] == ""
    assert world.running() == ["a"]
    assert [one.waits_for for one in world.sites.status()] == [(), ("a",), ("a", "b")]
    world.end("a")
    assert world.running() == ["b"]
    world.end("b")
    assert world.running() == ["c"]


def test_what_is_needed_and_has_never_run_is_run_too(world: World) -> None:
    world.add("a")
    world.add("b", "a")
    world.sites.run(["b"])
    assert world.running() == ["a"]
    world.end("a")
    world.end("b")
    world.sites.run(["b"])
    assert world.running() == ["b"], "a has ended well: it is not needed again"


def test_a_failed_dependency_holds_back_until_it_is_well(world: World) -> None:
    world.add("a")
    world.add("b", "a")
    world.sites.run()
    world.end("a", BAD, TaskState.FAILED)
    assert world.running() == []
    assert world.sites.status(["b"])[0].waits_for == ("a",)
    world.now += site_model.RETRY_S
    world.turn()
    world.end("a")
    assert world.running() == ["b"]


def test_a_site_that_uses_proxies_waits_for_enough_of_them(world: World) -> None:
    world.add("direct")
    world.add("proxied", proxies=True)
    world.proxies = False
    world.sites.run()
    world.turn()
    assert world.running() == ["direct"]
    assert world.sites.status(["proxied"])[0].waits_for == ("proxies",)
    world.proxies = True
    world.turn()
    assert world.running() == ["direct", "proxied"]


def test_where_the_service_has_no_proxies_a_site_that_uses_them_is_refused_at_once(world: World) -> None:
    world.add("early", proxies=True)  # nothing is known of the service yet
    world.store.sites.note_proxies(False)
    for refused in (lambda: world.add("late", proxies=True), lambda: world.sites.run(["early"])):
        with pytest.raises(SiteConflict, match=r"proxies: the service that runs here has none; leave the field out"):
            refused()
    world.now += DAY  # the service has ended: the next one may have some
    world.add("late", proxies=True)


def test_cycles_and_unknown_dependencies_are_refused(world: World) -> None:
    with pytest.raises(BadInput, match=r"^depends_on: kshop: there is no site 'shop'$"):
        world.add("kshop", "shop")
    world.add("alpha")
    world.add("beta", "alpha")
    with pytest.raises(BadInput, match="there is no site 'alpa'; did you mean 'alpha'"):
        world.add("c", "alpa")
    with pytest.raises(BadInput, match=r"wait for each other: (alpha -> beta -> alpha|beta -> alpha -> beta)"):
        world.add("alpha", "beta")
    assert world.sites.names() == ["alpha", "beta"]
    assert world.sites.file("alpha").depends_on == ()


def test_sites_that_depend_on_each_other_can_be_added_together(world: World) -> None:
    files = [
        site_of({"name": name, "start_urls": ["https://x.example/"], "depends_on": needs}, START)
        for name, needs in (("b", ["a"]), ("a", []))
    ]
    assert [site.name for site in world.sites.add(files)] == ["b", "a"]


# ── health ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_unhealthy_site_is_paused_said_so_and_tried_again_later(world: World) -> None:
    world.add("dead")
    world.sites.run()
    for failures in range(1, site_model.RETRIES + 1):
        world.end("dead", BAD, TaskState.FAILED)
        health = world.sites.health("dead")
        assert (health.state, health.breaker, health.is_healthy, health.failures) == ("paused", "open", False, failures)
        assert health.errors_by_class == {"connection": 3} and "paused, tried again in" in health.message
        assert re.search(r"\(connection 3\): `weft jobs errors [0-9a-f]{32}` lists them", health.message)
        wait_s = min(site_model.RETRY_S * 2 ** (failures - 1), site_model.LONGEST_RETRY_S)
        world.now += wait_s - 1
        world.turn()
        assert world.running() == []
        world.now += 1
        world.turn()
        assert world.running() == ["dead"] and world.sites.health("dead").breaker == "half-open"
    world.end("dead", BAD, TaskState.FAILED)
    given_up = world.sites.health("dead")
    assert given_up.state == "idle", "it is given up until somebody asks, or its time comes"
    assert (given_up.breaker, given_up.is_healthy) == ("open", False)
    world.sites.run(["dead"])
    world.end("dead")
    health = world.sites.health("dead")
    assert (health.is_healthy, health.breaker, health.message) == (True, "closed", "")
    assert health.last_success_at == world.now


def test_somebody_who_asks_ends_a_pause(world: World) -> None:
    world.add("dead")
    world.sites.run()
    world.end("dead", BAD, TaskState.FAILED)
    assert world.sites.run(["dead"])["dead"]


@pytest.mark.parametrize(
    ("finish", "state", "well"),
    [
        (WELL, TaskState.COMPLETED, True),
        (
            TaskFinish(reason=FinishReason.MAX_PAGES, progress=JobProgress(completed=5, queued=9)),
            TaskState.COMPLETED,
            True,
        ),
        (TaskFinish(reason=FinishReason.DONE, progress=JobProgress(completed=95, failed=5)), TaskState.PARTIAL, True),
        (TaskFinish(reason=FinishReason.DONE, progress=JobProgress(completed=5, failed=5)), TaskState.PARTIAL, False),
        (TaskFinish(reason=FinishReason.DEADLINE, progress=JobProgress(completed=5)), TaskState.PARTIAL, False),
        (TaskFinish(reason=FinishReason.DONE, progress=JobProgress(gone=5)), TaskState.COMPLETED, False),
        (BAD, TaskState.FAILED, False),
    ],
)
def test_which_ends_are_good_ones(world: World, finish: TaskFinish, state: TaskState, well: bool) -> None:
    world.add("a")
    world.sites.run()
    world.end("a", finish, state)
    assert world.sites.health("a").is_healthy is well


# ── schedules ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_schedule_runs_once_each_time(world: World) -> None:
    world.add("a", schedule="0 * * * *")
    ran = 0
    for _ in range(24 * 4):
        world.now += 900
        world.turn()
        if world.running():
            ran += 1
            world.end("a")
    assert ran == 24


def test_times_that_were_missed_are_made_up_for_once(world: World) -> None:
    world.add("a", schedule="0 * * * *")
    world.now += 3 * DAY + 60
    world.turn()
    world.turn()
    assert world.running() == ["a"]
    world.end("a")
    world.turn()
    assert world.running() == []
    assert world.sites.status()[0].runs == 1
    assert (world.sites.status()[0].next_at or 0) - world.now == pytest.approx(3540)


def test_runs_never_overlap(world: World) -> None:
    world.add("a", schedule="0 * * * *")
    world.now += 3600
    world.turn()
    first = world.store.sites.all()["a"].task
    world.now += 2 * 3600
    world.turn()
    assert world.store.sites.all()["a"].task == first
    assert world.sites.run(["a"]) == {"a": first}, "who asks for a site that runs gets its run"
    world.end("a")
    assert world.running() == []


def test_a_runner_that_was_replaced_begins_nothing(world: World) -> None:
    world.add("a", schedule="0 * * * *")
    world.now += 3600
    assert world.store.lease("another", 3.0, now=world.now) is not None
    with pytest.raises(LeaseLost):
        world.turn()
    assert world.running() == []
    world.turn(world.epoch + 1)
    assert world.running() == ["a"]


def test_a_file_that_is_added_again_keeps_its_past(world: World) -> None:
    world.add("a")
    world.sites.run()
    world.end("a")
    world.add("a", schedule="@daily", max_pages=7)
    status = world.sites.status()[0]
    assert (status.runs, status.last_state) == (1, "COMPLETED")
    assert (status.failed, status.health.success_rate) == (0, 1.0), "a page that is gone has not failed"
    assert status.next_at is not None and world.sites.file("a").max_pages == 7


# ── stopping ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stop_ends_what_waits_and_what_runs(world: World) -> None:
    for name in ("a", "b"):
        world.add(name)
    world.add("c", "a")
    world.sites.run()
    first = world.store.sites.all()["a"].task
    world.store.claim(Lane.SITE, 1, at=world.now, fence=world.epoch)
    assert world.sites.stop() == ["a", "b"]
    world.turn()
    world.turn()
    assert (world.running(), world.cancelled) == ([], [first])
    assert [one.state for one in world.sites.status()] == ["idle"] * 3
    health = world.sites.health("a")
    assert (health.pages, health.failures) == (2, 0), "what it had is kept, and a stop is no failure"


def test_progress_has_the_keys_of_a_run(world: World) -> None:
    world.add("a")
    assert world.sites.progress("a") == {}
    task = world.sites.run()["a"]
    assert world.sites.progress("a")[f"scrape_a:{task}:status"] == "DISPATCHED"
    world.end("a")
    found = world.sites.progress("a")
    assert set(found) == {
        f"scrape_a:{task}:{key}"
        for key in ("status", "total_chunks", "completed_chunks", "started_at", "completed_at", "result_count")
    }
    assert (found[f"scrape_a:{task}:status"], found[f"scrape_a:{task}:result_count"]) == ("COMPLETE", 9)


def test_a_site_can_be_removed_when_nothing_needs_it(world: World) -> None:
    world.add("a")
    world.add("b", "a")
    with pytest.raises(BadInput, match="b depends on it"):
        world.sites.remove("a")
    world.sites.run(["b"])
    world.end("a")
    with pytest.raises(BadInput, match="stop it first"):
        world.sites.remove("b")
    world.end("b")
    world.sites.remove("b")
    world.sites.remove("a")
    assert world.sites.names() == []
    with pytest.raises(BadInput, match="there is no site 'x'"):
        world.sites.run(["x"])


def test_the_dashboards_panel_has_a_row_for_each(world: World) -> None:
    assert "weft sites add" in SitesPanel(world.sites).table().note
    world.add("a")
    world.add("b", "a")
    world.sites.run()
    world.end("a", BAD, TaskState.FAILED)
    rows = {row[0]: row for row in SitesPanel(world.sites).table().rows}
    assert rows["a"][1] == "paused" and "connection 3" in rows["a"][-1]
    assert rows["b"][-1] == "waits for a"


# ── changes ────────────────────────────────────────────────────────────────────────────────────────────────────────


RUN = Task(id="t", owner="", url="", url_count=1, spec=TaskSpec(extra={"site": "s"}), created_at=START)


def row(url: str, status: int = 200, digest: str = "d", error: str = "", to: str = "", length: int = 1) -> Row:
    return Row(1, 1, url, to or url, status, START, "", "", "", "", 0, 0, digest, length, error)


def test_a_comparison_names_what_changed_and_invents_nothing() -> None:
    names = ("same", "other", "away", "elsewhere", "ill", "not-modified", "same-body", "unasked-304", "not-asked")
    before = {name: PastVisit(name, "d", START, "old") for name in names}
    before |= {name: PastVisit(name, "", START) for name in ("back", "still-away", "unlinked")}
    found = Comparison(before, has_walked=True)
    found.add(
        [
            row("same"), row("other", digest="e"), row("away", 404), row("elsewhere", 301, to="there"),
            row("ill", 503, error="http_5xx"), row("not-modified", 304, length=0), row("same-body", 304),
            row("unasked-304", 304, digest="of nothing", length=0), row("fresh"), row("back"),
            row("still-away", 404), row("never-was", 404), row("refused", 0, error="robots"),
            row("never-well", 500), row("never-read", 0, error="robots-unreachable: connect: refused"),
        ],
        lambda one: PastVisit(one.url, one.digest, one.fetched_at, "new"),
    )  # fmt: skip
    report = found.report(RUN, START)
    assert (report.new, report.changed, report.gone) == (("back", "fresh"), ("other",), ("away",))
    assert report.moved == (("elsewhere", "there"),)
    assert report.counts == {"new": 2, "changed": 1, "gone": 1, "moved": 1, "unchanged": 3, "failed": 4, "refused": 1}
    learnt = found.learnt()
    assert {one.url: one.digest for one in learnt.known if one.digest} == {
        "same": "d", "same-body": "d", "other": "e", "fresh": "d", "back": "d",
    }, "what came in full has its new validators"  # fmt: skip
    assert {one.url for one in learnt.known if not one.digest} == {
        "away", "elsewhere", "never-was", "never-read", "never-well", "refused",
    }  # fmt: skip
    assert learnt.forgotten == ("unlinked",), "a run that has followed all links has not met it"


def test_pages_whose_redirects_go_in_a_circle_have_failed_and_not_moved() -> None:
    names = ("into", "a", "b", "moved", "twice", "long", "gone-there")
    found = Comparison({name: PastVisit(name, "d", START, "old") for name in names})
    found.add(
        [
            row("a", 302, to="b"), row("b", 302, to="a", error="too_many_redirects"), row("into", 301, to="a"),
            row("moved", 301, to="there"), row("there"), row("twice", 301, to="new-hop"),
            row("new-hop", 302, to="there"), row("long", 301, to="new-long"),
            row("new-long", 302, to="next", error="too_many_redirects"), row("gone-there", 301, to="nothing"),
            row("nothing", 404),
        ],
        lambda one: PastVisit(one.url, one.digest, one.fetched_at, "new"),
    )  # fmt: skip
    report = found.report(RUN, START)
    assert report.moved == (("gone-there", "nothing"), ("moved", "there"), ("twice", "new-hop"))
    assert report.counts["failed"] == 5
    assert not {"a", "b", "into", "long"} & {one.url for one in found.learnt().known}, "they stay known as they were"


def test_the_last_visit_of_a_url_tells() -> None:
    found = Comparison({"a": PastVisit("a", "d", START)})
    found.add([row("a", 503, error="http_5xx"), row("a", digest="e")], lambda one: PastVisit("a", one.digest, START))
    assert found.report(RUN, START).changed == ("a",)


# ── runs that read only what has changed ───────────────────────────────────────────────────────────────────────────


def learn(world: World, **digests: str) -> None:
    """Puts pages into the memory of the site `a`, as a run does."""
    known = tuple(PastVisit(f"https://a.example/{name}", digest, START, '"1"') for name, digest in digests.items())
    report = ChangeReport(site="a", task="t", at=START)
    world.store.sites.change(lambda ledger: ledger.learn(report, Learnt(known)))


def next_run(world: World) -> tuple[Task, list[str]]:
    world.sites.run(["a"])
    task = world.store.get(world.store.sites.all()["a"].task)
    assert task is not None
    return task, [url.removeprefix("https://a.example/") for url in world.store.urls(task.id)]


def test_a_run_after_a_complete_one_asks_conditionally_and_for_what_was_no_page(world: World) -> None:
    world.add("a")
    assert next_run(world)[0].spec.extra["why_full"] == "no page is known"
    learn(world, there="d", missing="")
    world.end("a")
    task, urls = next_run(world)
    assert (task.spec.revisits, task.spec.extra["why_full"], urls) == ("a", "", ["", "missing", "there"])


LEFT = TaskFinish(reason=FinishReason.DONE, progress=JobProgress(completed=9, queued=1))
LIMIT = TaskFinish(reason=FinishReason.MAX_PAGES, progress=JobProgress(completed=9))
LATE = TaskFinish(reason=FinishReason.DEADLINE, progress=JobProgress(completed=9))
STOPPED = TaskFinish(reason=FinishReason.CANCELLED, progress=JobProgress(completed=9))


@pytest.mark.parametrize(
    ("finish", "state"),
    [
        (LEFT, TaskState.COMPLETED), (LIMIT, TaskState.COMPLETED), (LATE, TaskState.PARTIAL),
        (STOPPED, TaskState.CANCELLED), (BAD, TaskState.FAILED),
    ],
)  # fmt: skip
def test_after_a_run_that_was_not_complete_every_page_is_read(
    world: World, finish: TaskFinish, state: TaskState
) -> None:
    world.add("a")
    next_run(world)
    learn(world, there="d", missing="")
    world.end("a", finish, state)
    task, urls = next_run(world)
    assert (task.spec.revisits, urls) == ("", ["", "there"]), "the links lead to what was no page"
    assert task.spec.extra["why_full"] == "the run before was not complete"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"scope": "host"}, "its rules have changed"),
        ({"exclude": ["/x/*"]}, "its rules have changed"),
        ({"extract": {"title": {"css": "h1"}}}, "its rules have changed"),
        ({"formats": ["html"]}, "its rules have changed"),
        ({"start_urls": ["https://a.example/", "https://a.example/b"]}, "its rules have changed"),
        ({"only_changed": False}, "only_changed is false"),
        ({"max_depth": 3}, "its depth is limited"),
        ({"delay_seconds": 2, "schedule": "@daily", "timeout_minutes": 5, "max_pages": 100}, ""),
    ],
)
def test_other_rules_make_a_run_read_every_page(world: World, change: dict[str, Any], why: str) -> None:
    world.add("a")
    next_run(world)
    learn(world, there="d")
    world.add("a", **change)  # while a run by the rules before is under way
    world.end("a")
    assert next_run(world)[0].spec.extra["why_full"] == why
    world.end("a")
    assert next_run(world)[0].spec.extra["why_full"] == ("" if why.endswith("changed") else why)


def test_now_and_then_every_page_is_read(world: World) -> None:
    world.add("a")
    next_run(world)
    learn(world, there="d")
    full = []
    for run in range(1, 2 * site_model.FULL_EVERY + 1):
        world.end("a")
        if next_run(world)[0].spec.extra["why_full"]:
            full.append(run)
    assert full == [site_model.FULL_EVERY, 2 * site_model.FULL_EVERY]
