"""A site as people and programs see it: how it is, and how its run is, or its last one. Pure."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from weft.jobs.model import FOR_RESUME, FOR_SLOT
from weft.jobs.service import TaskSnapshot
from weft.jobs.sites import site_model
from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.site_documents import Time
from weft.jobs.sites.site_model import SavedSite, SiteFile

PROXIES = "proxies"  # what a site waits for that uses them, while there are too few
SERVICE = "service"  # ... and one that is to run where no service does


class SiteHealth(Struct, frozen=True, kw_only=True):
    """How a site is: of its run while it runs, else of its last one."""

    site: str
    state: site_model.State
    is_healthy: bool
    breaker: Annotated[str, Meta(description="closed, open (paused) or half-open (being tried)")]
    pages: int
    success_rate: float | None
    errors_by_class: dict[str, int]
    failures: Annotated[int, Meta(description="runs in a row that did not end well")]
    last_success_at: Time | None
    paused_until: Time | None
    message: str


class SiteStatus(Struct, frozen=True, kw_only=True):
    """A site at one moment."""

    name: str
    state: Annotated[site_model.State, Meta(description="idle, waiting, running, stopping or paused")]
    health: SiteHealth
    schedule: str | None
    next_at: Time | None
    depends_on: tuple[str, ...]
    waits_for: Annotated[tuple[str, ...], Meta(description="sites, `proxies` or `service`")]
    task: str  # of its run, or of its last one; empty: it has never run
    last_state: str
    last_ended_at: Time | None
    runs: int
    pages: int
    failed: int
    queued: int
    in_flight: int
    memory_bytes: Annotated[int, Meta(description="that its run takes at most now")]
    max_memory_bytes: int
    pages_per_s: float
    changes: Annotated[dict[str, int], Meta(description="of its last run")]

    @property
    def waiting(self) -> str:
        """What it waits for, in words; empty if for nothing."""
        if self.waits_for == (SERVICE,):
            return "waits for a service: `weft up` or `weft serve` starts one"
        return f"waits for {', '.join(self.waits_for)}" if self.waits_for else ""


class SiteView(Struct, frozen=True):
    """A site at one moment, and its file."""

    status: SiteStatus
    file: SiteFile


def site_status(
    site: SavedSite, sites: site_model.Sites, live: TaskSnapshot | None, report: ChangeReport | None, now: float, *,
    is_served: bool = True,
) -> SiteStatus:  # fmt: skip
    """A site among others. `live`: how its run stands; `report`: of its last one. `is_served`: a service runs them."""
    last = site.last
    waits_for, state = _waits_for(site, sites, now), site.state(now)
    if not is_served and not waits_for and state in ("running", "waiting"):
        waits_for, state = (SERVICE,), "waiting"
    progress = live.progress if live is not None else None
    return SiteStatus(
        name=site.name, state=state, health=_health(site, live, state, now), schedule=site.file.schedule,
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


def _health(site: SavedSite, live: TaskSnapshot | None, state: site_model.State, now: float) -> SiteHealth:
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
        paused_until=site.paused_until, message=_said(site, now) or (live.message if live is not None else ""),
    )  # fmt: skip


def _said(site: SavedSite, now: float) -> str:
    """What is wrong with a site, for a person."""
    if not site.failures or site.last is None:
        return ""
    last = site.last
    errors = ", ".join(f"{kind} {count:,}" for kind, count in sorted(last.errors_by_class.items()))
    why = last.message or errors or str(last.reason)
    said = f"its last run ended {last.state} ({why})"
    if errors:
        said += f": `weft jobs errors {last.task}` lists them"
    if site.failures > 1:
        said += f", as {site.failures - 1} before it"
    if site.paused_until is not None and now < site.paused_until:
        said = f"paused, tried again in {site.paused_until - now:,.0f} s; {said}"  # first: a narrow view cuts the end
    return said
