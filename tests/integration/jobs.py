"""What the tests of the scrape service share: a service in this process, on an engine of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from pace import patience

import weft
from weft.config import ServiceConfig, load_service
from weft.jobs.crawls import engine_settings
from weft.jobs.embedded import EmbeddedJobService
from weft.jobs.errors import EngineAway
from weft.jobs.layout import ENGINE
from weft.jobs.model import Task, TaskSpec
from weft.jobs.service import Failure, ScrapedResult, Submission, TaskSnapshot
from weft.scraping import TaskState
from weft.testing.web import SyntheticWeb


def config_for(data_dir: Path, resolve: Mapping[str, str] = {}, **flags: Any) -> ServiceConfig:
    given = {"data_dir": str(data_dir), "allow_private": True, "resolve": dict(resolve), "job_delay_seconds": 0}
    return load_service(flags=given | flags, environment={})


@asynccontextmanager
async def serving(
    config: ServiceConfig, workers: int = 1, clock: Callable[[], float] = time.time
) -> AsyncIterator[tuple[EmbeddedJobService, weft.Engine]]:
    """The first of some workers, and the engine that they share."""
    folder = Path(config.server.data_dir) / ENGINE
    engine = await asyncio.to_thread(weft.Engine, folder, **engine_settings(config))
    services = [EmbeddedJobService(config, clock=clock) for _ in range(workers)]
    try:
        for service in services:
            await service.start()
        yield services[0], engine
    finally:
        for service in services:
            await service.close()
        await asyncio.to_thread(engine.close)


async def submit(service: EmbeddedJobService, *urls: str, owner: str = "", **spec: Any) -> Task:
    made = TaskSpec(**({"timeout_s": 600.0} | spec))
    return (await service.submit(Submission(urls=urls, spec=made, owner=owner))).task


async def until(
    service: EmbeddedJobService, task: Task, holds: Callable[[TaskSnapshot], bool], limit_s: float = 20
) -> TaskSnapshot:
    """The first status of which something holds; every one that is seen keeps the sum. While an engine that was killed
    is started again there is none, and it is asked for again, as a client does."""
    limit, status = time.monotonic() + patience(limit_s), None
    while True:
        with suppress(EngineAway):
            status = await service.status(task.id)
            check_sum(status)
            if holds(status):
                return status
        assert time.monotonic() < limit, status
        await asyncio.sleep(0.02)


async def ended(service: EmbeddedJobService, task: Task, limit_s: float = 20) -> Task:
    return (await until(service, task, lambda status: status.task.is_terminal, limit_s)).task


def check_sum(status: TaskSnapshot) -> None:
    p = status.progress
    assert p.discovered == p.completed + p.gone + p.failed + p.refused + p.queued + p.in_flight
    assert min(p.completed, p.gone, p.failed, p.refused, p.queued, p.in_flight) >= 0
    assert p.robots_blocked <= p.refused
    assert not status.task.is_terminal or not p.in_flight
    if status.task.state is TaskState.PENDING:
        assert status.task.deadline_at is None


async def everything(
    service: EmbeddedJobService, task: Task, limit: int = 50
) -> tuple[list[ScrapedResult], list[Failure]]:
    """All results and errors of a task, page by page."""
    results, errors, cursor = list[ScrapedResult](), list[Failure](), 0
    while True:
        found = await service.results(task.id, cursor=cursor, limit=limit, include_errors=True)
        results += found.results
        errors += found.errors
        if found.next_cursor is None:
            return results, errors
        assert found.next_cursor > cursor
        cursor = found.next_cursor


def home(web: SyntheticWeb, number: int = 0) -> str:
    return f"http://127.1.0.{number + 1}:{web.port}/"


class Articles:
    """A site in this process: `/` links to articles that take their time; `/hang/N` never answers, `/fail/N` fails."""

    def __init__(self, links: list[str], article_s: float = 0.0, address: str = "127.9.0.1") -> None:
        self.links = links
        self.address = address
        self.article_s = article_s
        self.is_broken = False  # every page answers 502
        self.asked: list[tuple[float, str]] = []
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://{self.address}:{self._server.sockets[0].getsockname()[1]}/"

    def times(self, path: str) -> list[float]:
        return [at for at, asked in self.asked if asked.startswith(path)]

    async def __aenter__(self) -> Articles:
        self._server = await asyncio.start_server(self._connected, self.address, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                path = head.split(b" ")[1].decode()
                self.asked.append((time.monotonic(), path))
                status, body = await self._answer(path)
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Type: text/html\r\n".encode())
                writer.write(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):  # the test is over
            pass
        finally:
            writer.close()

    async def _answer(self, path: str) -> tuple[int, bytes]:
        if path == "/robots.txt":
            return 404, b""
        if path.startswith("/hang/"):
            await asyncio.sleep(3600)
        if path.startswith("/fail/") or self.is_broken:
            return 502, b"broken"
        if path == "/":
            return 200, "".join(f'<a href="{link}">x</a>' for link in self.links).encode()
        await asyncio.sleep(self.article_s)
        return 200, f"<title>{path}</title><p>An article at {path}.</p>".encode()
