"""Webhooks of the scrape service: what is told, in which order, signed; receivers that fail in every way; replays."""

from __future__ import annotations

import asyncio
import hmac
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from jobs import Articles, config_for, ended, serving, submit
from pace import patience
from receiver import FLOOD, HANG, REDIRECT, Receiver, receiver

from weft.jobs.embedded import EmbeddedJobService
from weft.jobs.errors import NoWebhook, TaskUnknown
from weft.jobs.model import Task, TaskSpec, new_task_id
from weft.jobs.webhooks import dispatcher
from weft.jobs.webhooks.source import DeliverySource
from weft.jobs.webhooks.webhook_model import DELAYS_S, TRIED_S, Hook, HookState
from weft.jobs.webhooks.webhook_service import HookStatus

Test = Callable[..., Coroutine[Any, Any, None]]
PAGES = [f"/a/{number}" for number in range(5)]


def running_alone(test: Test) -> Callable[..., None]:
    """Makes a test of a coroutine."""

    @wraps(test)
    def run(**given: Any) -> None:
        asyncio.run(test(**given))

    return run


class Clock:
    """The wall clock, which a test puts forward."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@asynccontextmanager
async def running(tmp_path: Path, clock: Clock, **flags: Any) -> AsyncIterator[tuple[EmbeddedJobService, Articles]]:
    async with Articles(PAGES) as site, serving(config_for(tmp_path, **flags), clock=clock) as (service, _):
        yield service, site


def hook(to: Receiver, **more: object) -> dict[str, object]:
    return {"url": to.url, **more}


async def until(service: EmbeddedJobService, task: Task, holds: Callable[[HookStatus], bool]) -> HookStatus:
    limit = time.monotonic() + patience(15)
    while not holds(status := await service.webhooks.status(task.id)):
        assert time.monotonic() < limit, status
        await asyncio.sleep(0.02)
    return status


def is_done(status: HookStatus) -> bool:
    return status.hook.state is HookState.DONE


def has_failed(attempts: int) -> Callable[[HookStatus], bool]:
    return lambda status: status.hook.attempts >= attempts


@running_alone
async def test_a_receiver_is_told_everything_in_order_and_signed(tmp_path: Path) -> None:
    with receiver() as to:
        async with running(tmp_path, Clock()) as (service, site):
            task = await submit(
                service, site.url, max_depth=1, formats=("markdown",),
                webhook=hook(to, headers={"X-Mine": "yes"}, metadata={"order": 7}),
            )  # fmt: skip
            await until(service, task, is_done)
            home = site.url
            secret, log = await service.webhooks.secret(), await service.webhooks.deliveries(task.id)
    kinds = [one.body["type"] for one in to.received]
    assert kinds == ["started", *["page"] * 6, "completed"]
    numbers = [one.body["number"] for one in to.received]
    assert numbers == sorted(set(numbers)) == [one.number for one in log.deliveries]
    assert {one.body["data"]["url"] for one in to.received[1:-1]} == {home, *(home + p[1:] for p in PAGES)}
    assert all("An article" in one.body["data"]["markdown"] for one in to.received[2:-1])
    assert to.received[-1].body["data"]["progress"]["completed"] == 6
    key = b64decode(secret.removeprefix("whsec_"))
    for one in to.received:
        assert one.headers["x-mine"] == "yes" and one.body["metadata"] == {"order": 7}
        assert one.id == one.body["id"] == f"{task.id}-{one.body['number']}"
        signed = f"{one.id}.{one.headers['webhook-timestamp']}.".encode() + one.raw
        assert one.headers["webhook-signature"] == "v1," + b64encode(hmac.digest(key, signed, "sha256")).decode()
        assert abs(int(one.headers["webhook-timestamp"]) - time.time()) < patience(60)


@running_alone
async def test_only_what_was_ordered_is_told(tmp_path: Path) -> None:
    with receiver() as to:
        async with running(tmp_path, Clock()) as (service, site):
            task = await submit(service, site.url, max_depth=1, webhook=hook(to, events=["completed"]))
            await until(service, task, is_done)
            plain = await submit(service, site.url, max_depth=0)
            with pytest.raises(NoWebhook):
                await service.webhooks.status(plain.id)
            with pytest.raises(TaskUnknown):
                await service.webhooks.replay(task.id, "another")
    assert [one.body["type"] for one in to.received] == ["completed"]


@running_alone
async def test_a_task_that_never_ran_tells_its_end_alone(tmp_path: Path) -> None:
    with receiver() as to:
        async with running(tmp_path, Clock(), max_concurrent_tasks=1) as (service, site):
            site.links = ["/hang/1"]
            await submit(service, site.url, max_depth=1)
            task = await submit(service, site.url, webhook=hook(to))
            assert (await service.webhooks.status(task.id)).hook.cursor == -1
            await service.cancel(task.id)
            await until(service, task, is_done)
    assert [one.body["type"] for one in to.received] == ["cancelled"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [(500, "HTTP 500"), (REDIRECT, "redirects are not followed"), (HANG, "timeout")],
    ids=["500", "redirect", "hang"],
)
@running_alone
async def test_what_failed_is_sent_again_with_the_same_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: int, said: str
) -> None:
    monkeypatch.setattr(dispatcher, "ANSWER_S", 60.0 if answer != HANG else patience(0.4))
    clock = Clock()
    with receiver(answer, answer, 200) as to:
        async with running(tmp_path, clock) as (service, site):
            task = await submit(service, site.url, max_depth=0, webhook=hook(to))
            began = clock()
            first = await until(service, task, has_failed(1))
            assert said in first.hook.last_error and first.hook.cursor == -1
            assert first.hook.next_at is not None and first.hook.next_at > began + DELAYS_S[0] / 2
            await ended(service, task)
            clock.ahead_s += DELAYS_S[0] + 1
            await until(service, task, has_failed(2))
            assert len(to.received) == 2, "nothing overtakes what has failed, and no redirect is followed"
            clock.ahead_s += DELAYS_S[1] + 1
            await until(service, task, is_done)
            log = (await service.webhooks.deliveries(task.id)).deliveries
    assert [one.body["type"] for one in to.received] == ["started"] * 3 + ["page", "completed"]
    assert len({one.id for one in to.received[:3]}) == len({one.raw for one in to.received[:3]}) == 1
    assert [one.attempts for one in log] == [3, 1, 1]


@running_alone
async def test_an_endless_answer_is_not_read(tmp_path: Path) -> None:
    with receiver(FLOOD) as to:
        async with running(tmp_path, Clock()) as (service, site):
            task = await submit(service, site.url, max_depth=0, webhook=hook(to))
            await until(service, task, is_done)
    assert len(to.received) == 3


@running_alone
async def test_a_receiver_that_has_gone_is_left_alone_until_a_replay(tmp_path: Path) -> None:
    clock = Clock()
    with receiver(200, 410, 200) as to:
        async with running(tmp_path, clock) as (service, site):
            task = await submit(service, site.url, max_depth=0, webhook=hook(to))
            gone = await until(service, task, lambda status: status.hook.state is HookState.GONE)
            assert gone.hook.next_at is None
            clock.ahead_s += 3600
            await asyncio.sleep(0.5)
            assert len(to.received) == 2
            await service.webhooks.replay(task.id)
            await until(service, task, is_done)
            await service.webhooks.replay(task.id, numbers=[0, 99])
            await until(service, task, lambda status: is_done(status) and not status.hook.resend)
            await service.webhooks.replay(task.id, after=0)
            await until(service, task, is_done)
            log = (await service.webhooks.deliveries(task.id, limit=2)).deliveries
    kinds = [one.body["type"] for one in to.received]
    assert kinds == ["started", "page", "page", "completed", "started", "page", "completed"]
    assert to.received[0].raw == to.received[4].raw
    assert [one.attempts for one in log] == [2, 3] and all(one.delivered_at for one in log)


@running_alone
async def test_a_day_of_failures_is_enough_and_the_task_is_kept_for_it(tmp_path: Path) -> None:
    clock = Clock()
    with receiver(503) as to:
        flags = {"task_retention_hours": 1, "cleanup_interval_seconds": 0.1}
        async with running(tmp_path, clock, **flags) as (service, site):
            task = await submit(service, site.url, max_depth=0, webhook=hook(to))
            await ended(service, task)
            with suppress(TaskUnknown):  # it is deleted when its hook is given up, and not before
                while (status := await service.webhooks.status(task.id)).hook.state is HookState.OPEN:
                    status = await until(service, task, has_failed(status.hook.attempts + 1))
                    if status.hook.next_at is not None:
                        clock.ahead_s += max(0.0, status.hook.next_at - clock()) + 0.01
            limit = time.monotonic() + patience(10)
            while service.store.get(task.id) is not None:
                assert time.monotonic() < limit
                await asyncio.sleep(0.05)
    assert TRIED_S - patience(12) < clock.ahead_s < TRIED_S + 60 and len(to.received) > len(DELAYS_S)
    assert len({one.id for one in to.received}) == 1


@running_alone
async def test_no_packet_leaves_for_an_address_inside(tmp_path: Path) -> None:
    """Also where a name has come to lead there after it was accepted."""
    with receiver() as to:
        config = config_for(tmp_path, resolve={"hooks.example": "127.0.0.1"}, allow_private=False)
        service = EmbeddedJobService(config)
        spec = TaskSpec(webhook={"url": f"http://hooks.example:{to.port}/"})
        task = Task(id=new_task_id(), owner="", url="http://a.example/", url_count=1, spec=spec, created_at=time.time())
        service.store.submit(task, [task.url])
        await service.cancel(task.id)
        await service.start()
        try:
            status = await until(service, task, has_failed(1))
            assert "loopback" in status.hook.last_error
        finally:
            await service.close()
    assert to.received == []


@running_alone
async def test_what_cannot_be_read_is_told_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, read = Clock(), DeliverySource.next

    def fails(*_: object) -> None:
        raise OSError("the disk is gone")

    with receiver() as to:
        async with running(tmp_path, clock) as (service, site):
            monkeypatch.setattr(DeliverySource, "next", fails)
            task = await submit(service, site.url, max_depth=0, webhook=hook(to))
            status = await until(service, task, has_failed(1))
            assert "cannot be read: the disk is gone" in status.hook.last_error and status.hook.next_at is not None
            monkeypatch.setattr(DeliverySource, "next", read)
            clock.ahead_s += DELAYS_S[0] + 1
            await until(service, task, is_done)
    assert [one.body["type"] for one in to.received] == ["started", "page", "completed"]


@running_alone
async def test_the_end_is_told_though_the_engines_last_event_was_passed_before(tmp_path: Path) -> None:
    """The engine commits its end before the store knows of it: whoever looks in between has had all events but one."""
    with receiver(503, 200) as to:
        async with running(tmp_path, Clock()) as (service, site):
            task = await submit(service, site.url, max_depth=0, webhook=hook(to, events=["completed"]))
            done = await ended(service, task)
            await until(service, task, has_failed(1))
            passed = Hook(task=task.id, cursor=done.last_number)
            service.store.hooks.record(passed, [], fence=service.runner.epoch or 0)
            told = await until(service, task, is_done)
            assert told.hook.cursor == done.last_number
            await service.webhooks.replay(task.id, after=done.last_number)  # nothing lies behind it
            await until(service, task, is_done)
    assert [(one.body["type"], one.answered) for one in to.received] == [("completed", 503), ("completed", 200)]
