"""Sites of one data dir as people and programs see them: added, started, stopped and looked at, from any thread and
process. What is asked for is written to the store; the runner of the service that uses it does it (scheduler.py).

While no service runs, what is asked for waits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from weft.engine.channel import Connection, Gone, socket_path
from weft.engine.model import Standing
from weft.errors import BadInput
from weft.jobs.crawls import status_of
from weft.jobs.embedded import ENGINE, STORE
from weft.jobs.service import Status
from weft.jobs.sites import model, runs
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.model import Site, SiteFile
from weft.jobs.store.contract import JobStore, SiteLedger
from weft.jobs.store.sqlite import SqliteJobStore

ENGINE_S = 1.0  # an engine that takes longer is not waited for
LOOK_S = 0.05
PROXIES = "proxies"  # what a site waits for that uses them, while there are too few


class SiteHealth(Struct, frozen=True, kw_only=True):
    """How a site is: of its run while it runs, else of its last one."""

    site: str
    state: model.State
    is_healthy: bool
    breaker: str
    pages: int
    success_rate: float | None
    errors_by_class: dict[str, int]
    failures: int  # runs in a row that did not end well
    last_success_at: float | None
    paused_until: float | None
    message: str


class SiteStatus(Struct, frozen=True, kw_only=True):
    """A site at one moment."""

    name: str
    state: model.State
    health: SiteHealth
    schedule: str | None
    next_at: float | None
    depends_on: tuple[str, ...]
    waits_for: tuple[str, ...]  # sites, or `proxies`
    task: str  # of its run, or of its last one; empty: it has never run
    last_state: str
    last_ended_at: float | None
    runs: int
    pages: int
    failed: int
    queued: int
    in_flight: int
    pages_per_s: float
    changes: dict[str, int]  # of its last run: how many pages were new, changed, gone, moved


class SiteRegistry:
    """See the module. Opens the store when it is first used; `close` ends that."""

    def __init__(
        self, data_dir: Path, *, clock: Callable[[], float] = time.time, store: JobStore | None = None
    ) -> None:
        """`store`: one that is open already, and somebody else's to close."""
        self._data_dir = data_dir
        self._clock = clock
        self._store, self._is_ours = store, store is None
        self._opening = threading.Lock()

    def __enter__(self) -> SiteRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the use of the store."""
        with self._opening:
            if self._store is not None and self._is_ours:
                self._store.close()
                self._store = None

    @property
    def _jobs(self) -> JobStore:
        with self._opening:
            if self._store is None:
                self._store = SqliteJobStore(self._data_dir / STORE)
            return self._store

    # ── changing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, files: Sequence[SiteFile]) -> list[Site]:
        """Keeps sites, together: they may depend on each other. One of the same name is replaced, its past stays."""
        now = self._clock()

        def step(ledger: SiteLedger) -> list[Site]:
            needs = {name: site.file.depends_on for name, site in ledger.sites.items()}
            model.check_dependencies(needs | {file.name: file.depends_on for file in files})
            added = []
            for file in files:
                before = ledger.sites.get(file.name)
                site = Site(file=file, added_at=now) if before is None else msgspec.structs.replace(before, file=file)
                site = model.moved_on(site, now)
                ledger.put(site)
                added.append(site)
            return added

        return self._jobs.sites.change(step)

    def remove(self, name: str) -> None:
        """Deletes a site; BadInput while it runs, or others depend on it."""

        def step(ledger: SiteLedger) -> None:
            site = _named(ledger, name)
            if site.task:
                raise BadInput(f"{name}: runs; stop it first")
            users = [other.name for other in ledger.sites.values() if name in other.file.depends_on]
            if users:
                raise BadInput(f"{name}: {', '.join(users)} depends on it")
            ledger.forget(name)

        self._jobs.sites.change(step)

    def run(self, names: Sequence[str] | None = None) -> dict[str, str]:
        """Asks for runs, of all sites where none are named; their tasks by name, empty for those that wait."""
        now = self._clock()

        def step(ledger: SiteLedger) -> dict[str, str]:
            wanted = list(ledger.sites) if names is None else [_named(ledger, name).name for name in names]
            runs.want(ledger, wanted, now, by_hand=True)
            runs.begin(ledger, now)
            return {name: ledger.sites[name].task for name in wanted}

        return self._jobs.sites.change(step)

    def stop(self, names: Sequence[str] | None = None) -> list[str]:
        """Ends runs, of all sites where none are named; what they have is kept. The names of those that ran."""

        def step(ledger: SiteLedger) -> list[str]:
            found = list(ledger.sites) if names is None else [_named(ledger, name).name for name in names]
            runs.stop(ledger, found)
            return [name for name in found if ledger.sites[name].task]

        return self._jobs.sites.change(step)

    def wait_stopped(self, names: Sequence[str], timeout_s: float) -> bool:
        """Whether none of these runs any more; waits for it while a service is there to end them."""
        until = time.monotonic() + timeout_s
        while any(site.task and site.is_stopping for site in self._some(names)):
            if time.monotonic() >= until or not self.is_served:
                return False
            time.sleep(LOOK_S)
        return True

    # ── looking ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_served(self) -> bool:
        """Whether there is a service that runs sites."""
        lease = self._jobs.holder()
        return lease is not None and lease.until > self._clock()

    def names(self) -> list[str]:
        """Every site."""
        return list(self._jobs.sites.all())

    def file(self, name: str) -> SiteFile:
        """A site as it was added."""
        return self._named(name).file

    def status(self, names: Sequence[str] | None = None) -> list[SiteStatus]:
        """How sites are, of one moment."""
        sites, now = self._jobs.sites.all(), self._clock()
        chosen = list(sites.values()) if names is None else self._some(names)
        live = self._live([site.task for site in chosen if site.task])
        return [self._status(site, sites, live.get(site.task), now) for site in chosen]

    def health(self, name: str) -> SiteHealth:
        """How a site is."""
        return self.status([name])[0].health

    def progress(self, name: str) -> dict[str, Any]:
        """The progress of its run, or of its last one, by the names that a run's keys have: `scrape_NAME:TASK:status`,
        `total_chunks`, `completed_chunks`, `started_at`, `completed_at`, `result_count`. Empty: it has never run."""
        site = self._named(name)
        task_id = site.task or (site.last.task if site.last is not None else "")
        status = self._live([task_id], also_ended=True).get(task_id) if task_id else None
        if status is None:
            return {}
        task, progress = status.task, status.progress
        values = {
            "status": _word(task.state), "total_chunks": progress.discovered, "completed_chunks": progress.ended,
            "started_at": task.started_at, "completed_at": task.finished_at, "result_count": progress.completed,
        }  # fmt: skip
        return {f"scrape_{name}:{task_id}:{key}": value for key, value in values.items()}

    def reports(self, name: str, limit: int = 10) -> list[ChangeReport]:
        """What its last runs have found, newest first."""
        self._named(name)
        return self._jobs.sites.reports(name, limit)

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _named(self, name: str) -> Site:
        return self._some([name])[0]

    def _some(self, names: Sequence[str]) -> list[Site]:
        sites = self._jobs.sites.all()
        for name in names:
            if name not in sites:
                raise _unknown(name, sites)
        return [sites[name] for name in dict.fromkeys(names)]

    def _live(self, task_ids: Sequence[str], *, also_ended: bool = False) -> dict[str, Status]:
        """How tasks stand; of those that run as the engine says, if it answers."""
        tasks = [task for task in map(self._jobs.get, task_ids) if task is not None]
        running = [task.id for task in tasks if task.started_at is not None and not task.is_terminal]
        standings = _standings(self._data_dir / ENGINE, running) if running else {}
        now = self._clock()
        return {
            task.id: status_of(task, standings.get(task.id), now)
            for task in tasks
            if also_ended or not task.is_terminal
        }

    def _status(self, site: Site, sites: model.Sites, live: Status | None, now: float) -> SiteStatus:
        last, reports = site.last, self._jobs.sites.reports(site.name, 1)
        progress = live.progress if live is not None else None
        return SiteStatus(
            name=site.name, state=site.state(now), health=_health(site, live, now), schedule=site.file.schedule,
            next_at=site.next_at, depends_on=site.file.depends_on,
            waits_for=_waits_for(site, sites, now),
            task=site.task or (last.task if last else ""), last_state=str(last.state) if last else "",
            last_ended_at=last.ended_at if last else None, runs=site.runs,
            pages=progress.completed if progress else (last.pages if last else 0),
            failed=progress.failed if progress else sum(last.errors_by_class.values()) if last else 0,
            queued=progress.queued if progress else 0, in_flight=progress.in_flight if progress else 0,
            pages_per_s=live.pages_per_s if live else 0.0, changes=reports[0].counts if reports else {},
        )  # fmt: skip


def _waits_for(site: Site, sites: model.Sites, now: float) -> tuple[str, ...]:
    if site.wanted_at is None:
        return ()
    others = tuple(model.waits_for(site, sites))
    is_proxied = site.file.proxies and model.is_ready(site, sites, now, has_proxies=True)
    return (PROXIES,) if is_proxied else others


def _health(site: Site, live: Status | None, now: float) -> SiteHealth:
    last = site.last
    if live is not None and live.progress.ended:
        pages, rate, errors = live.progress.completed, live.progress.success_rate, live.errors_by_class
    elif last is not None:
        pages, rate, errors = last.pages, last.success_rate, last.errors_by_class
    else:
        pages, rate, errors = 0, None, {}
    return SiteHealth(
        site=site.name, state=site.state(now), is_healthy=not site.failures, breaker=site.breaker, pages=pages,
        success_rate=rate, errors_by_class=errors, failures=site.failures, last_success_at=site.last_success_at,
        paused_until=site.paused_until, message=_said(site, now),
    )  # fmt: skip


def _said(site: Site, now: float) -> str:
    """What is wrong with a site, for a person."""
    if not site.failures or site.last is None:
        return ""
    last = site.last
    errors = ", ".join(f"{kind} {count:,}" for kind, count in sorted(last.errors_by_class.items()))
    why = last.message or errors or str(last.reason)
    said = f"its last run ended {last.state} ({why})"
    if site.failures > 1:
        said += f", as {site.failures - 1} before it"
    if site.paused_until is not None and now < site.paused_until:
        said += f"; paused, tried again in {site.paused_until - now:,.0f} s"
    return said


def _word(state: str) -> str:
    """A task's state as progress keys have it."""
    return {"PENDING": "DISPATCHED", "RUNNING": "PROCESSING", "PAUSED": "PROCESSING", "FAILED": "FAILED"}.get(
        state, "COMPLETE"
    )


def _standings(engine_dir: Path, names: Sequence[str]) -> dict[str, Standing]:
    try:
        connection = Connection(socket_path(engine_dir), ENGINE_S)
    except Gone:
        return {}
    try:
        found = connection.call_within(ENGINE_S, "standings", names=list(names))
    except (Gone, TimeoutError):
        return {}
    finally:
        connection.close()
    return {standing.name: standing for standing in msgspec.convert(found, list[Standing])}


def _named(ledger: SiteLedger, name: str) -> Site:
    if name not in ledger.sites:
        raise _unknown(name, ledger.sites)
    return ledger.sites[name]


def _unknown(name: str, sites: model.Sites) -> BadInput:
    hint = model.nearest(name, sites) or ("; `weft sites list` shows them" if sites else "; none was added yet")
    return BadInput(f"there is no site {name[:100]!r}{hint}")
