"""A crawl of an engine, or of the service's, keeps the settings that it was opened with when its engine is started with
others; judged by what its site was asked for and as whom."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobs
import pytest
from engines import ended, until
from proxying import EchoSite

import weft
from weft.engine.model import CrawlState, EndReason
from weft.scraping import TaskState


class HeardSite(EchoSite):
    """Keeps who asked for each path."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", "127.0.0.2"), pages=4)
        self.heard: list[tuple[str, str]] = []

    def answer(self, source: str, path: str, headers: str) -> tuple[int, bytes]:
        agent = next(line for line in headers.splitlines() if line.lower().startswith("user-agent:"))
        self.heard.append((path, agent.partition(": ")[2]))
        return super().answer(source, path, headers)

    def agents(self) -> set[str]:
        return {agent for _, agent in self.heard}

    def pages_asked(self) -> list[str]:
        return [path for path, _ in self.heard if path.startswith("/page/")]


@pytest.fixture
def site() -> Iterator[HeardSite]:
    with HeardSite() as site:
        yield site


def started(folder: Path, **settings: Any) -> weft.Engine:
    return weft.Engine(folder, allow_private=True, machine_clock=False, **settings)


def test_an_engine_that_is_started_with_other_settings_changes_none_of_a_crawl(site: HeardSite, tmp_path: Path) -> None:
    seed = f"{site.url}page/0"
    with started(tmp_path, delay=0, scope="host", user_agent_template="First", exclude=["*/page/3"]) as engine:
        opened = engine.open("kept", max_depth=10)
        engine.pause("kept")
        engine.seed("kept", [seed])
    others = {"delay": 3000, "scope": "prefix", "user_agent_template": "Second", "max_pages": 1, "max_retries": 0}
    with started(tmp_path, total_timeout=10, lease_seconds=20, **others) as engine:
        again = engine.open("kept", [seed], max_depth=10)
        assert (again.id, again.state) == (opened.id, CrawlState.PAUSED), "the same arguments, so it is the same crawl"
        engine.resume("kept")
        standing = ended(engine, "kept")
        assert (standing.reason, standing.pages) == (EndReason.DONE, 3)
        assert site.pages_asked() == ["/page/0", "/page/1", "/page/2"] and site.agents() == {"First"}
        engine.open("new", [seed.replace("127.0.0.1", "127.0.0.2")])
        until(lambda: "Second" in site.agents())
    assert len(site.pages_asked()) == 3, "the new crawl has the engine's new delay"


def test_what_is_edited_stays_edited_and_is_logged_with_its_old_value(site: HeardSite, tmp_path: Path) -> None:
    with started(tmp_path, delay=3000, user_agent_template="First") as engine:
        engine.open("slow", [f"{site.url}page/0"], scope="host")
        engine.edit("slow", delay=0, exclude=["*/page/2"])
    log = (tmp_path / "logs" / "pod_0" / "engine_0.log").read_text()
    assert re.search(r"setting changed .*key=politeness_delay_seconds old=3000(\.0)? new=0(\.0)?$", log, re.MULTILINE)
    with started(tmp_path, delay=2000, user_agent_template="Second") as engine:
        assert ended(engine, "slow").pages == 2
    assert site.agents() == {"First"}


def test_a_service_that_is_started_with_other_settings_changes_none_of_a_running_task(
    site: HeardSite, tmp_path: Path
) -> None:
    async def work() -> None:
        config = jobs.config_for(tmp_path, job_delay_seconds=0.3, user_agent_template="First", total_timeout=100)
        async with jobs.serving(config) as (service, _):
            task = await jobs.submit(service, f"{site.url}page/0", scope="host")
            await jobs.until(service, task, lambda status: status.task.state is TaskState.RUNNING)
            await service.pause(task.id)
        before = len(site.heard)
        others: dict[str, Any] = {"job_delay_seconds": 3000, "user_agent_template": "Second", "max_body_bytes": 1}
        async with jobs.serving(jobs.config_for(tmp_path, **others)) as (service, _):
            await service.resume(task.id)
            done = await jobs.ended(service, task)
            assert (done.state, done.progress.completed) == (TaskState.COMPLETED, 3)
        assert site.agents() == {"First"} and len(site.heard) > before

    asyncio.run(work())
