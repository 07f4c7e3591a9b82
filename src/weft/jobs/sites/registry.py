"""The sites of a data dir: added, started, stopped and listed from any thread and process. Requests are written to the
store; the runner of the service that uses the store carries them out (scheduler.py).

While no service runs, requests wait.

`owner`, as for tasks: the id of the API key that has added a site; sites of other owners are not visible. None: all
sites, for users of the machine. Names are unique across owners, and a site depends on sites of its own owner.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from weft.engine.model import CrawlSnapshot
from weft.engine.process.channel import Connection, EngineGone, socket_path
from weft.errors import BadInput
from weft.jobs.crawls import status_of
from weft.jobs.errors import SiteConflict, SiteUnknown
from weft.jobs.layout import ENGINE, STORE
from weft.jobs.service import TaskSnapshot
from weft.jobs.sites import runs, site_model
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.site_model import SavedSite, SiteFile
from weft.jobs.sites.status import SiteHealth, SiteStatus, SiteView, site_status
from weft.jobs.store.sqlite import SqliteJobStore
from weft.jobs.store.sqlite_sites import SqliteLedger

ENGINE_S = 1.0  # an engine that takes longer is not waited for
POLL_S = 0.05
MOST_SITES = 1000  # The most sites of a service: every step of the store reads all of them.


class SiteRegistry:
    """Reads and changes the sites of a data dir; opens the store on first use, and closes it in `close`."""

    def __init__(
        self, data_dir: Path, *, clock: Callable[[], float] = time.time, store: SqliteJobStore | None = None
    ) -> None:
        """`store`: an open store, which `close` leaves open."""
        self._data_dir = data_dir
        self._clock = clock
        self._store, self._is_ours = store, store is None
        self._opening = threading.Lock()

    def __enter__(self) -> SiteRegistry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the store if this object has opened it."""
        with self._opening:
            if self._store is not None and self._is_ours:
                self._store.close()
                self._store = None

    @property
    def _jobs(self) -> SqliteJobStore:
        with self._opening:
            if self._store is None:
                self._store = SqliteJobStore(self._data_dir / STORE)
            return self._store

    # ── changes ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, files: Sequence[SiteFile], owner: str | None = None) -> list[SavedSite]:
        """Adds sites in one step, since they may depend on each other. A site of the same name is replaced and keeps
        its history."""
        now = self._clock()
        self._check_proxies(files)

        def step(ledger: SqliteLedger) -> list[SavedSite]:
            needs = {site.name: site.file.depends_on for site in _chosen(ledger.sites, None, owner)}
            site_model.check_dependencies(needs | {file.name: file.depends_on for file in files})
            if len({*ledger.sites, *(file.name for file in files)}) > MOST_SITES:
                raise BadInput(f"there are {len(ledger.sites):,} sites, of {MOST_SITES:,} at most: remove some first")
            added = []
            for file in files:
                site = ledger.sites.get(file.name) or SavedSite(file=file, added_at=now, owner=owner or "")
                if owner is not None and site.owner != owner:
                    raise SiteConflict(f"name: {file.name} is taken; choose another")
                if owner is None and site.owner:
                    raise SiteConflict(
                        f"name: {file.name} belongs to the API key {site.owner}; choose another name, replace it with "
                        f"that key over HTTP, or remove it first: `weft sites remove {file.name}`"
                    )
                site = site_model.moved_on(msgspec.structs.replace(site, file=file), now)
                ledger.put(site)
                added.append(site)
            return added

        return self._jobs.sites.change(step)

    def remove(self, name: str, owner: str | None = None) -> None:
        """Deletes a site; raises SiteConflict while it runs, or other sites depend on it."""

        def step(ledger: SqliteLedger) -> None:
            (site,) = _chosen(ledger.sites, [name], owner)
            if site.task:
                raise SiteConflict(f"{name} is running: stop it first")
            users = [other.name for other in ledger.sites.values() if name in other.file.depends_on]
            if users:
                raise SiteConflict(f"{name}: {', '.join(users)} depends on it")
            ledger.forget(name)

        self._jobs.sites.change(step)

    def run(self, names: Sequence[str] | None = None, owner: str | None = None) -> dict[str, str]:
        """Requests runs, of all sites if none are named. Returns their tasks by name; empty for a site that waits."""
        now = self._clock()
        self._check_proxies([self._site_of_owner(name, owner).file for name in names or ()])

        def step(ledger: SqliteLedger) -> dict[str, str]:
            wanted = [site.name for site in _chosen(ledger.sites, names, owner)]
            runs.want(ledger, wanted, now, by_hand=True)
            runs.begin(ledger, now)
            return {name: ledger.sites[name].task for name in wanted}

        return self._jobs.sites.change(step)

    def stop(self, names: Sequence[str] | None = None, owner: str | None = None) -> list[str]:
        """Stops runs, of all sites if none are named; what they have stored is kept. Returns the names of those that
        ran."""

        def step(ledger: SqliteLedger) -> list[str]:
            names_to_stop = [site.name for site in _chosen(ledger.sites, names, owner)]
            runs.stop(ledger, names_to_stop)
            return [name for name in names_to_stop if ledger.sites[name].task]

        return self._jobs.sites.change(step)

    def wait_stopped(self, names: Sequence[str], timeout_s: float) -> bool:
        """Waits until none of these runs, while a service is there to end them; False at the timeout."""
        until = time.monotonic() + timeout_s
        while any(site.task and site.is_stopping for site in _chosen(self._jobs.sites.all(), names, None)):
            if time.monotonic() >= until or not self.is_served:
                return False
            time.sleep(POLL_S)
        return True

    # ── status ─────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_served(self) -> bool:
        """Whether a service runs that processes sites."""
        lease = self._jobs.holder()
        return lease is not None and lease.until > self._clock()

    @property
    def lacks_proxies(self) -> bool:
        """Whether the running service has no proxies, so that a site which uses them would wait forever."""
        return self._jobs.sites.has_proxies() is False and self.is_served

    def names(self) -> list[str]:
        """The names of all sites."""
        return list(self._jobs.sites.all())

    def file(self, name: str) -> SiteFile:
        """A site's file as it was added."""
        return self._site_of_owner(name).file

    def status(self, names: Sequence[str] | None = None) -> list[SiteStatus]:
        """The status of sites, all at one moment."""
        return [view.status for view in self.views(names)]

    def views(self, names: Sequence[str] | None = None, owner: str | None = None) -> list[SiteView]:
        """The status of sites with their files."""
        sites, now = self._jobs.sites.all(), self._clock()
        chosen = _chosen(sites, names, owner)
        # Only the service passes a store: then it is running.
        status = partial(site_status, is_served=not self._is_ours or self.is_served)
        live = self._live([site.task for site in chosen if site.task])
        reports = {site.name: next(iter(self._jobs.sites.reports(site.name, 1)), None) for site in chosen}
        return [
            SiteView(status(site, sites, live.get(site.task), reports[site.name], now), site.file) for site in chosen
        ]

    def health(self, name: str) -> SiteHealth:
        """The health of a site."""
        return self.status([name])[0].health

    def progress(self, name: str) -> dict[str, Any]:
        """The progress of its current or last run, by the names of a run's keys: `scrape_NAME:TASK:status`,
        `total_chunks`, `completed_chunks`, `started_at`, `completed_at`, `result_count`. Empty: it has never run."""
        site = self._site_of_owner(name)
        task_id = site.task or (site.last.task if site.last is not None else "")
        status = self._live([task_id], also_ended=True).get(task_id) if task_id else None
        if status is None:
            return {}
        task, progress = status.task, status.progress
        values = {
            "status": _state_word(task.state), "total_chunks": progress.discovered, "completed_chunks": progress.ended,
            "started_at": task.started_at, "completed_at": task.finished_at, "result_count": progress.completed,
        }  # fmt: skip
        return {f"scrape_{name}:{task_id}:{key}": value for key, value in values.items()}

    def reports(self, name: str, limit: int = 10, owner: str | None = None) -> list[ChangeReport]:
        """The change reports of its last runs, newest first."""
        self._site_of_owner(name, owner)
        return self._jobs.sites.reports(name, limit)

    # ── internal ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _check_proxies(self, files: Sequence[SiteFile]) -> None:
        """Raises SiteConflict for a site that the running service could never run."""
        proxied = [file.name for file in files if file.proxies]
        if proxied and self.lacks_proxies:
            raise SiteConflict(
                f"{', '.join(proxied)}: proxies: the service that runs here has none; "
                "leave the field out, or start it with `--proxies FILE`"
            )

    def _site_of_owner(self, name: str, owner: str | None = None) -> SavedSite:
        return _chosen(self._jobs.sites.all(), [name], owner)[0]

    def _live(self, task_ids: Sequence[str], *, also_ended: bool = False) -> dict[str, TaskSnapshot]:
        """The status of tasks; running ones as the engine reports them, if it answers."""
        tasks = [task for task in map(self._jobs.get, task_ids) if task is not None]
        running = [task.id for task in tasks if task.started_at is not None and not task.is_terminal]
        snapshots = _snapshots(self._data_dir / ENGINE, running) if running else {}
        now = self._clock()
        return {
            task.id: status_of(task, snapshots.get(task.id), now)
            for task in tasks
            if also_ended or not task.is_terminal
        }


def _state_word(state: str) -> str:
    """A task's state as progress keys contain it."""
    return {"PENDING": "DISPATCHED", "RUNNING": "PROCESSING", "PAUSED": "PROCESSING", "FAILED": "FAILED"}.get(
        state, "COMPLETE"
    )


def _snapshots(engine_dir: Path, names: Sequence[str]) -> dict[str, CrawlSnapshot]:
    try:
        connection = Connection(socket_path(engine_dir), ENGINE_S)
    except EngineGone:
        return {}
    try:
        answer = connection.call_within(ENGINE_S, "standings", names=list(names))
    except (EngineGone, TimeoutError):
        return {}
    finally:
        connection.close()
    return {snapshot.name: snapshot for snapshot in msgspec.convert(answer, list[CrawlSnapshot])}


def _chosen(sites: site_model.Sites, names: Sequence[str] | None, owner: str | None) -> list[SavedSite]:
    """The named sites of an owner, or all; raises SiteUnknown for those of another owner."""
    own = {name: site for name, site in sites.items() if owner is None or site.owner == owner}
    for name in names or ():
        if name not in own:
            listed = "" if owner is not None else "; `weft sites list` shows them" if own else "; none was added yet"
            raise SiteUnknown(name, site_model.nearest(name, own) or listed)
    return list(own.values()) if names is None else [own[name] for name in dict.fromkeys(names)]
