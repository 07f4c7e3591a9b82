"""The runner's work for sites: schedules, dependencies, ends and reports of runs. In the worker that has the lease.

It keeps no state that decides anything: each turn reads the store, and every step carries the lease's epoch. So a
service that was killed over a due time starts one run when it is back, and two workers never start two.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from weft.engine.process.channel import EngineGone
from weft.engine.process.link import EngineLink
from weft.errors import BadInput, WeftError
from weft.jobs.crawls import finish_without
from weft.jobs.errors import LeaseLost
from weft.jobs.model import Task
from weft.jobs.reading.index import open_reader
from weft.jobs.sites import runs, site_model
from weft.jobs.sites.changes import Comparison
from weft.jobs.sites.site_model import SavedSite
from weft.jobs.store.sqlite import SqliteJobStore
from weft.scraping import FinishReason, TaskState
from weft.telemetry import Log

ROWS_AT_ONCE = 2000
log = Log("weft.jobs.sites")


class SiteScheduler:
    """The scheduler of one worker; its runner calls `turn` while it has the lease."""

    def __init__(
        self,
        store: SqliteJobStore,
        engine: EngineLink,
        engine_dir: Path,
        *,
        has_proxies: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`has_proxies`: whether there are enough for sites that use them."""
        self._store = store
        self._has_proxies = has_proxies
        self._engine = engine
        self._engine_dir = engine_dir
        self._clock = clock

    async def turn(self, fence: int) -> None:
        """Does everything that is due now."""
        sites = await asyncio.to_thread(self._store.sites.all)
        for site in [site for site in sites.values() if site.task]:
            try:
                has_ended = await self._monitor_run(site, fence)
            except LeaseLost:
                raise
            except WeftError as error:  # an error with one site must not delay the others; the next turn tries again
                log.error("a site could not be processed", site=site.name, error=error)
                continue
            if has_ended:  # other sites may wait for it
                sites = await asyncio.to_thread(self._store.sites.all)
        now = self._clock()
        due = any(site_model.is_due(site, now) for site in sites.values())
        proxied = any(
            site.file.proxies and site_model.is_ready(site, sites, now, has_proxies=True) for site in sites.values()
        )
        has_proxies = proxied and await asyncio.to_thread(self._has_proxies)
        if due or any(site_model.is_ready(site, sites, now, has_proxies=has_proxies) for site in sites.values()):
            await asyncio.to_thread(self._begin_runs, now, fence, has_proxies)

    def _begin_runs(self, now: float, fence: int, has_proxies: bool) -> None:
        due, begun = self._store.sites.change(
            lambda ledger: (runs.come_due(ledger, now), runs.begin(ledger, now, has_proxies=has_proxies)), fence=fence
        )
        if due or begun:
            log.info("sites", due=due, begun=begun)

    async def _monitor_run(self, site: SavedSite, fence: int) -> bool:
        """Whether the site's run has ended."""
        task = await asyncio.to_thread(self._store.get, site.task)
        if task is None:  # deleted: its outcome is unknown
            task = Task(
                id=site.task, owner="", url="", url_count=0, spec=site.file.spec, created_at=self._clock(),
                state=TaskState.CANCELLED,
            )  # fmt: skip
        elif not task.is_terminal:
            if site.is_stopping:
                await self._cancel_run(task, fence)
            return False
        await asyncio.to_thread(self._settle_run, site, task, fence)
        return True

    def _settle_run(self, site: SavedSite, task: Task, fence: int) -> None:
        comparison, now = self._compare_run(site, task), self._clock()
        if self._store.sites.change(lambda ledger: runs.settle(ledger, site.name, task, comparison, now), fence=fence):
            after = self._store.sites.all()[site.name]
            report = comparison.report(task, now)
            log.info(
                "site ended", site=site.name, task=task.id, state=task.state, found=report.summary,
                why_full=report.why_full,
            )  # fmt: skip
            if after.paused_until is not None:
                log.warning("site paused", site=site.name, failures=after.failures, seconds=after.paused_until - now)

    def _compare_run(self, site: SavedSite, task: Task) -> Comparison:
        has_walked = site_model.is_complete(task) and not task.spec.revisits
        comparison = Comparison(self._store.sites.pages(site.name), has_walked=has_walked)
        if task.started_at is None:
            return comparison
        with open_reader(self._engine_dir) as reader:
            crawl, after = reader.crawl_named(task.id), 0
            while crawl is not None and (rows := reader.rows(crawl, after, ROWS_AT_ONCE)):
                comparison.add((row for _, row in rows), reader.visit)
                after = rows[-1][0]
        return comparison

    async def _cancel_run(self, task: Task, fence: int) -> None:
        """Cancels a run: a waiting one in the store; for a running one the engine is asked, and the runner stores its
        end."""
        if task.state is TaskState.PENDING:
            state, finish = finish_without(task, FinishReason.CANCELLED)
            await asyncio.to_thread(
                self._store.move, task.id, state, expect={TaskState.PENDING}, at=self._clock(), finish=finish,
                fence=fence,
            )  # fmt: skip
            return
        try:
            await self._engine.cancel(task.id)
        except (
            BadInput,
            EngineGone,
        ) as error:  # not opened yet, ended meanwhile, or no engine: the next turn tries again
            log.info("command not sent", task=task.id, error=error)
