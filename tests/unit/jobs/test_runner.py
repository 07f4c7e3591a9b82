"""The runner beside a model of an engine, by a clock of its own: slots, deadlines, retention, take-over, repair."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pace import patience

from weft.config import load_service
from weft.engine.model import WAITING_FOR_SEEDS, CrawlSnapshot, CrawlState, EndReason
from weft.engine.process.channel import EngineGone
from weft.errors import BadInput
from weft.jobs import runner as runner_module
from weft.jobs.crawls import finish_without
from weft.jobs.model import JobProgress, Lane, Task, TaskSpec, new_task_id
from weft.jobs.runner import LEASE_S, LONG_WAIT_S, OVERDUE_S, JobRunner
from weft.jobs.store.contract import TaskFinish
from weft.jobs.store.sqlite import SqliteJobStore
from weft.records import PastVisit
from weft.scraping import FinishReason, TaskState

START = 1_800_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


class ModelEngine:
    """The verbs as an engine carries them out, in memory; it can be away, and forget what it was told last."""

    def __init__(self, clock: Clock) -> None:
        self.crawls: dict[str, CrawlSnapshot] = {}
        self.told: list[tuple[str, str]] = []
        self.forgotten: list[list[str]] = []  # by call
        self.settings: dict[str, dict[str, Any]] = {}
        self.is_away = False
        self.mistakes = 0  # calls that fail as nothing should
        self.refuses = ""
        self._clock = clock

    def _check(self, verb: str, name: str = "") -> None:
        if self.is_away:
            raise EngineGone("no engine")
        if self.mistakes:
            self.mistakes -= 1
            raise RuntimeError("a mistake of ours")
        self.told.append((verb, name))

    def _change(self, name: str, **changes: Any) -> CrawlSnapshot:
        self.crawls[name] = msgspec.structs.replace(self.crawls[name], **changes)
        return self.crawls[name]

    def end(self, name: str, reason: EndReason, ends: dict[str, int], left: int = 0) -> None:
        self._change(name, state=CrawlState.ENDED, reason=reason, ends=ends, left=left, number=7)

    async def open(
        self, name: str, seeds: Sequence[str], settings: dict[str, object], *, deadline: float | None,
        in_flight: int | None, memory_bytes: int | None, visits: Mapping[str, PastVisit],
    ) -> CrawlSnapshot:  # fmt: skip
        self._check("open", name)
        if self.refuses:
            raise BadInput(self.refuses)
        self.settings[name] = {
            "deadline": deadline,
            "in_flight": in_flight,
            "seeds": list(seeds),
            "visits": visits,
            "memory_bytes": memory_bytes,
            **settings,
        }
        known = CrawlSnapshot(name=name, id=len(self.crawls) + 1, state=CrawlState.RUNNING)
        return self.crawls.setdefault(name, known)

    async def standings(self, names: Sequence[str]) -> dict[str, CrawlSnapshot]:
        self._check("standings")
        return {name: self.crawls[name] for name in names if name in self.crawls}

    async def live(self) -> list[CrawlSnapshot]:
        self._check("live")
        return [one for one in self.crawls.values() if one.state is not CrawlState.ENDED]

    async def pause(self, name: str) -> CrawlSnapshot:
        self._check("pause", name)
        return self._change(name, state=CrawlState.PAUSED)

    async def hold(self, name: str) -> CrawlSnapshot:
        self._check("hold", name)
        return self._change(name, is_held=True)

    async def resume(self, name: str) -> CrawlSnapshot:
        self._check("resume", name)
        return self._change(name, state=CrawlState.RUNNING, is_held=False)

    def active(self) -> set[str]:
        """The crawls for which something may be requested now."""
        return {one.name for one in self.crawls.values() if one.state is CrawlState.RUNNING and not one.is_held}

    def waits(self, name: str, cause: str = "", until: float | None = None, **more: Any) -> None:
        self._change(name, waiting_for=cause, waiting_until=until, **more)

    async def cancel(self, name: str) -> CrawlSnapshot:
        self._check("cancel", name)
        return self._change(name, state=CrawlState.ENDED, reason=EndReason.CANCELLED)

    async def forget(self, names: Sequence[str]) -> None:
        self.forgotten.append(list(names))
        for name in names:
            self._check("forget", name)
            self.crawls.pop(name, None)


class Stage:
    """A store, a model of an engine, and runners on both."""

    def __init__(self, path: Path, **flags: Any) -> None:
        self.clock = Clock()
        self.store = SqliteJobStore(path / "jobs.db")
        self.engine: Any = ModelEngine(self.clock)  # which is no EngineLink, and does what one does
        self.jobs = load_service(flags=flags, environment={}).jobs
        self.committed: TaskFinish | None = None
        self._runners: dict[str, JobRunner] = {}

    def submit(self, owner: str = "", **spec: Any) -> Task:
        made = TaskSpec(**({"timeout_s": 600.0} | spec))
        task = Task(
            id=new_task_id(), owner=owner, url="http://a.test/", url_count=1, spec=made, created_at=self.clock()
        )
        return self.store.submit(task, ["http://a.test/"]).task

    def turn(self, holder: str = "one", times: int = 2) -> bool:
        """What a runner does in some turns, all of them due; False if another has the lease."""

        async def work() -> bool:
            runner = self._runners.setdefault(
                holder,
                JobRunner(
                    self.store, self.engine, self.jobs, holder, committed=lambda _: self.committed, clock=self.clock
                ),
            )
            if not await runner.acquire_lease():
                return False
            for _ in range(times):
                runner._next = dict.fromkeys(runner._next, 0.0)
                await runner.turn()
            return True

        return asyncio.run(work())

    def state(self, task: Task) -> tuple[str, str | None]:
        now = self.store.get(task.id)
        assert now is not None
        return str(now.state), now.finish_reason


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path, max_concurrent_tasks=2)
    yield stage
    stage.store.close()


def test_a_runner_survives_a_mistake_of_ours(stage: Stage) -> None:
    task = stage.submit()
    stage.engine.mistakes = 2

    async def work() -> None:
        runner = JobRunner(stage.store, stage.engine, stage.jobs, "one", committed=lambda _: None, clock=stage.clock)
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(patience(20)):
            while task.id not in stage.engine.crawls:
                await asyncio.sleep(0.01)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(work())
    assert stage.state(task) == ("RUNNING", None)


def test_a_task_that_waits_gets_a_slot_and_a_crawl_with_its_deadline(stage: Stage) -> None:
    task = stage.submit(max_concurrent_articles=7, retry_attempts=1, max_depth=4, max_pages=9, timeout_s=300.0)
    stage.turn()
    assert stage.state(task) == ("RUNNING", None)
    settings = stage.engine.settings[task.id]
    assert (settings["deadline"], settings["in_flight"], settings["seeds"]) == (START + 300, 7, ["http://a.test/"])
    assert (settings["max_depth"], settings["max_pages"], settings["max_retries"]) == (4, 9, 1)
    assert (settings["politeness_delay_seconds"], settings["per_domain_concurrency"]) == (0.2, 7)


def test_slots_are_kept_and_filled_as_they_become_free(stage: Stage) -> None:
    tasks = [stage.submit() for _ in range(3)]
    scrape = stage.submit(lane=Lane.SCRAPE)
    stage.turn()
    assert set(stage.engine.crawls) == {tasks[0].id, tasks[1].id, scrape.id}
    stage.engine.end(tasks[0].id, EndReason.DONE, {"200": 3})
    stage.turn()
    assert stage.state(tasks[0]) == ("COMPLETED", "done")
    assert stage.state(tasks[2]) == ("RUNNING", None)


@pytest.mark.parametrize(
    ("reason", "ends", "left", "state"),
    [
        (EndReason.DONE, {"200": 3, "404": 1, "301": 2, "0 robots": 1}, 0, ("COMPLETED", "done")),
        (EndReason.DONE, {"200": 3, "0 timeout": 1}, 0, ("PARTIAL", "done")),
        (EndReason.DONE, {"500": 3, "404": 1}, 0, ("FAILED", "too_many_errors")),
        (EndReason.BUDGET, {"200": 1}, 4, ("PARTIAL", "done")),
        (EndReason.MAX_PAGES, {"200": 3}, 4, ("COMPLETED", "max_pages")),
        (EndReason.DEADLINE, {"200": 3}, 4, ("PARTIAL", "deadline")),
        (EndReason.CANCELLED, {"200": 3}, 4, ("CANCELLED", "cancelled")),
        (EndReason.FAILED, {}, 0, ("FAILED", "error")),
    ],
)
def test_a_task_ends_as_its_crawl_did(
    stage: Stage, reason: EndReason, ends: dict[str, int], left: int, state: tuple[str, str]
) -> None:
    task = stage.submit()
    stage.turn()
    stage.engine.end(task.id, reason, ends, left)
    stage.turn()
    assert stage.state(task) == state
    ended = stage.store.get(task.id)
    assert ended is not None and ended.progress.queued == left and ended.last_number == 7
    assert ended.progress.completed == ends.get("200", 0)
    assert ended.progress.discovered == sum(count for name, count in ends.items() if name != "301") + left


def test_the_engine_is_told_again_what_it_does_not_know(stage: Stage) -> None:
    task = stage.submit()
    stage.engine.is_away = True
    stage.turn()
    assert stage.state(task) == ("RUNNING", None) and not stage.engine.crawls
    stage.engine.is_away = False
    stage.turn()
    assert set(stage.engine.crawls) == {task.id}
    assert stage.store.move(task.id, TaskState.PAUSED, expect={TaskState.RUNNING}, at=START) is not None
    stage.turn()
    assert stage.engine.crawls[task.id].state is CrawlState.PAUSED
    assert stage.store.move(task.id, TaskState.RUNNING, expect={TaskState.PAUSED}, at=START) is not None
    stage.turn()
    assert stage.engine.crawls[task.id].state is CrawlState.RUNNING


def test_a_task_whose_worker_died_with_urls_unsent_is_opened_again(stage: Stage) -> None:
    task = stage.submit()
    stage.turn()
    stage.engine.waits(task.id, WAITING_FOR_SEEDS)
    stage.turn(times=1)
    assert stage.engine.told.count(("open", task.id)) == 2
    assert stage.state(task) == ("RUNNING", None)


def test_what_the_engine_refuses_has_failed_and_says_why(stage: Stage) -> None:
    task = stage.submit()
    stage.engine.refuses = "no such scope"
    stage.turn()
    assert stage.state(task) == ("FAILED", "error")
    failed = stage.store.get(task.id)
    assert failed is not None and failed.message == "no such scope"


def test_a_crawl_whose_task_has_ended_is_cancelled(stage: Stage) -> None:
    task = stage.submit()
    stage.turn()
    stage.store.move(
        task.id,
        TaskState.CANCELLED,
        expect={TaskState.RUNNING},
        at=START,
        finish=TaskFinish(reason=FinishReason.CANCELLED),
    )
    stage.turn()
    assert stage.engine.crawls[task.id].reason is EndReason.CANCELLED
    stage.engine.crawls["stranger"] = CrawlSnapshot(name="stranger", id=99, state=CrawlState.RUNNING)
    stage.turn()
    assert "stranger" not in stage.engine.crawls


# ── slots that are given up ────────────────────────────────────────────────────────────────────────────────────────


def test_tasks_that_can_do_nothing_leave_their_slots_to_others_and_come_back_first(stage: Stage) -> None:
    tasks = [stage.submit() for _ in range(5)]
    stage.turn()
    for task in tasks[:2]:
        stage.engine.waits(task.id, "circuit breaker of a.test", START + 300)
    stage.turn()
    assert stage.engine.active() == {tasks[2].id, tasks[3].id}
    waits = stage.store.get(tasks[0].id)
    assert waits is not None and waits.state is TaskState.RUNNING and not waits.holds_slot
    assert (waits.waiting_for, waits.waiting_until) == ("circuit breaker of a.test", START + 300)
    stage.clock.now += 299
    stage.turn()
    assert stage.engine.active() == {tasks[2].id, tasks[3].id}
    stage.clock.now += 1
    stage.turn()
    found = [stage.store.get(task.id) for task in tasks[:2]]
    assert [task and task.waiting_for for task in found] == ["slot", "slot"]
    assert stage.engine.active() == {tasks[2].id, tasks[3].id}, "no slot is free"
    for task in tasks[:2]:
        stage.engine.waits(task.id)
    stage.engine.end(tasks[2].id, EndReason.DONE, {"200": 1})
    stage.turn()
    assert stage.engine.active() == {tasks[0].id, tasks[3].id}, "before the one that is pending"
    stage.engine.end(tasks[3].id, EndReason.DONE, {"200": 1})
    stage.turn()
    assert stage.engine.active() == {tasks[0].id, tasks[1].id}
    assert stage.state(tasks[4]) == ("PENDING", None) and stage.store.waiting() == {}


@pytest.mark.parametrize(
    ("cause", "wait_s", "in_flight"),
    [
        ("politeness delay of a.test", LONG_WAIT_S, 0),
        ("another crawl on this machine is asking a.test", None, 0),
        ("circuit breaker of a.test", 300.0, 1),
        ("", None, 0),
    ],
)
def test_a_task_keeps_its_slot_that_has_something_to_do_soon(
    stage: Stage, cause: str, wait_s: float | None, in_flight: int
) -> None:
    tasks = [stage.submit() for _ in range(3)]
    stage.turn()
    until = None if wait_s is None else START + wait_s
    stage.engine.waits(tasks[0].id, cause, until, in_flight=in_flight)
    stage.turn(times=3)
    assert stage.engine.active() >= {tasks[1].id} and stage.state(tasks[2]) == ("PENDING", None)
    stage.engine.waits(tasks[0].id)
    stage.turn()
    assert stage.engine.active() == {tasks[0].id, tasks[1].id}


def test_a_paused_task_leaves_its_slot_when_its_last_request_has_ended(stage: Stage) -> None:
    tasks = [stage.submit() for _ in range(4)]
    stage.turn()
    stage.store.move(tasks[0].id, TaskState.PAUSED, expect={TaskState.RUNNING}, at=START)
    stage.engine.waits(tasks[0].id, in_flight=1)
    stage.turn()
    assert stage.state(tasks[2]) == ("PENDING", None)
    stage.engine.waits(tasks[0].id, in_flight=0)
    stage.turn()
    assert stage.engine.active() == {tasks[1].id, tasks[2].id}
    stage.store.move(tasks[0].id, TaskState.RUNNING, expect={TaskState.PAUSED}, at=START)
    stage.turn()
    assert stage.state(tasks[0]) == ("RUNNING", None) and tasks[0].id not in stage.engine.active()
    stage.engine.end(tasks[1].id, EndReason.DONE, {"200": 1})
    stage.turn()
    assert stage.engine.active() == {tasks[0].id, tasks[2].id}


def test_a_task_that_waits_without_a_slot_ends_at_its_deadline(stage: Stage) -> None:
    known, unknown = stage.submit(), stage.submit()
    stage.turn()
    for task in (known, unknown):
        stage.engine.waits(task.id, "Retry-After of a.test", START + 9000)
    stage.turn()
    assert stage.engine.active() == set()
    stage.engine.end(known.id, EndReason.DEADLINE, {"200": 1}, 3)
    del stage.engine.crawls[unknown.id]
    stage.clock.now += 600
    stage.turn()
    assert stage.state(known) == stage.state(unknown) == ("PARTIAL", "deadline")
    assert stage.store.waiting() == {} and not stage.engine.active()


def test_a_key_runs_no_more_tasks_than_its_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_concurrent_tasks=4, max_tasks_per_key=2)
    for owner in ("a", "a", "a", "b"):
        stage.submit(owner)
    stage.turn()
    tasks = {name: stage.store.get(name) for name in stage.engine.active()}
    assert sorted(task.owner for task in tasks.values() if task is not None) == ["a", "a", "b"]
    stage.store.close()


class Killed(Exception):
    """The process dies here."""


@pytest.mark.parametrize("seed", range(6))
def test_no_kill_loses_a_slot_or_runs_more_tasks_than_there_are_slots(stage: Stage, seed: int) -> None:
    """Runners die before or after any step of the store and any verb of the engine; the next one takes over."""
    rng, slots = random.Random(seed), 2
    left = -1

    def mortal(verb: Any) -> Any:
        def step() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Killed

        if asyncio.iscoroutinefunction(verb):

            async def told(*args: Any, **more: Any) -> Any:
                step()
                found = await verb(*args, **more)
                step()
                assert len(stage.engine.active()) <= slots
                return found

            return told

        def done(*args: Any, **more: Any) -> Any:
            step()
            found = verb(*args, **more)
            step()
            return found

        return done

    for name in ("release_slot", "claim", "move"):
        setattr(stage.store, name, mortal(getattr(stage.store, name)))
    for name in ("open", "hold", "pause", "resume"):
        setattr(stage.engine, name, mortal(getattr(stage.engine, name)))
    tasks, lives = [stage.submit() for _ in range(6)], 0
    for _ in range(25):
        name = rng.choice(tasks).id
        if name in stage.engine.crawls and stage.engine.crawls[name].state is not CrawlState.ENDED:
            what = rng.random()
            now = stage.store.get(name)
            if what < 0.5:
                stage.engine.waits(name, "circuit breaker of a.test", stage.clock() + rng.choice((5, 60)))
            elif what < 0.6:
                stage.engine.end(name, EndReason.DONE, {"200": 1})
            elif now is not None and not now.is_terminal:
                left = -1
                to = TaskState.RUNNING if now.state is TaskState.PAUSED else TaskState.PAUSED
                stage.store.move(name, to, expect={now.state}, at=stage.clock())
        stage.clock.now += rng.choice((1, 30))
        for one in stage.engine.crawls.values():
            if one.waiting_until is not None and one.waiting_until <= stage.clock():
                stage.engine.waits(one.name)
        left = rng.randrange(1, 12)
        try:
            stage.turn(f"runner {lives}")
        except Killed:
            lives += 1
            stage.clock.now += LEASE_S
    left = -1
    for task in tasks:
        now = stage.store.get(task.id)
        if now is not None and now.state is TaskState.PAUSED:
            stage.store.move(task.id, TaskState.RUNNING, expect={TaskState.PAUSED}, at=stage.clock())
    for _ in range(12):  # all of them come to their end
        stage.clock.now += 61
        for name in stage.engine.active():
            stage.engine.end(name, EndReason.DONE, {"200": 1})
        stage.turn(f"runner {lives}")
    assert {stage.state(task)[0] for task in tasks} <= {"COMPLETED", "PARTIAL"}, [stage.state(task) for task in tasks]
    assert stage.store.waiting() == {}


# ── clocks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ok", [True, False])
def test_a_deadline_that_passed_while_nothing_ran_ends_the_task_at_the_next_start(stage: Stage, ok: bool) -> None:
    task = stage.submit(partial_results_ok=ok)
    stage.engine.is_away = True
    stage.turn()
    stage.clock.now += 601
    stage.engine.is_away = False
    stage.turn()
    assert stage.state(task) == ("PARTIAL" if ok else "FAILED", "deadline")
    assert not stage.engine.crawls


def test_a_deadline_that_a_dead_engine_does_not_keep_is_kept_with_what_is_on_the_disk(stage: Stage) -> None:
    task = stage.submit()
    stage.turn()
    stage.engine.is_away = True
    stage.committed = TaskFinish(
        reason=FinishReason.DEADLINE,
        progress=JobProgress(completed=5, queued=2),
        last_number=9,
        errors_by_class={"timeout": 1},
    )
    stage.clock.now += 600 + OVERDUE_S
    stage.turn()
    assert stage.state(task) == ("RUNNING", None), "the engine has a moment to do it itself"
    stage.clock.now += 0.1
    stage.turn()
    assert stage.state(task) == ("PARTIAL", "deadline")
    ended = stage.store.get(task.id)
    assert ended is not None and ended.progress == JobProgress(completed=5, queued=2) and ended.last_number == 9
    stage.engine.is_away = False
    stage.turn()
    assert stage.engine.crawls[task.id].reason is EndReason.CANCELLED


def test_a_paused_task_ends_at_its_deadline(stage: Stage) -> None:
    task = stage.submit()
    stage.turn()
    stage.store.move(task.id, TaskState.PAUSED, expect={TaskState.RUNNING}, at=START)
    stage.engine.end(task.id, EndReason.DEADLINE, {"200": 1}, 3)
    stage.turn()
    assert stage.state(task) == ("PARTIAL", "deadline")


def test_what_waits_for_too_long_expires_and_what_runs_never_does(stage: Stage) -> None:
    running = [stage.submit(timeout_s=10 * 86400) for _ in range(2)]
    waiting = stage.submit()
    stage.turn()
    stage.clock.now += 24 * 3600
    stage.turn()
    assert stage.state(waiting) == ("PENDING", None)
    stage.clock.now += 1
    stage.turn()
    assert stage.state(waiting) == ("FAILED", "expired")
    assert [stage.state(task) for task in running] == [("RUNNING", None)] * 2


def test_an_ended_task_is_deleted_after_its_time_the_crawl_first(stage: Stage) -> None:
    old, running = stage.submit(), stage.submit(timeout_s=10 * 86400)
    stage.turn()
    stage.engine.end(old.id, EndReason.DONE, {"200": 1})
    stage.turn()
    stage.clock.now += 24 * 3600
    stage.turn()
    assert stage.store.get(old.id) is not None
    stage.clock.now += 1
    stage.engine.is_away = True
    stage.turn()
    assert stage.store.get(old.id) is not None, "its crawl could not be forgotten"
    stage.engine.is_away = False
    stage.turn()
    assert stage.store.get(old.id) is None and set(stage.engine.crawls) == {running.id}


# ── the lease ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_old_tasks_are_deleted_many_at_a_time_with_other_work_between(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service may end seventy tasks a second: each by itself, they would be deleted more slowly than they end."""
    monkeypatch.setattr(runner_module, "DELETED_AT_ONCE", 10)
    old = [stage.submit() for _ in range(23)]
    for task in old:
        state, finish = finish_without(task, FinishReason.CANCELLED)
        stage.store.move(task.id, state, expect={TaskState.PENDING}, at=stage.clock(), finish=finish)
    stage.clock.now += 25 * 3600
    new = stage.submit()
    calls = len(stage.engine.forgotten)
    for turn in range(1, 4):
        stage.turn(times=1)
        assert len(stage.engine.forgotten) - calls == turn, "one call for all"
        assert sum(stage.store.get(task.id) is not None for task in old) == max(0, 23 - turn * 10)
    assert stage.state(new) == ("RUNNING", None)


def test_what_is_kept_for_a_moment_is_not_kept_for_an_hour(tmp_path: Path) -> None:
    """The interval of deletions is an hour, unless the retention is shorter; and a long list is continued at once."""
    stage = Stage(tmp_path, task_retention_hours=1e-7)
    runner = JobRunner(stage.store, stage.engine, stage.jobs, "one", clock=stage.clock)

    async def work() -> None:
        assert await runner.acquire_lease()
        await runner.turn()
        for _ in range(2):
            task = stage.submit()
            state, finish = finish_without(task, FinishReason.CANCELLED)
            stage.store.move(task.id, state, expect={TaskState.PENDING}, at=stage.clock(), finish=finish)
            stage.clock.now += 1
            async with asyncio.timeout(patience(20)):
                while stage.store.get(task.id) is not None:
                    await runner.turn()
                    await asyncio.sleep(0.001)

    asyncio.run(work())
    stage.store.close()


def test_one_runner_works_and_another_takes_over_when_its_lease_ends(stage: Stage) -> None:
    assert stage.turn("one") and not stage.turn("two")
    task = stage.submit()
    stage.clock.now += LEASE_S
    assert stage.turn("two") and not stage.turn("one")
    assert stage.state(task) == ("RUNNING", None)


def test_a_runner_that_runs_gives_its_lease_back(stage: Stage) -> None:
    async def work() -> None:
        runner = JobRunner(stage.store, stage.engine, stage.jobs, "one", clock=stage.clock)
        running = asyncio.create_task(runner.run())
        task = stage.submit()
        runner.wake()
        while stage.state(task) != ("RUNNING", None):
            await asyncio.sleep(0.01)
        assert runner.is_holder
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert stage.store.lease("two", LEASE_S, now=stage.clock()) is not None

    asyncio.run(work())
