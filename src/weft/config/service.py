"""The keys of the scrape service: address, concurrency, limits and retention."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from weft.config.cluster import ClusterSection
from weft.config.crawl import FetchSection, LoginsSection
from weft.config.proxies import ProxySection
from weft.config.section import Help, Positive, Seconds, Section, Texts, Timeout, Tuning


class ServerSection(Section, frozen=True, kw_only=True):
    """Where the service listens, and where it stores its data."""

    host: Annotated[str, Help("address to listen on; any but loopback requires API keys")] = "127.0.0.1"
    port: Annotated[Annotated[int, Meta(ge=0, le=65535)], Help("port to listen on; 0: a free one")] = 8000
    workers: Annotated[Annotated[int, Meta(ge=1, le=64)], Help("processes that answer requests")] = 1
    data_dir: Annotated[str, Help("folder for tasks and pages, created if necessary")] = "./weft-service"
    api_keys_file: Annotated[
        str | None,
        Help("file of API keys besides those of `weft keys`: one on a line, as text or as `sha256:DIGEST`"),
    ] = None


class JobsSection(Section, frozen=True, kw_only=True):
    """How many tasks run at a time, how tasks treat sites, and how long tasks are kept."""

    max_tasks: Annotated[Positive, Help("tasks that run at a time")] = field(default=5, name="max_concurrent_tasks")
    max_tasks_per_key: Annotated[
        Positive | None, Help("tasks of one API key that run at a time; none: as many as there are slots")
    ] = None
    allow_scripts: Annotated[bool, Tuning("let callers run JavaScript of their own on rendered pages")] = False
    max_scrapes: Annotated[Positive, Help("single pages and maps that run at a time")] = field(
        default=20, name="max_concurrent_scrapes"
    )
    max_sites: Annotated[Positive, Help("sites with a schedule that run at a time")] = field(
        default=16, name="max_concurrent_sites"
    )
    max_articles: Annotated[Annotated[int, Meta(ge=1, le=1000)], Help("pages that a task has in flight by default")] = (
        field(default=10, name="max_concurrent_articles")
    )
    delay_s: Annotated[Seconds, Help("least seconds between the starts of two requests to one site")] = field(
        default=0.2, name="job_delay_seconds"
    )
    breaker_failures: Annotated[Positive, Help("failures in a row that open the breaker of a host and port")] = 5
    breaker_reset_s: Annotated[Timeout, Help("seconds an open breaker waits before a probe")] = field(
        default=300.0, name="breaker_reset_seconds"
    )
    max_pending: Annotated[Positive, Help("tasks that may wait in a lane; more are refused")] = field(
        default=10_000, name="max_pending_tasks"
    )
    max_pending_hours: Annotated[Timeout, Help("hours that a task may wait for its start")] = 24.0
    retention_hours: Annotated[Timeout, Help("hours that a task is kept after its end")] = field(
        default=24.0, name="task_retention_hours"
    )
    log_days: Annotated[
        Timeout | None, Help("days that requests are kept as evidence in the request log; none: for good")
    ] = field(default=None, name="request_log_days")
    log_bytes: Annotated[
        Positive | None, Help("bytes of the request log, at most; its oldest files are deleted; none: no limit")
    ] = field(default=None, name="request_log_bytes")
    cleanup_s: Annotated[Timeout, Tuning("seconds between two deletions of old tasks, or a tenth of the retention")] = (
        field(default=3600.0, name="cleanup_interval_seconds")
    )


class ServiceFetchSection(FetchSection, frozen=True, kw_only=True):
    """How tasks ask for pages. `workers` are processes of the service here."""

    hands: Annotated[
        Literal["local", "cluster", "prefer-cluster"],
        Tuning("who requests pages: this machine, workers on others (cluster), or these while there are some"),
    ] = field(default="local", name="task_workers")


class ServicesSection(Section, frozen=True, kw_only=True):
    """What `weft up` runs; these are flags of `weft up` only."""

    services: Annotated[
        Texts, Help("what `weft up` keeps running, besides what that needs: redis, celery, engine, api")
    ] = ("engine", "api")
    with_cluster: Annotated[
        bool, Help("also run a Redis, a Celery worker and scheduler, for work that other machines may share")
    ] = field(default=False, name="cluster")
    crawls: Annotated[
        Texts, Help("configuration files of crawls that `weft up` also runs, each to its end; each needs a `seed_file`")
    ] = ()
    redis_url: Annotated[
        str | None,
        Help("address of the service `redis`; a server running there is never stopped; none: Weft runs its own"),
    ] = None
    redis_password: Annotated[str | None, Tuning("password of that Redis")] = None


class ServiceLogSection(Section, frozen=True, kw_only=True):
    """What the service logs."""

    log_dir: Annotated[str, Tuning("folder of the log files")]
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"],
        Help("lowest level in the log files: DEBUG, INFO, WARNING or ERROR"),
    ] = "INFO"
    log_format: Annotated[
        Literal["text", "json"] | None,
        Help("also write the lines of all processes to standard output, as text or json; none: to the log files alone"),
    ] = None


class ServiceConfig(Struct, frozen=True, kw_only=True):
    """The whole configuration of the service; only the CLI has it, components get sections."""

    server: ServerSection
    jobs: JobsSection
    fetch: ServiceFetchSection
    proxy: ProxySection
    cluster: ClusterSection
    logins: LoginsSection
    services: ServicesSection
    log: ServiceLogSection
