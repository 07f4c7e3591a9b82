"""Event streams over a service in memory: each event once, in order, to many readers, whoever reads or does not."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from asgi_client import Asgi, Call
from pace import patience
from scripted_service import ScriptedService

from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.errors import EngineAway
from weft.jobs.reading import hub
from weft.scraping import FinishReason, TaskState

Test = Callable[[Asgi, ScriptedService, str], Awaitable[None]]


class Transport:
    """What a stream does to its connection; what it writes there comes to the reader as if it had been sent."""

    def __init__(self) -> None:
        self.is_aborted = False
        self.is_full = False
        self.reader: Call | None = None
        self.written = 0

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        return int(self.is_full)

    def write(self, data: bytes) -> None:
        assert self.reader is not None and not self.is_full
        size, _, rest = data.partition(b"\r\n")
        assert rest[int(size, 16) :] == b"\r\n", "one chunk"
        self.reader.answer.pieces.append(rest[:-2])
        self.written += 1

    def set_write_buffer_limits(self, high: int) -> None:
        assert high <= 64 * 1024

    def get_extra_info(self, name: str) -> Any:
        assert name == "socket"
        return self

    def setsockopt(self, *_: int) -> None:
        raise OSError


def run(folder: Path, test: Test, **settings: Any) -> None:
    async def main() -> None:
        service = ScriptedService()
        call = Asgi(create_app(service, ApiSettings(data_dir=folder, **settings)))
        task_id = (await call("POST", "/scraping/async-scrape", {"url": "https://example.com/"})).json["task_id"]
        service.move(task_id, TaskState.RUNNING)
        async with asyncio.timeout(patience(10)):
            await test(call, service, task_id)

    asyncio.run(main())


def numbers(call: Call) -> list[int]:
    return [int(found) for found in re.findall(rb"^id: (\d+)$", call.answer.body, re.MULTILINE)]


def watch(call: Asgi, task_id: str, after: int = 0, transport: Transport | None = None) -> Call:
    reader = call.begin("GET", f"/scraping/tasks/{task_id}/events", transport=transport, last_event_id=str(after))
    if transport is not None:
        transport.reader = reader
    return reader


async def holds(condition: Callable[[], Any]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def test_readers_from_anywhere_get_every_event_once_and_in_order(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(hub, "RING_EVENTS", 7)  # so that slow readers go to the disk

    async def test(call: Asgi, service: ScriptedService, task_id: str) -> None:
        chance, readers, transports = random.Random(5), [], [Transport() for _ in range(3)]
        for number in range(60):
            service.page(task_id, f"https://example.com/{number}")
            if number % 10 == 3:
                after = chance.randrange(number)
                readers.append((after, watch(call, task_id, after, transports[0] if number > 30 else None)))
                transports += [transports.pop(0)] if number > 30 else []
            for _, reader in readers:
                reader.reads.set() if chance.random() < 0.5 else reader.reads.clear()
            for transport in transports:
                transport.is_full = transport.reader is None or not transport.reader.reads.is_set()
            await asyncio.sleep(chance.choice((0, 0.001, hub.GATHER_S)))
        for _, reader in readers:
            reader.reads.set()
        assert all(transport.written for transport in transports), "some of it was written past the server"
        service.move(task_id, TaskState.COMPLETED, FinishReason.DONE)
        await asyncio.gather(*(reader.task for _, reader in readers))
        for after, reader in readers:
            assert numbers(reader) == list(range(after + 1, 63)), after
            assert reader.answer.is_whole

    run(tmp_path, test)


def test_a_reader_that_stops_reading_is_cut_off(tmp_path: Path) -> None:
    async def test(call: Asgi, service: ScriptedService, task_id: str) -> None:
        transport = Transport()
        reader = watch(call, task_id, transport=transport)
        await holds(lambda: numbers(reader))
        reader.reads.clear()
        transport.is_full = True
        service.page(task_id, "https://example.com/")
        await reader.task
        assert transport.is_aborted
        assert (await call("GET", "/scraping/status")).json["event_streams"] == 0

    run(tmp_path, test, stall_s=0.1)


def test_a_reader_that_goes_is_forgotten_at_once(tmp_path: Path) -> None:
    async def test(call: Asgi, _: ScriptedService, task_id: str) -> None:
        reader = watch(call, task_id)
        await holds(lambda: numbers(reader))
        reader.hang_up()
        await reader.task
        assert (await call("GET", "/scraping/status")).json["event_streams"] == 0

    run(tmp_path, test)


def test_a_reader_that_is_ahead_of_this_worker_waits_for_what_is_new(tmp_path: Path) -> None:
    async def test(call: Asgi, service: ScriptedService, task_id: str) -> None:
        first = watch(call, task_id)
        await holds(lambda: numbers(first) == [1])
        service.page(task_id, "https://example.com/a")
        ahead = watch(call, task_id, 2)  # another worker has sent it 2, which this one has not read yet
        await holds(lambda: numbers(first) == [1, 2])
        service.page(task_id, "https://example.com/b")
        await holds(lambda: numbers(ahead) == [3])
        service.move(task_id, TaskState.COMPLETED, FinishReason.DONE)
        await asyncio.gather(first.task, ahead.task)
        assert (numbers(first), numbers(ahead)) == ([1, 2, 3, 4], [3, 4])

    run(tmp_path, test)


def test_there_is_a_most_of_streams(tmp_path: Path) -> None:
    async def test(call: Asgi, _: ScriptedService, task_id: str) -> None:
        readers = [watch(call, task_id) for _ in range(3)]
        await holds(lambda: all(reader.answer.status for reader in readers))
        assert sorted(reader.answer.status for reader in readers) == [200, 200, 429]
        for reader in readers:
            reader.hang_up()
        await asyncio.gather(*(reader.task for reader in readers))
        assert [reader.answer.headers.get("retry-after") for reader in readers].count("5") == 1

    run(tmp_path, test, max_streams_per_key=2)


def test_a_silent_stream_says_that_it_is_there(tmp_path: Path) -> None:
    async def test(call: Asgi, _: ScriptedService, task_id: str) -> None:
        reader = watch(call, task_id)
        await holds(lambda: reader.answer.body.count(b"\n: \n") > 1)
        assert b"retry: 1000\n\n" not in reader.answer.body and b": \n\n" not in reader.answer.body
        reader.hang_up()
        await reader.task

    run(tmp_path, test, heartbeat_s=0.05)


def test_progress_is_sent_without_a_number_and_only_the_last_of_it(tmp_path: Path) -> None:
    async def test(call: Asgi, service: ScriptedService, task_id: str) -> None:
        reader = watch(call, task_id)
        await holds(lambda: numbers(reader))
        for completed in range(5):
            service.happens(task_id, "progress", completed=completed)
        await holds(lambda: b'"completed":4' in reader.answer.body)
        assert reader.answer.body.count(b"event: progress") == 1
        assert numbers(reader) == [1]
        reader.hang_up()
        await reader.task

    run(tmp_path, test)


def test_progress_goes_along_with_the_next_event(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(hub, "PROGRESS_S", patience(10))

    async def test(call: Asgi, service: ScriptedService, task_id: str) -> None:
        reader = watch(call, task_id)
        await holds(lambda: numbers(reader))
        service.happens(task_id, "progress", completed=1)
        service.page(task_id, "https://example.com/a")
        await holds(lambda: numbers(reader) == [1, 2])
        assert [b'"completed":1' in piece for piece in reader.answer.pieces if b"id: 2" in piece] == [True]
        reader.hang_up()
        await reader.task

    run(tmp_path, test)


def test_a_feed_goes_on_when_the_engine_is_back(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(hub, "AGAIN_S", 0.01)

    async def test(call: Asgi, service: ScriptedService, task_id: str) -> None:
        reader = watch(call, task_id)
        await holds(lambda: numbers(reader) == [1])
        service.fails = EngineAway("killed")
        service.page(task_id, "https://example.com/a")
        await asyncio.sleep(0.05)
        service.fails = None
        await holds(lambda: numbers(reader) == [1, 2])
        service.move(task_id, TaskState.PARTIAL, FinishReason.DEADLINE)
        await reader.task
        assert numbers(reader) == [1, 2, 3]

    run(tmp_path, test)
