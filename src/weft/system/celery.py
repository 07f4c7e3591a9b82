"""The Celery of a supervisor: a worker that also serves the supervisor's own queue, and scheduler.

The broker is the one that the settings name, or the service `redis`; the key too, or one that is made in the data dir:

    DATA_DIR/cluster.key   made at the first start with a cluster, mode 0600
    DATA_DIR/celery_beat.heartbeat    touched by scheduler while it is well

Both reach the processes over a pipe: they are in no command line. A worker is asked from a thread (`hand_health`);
while Redis is not healthy nothing is held against it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from msgspec.structs import replace

from weft.cluster.broker import check_address
from weft.cluster.chunk_progress import limits_of
from weft.cluster.key import ClusterKey, configured_key, make_key
from weft.cluster.supervised.children import VISIBILITY_S, HandSpec, LogSpec, SchedulerSpec
from weft.cluster.supervised.ticks import TickEntry
from weft.cluster.tasks import SYSTEM
from weft.config import ServiceConfig
from weft.engine.transports.transports import proxy_refresh
from weft.errors import Missing
from weft.fetch.proxies.refresh import KIND, Refresh, Work
from weft.supervise.child import RestartPolicy
from weft.supervise.probe import HealthProbe, Patience
from weft.supervise.process import Exit
from weft.supervise.redis_server import socket_path
from weft.supervise.service import (
    HEALTHY,
    Command,
    ExitMeaning,
    HealthReport,
    Moving,
    Need,
    Service,
    ServiceHealth,
    StopMethod,
    touched,
)
from weft.system.site_progress import SiteProgressKeys
from weft.telemetry import Log

if TYPE_CHECKING:
    from weft.cluster.supervised.cluster_figures import ClusterFigures
    from weft.cluster.supervised.hand_health import HandHealth

KEY = "cluster.key"
HEARTBEAT_FILE = "celery_beat.heartbeat"
HEARTBEAT_S = 10  # interval of the scheduler's heartbeats
ASK_S, AGAIN_S = 2.0, 0.5
STUCK_S = 15.0  # a worker that was well, and has not answered for this long, is replaced
LATE_S, SCHEDULER_STUCK_S, START_S = 5.0, 20.0, 60.0
TEST_VISIBILITY = "WEFT_TEST_VISIBILITY_S"
METRICS_S = 5.0
REFUSED = 2
POLICY = RestartPolicy(max_delay_s=3.0, start_timeout_s=90.0, health_forgives=True, stop_grace_s=20.0)
log = Log("weft.system.celery")


def with_cluster(config: ServiceConfig, *, may_make: bool = True) -> ServiceConfig:
    """The settings with the broker and the key that a cluster has here. Without `may_make` no key is made: Missing."""
    data_dir = Path(config.server.data_dir).resolve()
    section = replace(config.cluster, broker=_broker(config, data_dir / "redis"))
    if not section.key and not section.key_file:
        path = data_dir / KEY
        if not path.exists():
            if not may_make:
                raise Missing.said(f"there is no {path}: `weft up --cluster` makes it")
            make_key(path)
        section = replace(section, key_file=str(path))
    services = replace(
        config.services, redis_url=section.broker if config.cluster.broker else config.services.redis_url
    )
    return replace(config, cluster=section, services=services)


def _broker(config: ServiceConfig, folder: Path) -> str:
    """The address of the broker, with its password."""
    url = config.cluster.broker or config.services.redis_url or f"unix://{socket_path(folder)}"
    check_address(url)
    parts, password = urlsplit(url), config.services.redis_password
    if not password or parts.password:
        return url
    return url.replace("://", f"://{parts.username or ''}:{quote(password, safe='')}@", 1)


class CeleryServices:
    """The processes of worker and scheduler, and the thread that checks the worker."""

    def __init__(self, config: ServiceConfig, redis: Need, environment: Mapping[str, str]) -> None:
        """`config`: the result of `with_cluster`."""
        assert config.cluster.broker is not None
        self._config, self._redis = config, redis
        self._broker, self._key = config.cluster.broker, configured_key(config.cluster)
        self._heartbeat = Path(config.server.data_dir) / HEARTBEAT_FILE
        self._wants = _TickRequests()
        self._health = _WorkerProbe(self._broker, self._key, self._wants)
        self._sites = SiteProgressKeys(
            Path(config.server.data_dir), self._broker, self._key.cluster_id, config.jobs.retention_hours * 3600
        )
        self._probe = HealthProbe(self._health.ask, every_s=ASK_S, soon_s=AGAIN_S)
        self.worker = Service(
            "celery_worker", self._worker_command, policy=POLICY, ask=StopMethod.CLOSE_INPUT, needs=(redis,),
            needs_once=True, environment=environment, on_start=self._health.begin, judge=_judge_exit,
            health=Patience(self._probe.answer, STUCK_S, excused=lambda: not redis.healthy),
        )  # fmt: skip
        self.scheduler = Service(
            "celery_beat", self._scheduler_command, policy=POLICY, ask=StopMethod.CLOSE_INPUT, needs=(redis,),
            needs_once=True, environment=environment, judge=_judge_exit,
            health=Moving(lambda: touched(self._heartbeat), SCHEDULER_STUCK_S, start_s=START_S, must_move_first=True,
                          late_s=LATE_S),
        )  # fmt: skip

    def close(self) -> None:
        """Closes connections; to be called after the processes have ended."""
        self._probe.close()
        self._sites.close()
        self._health.close()

    @property
    def metrics(self) -> ClusterFigures | None:
        """The metrics of the cluster; None before they were first read."""
        return self._health.metrics

    def wants_refresh(self) -> bool:
        """Whether a tick of the scheduler has requested a refresh of the proxies; each request is reported once."""
        return self._wants.claim(KIND)

    def refresh_work(self, refresh: Refresh, over: threading.Event) -> Work | None:
        """Who tests proxies while the worker is well; None: this process does."""
        if not self.worker.healthy:
            return None
        work, trouble = cluster_work(self._config, refresh, over)
        if trouble:
            log.warning("proxies are tested without the workers", why=trouble)
        return work

    def _worker_command(self) -> Command:
        visibility_s = float(os.environ.get(TEST_VISIBILITY) or VISIBILITY_S)
        spec = HandSpec(
            broker=self._broker, key=self._key.text, concurrency=self._config.cluster.concurrency,
            visibility_s=visibility_s, logs=self._log_spec(),
        )  # fmt: skip
        return _make_command("weft.cluster.supervised.supervised_hand", spec.framed())

    def _scheduler_command(self) -> Command:
        entries = [(TickEntry("heartbeat", HEARTBEAT_S), "heartbeat")]
        if can_refresh(self._config):
            entries.append((TickEntry(KIND, max(1, int(self._config.proxy.refresh_s))), SYSTEM))
        spec = SchedulerSpec(
            broker=self._broker, key=self._key.text, entries=tuple(entries), heartbeat=str(self._heartbeat),
            logs=self._log_spec(),
        )  # fmt: skip
        return _make_command("weft.cluster.supervised.tick_scheduler", spec.framed())

    def _log_spec(self) -> LogSpec:
        section = self._config.log
        return LogSpec(folder=section.log_dir, level=section.log_level, shown_as=section.log_format)


def can_refresh(config: ServiceConfig) -> bool:
    """Whether there are proxies to test, and something to test them with."""
    refresh = proxy_refresh(config.fetch, config.proxy, Path(config.server.data_dir))
    return config.proxy.test_url is not None and bool(refresh.sources)


def cluster_work(
    config: ServiceConfig, refresh: Refresh, over: threading.Event | None = None
) -> tuple[Work | None, str]:
    """Work that tests proxies on the workers; or None, with the reason why they cannot."""
    from weft.cluster.dispatch import Cluster
    from weft.cluster.refresh.refreshing import ClusterRefresh

    cluster = Cluster.configured(config.cluster)
    work = ClusterRefresh(refresh, cluster, limits_of(config.cluster), over=over)
    if work.trouble:
        cluster.close()
        return None, work.trouble
    return work, ""


class _TickRequests:
    """The requests of the scheduler's ticks to the supervisor; read by the thread that checks the worker."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._lock = threading.Lock()

    def add(self, names: set[str]) -> None:
        with self._lock:
            self._names |= names

    def claim(self, name: str) -> bool:
        with self._lock:
            is_wanted = name in self._names
            self._names.discard(name)
        return is_wanted


class _WorkerProbe:
    """The worker's health, as a probe asks for it on its thread."""

    def __init__(self, broker: str, key: ClusterKey, wishes: _TickRequests) -> None:
        self._broker, self._key, self._wishes = broker, key, wishes
        self._pid = 0
        self._health: HandHealth | None = None
        self._next_metrics_s = 0.0
        self.metrics: ClusterFigures | None = None  # the cluster's metrics, a few seconds old

    def begin(self, pid: int) -> None:
        """Notes that a worker process was started: the probe is about this one from now on."""
        self._pid = pid

    def ask(self) -> HealthReport:
        """Checks the worker by a ping and its last heartbeat."""
        from weft.cluster.supervised.hand_health import HandHealth, NotWell

        if not (pid := self._pid):
            return HealthReport(ServiceHealth.STARTING)
        self._health = self._health or HandHealth(self._broker, self._key)
        try:
            self._health.check(pid)
            self._wishes.add(self._health.wanted())
            if time.monotonic() >= self._next_metrics_s:
                self._next_metrics_s = time.monotonic() + METRICS_S
                self.metrics = self._health.cluster_metrics()
        except NotWell as why:
            return HealthReport(ServiceHealth.FAILING, str(why))
        return HEALTHY

    def close(self) -> None:
        """Stops checking the worker."""
        if self._health is not None:
            self._health.close()


def _judge_exit(how: Exit) -> ExitMeaning:
    """The meaning of an exit: an error that would occur again is final; a kill from outside is not its fault."""
    if how.code == REFUSED:
        return ExitMeaning.FINAL
    return ExitMeaning.HARMLESS if how.signal_name == "SIGKILL" else ExitMeaning.BY_TIME


def _make_command(module: str, spec: bytes) -> Command:
    # A session of its own: a terminal's Ctrl-C is for the supervisor, which stops them in order.
    return Command([sys.executable, "-m", module], stdin=spec, keeps_words=True, new_session=True)
