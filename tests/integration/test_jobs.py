"""The scrape service on a real engine: states, counts, results, events, limits, pause and cancel, kills, breaker."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from jobs import Articles, config_for, ended, everything, home, serving, submit, until
from pace import patience

from weft.errors import BadInput
from weft.frontier.requests import RequestStart, read_events
from weft.jobs.embedded import EmbeddedJobService
from weft.jobs.errors import KeyReused, QueueFull, TaskFinished, TaskUnknown
from weft.jobs.layout import ENGINE
from weft.jobs.model import Task, TaskSpec
from weft.jobs.reading import overview
from weft.jobs.reading.documents import Documents
from weft.jobs.service import JobEvent, Submission, TaskSnapshot
from weft.jobs.store.contract import Idempotency
from weft.scraping import FinishReason, TaskState
from weft.testing.arrivals import Arrival
from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=4, pages=25, profile="messy", seed=3) as web:
        yield web


def _is_aside(path: str) -> bool:
    return path == "/robots.txt" or "sitemap" in path


def _has_more_than(completed: int) -> Callable[[TaskSnapshot], bool]:
    return lambda status: status.progress.completed > completed


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_task_from_submit_to_its_last_event(web: SyntheticWeb, tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(config_for(tmp_path, web.resolve)) as (service, _):
            task = await submit(service, home(web), max_depth=9, scope="host", retry_attempts=1)
            assert task.state is TaskState.PENDING
            events: list[JobEvent] = [event async for event in service.events(task.id)]
            done = await ended(service, task)
            assert (done.state, done.finish_reason) == (TaskState.PARTIAL, FinishReason.DONE)
            results, errors = await everything(service, task)
            progress = done.progress
            assert len(results) == len({one.url for one in results}) == progress.completed > 10
            assert len(errors) == progress.gone + progress.failed + progress.refused
            assert Counter(str(one.error_class) for one in errors) == done.errors_by_class
            # Against the server's own log, as far as it spells URLs in the same way.
            asked = await _asked(web, {one.url for one in results if "?" not in one.url})
            pages = {arrival.url for arrival in asked if arrival.status == 200 and not _is_aside(arrival.path)}
            untold = pages - {one.url for one in results} - {one.url for one in errors}
            assert not untold, (progress, [arrival for arrival in asked if arrival.url in untold])

            numbers = [event.number for event in events if event.number is not None]
            assert numbers == sorted(set(numbers)) and numbers[-1] == done.last_number
            assert [event.data["url"] for event in events if event.kind == "page"] == [one.url for one in results]
            assert events[0].data["state"] == "PENDING" and events[-1].data["state"] == "PARTIAL"
            middle = numbers[len(numbers) // 2]
            again = [event.number async for event in service.events(task.id, after=middle)]
            assert again == [number for number in numbers if number > middle]
            assert [event async for event in service.events(task.id, after=numbers[-1])] == []

    run(work())


async def _asked(web: SyntheticWeb, told: set[str]) -> list[Arrival]:
    """The server's log without queries, once it has all that was told: it is written a little later."""
    limit = time.monotonic() + patience(5)
    while True:
        asked = [arrival for arrival in web.arrivals() if "?" not in arrival.path]
        if told <= {arrival.url for arrival in asked}:
            return asked
        assert time.monotonic() < limit, told - {arrival.url for arrival in asked}
        await asyncio.sleep(0.05)


def test_what_a_task_did_last_and_over_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "ROWS_AT_ONCE", 4)  # a timeline in stretches

    async def work() -> None:
        site = Articles([*(f"/article/{n}" for n in range(12)), *(f"/fail/{n}" for n in range(3))])
        async with site, serving(config_for(tmp_path)) as (service, _):
            task = await submit(service, site.url, max_depth=1, retry_attempts=0)
            await until(service, task, lambda status: status.progress.completed > 0)
            assert [status.task.id for status in await service.started()] in ([task.id], [])
            done = await ended(service, task)
            assert await service.started() == () and await service.counts() == {str(done.state): 1}
            await _check_latest(service, done)
            await _check_timeline(service, done)

    run(work())


async def _check_latest(service: EmbeddedJobService, done: Task) -> None:
    numbers: list[int | None] = []
    kinds: Counter[str] = Counter()
    before = None
    while True:
        found = await service.latest(done.id, before=before, limit=3)
        numbers += [event.number for event in found.events]
        kinds.update(event.kind for event in found.events)
        before = found.before
        if before is None:
            break
    assert numbers == sorted(set(numbers), key=lambda number: -(number or 0))
    assert (kinds["page"], kinds["error"]) == (done.progress.completed, done.progress.failed)
    errors = await service.latest(done.id, kinds=("error",), error_class="http_5xx")
    assert len(errors.events) == done.progress.failed and errors.before is None
    assert (await service.latest(done.id, error_class="dns")).events == ()


async def _check_timeline(service: EmbeddedJobService, done: Task) -> None:
    pages, errors, size, number, is_whole = 0, 0, 0, 0, False
    while not is_whole:
        found = await service.timeline(done.id, after=number)
        number, is_whole = found.number, found.is_whole
        pages += sum(second.pages for second in found.seconds)
        errors += sum(second.errors for second in found.seconds)
        size += sum(second.body_bytes for second in found.seconds)
    assert (pages, errors) == (done.progress.completed, done.progress.failed) and size > 0


def test_articles_at_once_with_the_delay_between_their_starts(tmp_path: Path) -> None:
    async def work() -> None:
        site = Articles([f"/article/{n}" for n in range(25)], article_s=1.0)
        async with site, serving(config_for(tmp_path, job_delay_seconds=0.1)) as (service, _):
            began = time.monotonic()
            tasks = [await submit(service, site.url) for _ in range(2)]
            for task in tasks:
                done = await ended(service, task, 30)
                assert (done.state, done.progress.completed) == (TaskState.COMPLETED, 26)
            # Both tasks together are no ruder than one. What is sent is a delay apart; on its way some of that is lost.
            sent = [
                one.at
                for one in read_events(tmp_path / ENGINE / "frontier" / "requests")
                if isinstance(one, RequestStart)
            ]
            arrived = sorted(site.times("/article/"))
            assert len(sent) >= len(arrived) == 50
            assert min(after - before for before, after in pairwise(sent)) >= 0.1 - 1e-6
            assert arrived[-1] - arrived[0] > 0.6 * 49 * 0.1, "half of it: each with a pace of its own"
            # One article after the other would take 50 s.
            assert time.monotonic() - began < patience(50 / 5)

    run(work())


def test_the_deadline_ends_a_task_with_what_it_has(tmp_path: Path) -> None:
    async def work() -> None:
        site = Articles([*(f"/article/{n}" for n in range(5)), *(f"/hang/{n}" for n in range(3))])
        async with site, serving(config_for(tmp_path)) as (service, _):
            task = await submit(service, site.url, timeout_s=patience(1))
            strict = await submit(service, site.url, timeout_s=patience(1), partial_results_ok=False)
            done, failed = await ended(service, task), await ended(service, strict)
            assert (done.state, done.finish_reason) == (TaskState.PARTIAL, FinishReason.DEADLINE)
            assert (failed.state, failed.finish_reason) == (TaskState.FAILED, FinishReason.DEADLINE)
            for one in (done, failed):
                assert (one.progress.completed, one.progress.queued, one.progress.in_flight) == (6, 3, 0)
                assert one.finished_at is not None and one.deadline_at is not None
                assert 0 <= one.finished_at - one.deadline_at < patience(5 / 5)
                assert len((await everything(service, one))[0]) == 6

    run(work())


def test_pause_resume_and_cancel(tmp_path: Path) -> None:
    async def work() -> None:
        site = Articles([f"/article/{n}" for n in range(400)])
        async with site, serving(config_for(tmp_path, job_delay_seconds=0.02, max_concurrent_tasks=1)) as (service, _):
            task = await submit(service, site.url, scope="host")
            waiting = await submit(service, site.url, max_depth=0)
            await until(service, task, lambda status: status.progress.completed > 5)
            queued = await service.status(waiting.id)
            assert (queued.waiting_before, queued.waiting_for, queued.message) == (0, "slot", "")
            assert (await service.pause(task.id)).state is TaskState.PAUSED
            assert (await service.pause(task.id)).state is TaskState.PAUSED
            paused = await until(service, task, lambda status: not status.task.holds_slot)
            assert (paused.waiting_for, paused.progress.in_flight) == ("resume", 0) and "resume it" in paused.message
            # Its slot is another's meanwhile, and then one that waits behind that one's.
            assert (await ended(service, waiting)).state is TaskState.COMPLETED
            other, waiting = await submit(service, f"{site.url}hang/1"), await submit(service, site.url)
            await until(service, other, lambda _: bool(site.times("/hang/")))
            asked = len(site.times("/article/"))
            resumed = await service.resume(task.id)
            assert (resumed.state, resumed.holds_slot) == (TaskState.RUNNING, False)
            status = await service.status(task.id)
            assert status.waiting_for == "slot" and "waits for a free slot" in status.message
            lane = (await service.health()).lanes["task"]
            assert (lane.available, lane.running, lane.waiting, lane.pending) == (0, 2, 1, 1)
            await asyncio.sleep(0.5)
            assert len(site.times("/article/")) == asked, "nothing of it is requested before it has a slot"
            await service.cancel(other.id)
            before = (await until(service, task, lambda _: len(site.times("/article/")) > asked + 5)).progress.completed
            cancelled = await service.cancel(task.id)
            assert (cancelled.state, cancelled.finish_reason) == (TaskState.CANCELLED, FinishReason.CANCELLED)
            assert cancelled == await service.cancel(task.id)
            assert cancelled.progress.completed >= before and cancelled.progress.queued > 0
            asked = len(site.asked)
            assert len((await everything(service, task))[0]) == cancelled.progress.completed
            with pytest.raises(TaskFinished):
                await service.pause(task.id)
            with pytest.raises(TaskFinished):
                await service.resume(task.id)
            # Its slot is free, and was not taken by the one that was pending; one that waits can be cancelled, too, and
            # has all of its order left.
            await until(service, waiting, lambda status: status.task.state is TaskState.RUNNING)
            third = await submit(service, site.url)
            assert (await service.cancel(third.id)).progress.queued == 1
            (last,) = [event async for event in service.events(third.id)]
            assert (last.number, last.data["state"]) == (1, "CANCELLED")

    run(work())


def test_a_task_behind_a_breaker_leaves_its_slot_to_one_that_can_work(tmp_path: Path) -> None:
    async def work() -> None:
        config = config_for(tmp_path, max_concurrent_tasks=1, breaker_failures=2, breaker_reset_seconds=300)
        async with (
            Articles([]) as dead,
            Articles(["/article/1"], address="127.9.0.2") as well,
            serving(config, workers=2) as (service, engine),
        ):
            dead.is_broken = True
            urls = [f"{dead.url}{n}" for n in range(9)]
            stuck = await submit(service, *urls, is_batch=True, retry_attempts=0, max_concurrent_articles=1)
            healthy = await submit(service, well.url)
            events = service.events(stuck.id)
            done = await ended(service, healthy)
            assert (done.state, done.progress.completed) == (TaskState.COMPLETED, 2)
            status = await service.status(stuck.id)
            assert (status.task.state, status.task.holds_slot) == (TaskState.RUNNING, False)
            assert status.waiting_for.startswith("circuit breaker of 127.9.0.1:") and status.waiting_until is not None
            assert f"it waits: {status.waiting_for}, until" in status.message
            assert 0 < status.waiting_until - time.time() < 302
            async for event in events:  # its readers see that it waits, and no pause
                assert event.data.get("state") != "PAUSED"
                if event.data.get("waiting_for") == status.waiting_for and event.data["message"] == status.message:
                    break
            asked = len(dead.asked)
            assert engine.pid is not None
            os.kill(engine.pid, signal.SIGKILL)  # it is held after a kill, too
            again = await ended(service, await submit(service, well.url))
            assert again.state is TaskState.COMPLETED and len(dead.asked) == asked
            assert not (await service.status(stuck.id)).task.holds_slot
            last = await service.cancel(stuck.id)
            assert (last.state, last.progress.failed, last.progress.queued) == (TaskState.CANCELLED, 2, 7)
            assert last.waiting_for == ""

    run(work())


class Numbered(Articles):
    """Thin pages that differ in their number: a list of 40 pages with 9 items each, and a calendar without an end."""

    async def _answer(self, path: str) -> tuple[int, bytes]:
        kind, _, number = path.strip("/").partition("/")
        if kind not in ("list", "item", "day"):
            return await super()._answer(path)
        at = int(number)
        links = {
            "list": [*(f"/item/{9 * at + item}" for item in range(9)), *([f"/list/{at + 1}"] if at < 40 else [])],
            "item": ["/"],
            "day": [f"/day/{at + 1}", f"/day/{at + 2}"],
        }[kind]
        body = f"<title>{kind} {at}</title><p>This is {kind} number {at}.</p>"
        return 200, (body + "".join(f'<a href="{link}">x</a>' for link in links)).encode()


def test_thin_pages_of_a_list_are_no_trap_and_what_is_left_out_as_one_is_counted_and_said(tmp_path: Path) -> None:
    async def work() -> None:
        async with Numbered(["/list/1"]) as site, serving(config_for(tmp_path)) as (service, _):
            deep: dict[str, Any] = {"max_depth": 1000, "scope": "host"}
            whole = await submit(service, site.url, **deep)
            endless = await submit(service, f"{site.url}day/1", **deep)
            followed = await submit(service, f"{site.url}day/1", trap_rules=False, max_pages=60, **deep)
            done = await ended(service, whole, 40)
            assert (done.state, done.progress.completed, done.message) == (TaskState.COMPLETED, 401, "")
            assert done.progress.refused == 0
            stopped = await ended(service, endless)
            assert stopped.state is TaskState.COMPLETED and 12 <= stopped.progress.completed < 60
            days = {int(path.rpartition("/")[2]) for _, path in site.asked if path.startswith("/day/")}
            assert stopped.progress.refused in (1, 2) and max(days) < 100
            assert stopped.errors_by_class == {"blocked": stopped.progress.refused}
            assert "left out as part of an endless space (trap): `trap_rules: false`" in stopped.message
            all_of_it = await ended(service, followed)
            assert (all_of_it.finish_reason, all_of_it.progress.completed) == (FinishReason.MAX_PAGES, 60)
            assert (all_of_it.progress.refused, all_of_it.message) == (0, "")

    run(work())


def test_a_batch_is_appended_to_before_and_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        site = Articles(["/never"], article_s=0.3)
        async with site, serving(config_for(tmp_path, max_concurrent_tasks=1)) as (service, _):
            first = await submit(
                service, *(f"{site.url}a/{n}" for n in range(8)), is_batch=True, max_concurrent_articles=1
            )
            second = await submit(service, f"{site.url}b/0", is_batch=True)
            assert (await service.append(second.id, [f"{site.url}b/1", f"{site.url}b/0"])).url_count == 3
            await until(service, first, lambda status: status.task.state is TaskState.RUNNING)
            more, word = [f"{site.url}c/{n}" for n in range(3)], Idempotency("appended", "a digest")
            await service.append(first.id, more, idempotency=word)
            done = await ended(service, first)
            assert (done.state, done.progress.completed, done.progress.discovered) == (TaskState.COMPLETED, 11, 11)
            few, all_of_it = await service.results(first.id, limit=4), await service.results(first.id)
            with monkeypatch.context() as patched:
                patched.setattr(Documents, "__call__", lambda _, pages, __: [{} for _ in pages])
                assert await service.results(first.id, limit=4) == few, (
                    "a page is parsed once, however often it is read"
                )
                assert await service.results(first.id) == all_of_it and all_of_it.results[:4] == few.results
            assert (await ended(service, second)).progress.completed == 2
            with pytest.raises(TaskFinished):
                await service.append(first.id, [f"{site.url}d"])
            assert (await service.append(first.id, more, idempotency=word)).id == first.id, "its answer was lost"
            with pytest.raises(KeyReused):
                await service.append(first.id, [f"{site.url}d"], idempotency=Idempotency("appended", "another"))
            some = await submit(service, f"{site.url}a", f"{site.url}b/1", is_batch=True, exclude=("/b/*",))
            left_out = await ended(service, some)
            assert (left_out.progress.completed, left_out.progress.refused) == (1, 1)
            fields = {"name": "title", "words": {"css": "p", "type": "number"}}
            shaped = await submit(service, f"{site.url}a", is_batch=True, extract=fields, formats=("markdown", "links"))
            await ended(service, shaped)
            ((result,), _) = await everything(service, shaped)
            assert result.document["fields"]["name"] == "/a" and "words" in result.document["field_errors"]
            assert "An article at /a." in result.document["markdown"] and result.document["links"] == []
            for bad in ({"extract": {"x": "p[["}}, {"formats": ("no such",)}):
                with pytest.raises(BadInput):
                    await submit(service, site.url, **bad)
            none = await ended(service, await submit(service, f"{site.url}b/1", is_batch=True, exclude=("/b/*",)))
            assert (none.state, none.finish_reason) == (TaskState.FAILED, FinishReason.REFUSED)
            plain = await submit(service, site.url)
            with pytest.raises(BadInput, match="batch"):
                await service.append(plain.id, [f"{site.url}d"])

    run(work())


def test_a_site_that_fails_is_blocked_for_all_tasks_and_tried_again_once(tmp_path: Path) -> None:
    async def work() -> None:
        blocked_s = patience(1)
        config = config_for(tmp_path, breaker_failures=3, breaker_reset_seconds=blocked_s)
        async with Articles([]) as site, serving(config) as (service, _):
            site.is_broken = True
            urls = [f"{site.url}{n}" for n in range(12)]
            task = await submit(service, *urls, is_batch=True, retry_attempts=0, max_concurrent_articles=1)
            await until(service, task, lambda status: status.progress.failed == 3)
            before, health = time.time(), await service.health()
            (blocked,) = health.blocked_domains
            assert blocked.site == site.url.split("/")[2], "its host and port"
            assert before < blocked.until <= before + blocked_s
            assert health.is_healthy and health.errors_by_class == {"http_5xx": 3}
            other = await submit(service, f"{site.url}other", is_batch=True)
            site.is_broken = False
            asked = len(site.asked)
            done = await ended(service, task)
            assert (done.state, done.progress.completed, done.progress.failed) == (TaskState.PARTIAL, 9, 3)
            assert (await ended(service, other)).state is TaskState.COMPLETED
            assert site.asked[asked][0] - site.asked[asked - 1][0] > blocked_s / 2, "nothing was asked while blocked"
            while (await service.health()).blocked_domains:
                await asyncio.sleep(0.05)

    run(work())


def test_pages_that_a_breaker_gave_up_and_a_dead_host_have_failed_and_say_why(tmp_path: Path) -> None:
    async def work() -> None:
        config = config_for(tmp_path, breaker_failures=3, breaker_reset_seconds=0.1)
        async with Articles([]) as site, serving(config) as (service, _):
            urls = [f"{site.url}first", *(f"{site.url}fail/{n}" for n in range(12))]
            task = await submit(service, *urls, is_batch=True, retry_attempts=1, max_concurrent_articles=1)
            dead = await submit(service, "http://127.9.9.9:9/", retry_attempts=0)
            done = await ended(service, task)
            assert (done.state, done.finish_reason) == (TaskState.PARTIAL, FinishReason.DONE), done
            assert (done.progress.completed, done.progress.failed, done.progress.refused) == (1, 12, 0)
            assert done.errors_by_class == {"http_5xx": 12} and done.progress.success_rate == 0.0769
            assert len(site.asked) < 24, "its breaker gave up before each had its two tries"
            _, errors = await everything(service, task)
            assert {one.error for one in errors} <= {"HTTP 502", "breaker: HTTP 502"} and len(errors) == 12
            latest = await service.latest(task.id, kinds=("error",))
            assert {event.data["error"] for event in latest.events} == {one.error for one in errors}
            failed = await ended(service, dead)
            assert (failed.state, failed.progress.failed, failed.progress.refused) == (TaskState.FAILED, 1, 0)
            assert failed.errors_by_class == {"connection": 1}
            health = await service.health()
            assert health.errors_by_class == {"http_5xx": 12, "connection": 1} and health.success_rate == 0.0714

    run(work())


def test_what_cannot_be_submitted(tmp_path: Path) -> None:
    async def work() -> None:
        config = config_for(tmp_path, allow_private=False, max_pending_tasks=1, max_concurrent_tasks=1)
        async with serving(config) as (service, _):
            for url in (
                "http://10.0.0.1/",
                "http://169.254.169.254/",
                "http://[::1]/",
                "http://localhost/",
                "http://2130706433/",
            ):
                with pytest.raises(BadInput):
                    await submit(service, url)
            for url in ("", "ftp://a.test/", "http://"):
                with pytest.raises(BadInput):
                    await submit(service, url)
            with pytest.raises(BadInput, match="reach you"):
                await submit(service, "http://example.com/")
            with pytest.raises(TaskUnknown):
                await service.status("nothing")
        async with serving(config_for(tmp_path, max_pending_tasks=1, max_concurrent_tasks=1)) as (service, _):
            word, spec = Idempotency("k", "d"), TaskSpec(timeout_s=600.0)
            order = Submission(urls=("http://127.9.9.9:9/",), spec=spec, owner="a", idempotency=word)
            first = await service.submit(order)
            assert not (await service.submit(order)).is_new
            with pytest.raises(KeyReused):
                await service.submit(
                    Submission(urls=order.urls, spec=spec, owner="a", idempotency=Idempotency("k", "e"))
                )
            with pytest.raises(TaskUnknown):
                await service.cancel(first.task.id, "b")
            await until(service, first.task, lambda status: status.task.state is not TaskState.PENDING)
            await submit(service, "http://127.9.9.9:9/", owner="a")
            with pytest.raises(QueueFull):
                await submit(service, "http://127.9.9.9:9/", owner="a")

    run(work())


def test_kills_of_engine_and_runner_cost_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        site = Articles([f"/article/{n}" for n in range(120)])
        async with site, serving(config_for(tmp_path, job_delay_seconds=0.01), workers=2) as (service, engine):
            task = await submit(service, site.url, scope="host")
            numbers: list[int] = []

            async def follow() -> None:
                async for event in service.events(task.id):
                    if event.number is not None:
                        numbers.append(event.number)

            following = asyncio.create_task(follow())
            for completed in (20, 50):
                await until(service, task, _has_more_than(completed))
                assert engine.pid is not None
                os.kill(engine.pid, signal.SIGKILL)
            holder = service.runner
            if holder.is_holder:  # its worker dies: nobody gives the lease back
                for running in service._running:
                    running.cancel()
            done = await ended(service, task, 60)
            await asyncio.wait_for(following, patience(10))
            assert (done.state, done.progress.completed) == (TaskState.COMPLETED, 121)
            results, _ = await everything(service, task)
            assert len(results) == len({one.url for one in results}) == 121
            assert numbers == sorted(set(numbers)) and numbers[-1] == done.last_number
            # An article that was in flight at a kill is asked for again, and no other.
            assert max(Counter(path for _, path in site.asked).values()) <= 3

    run(work())


def test_old_tasks_are_deleted_together_and_not_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, they would be deleted more slowly than a service ends them: twelve small crawls are one piece of
    work. The engine would kill itself at the end of the fourth."""
    marker, ahead_s = tmp_path / "four-pieces", 0.0
    monkeypatch.setenv("WEFT_TEST_CRASH_AT", f"crawl-forgotten:4@{marker}")
    config = config_for(tmp_path, task_retention_hours=1, cleanup_interval_seconds=0.1)

    async def work() -> None:
        nonlocal ahead_s
        async with Articles([]) as site, serving(config, clock=lambda: time.time() + ahead_s) as (service, _):
            tasks = [await submit(service, f"{site.url}article/{number}", max_depth=0) for number in range(12)]
            assert {(await ended(service, task)).state for task in tasks} == {TaskState.COMPLETED}
            folders = tmp_path / ENGINE / "warc"
            assert len(list(folders.iterdir())) == len(tasks)
            ahead_s = 2 * 3600.0  # all of them have been kept for long enough
            async with asyncio.timeout(patience(10)):
                while list(folders.iterdir()) or any(service.store.get(task.id) for task in tasks):
                    await asyncio.sleep(0.02)

    run(work())
    assert not marker.exists(), "12 small crawls were deleted in 4 pieces or more"
