"""How a task becomes a crawl of the engine, and what the crawl's standing says about the task. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from weft.config import ClusterSection, FetchSection, JobsSection, ProxySection, ServiceConfig
from weft.config.contradictions import wrong_action
from weft.credentials import exact_host, exact_name
from weft.engine.crawls.tenant import MOST_TRAPPED
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
    """The settings of the service's engine: what all tasks share."""
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
            "proxies": None,  # a task asks for them
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
    """The file of the service's proxies, as its engine uses it; empty if there are none."""
    listed, section = config.fetch.proxies, config.proxy
    if listed is not None and section.test_url is None:
        return listed
    return str(live_of(listed, Path(config.server.data_dir))) if listed or section.sources else ""


def has_proxies(config: ServiceConfig) -> bool:
    """Whether there are as many as `min_proxies` asks for; where they are not tested all that are listed count."""
    path = proxies_of(config)
    if not path or path == config.fetch.proxies:
        return bool(path)
    found = live.read(Path(path))
    return found is not None and len(found.proxies) >= config.proxy.least


def check_proxies(spec: TaskSpec, proxies: str) -> None:
    """BadInput for an order that wants proxies where there are none: it must not go out directly."""
    if spec.proxies and not proxies:
        raise BadInput(f"proxies: {NO_PROXIES}")


def check_rendering(spec: TaskSpec, config: ServiceConfig) -> None:
    """BadInput for an order that wants what no browser here can or may do: a page must not come as a shell instead."""
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
    if trouble := browser_trouble(config.fetch):
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
    """BadInput for an order that names a login which this service does not have."""
    if spec.login and spec.login not in config.logins.logins:
        raise BadInput(f"login: this service has no login {spec.login!r}; its operator configures them (`logins`)")


def crawl_settings(task: Task, jobs: JobsSection, proxies: str = "") -> dict[str, Any]:
    """The settings of a task's crawl: the same each time they are asked for, since the engine knows it by them.

    `proxies`: see `proxies_of`.
    """
    check_proxies(task.spec, proxies)
    spec = task.spec
    found: dict[str, Any] = {
        # A batch asks for its own URLs wherever they lead; nothing that they link to is followed.
        "scope": "any" if spec.is_batch else spec.scope,
        "seeded_urls_only": spec.is_batch,
        "politeness_delay_seconds": max(jobs.delay_s, spec.delay_s or 0.0),
        "per_domain_concurrency": spec.max_concurrent_articles,
        "max_retries": spec.retry_attempts,
        "include": list(spec.include),
        "exclude": list(spec.exclude),
    }
    if not spec.is_batch:
        found["max_depth"] = spec.max_depth
    if spec.strip_query:
        found["strip_query"] = list(spec.strip_query)
    if not spec.trap_rules:
        found["trap_rules"] = False
    if spec.login:
        found["login"] = {"name": spec.login}  # the engine knows it: what it consists of may change
    if spec.proxies:
        found |= {"proxies": proxies, "workers": "local"}
    elif spec.workers:
        found["workers"] = spec.workers
    if spec.extract:
        found["extract"] = spec.extract
    if spec.render:
        found["render"] = spec.render
        found |= {f"render_{name}": value for name, value in spec.render_options.items()}
        if "render_wait_for" in found:
            found["render_wait_for"] = str(found["render_wait_for"])
    if spec.max_pages is not None:
        found["max_pages"] = spec.max_pages
    return found


def progress_of(standing: CrawlSnapshot) -> tuple[JobProgress, dict[str, int]]:
    """How far a crawl is, and its failures and refusals by class: of one snapshot."""
    left = standing.left if standing.state is CrawlState.ENDED else standing.queued
    return counted(standing.ends, left + standing.set_aside, standing.in_flight)


def counted(ends: Mapping[str, int], queued: int, in_flight: int) -> tuple[JobProgress, dict[str, int]]:
    """The same of URLs that have ended, by `CrawlSnapshot.ends`."""
    outcomes: Counter[UrlOutcome] = Counter()
    classes: Counter[str] = Counter()
    for name, count in ends.items():
        status, _, error = name.partition(" ")
        if (what := outcome(int(status), error)) is not None:
            outcomes[what] += count
        if (kind := error_class(int(status), error)) is not None:
            classes[str(kind)] += count
    progress = JobProgress(
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
    """How far a task is that the engine does not know."""
    return JobProgress(queued=task.url_count)


def status_of(
    task: Task, standing: CrawlSnapshot | None, now: float, waiting_before: int | None = None, lost: int = 0
) -> TaskSnapshot:
    """How a task stands, with its crawl's standing while it runs. `lost`: its pages whose bytes are gone since."""
    if lost:
        said = f"{lost:,} of its {task.progress.completed:,} pages cannot be read any more: their files are damaged"
        task = replace(task, message=f"{task.message}; {said}" if task.message else said)
    progress, classes, number, rate, memory = task.progress, task.errors_by_class, task.last_number, 0.0, 0
    waiting_for, waiting_until = waiting(task, standing)
    if not task.is_terminal:
        progress, classes, number = unstarted(task), {}, 0
        if standing is not None:
            (progress, classes), number, rate = progress_of(standing), standing.number, standing.rate
            memory = standing.memory_bytes
    return TaskSnapshot(
        task=task, progress=progress, errors_by_class=classes, duration_s=task.duration_s(now),
        remaining_s=task.remaining_s(now), waiting_before=waiting_before, number=number, pages_per_s=round(rate, 2),
        memory_bytes=memory, waiting_for=waiting_for, waiting_until=waiting_until, lost=lost,
    )  # fmt: skip


def waiting(task: Task, standing: CrawlSnapshot | None) -> tuple[str, float | None]:
    """What a task waits for, and until when."""
    if standing is None:
        return waiting_of(task)
    return waiting_of(task, standing.waiting_for, standing.waiting_until)


def finish_of(task: Task, standing: CrawlSnapshot) -> tuple[TaskState, TaskFinish]:
    """The end of a task whose crawl has ended."""
    progress, classes = progress_of(standing)
    reason = _REASONS[standing.reason or EndReason.FAILED]
    state, reason = ending(progress, reason, task.spec.partial_results_ok)
    messages = (_MESSAGES.get(standing.reason or EndReason.FAILED, ""), standing.pause_reason, _trap_text(standing))
    message = "; ".join(filter(None, messages))
    return state, TaskFinish(
        reason=reason, progress=progress, errors_by_class=classes, last_number=standing.number, message=message
    )


def _trap_text(standing: CrawlSnapshot) -> str:
    count = standing.ends.get(end_name(0, Reason.TRAP), 0)
    if not count:
        return ""
    number = f"{count:,} links were" if count > 1 else "1 link was"
    if count >= MOST_TRAPPED:
        number = f"{MOST_TRAPPED:,} links or more were"
    return f"{number} left out as part of an endless space (trap): `trap_rules: false` follows them, too"


def finish_without(
    task: Task, reason: FinishReason, progress: JobProgress | None = None, message: str = "", **more: Any
) -> tuple[TaskState, TaskFinish]:
    """The end of a task that the engine does not know, or that it cannot tell about."""
    progress = progress or unstarted(task)
    state, reason = ending(progress, reason, task.spec.partial_results_ok)
    return state, TaskFinish(reason=reason, progress=progress, message=message, **more)
