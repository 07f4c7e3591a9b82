"""What callers see when the disk is full, and when what the service has stored is damaged: no lie, and no path."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from asgi_client import Asgi
from scripted_service import ScriptedService

from weft.config import load_service
from weft.errors import Damaged, DiskFull, WeftError
from weft.jobs import layout
from weft.jobs.api.http_app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.embedded import EmbeddedJobService
from weft.jobs.errors import EngineAway, StoreDamaged
from weft.store.errors import DamagedIndex

SITE = "https://example.com/"
SUBMIT = "/scraping/async-scrape"
Test = Callable[[Asgi, EmbeddedJobService], Awaitable[None]]


def run(folder: Path, test: Test) -> None:
    """Runs a test with the real service, of which only the store works: no engine is there."""

    async def main() -> None:
        config = load_service(flags={"data_dir": str(folder), "email": "me@example.com"}, environment={})
        service = EmbeddedJobService(config)
        try:
            await test(Asgi(create_app(service, ApiSettings(data_dir=folder))), service)
        finally:
            await service.close()

    asyncio.run(main())


def test_on_a_full_disk_no_task_is_accepted_and_the_service_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(call: Asgi, service: EmbeddedJobService) -> None:
        assert (await call("POST", SUBMIT, {"url": SITE})).status == 202
        assert (await call("GET", "/readyz")).status == 200
        monkeypatch.setattr(layout, "LEAST_ROOM_BYTES", 1 << 60)
        for path, body in (
            (SUBMIT, {"url": SITE}),
            ("/v2/crawl", {"url": SITE}),
            ("/v2/batch/scrape", {"urls": [SITE]}),
        ):
            answer = await call("POST", path, body)
            assert (answer.status, answer.headers["retry-after"]) == (503, "30"), path
            assert b"disk is full" in answer.body and str(tmp_path).encode() not in answer.body
        site = await call("POST", "/scraping/sites", {"name": "a", "start_urls": [SITE]})
        assert site.status == 503
        ready = await _until_known(call)
        assert ready.status == 503 and any("the disk is full" in problem for problem in ready.json["problems"])
        monkeypatch.undo()
        assert (await call("POST", SUBMIT, {"url": SITE})).status == 202

    run(tmp_path, test)


async def _until_known(call: Asgi) -> Any:
    """What /readyz says once its answer is not that of a moment ago."""
    while (answer := await call("GET", "/readyz")).status == 200:
        await asyncio.sleep(0.05)
    return answer


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (lambda path: StoreDamaged(path, "is damaged (malformed)"), 500),
        (lambda path: Damaged(path, "is cut", "restore it"), 500),
        (lambda path: DamagedIndex(path, "malformed"), 500),
        (lambda path: WeftError(f"{path}: locked"), 500),
        (lambda path: EngineAway(f"no engine listens at {path}"), 503),
        (lambda path: DiskFull(path), 503),
    ],
)
def test_no_answer_about_stored_damage_names_a_file_or_blames_a_field(
    tmp_path: Path, error: Callable[[Path], WeftError], status: int
) -> None:
    async def main() -> None:
        service = ScriptedService()
        call = Asgi(create_app(service, ApiSettings(data_dir=tmp_path)))
        service.fails = error(tmp_path / "jobs.db")
        task = f"/scraping/tasks/{'0' * 32}"
        for method, path, body in (
            ("POST", SUBMIT, {"url": SITE}), ("POST", "/v2/crawl", {"url": SITE}), ("GET", f"{task}/status", None),
            ("GET", f"{task}/results", None), ("GET", "/healthz", None), ("GET", "/readyz", None),
        ):  # fmt: skip
            answer = await call(method, path, body)
            assert answer.status == (503 if path.endswith("z") else status), (path, answer.body)
            assert str(tmp_path) not in answer.body.decode() and "errors" not in answer.json, path

    asyncio.run(main())


def test_records_that_cannot_be_read_are_damage_of_the_store(tmp_path: Path) -> None:
    async def test(call: Asgi, service: EmbeddedJobService) -> None:
        task = (await call("POST", SUBMIT, {"url": SITE})).json["task_id"]
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as db, db:
            db.execute("UPDATE tasks SET record = x'93c0'")
        answer = await call("GET", f"/scraping/tasks/{task}/status")
        assert answer.status == 500 and "is damaged" in answer.json["detail"]
        with closing(sqlite3.connect(tmp_path / "jobs.db")) as db, db:
            db.execute("DROP TABLE tasks")
        answer = await call("GET", f"/scraping/tasks/{task}/status")
        assert answer.status == 500 and "is damaged" in answer.json["detail"]

    run(tmp_path, test)
