"""Converts a task into a crawl of the engine, and the crawl's snapshot into the task's status. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from weft.config import ClusterSection, FetchSection, JobsSection, ProxySection, ServiceConfig
from weft.config.contradictions import wrong_action
from weft.credentials import exact_host, exact_name
from weft.engine.crawls.tenant import MOST_TRAPPED_URLS
from weft.engine.model import CrawlSnapshot, CrawlState, EndReason, end_name
from weft.engine.transports.browsers import browser_trouble
from weft.errors import BadInput
from weft.fetch.proxies import live
from weft.fetch.proxies.pool import live_of, sources_of
from weft.jobs.model import (
    NO_PROXIES,
    JobProgress,
    Task,
    TaskSpec,
    UrlOutcome,
    ending,
    error_class,
    outcome,
    waiting_of,
)
from weft.jobs.service import TaskSnapshot
from weft.jobs.store.contract import TaskFinish
from weft.records import Reason
from weft.scraping import ErrorClass, FinishReason, TaskState

_REASONS: Mapping[EndReason, FinishReason] = {
    EndReason.DONE: FinishReason.DONE,
    EndReason.BUDGET: FinishReason.DONE,
    EndReason.MAX_PAGES: FinishReason.MAX_PAGES,
    EndReason.MAX_DURATION: FinishReason.DEADLINE,
    EndReason.MAX_MEMORY: FinishReason.MAX_MEMORY,
    EndReason.DEADLINE: FinishReason.DEADLINE,
    EndReason.CANCELLED: FinishReason.CANCELLED,
    EndReason.FAILED: FinishReason.ERROR,
}

_MESSAGES: Mapping[EndReason, str] = {
    EndReason.FAILED: "the engine has lost the crawl",
    EndReason.MAX_MEMORY: "its URLs leave no room for a page: raise max_memory_bytes, or narrow its scope",
}


def engine_settings(config: ServiceConfig) -> dict[str, Any]:
    """The settings of the service's engine, which all tasks share."""
    fetch = {
        name: getattr(config.fetch, attribute)
        for attribute, name in zip(FetchSection.__struct_fields__, FetchSection.__struct_encode_fields__, strict=True)
    }
    proxy = {
        name: getattr(config.proxy, attribute)
        for attribute, name in zip(ProxySection.__struct_fields__, ProxySection.__struct_encode_fields__, strict=True)
    }
    names = zip(ClusterSection.__struct_fields__, ClusterSection.__struct_encode_fields__, strict=True)
    cluster = {name: getattr(config.cluster, attribute) for attribute, name in names}
    return (
        fetch
        | proxy
        | cluster
        | {
            "proxies": None,  # a task sets them if it wants them
            "logins": config.logins.logins,
            "headers": {exact_name(key): value for key, value in config.fetch.headers.items()},
            "auth": {exact_host(host): login for host, login in config.fetch.auth.items()},
            "proxy_sources": sources_of(config.fetch.proxies, config.proxy) if config.proxy.test_url else (),
            "breaker_failures": config.jobs.breaker_failures,
            "breaker_reset_seconds": config.jobs.breaker_reset_s,
            "request_log_days": config.jobs.log_days,
            "request_log_bytes": config.jobs.log_bytes,
            "lease_seconds": max(90.0, config.fetch.total_timeout_s + 30.0),
            "log_dir": config.log.log_dir,
            "log_level": config.log.log_level,
            "log_format": config.log.log_format,
        }
    )


def proxies_of(config: ServiceConfig) -> str:
    """The path of the proxy file that the service's engine uses; empty if there is none."""
    listed, section = config.fetch.proxies, config.proxy
    if listed is not None and section.test_url is None:
        return listed
    return str(live_of(listed, Path(config.server.data_dir))) if listed or section.sources else ""


def has_proxies(config: ServiceConfig) -> bool:
    """Whether there are at least `min_proxies` usable proxies; if proxies are not tested, all listed ones count."""
    path = proxies_of(config)
    if not path or path == config.fetch.proxies:
        return bool(path)
    proxies = live.read(Path(path))
    return proxies is not None and len(proxies.proxies) >= config.proxy.least


def check_proxies(spec: TaskSpec, proxies: str) -> None:
    """Raises BadInput if a task wants proxies and there are none: its requests must not go out directly."""
    if spec.proxies and not proxies:
        raise BadInput(f"proxies: {NO_PROXIES}")


def check_rendering(spec: TaskSpec, config: ServiceConfig) -> None:
    """Raises BadInput if a task wants rendering that this service cannot or may not do: it must not silently get pages
    without it."""
    mode, wishes = spec.render or config.fetch.render, spec.render_options
    if mode == "never":
        if wishes:
            raise BadInput("render_options: pages are not rendered: set `render` to auto or always, too")
        return
    if spec.proxies:
        raise BadInput("render: browsers do not go through proxies: leave out one of the two")
    for number, action in enumerate(wishes.get("actions", ()), 1):
        why = wrong_action(action)
        if action.get("type") == "executeJavascript" and not config.jobs.allow_scripts:
            why = "this service runs no scripts of its callers (`allow_scripts`)"
        if why:
            raise BadInput(f"render_options.actions: action {number}: {why}")
    if spec.workers != "cluster" and (trouble := browser_trouble(config.fetch)):
        raise BadInput(f"render: this service cannot render pages: {trouble}")


def check_workers(spec: TaskSpec, config: ServiceConfig) -> None:
    """BadInput for an order that wants workers where none can be had, or that cannot go through them."""
    if spec.workers in ("", "local"):
        return
    if spec.proxies:
        raise BadInput("workers: workers do not go through proxies: leave out one of the two")
    if not config.cluster.broker or not (config.cluster.key or config.cluster.key_file):
        raise BadInput(
            "workers: this service has none; leave the field out, or start it with `broker` and a cluster key"
        )


def check_login(spec: TaskSpec, config: ServiceConfig) -> None:
    """Raises BadInput if a task names a login that this service does not have."""
    if spec.login and spec.login not in config.logins.logins:
        raise BadInput(f"login: this service has no login {spec.login!r}; its operator configures them (`logins`)")


def crawl_settings(task: Task, jobs: JobsSection, proxies: str = "") -> dict[str, Any]:
    """The settings of a task's crawl. They must be the same at every call: the engine compares them when it opens the
    crawl again.

    `proxies`: see `proxies_of`.
    """
    check_proxies(task.spec, proxies)
    spec = task.spec
    settings: dict[str, Any] = {
        # A batch fetches its own URLs on any site; links are not followed.
        "scope": "any" if spec.is_batch else spec.scope,
        "seeded_urls_only": spec.is_batch,
        "politeness_delay_seconds": max(jobs.delay_s, spec.delay_s or 0.0),
        "per_domain_concurrency": spec.max_concurrent_articles,
        "max_retries": spec.retry_attempts,
        "include": list(spec.include),
        "exclude": list(spec.exclude),
    }
    if not spec.is_batch:
        settings["max_depth"] = spec.max_depth
    if spec.strip_query:
        settings["strip_query"] = list(spec.strip_query)
    if not spec.trap_rules:
        settings["trap_rules"] = False
    if spec.login:
        settings["login"] = {"name": spec.login}  # by name: the engine has the credentials, which may change
    if spec.proxies:
        settings |= {"proxies": proxies, "workers": "local"}
    elif spec.workers:
        settings["workers"] = spec.workers
    if spec.extract:
        settings["extract"] = spec.extract
    if spec.render:
        settings["render"] = spec.render
        settings |= {f"render_{name}": value for name, value in spec.render_options.items()}
        if "render_wait_for" in settings:
            settings["render_wait_for"] = str(settings["render_wait_for"])
    if spec.max_pages is not None:
        settings["max_pages"] = spec.max_pages
    return settings


def progress_of(snapshot: CrawlSnapshot) -> tuple[JobProgress, dict[str, int]]:
    """The progress of a crawl, and its failures and refusals by class, from one snapshot."""
    left = snapshot.left if snapshot.state is CrawlState.ENDED else snapshot.queued
    return counted(snapshot.ends, left + snapshot.set_aside, snapshot.in_flight, snapshot.need_javascript)


def counted(
    ends: Mapping[str, int], queued: int, in_flight: int, need_javascript: int = 0
) -> tuple[JobProgress, dict[str, int]]:
    """The progress and classes of URLs that have ended, from `CrawlSnapshot.ends`."""
    outcomes: Counter[UrlOutcome] = Counter()
    classes: Counter[str] = Counter()
    for name, count in ends.items():
        status, _, error = name.partition(" ")
        if (what := outcome(int(status), error)) is not None:
            outcomes[what] += count
        if (kind := error_class(int(status), error)) is not None:
            classes[str(kind)] += count
    progress = JobProgress(
        need_javascript=need_javascript,
        completed=outcomes[UrlOutcome.COMPLETED],
        gone=outcomes[UrlOutcome.GONE],
        failed=outcomes[UrlOutcome.FAILED],
        refused=outcomes[UrlOutcome.REFUSED],
        robots_blocked=classes[str(ErrorClass.ROBOTS)],
        queued=queued,
        in_flight=in_flight,
    )
    return progress, dict(classes)


def unstarted(task: Task) -> JobProgress:
    """The progress of a task that the engine does not know."""
    return JobProgress(queued=task.url_count)


def status_of(
    task: Task, snapshot: CrawlSnapshot | None, now: float, waiting_before: int | None = None, lost: int = 0
) -> TaskSnapshot:
    """The status of a task; `snapshot` is its crawl's while it runs. `lost`: pages whose stored bytes are damaged or
    missing."""
    if lost:
        warning = f"{lost:,} of its {task.progress.completed:,} pages cannot be read any more: their files are damaged"
        task = replace(task, message=f"{task.message}; {warning}" if task.message else warning)
    progress, classes, number, rate, memory = task.progress, task.errors_by_class, task.last_number, 0.0, 0
    waiting_for, waiting_until = waiting(task, snapshot)
    if not task.is_terminal:
        progress, classes, number = unstarted(task), {}, 0
        if snapshot is not None:
            (progress, classes), number, rate = progress_of(snapshot), snapshot.number, snapshot.rate
            memory = snapshot.memory_bytes
    return TaskSnapshot(
        task=task, progress=progress, errors_by_class=classes, duration_s=task.duration_s(now),
        remaining_s=task.remaining_s(now), waiting_before=waiting_before, number=number, pages_per_s=round(rate, 2),
        memory_bytes=memory, waiting_for=waiting_for, waiting_until=waiting_until, lost=lost,
    )  # fmt: skip


def waiting(task: Task, snapshot: CrawlSnapshot | None) -> tuple[str, float | None]:
    """What a task waits for, and until when."""
    if snapshot is None:
        return waiting_of(task)
    return waiting_of(task, snapshot.waiting_for, snapshot.waiting_until)


def finish_of(task: Task, snapshot: CrawlSnapshot) -> tuple[TaskState, TaskFinish]:
    """The final state and counts of a task whose crawl has ended."""
    progress, classes = progress_of(snapshot)
    reason = _REASONS[snapshot.reason or EndReason.FAILED]
    state, reason = ending(progress, reason, task.spec.partial_results_ok)
    messages = (_MESSAGES.get(snapshot.reason or EndReason.FAILED, ""), snapshot.pause_reason, _trap_text(snapshot))
    message = "; ".join(filter(None, messages))
    return state, TaskFinish(
        reason=reason, progress=progress, errors_by_class=classes, last_number=snapshot.number, message=message
    )


def _trap_text(snapshot: CrawlSnapshot) -> str:
    count = snapshot.ends.get(end_name(0, Reason.TRAP), 0)
    if not count:
        return ""
    number = f"{count:,} links were" if count > 1 else "1 link was"
    if count >= MOST_TRAPPED_URLS:
        number = f"{MOST_TRAPPED_URLS:,} links or more were"
    return f"{number} left out as part of an endless space (trap): `trap_rules: false` follows them, too"


def finish_without(
    task: Task, reason: FinishReason, progress: JobProgress | None = None, message: str = "", **more: Any
) -> tuple[TaskState, TaskFinish]:
    """The end of a task whose crawl the engine does not have or cannot report on."""
    progress = progress or unstarted(task)
    state, reason = ending(progress, reason, task.spec.partial_results_ok)
    return state, TaskFinish(reason=reason, progress=progress, message=message, **more)
