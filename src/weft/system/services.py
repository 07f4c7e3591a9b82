"""The declarations of all services: what each needs, how it is made, and where it logs.

A declaration makes a service when it is first wanted, and raises what is in its way then: a port that is taken, a
program that is missing, a Redis that cannot be used. How it is started, how its health is asked and how it is stopped
is the service's own (`supervise/service.py`).

    redis    our own server in DATA_DIR/redis, or one that runs already; needs nothing
    celery   a worker and scheduler; needs redis
    engine   runs all tasks; needs nothing
    api      the workers that answer requests, and the runner in one of them; needs the engine
    crawl-NAME   a crawl of the configuration, until it has finished; needs nothing
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.cluster.supervised.children import SCHEDULER_LOG, WORKER_LOG
from weft.config import ServiceConfig
from weft.crawl.processes.service import DeclaredCrawl, declared_crawls
from weft.jobs.processes.services import ENGINE_LOG, Api, engine_of, worker_log
from weft.supervise.graph import Kept
from weft.supervise.redis_server import end_leftovers
from weft.supervise.service import Service
from weft.system.celery import CeleryServices
from weft.system.redis import redis_of

# What other rooms show on the dashboard, which knows none of them: see jobs/dashboard/panels.py.
CLUSTER = ("redis", "celery")  # what `--cluster` adds
PANELS = ("weft.crawl.machine:MachineCrawls",)
CLUSTER_PANELS = ("weft.cluster.supervised.cluster_panel:ClusterPanel",)  # with a broker


@dataclass(frozen=True, slots=True)
class Made:
    """A service that was made: its processes, its URLs, and what cleans up after their end."""

    services: Sequence[Kept]
    url: str = ""
    close: Callable[[], None] = lambda: None
    celery: CeleryServices | None = None


@dataclass(frozen=True, slots=True)
class Declaration:
    """A service that can be made."""

    name: str
    make: Callable[[Mapping[str, Made]], Made]  # called with the services that it needs, by name
    logs: Sequence[Path]
    needs: tuple[str, ...] = ()
    clean_up: Callable[[], None] = lambda: None  # ends what a killed one leaves, where nothing else finds it


def declared(config: ServiceConfig, environment: Mapping[str, str]) -> dict[str, Declaration]:
    """All services by name, in order of dependency. Their processes get `environment` besides their own."""
    log_dir, folder = Path(config.log.log_dir), Path(config.server.data_dir) / "redis"
    redis_log = log_dir / "redis_0.log"

    def redis(_: Mapping[str, Made]) -> Made:
        service, url, close = redis_of(config.services, folder, redis_log, environment)
        return Made((service,), url, close)

    def celery(made: Mapping[str, Made]) -> Made:
        (needed,) = made["redis"].services
        services = CeleryServices(config, needed, environment)
        return Made((services.worker, services.scheduler), close=services.close, celery=services)

    def engine(_: Mapping[str, Made]) -> Made:
        return Made((engine_of(config, environment),))

    def api(made: Mapping[str, Made]) -> Made:
        (needed,) = made["engine"].services
        assert isinstance(needed, Service)
        served = Api(config, needed, environment, PANELS + (CLUSTER_PANELS if config.cluster.broker else ()))
        return Made(served.workers, served.url, served.close)

    workers = [worker_log(config, index) for index in range(config.server.workers)]
    crawls = declared_crawls(config.services.crawls)
    declarations = (
        Declaration("redis", redis, (redis_log,), clean_up=lambda: end_leftovers(folder)),
        Declaration("celery", celery, (log_dir / WORKER_LOG, log_dir / SCHEDULER_LOG), needs=("redis",)),
        Declaration("engine", engine, (log_dir / ENGINE_LOG,)),
        Declaration("api", api, workers, needs=("engine",)),
        *(Declaration(one.name, _make_crawl(one, environment), one.logs) for one in crawls),
    )
    return {one.name: one for one in declarations}


def wanted(config: ServiceConfig) -> list[str]:
    """The services that `weft up` runs: the named ones, and all crawls."""
    cluster = [name for name in CLUSTER if has_cluster(config) and name not in config.services.services]
    return [*cluster, *config.services.services, *(one.name for one in declared_crawls(config.services.crawls))]


def has_cluster(config: ServiceConfig) -> bool:
    """Whether the configuration includes a cluster: a broker, worker and scheduler."""
    return config.services.with_cluster or "celery" in config.services.services


def _make_crawl(crawl: DeclaredCrawl, environment: Mapping[str, str]) -> Callable[[Mapping[str, Made]], Made]:
    return lambda _: Made((crawl.service(environment),))
