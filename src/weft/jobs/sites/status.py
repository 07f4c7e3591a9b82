"""The status of a site for people and programs: its health, and its current or last run. Pure functions."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from weft.jobs.model import FOR_RESUME, FOR_SLOT
from weft.jobs.service import TaskSnapshot
from weft.jobs.sites import site_model
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.site_documents import Time
from weft.jobs.sites.site_model import SavedSite, SiteFile

PROXIES = "proxies"  # `waits_for` while there are too few proxies for a site that uses them
SERVICE = "service"  # `waits_for` while no service runs


class SiteHealth(Struct, frozen=True, kw_only=True):
    """The health of a site: of its current run, or of its last one."""

    site: str
    state: site_model.State
    is_healthy: bool
    breaker: Annotated[str, Meta(description="closed, open (paused) or half-open (being tried)")]
    pages: int
    success_rate: float | None
    errors_by_class: dict[str, int]
    failures: Annotated[int, Meta(description="consecutive failed runs")]
    last_success_at: Time | None
    paused_until: Time | None
    message: str


class SiteStatus(Struct, frozen=True, kw_only=True):
    """The status of a site at one moment."""

    name: str
    state: Annotated[site_model.State, Meta(description="idle, waiting, running, stopping or paused")]
    health: SiteHealth
    schedule: str | None
    next_at: Time | None
    depends_on: tuple[str, ...]
    waits_for: Annotated[tuple[str, ...], Meta(description="sites, `proxies` or `service`")]
    task: str  # of its current or last run; empty: it has never run
    last_state: str
    last_ended_at: Time | None
    runs: int
    pages: int
    failed: int
    queued: int
    in_flight: int
    memory_bytes: Annotated[int, Meta(description="maximum that its run may use now")]
    max_memory_bytes: int
    pages_per_s: float
    changes: Annotated[dict[str, int], Meta(description="of its last run")]

    @property
    def waiting(self) -> str:
        """What it waits for, as a message; empty if it does not wait."""
        if self.waits_for == (SERVICE,):
            return "waits for a service: `weft up` or `weft serve` starts one"
        return f"waits for {', '.join(self.waits_for)}" if self.waits_for else ""


class SiteView(Struct, frozen=True):
    """The status of a site, and its file."""

    status: SiteStatus
    file: SiteFile


def site_status(
    site: SavedSite, sites: site_model.Sites, live: TaskSnapshot | None, report: ChangeReport | None, now: float, *,
    is_served: bool = True,
) -> SiteStatus:  # fmt: skip
    """The status of a site. `sites`: all sites; `live`: the status of its run; `report`: of its last run; `is_served`:
    a service runs."""
    last = site.last
    waits_for, state = _waits_for(site, sites, now), site.state(now)
    if not is_served and not waits_for and state in ("running", "waiting"):
        waits_for, state = (SERVICE,), "waiting"
    progress = live.progress if live is not None else None
    return SiteStatus(
        name=site.name, state=state, health=_health_of(site, live, state, now), schedule=site.file.schedule,
        next_at=site.next_at, depends_on=site.file.depends_on,
        waits_for=waits_for,
        task=site.task or (last.task if last else ""), last_state=str(last.state) if last else "",
        last_ended_at=last.ended_at if last else None, runs=site.runs,
        pages=progress.completed if progress else (last.pages if last else 0),
        failed=progress.failed if progress else last.failed if last else 0,
        queued=progress.queued if progress else 0, in_flight=progress.in_flight if progress else 0,
        memory_bytes=live.memory_bytes if live else 0, max_memory_bytes=site.file.max_memory_bytes,
        pages_per_s=live.pages_per_s if live else 0.0, changes=report.counts if report else {},
    )  # fmt: skip


def _waits_for(site: SavedSite, sites: site_model.Sites, now: float) -> tuple[str, ...]:
    if site.wanted_at is None:
        return ()
    others = tuple(site_model.waits_for(site, sites))
    is_proxied = site.file.proxies and site_model.is_ready(site, sites, now, has_proxies=True)
    return (PROXIES,) if is_proxied else others


def _health_of(site: SavedSite, live: TaskSnapshot | None, state: site_model.State, now: float) -> SiteHealth:
    last = site.last
    if live is not None and live.progress.ended:
        pages, rate, errors = live.progress.completed, live.progress.success_rate, live.errors_by_class
    elif last is not None:
        pages, rate, errors = last.pages, last.success_rate, last.errors_by_class
    else:
        pages, rate, errors = 0, None, {}
    is_failing = live is not None and rate is not None and rate < site.file.min_success_rate
    is_waiting = live is not None and live.waiting_for not in ("", FOR_SLOT, FOR_RESUME)
    return SiteHealth(
        site=site.name, state=state, is_healthy=not site.failures and not is_failing,
        breaker="open" if is_waiting else site.breaker, pages=pages,
        success_rate=rate, errors_by_class=errors, failures=site.failures, last_success_at=site.last_success_at,
        paused_until=site.paused_until, message=_problem_of(site, now) or (live.message if live is not None else ""),
    )  # fmt: skip


def _problem_of(site: SavedSite, now: float) -> str:
    """What is wrong with a site, as a message; empty if nothing is."""
    if not site.failures or site.last is None:
        return ""
    last = site.last
    errors = ", ".join(f"{kind} {count:,}" for kind, count in sorted(last.errors_by_class.items()))
    why = last.message or errors or str(last.reason)
    message = f"its last run ended {last.state} ({why})"
    if errors:
        message += f": `weft jobs errors {last.task}` lists them"
    if site.failures > 1:
        message += f", as {site.failures - 1} before it"
    if site.paused_until is not None and now < site.paused_until:
        # first: narrow displays cut the end off
        message = f"paused, tried again in {site.paused_until - now:,.0f} s; {message}"
    return message
