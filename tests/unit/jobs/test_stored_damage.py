"""What callers see when the disk is full, and when what the service has stored is damaged: no lie, and no path."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from asgi_client import Asgi

from weft.config import load_service
from weft.jobs import layout
from weft.jobs.api.app import create_app
from weft.jobs.api.settings import ApiSettings
from weft.jobs.embedded import EmbeddedJobService

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
