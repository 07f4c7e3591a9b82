"""Sites: their file, the history of their runs, and when they may run. Plain frozen values and pure functions.

    idle ──► waiting ──► running ──► idle          a run that succeeded
      ▲                └──► paused ──► waiting     one that failed: tried again later, five times

A site has at most one run at a time: a task in the lane SITE. A request while it runs does not start another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from weft import names as known_names
from weft.engine.crawls.memory import LEAST_BYTES
from weft.errors import BadInput
from weft.jobs.model import Lane, Task, TaskSpec
from weft.records import PastVisit
from weft.scraping import (
    MAX_PATTERNS,
    Articles,
    Depth,
    FinishReason,
    PageLimit,
    Pattern,
    RenderWishes,
    Retries,
    Scope,
    TaskState,
)
from weft.supervise.schedule import Schedule

NAME = r"^[a-z0-9][a-z0-9_-]{0,62}$"
ANY_DEPTH = 1000
KIND = "site"  # `kind` of a task that is a site's run
RETRY_S = 600.0  # The pause after the first failed run; it doubles with each further one.
LONGEST_RETRY_S = 86_400.0
FULL_EVERY = 30  # every n-th run reads all pages, even if their servers say they are unchanged
RETRIES = 5  # automatic retries; after that it runs at its next scheduled time or on request

_encode = msgspec.json.Encoder().encode
Texts = tuple[Pattern, ...]
State = Literal["idle", "waiting", "running", "stopping", "paused"]


class SiteFile(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The contents of a site's file. Names and limits are those of a task's fields (docs/jobs.md)."""

    name: Annotated[str, Meta(pattern=NAME)]
    start_urls: Annotated[Texts, Meta(min_length=1, max_length=1000)]
    scope: Scope = "domain"
    include: Annotated[Texts, Meta(max_length=MAX_PATTERNS)] = ()
    exclude: Annotated[Texts, Meta(max_length=MAX_PATTERNS)] = ()
    trap_rules: bool = True
    max_depth: Depth = ANY_DEPTH
    max_pages: PageLimit | None = None
    timeout_minutes: Annotated[float, Meta(gt=0, le=10_080)] = 120.0
    delay_seconds: Annotated[float, Meta(ge=0, le=3600)] | None = None
    max_concurrent_articles: Articles = 4
    max_memory_bytes: Annotated[int, Meta(ge=LEAST_BYTES, le=1 << 40)] = 256 << 20
    retry_attempts: Retries = 3
    proxies: bool = False
    login: Annotated[str, Meta(max_length=100)] = ""  # the name of one of the service's logins
    workers: Literal["", "local", "cluster", "prefer-cluster"] = ""
    render: Literal["", "never", "auto", "always"] = ""
    render_options: RenderWishes | None = None
    formats: Texts = ("markdown", "metadata")
    extract: dict[str, Any] = {}
    schedule: str | None = None
    timezone: str = "UTC"
    depends_on: Texts = ()
    min_success_rate: Annotated[float, Meta(ge=0, le=1)] = 0.9
    only_changed: bool = True  # later runs read only pages that have changed
    webhook: dict[str, Any] | None = None

    @property
    def cron(self) -> Schedule | None:
        """The schedule; None if it only runs on request."""
        return None if self.schedule is None else Schedule(self.schedule, self.timezone)

    @property
    def rules(self) -> str:
        """A digest of the fields that decide which pages a run finds and what it extracts: after a change of it
        unchanged pages must be read, too."""
        of: list[Any] = [
            self.start_urls,
            self.scope,
            self.include,
            self.exclude,
            self.max_depth,
            self.formats,
            self.extract,
        ]
        if not self.trap_rules:
            of.append(self.trap_rules)
        if self.login:
            of.append(["login", self.login])
        if self.render or self.render_options:
            of += [self.render, self.render_options]
        return sha256(_encode(of)).hexdigest()[:16]

    @property
    def spec(self) -> TaskSpec:
        """The specification of the task for each of its runs."""
        same = {name: value for name, value in asdict(self).items() if name in TaskSpec.__struct_fields__}
        same["render_options"] = msgspec.to_builtins(self.render_options or {})
        return TaskSpec(
            **same, timeout_s=self.timeout_minutes * 60, delay_s=self.delay_seconds, lane=Lane.SITE, kind=KIND,
            extra={"site": self.name},
        )  # fmt: skip


class LastRun(Struct, frozen=True, kw_only=True):
    """A summary of a run, kept longer than its task."""

    task: str
    state: TaskState
    reason: FinishReason | None
    started_at: float | None
    ended_at: float
    pages: int
    failed: int = 0
    success_rate: float | None
    errors_by_class: dict[str, int]
    is_well: bool
    message: str = ""


class SavedSite(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A site as the store has it."""

    file: SiteFile
    added_at: float
    owner: str = ""  # id of the API key that has added it; its runs belong to the same key
    next_at: float | None = None  # next time of its schedule
    wanted_at: float | None = None  # when a run was requested or came due that has not started
    task: str = ""  # id of the task of the current run
    is_stopping: bool = False
    last: LastRun | None = None
    last_success_at: float | None = None
    failures: int = 0  # consecutive failed runs
    paused_until: float | None = None
    runs: int = 0
    walked_by: str = ""  # digest of the rules of the last run, if that was complete; see `why_full`
    since_full: int = 0  # runs since one that has followed every link

    @property
    def name(self) -> str:
        """The site's name."""
        return self.file.name

    @property
    def is_well(self) -> bool:
        """Whether sites that depend on it may run."""
        return not self.task and self.wanted_at is None and self.last is not None and self.last.is_well

    @property
    def breaker(self) -> str:
        """closed: its last run succeeded; open: it failed, and there is no trial now; half-open: a trial is running."""
        if not self.failures:
            return "closed"
        return "half-open" if self.task else "open"

    def state(self, now: float) -> State:
        """Its state at a moment."""
        if self.task:
            return "stopping" if self.is_stopping else "running"
        if self.paused_until is not None and now < self.paused_until:
            return "paused"
        return "waiting" if self.wanted_at is not None else "idle"


Sites = Mapping[str, SavedSite]


def nearest(name: str, names: Iterable[str]) -> str:
    """A suggestion for an unknown name, as the end of an error message."""
    near = known_names.nearest(name, names)
    return f"; did you mean {near!r}?" if near else ""


def check_dependencies(sites: Mapping[str, Iterable[str]]) -> None:
    """Raises BadInput for a dependency that does not exist, and for circular ones."""
    for name, needs in sites.items():
        for other in needs:
            if other not in sites:
                others = [one for one in sites if one != name]
                raise BadInput(f"depends_on: {name}: there is no site {other!r}{nearest(other, others)}")
    try:
        TopologicalSorter({name: tuple(needs) for name, needs in sites.items()}).prepare()
    except CycleError as error:
        raise BadInput(f"depends_on: these wait for each other: {' -> '.join(reversed(error.args[1]))}") from None


def wanted(sites: Sites, names: Iterable[str], now: float, *, by_hand: bool = False) -> dict[str, SavedSite]:
    """The sites to change when runs of these are requested: themselves, and their dependencies whose last run failed.

    `by_hand`: requested by a user, which overrides a pause.
    """
    changed: dict[str, SavedSite] = {}
    asked = list(names)
    left = list(asked)
    while left:
        site = sites[left.pop()]
        if site.name in changed:
            continue
        left += [other for other in site.file.depends_on if other in sites and not sites[other].is_well]
        changes: dict[str, Any] = {}
        if not site.task and site.wanted_at is None:
            changes["wanted_at"] = now
        if by_hand and site.name in asked:
            changes["paused_until"] = None
        changed[site.name] = msgspec.structs.replace(site, **changes)
    return {name: site for name, site in changed.items() if site != sites[name]}


def waits_for(site: SavedSite, sites: Sites) -> list[str]:
    """The dependencies that must succeed before this site may run."""
    return [name for name in site.file.depends_on if name in sites and not sites[name].is_well]


def is_ready(site: SavedSite, sites: Sites, now: float, *, has_proxies: bool) -> bool:
    """Whether its run may start. `has_proxies`: there are enough for sites that use them."""
    if site.wanted_at is None or site.task or (site.file.proxies and not has_proxies):
        return False
    return (site.paused_until is None or site.paused_until <= now) and not waits_for(site, sites)


def why_full(site: SavedSite, known: Mapping[str, PastVisit]) -> str:
    """Why its next run must read every page, including unchanged ones; empty if it need not.

    Links on a page that is not read are not followed. That is correct only while all their targets are known: an
    interrupted run has left some out, and other rules may find others.
    """
    file = site.file
    if file.max_depth < ANY_DEPTH:
        return "its depth is limited"
    if not file.only_changed:
        return "only_changed is false"
    if not any(page.digest for page in known.values()):
        return "no page is known"
    if not site.walked_by:
        return "the run before was not complete"
    if site.walked_by != file.rules:
        return "its rules have changed"
    return "it is time for it" if site.since_full >= FULL_EVERY - 1 else ""


def is_complete(task: Task) -> bool:
    """Whether a run has ended with nothing left because of a limit, a stop or a failure."""
    has_ended = task.state in (TaskState.COMPLETED, TaskState.PARTIAL) and task.finish_reason is FinishReason.DONE
    return has_ended and not task.progress.queued and not task.progress.in_flight


def is_due(site: SavedSite, now: float) -> bool:
    """Whether its scheduled time has come."""
    return site.next_at is not None and site.next_at <= now


def moved_on(site: SavedSite, now: float) -> SavedSite:
    """The site with its next scheduled time in the future, however many times have passed."""
    cron = site.file.cron
    return msgspec.structs.replace(site, next_at=None if cron is None else cron.after(now))


def ended_well(file: SiteFile, task: Task) -> bool:
    """Whether a run has succeeded: it has pages, and few enough have failed."""
    if task.state not in (TaskState.COMPLETED, TaskState.PARTIAL) or not task.progress.completed:
        return False
    rate = task.progress.success_rate
    is_cut_off = task.finish_reason in (FinishReason.DEADLINE, FinishReason.MAX_MEMORY)
    return not is_cut_off and (rate is None or rate >= file.min_success_rate)


def after_run(site: SavedSite, task: Task, now: float) -> SavedSite:
    """The site after its run has ended. A run that a user has stopped does not affect its health."""
    well = ended_well(site.file, task)
    last = LastRun(
        task=task.id, state=task.state, reason=task.finish_reason, started_at=task.started_at,
        ended_at=task.finished_at or now, pages=task.progress.completed, failed=task.progress.failed,
        success_rate=task.progress.success_rate, errors_by_class=task.errors_by_class,
        is_well=well, message=task.message,
    )  # fmt: skip
    is_full = not task.spec.revisits
    done: dict[str, Any] = {
        "task": "", "is_stopping": False, "last": last, "runs": site.runs + 1,
        "walked_by": task.spec.extra.get("rules", "") if is_complete(task) else "",
        "since_full": 0 if is_full else site.since_full + 1,
    }  # fmt: skip
    if well:
        done |= {"failures": 0, "paused_until": None, "last_success_at": last.ended_at}
    elif task.state is not TaskState.CANCELLED:
        done |= _pause_after_failure(site.failures + 1, now)
    return msgspec.structs.replace(site, **done)


def _pause_after_failure(failures: int, now: float) -> dict[str, Any]:
    if failures > RETRIES:
        return {"failures": failures, "paused_until": None}
    wait_s = min(RETRY_S * 2 ** (failures - 1), LONGEST_RETRY_S)
    return {"failures": failures, "paused_until": now + wait_s, "wanted_at": now}
