"""The processes of the scrape service as supervised services: one engine, and several workers that answer requests.

Constructors raise what would prevent the start: an address that cannot be listened on, a port in use, a folder of
something else. The supervisor owns the listening socket and the workers inherit it, so connections wait in its backlog
while a worker restarts. All processes end with the supervisor, because their pipe to it closes.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import disk_usage

from weft.config import ServiceConfig
from weft.engine.crawls.settings import config_of, engine_settings_of, storable_settings
from weft.engine.folder import EngineFolder
from weft.engine.login.checking import check_logins
from weft.engine.loop.parser.suspects import read_heartbeat
from weft.engine.machine import check_clock
from weft.engine.process.channel import Connection, EngineGone, socket_path
from weft.engine.process.engine_process import START_S, STOP_S, engine_service, heartbeat_folder
from weft.engine.process.host import HostSpec
from weft.errors import Missing
from weft.fetch.proxies.live import is_live_file
from weft.fetch.proxies.pool import check as check_proxies
from weft.jobs.crawls import engine_settings
from weft.jobs.health import WORKERS_FAULTS
from weft.jobs.layout import ENGINE, STORE
from weft.jobs.processes.worker import WorkerSpec, log_name
from weft.jobs.store.sqlite import check_store
from weft.supervise.child import RestartPolicy
from weft.supervise.probe import HealthProbe, Patience
from weft.supervise.process import Exit
from weft.supervise.service import (
    HEALTHY,
    Command,
    ExitMeaning,
    HealthCheck,
    HealthReport,
    Moving,
    Service,
    ServiceHealth,
    StopMethod,
    touched,
)

LATE_S = 5.0  # a process without a heartbeat for this long is unhealthy
STUCK_S = 25.0  # and after this long it is replaced
HEALTHZ_S = 2.0
LEAST_ROOM_BYTES = 1 << 20  # with less there is no runner in any worker: the lease cannot be written
REFUSED = 2
WORKER_POLICY = RestartPolicy(max_delay_s=3.0, start_timeout_s=60.0, health_forgives=True, stop_grace_s=10.0)
ENGINE_POLICY = RestartPolicy(max_delay_s=3.0, start_timeout_s=START_S, health_forgives=True, stop_grace_s=STOP_S)
ENGINE_LOG = Path("pod_0") / "engine_0.log"


def engine_of(config: ServiceConfig, environment: Mapping[str, str] | None = None) -> Service:
    """The engine that runs all tasks; raises what is wrong with its settings or its folder."""
    folder = Path(config.server.data_dir) / ENGINE
    if (listed := config.fetch.proxies) is not None and not (config.proxy.sources and is_live_file(Path(listed))):
        check_proxies(Path(listed))
    check_logins(config.logins)
    shared = storable_settings(engine_settings_of(engine_settings(config)))
    EngineFolder([folder]).open_identity()
    check_clock(config_of(shared).politeness, lambda what: warnings.warn(what, stacklevel=2))
    spec = HostSpec(str(folder), shared)
    return engine_service(
        spec, policy=ENGINE_POLICY, health=engine_health(spec), judge=_judge_exit, environment=environment
    )


def engine_health(spec: HostSpec) -> HealthCheck:
    """The engine's health: up when it sends heartbeats and has answered at its socket once; heartbeats alone from then
    on."""
    moving = Moving(
        lambda: read_heartbeat(heartbeat_folder(spec)), STUCK_S, start_s=START_S, must_move_first=True, late_s=LATE_S
    )
    path, answered = socket_path(Path(spec.data_dir)), set[int]()

    def health(pid: int) -> HealthReport:
        report = moving(pid)
        if report.health is ServiceHealth.HEALTHY and pid not in answered:
            if not _engine_listens(path, pid):
                return HealthReport(ServiceHealth.LOADING, "it restores its crawls")  # while it sends heartbeats
            answered.add(pid)
        return report

    return health


def _engine_listens(path: Path, pid: int) -> bool:
    try:
        connection = Connection(path)
    except EngineGone:
        return False
    try:
        return connection.pid == pid
    finally:
        connection.close()


ALL_ADDRESSES = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 (where a service that listens at all addresses answers here)


class Api:
    """The workers, and the socket on which they answer."""

    def __init__(
        self,
        config: ServiceConfig,
        engine: Service,
        environment: Mapping[str, str] | None = None,
        panels: Sequence[str] = (),
    ) -> None:
        """Opens the socket; no worker answers yet. `panels`: see jobs/dashboard/panels.py."""
        self._config = config
        self._panels = tuple(panels)
        self._data_dir = Path(config.server.data_dir)
        check_store(self._data_dir / STORE)
        self._socket = _open_socket(config)
        self._is_excused = False  # a new worker would not solve the problem in the last answer
        self._probe = HealthProbe(self._probe_healthz)
        count = config.server.workers
        self.workers = [
            self._worker_service(index, "api" if count == 1 else f"api{index}", engine, environment)
            for index in range(count)
        ]

    @property
    def url(self) -> str:
        """The URL under which the service answers on this machine: a wildcard address is none to open."""
        host, port = self._socket.getsockname()[:2]
        host = ALL_ADDRESSES.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def close(self) -> None:
        """Closes the socket, after the workers have ended."""
        self._probe.close()
        self._socket.close()

    def _worker_service(self, index: int, name: str, engine: Service, environment: Mapping[str, str] | None) -> Service:
        heartbeats = self._data_dir / f"worker{index}.pulse"

        def command() -> Command:
            argv = [sys.executable, "-m", "weft.jobs.processes.worker", str(self._data_dir), str(index)]
            # The process inherits a copy of the socket; the descriptor that is passed is closed here, so it is a
            # duplicate.
            fd = os.dup(self._socket.fileno())
            spec = WorkerSpec(self._config, index, fd, str(heartbeats), self._panels)
            return Command(argv, stdin=spec.framed(), keeps_words=True, inherits=(fd,))

        # No dependency: without an engine a worker still answers, and its runner ends tasks whose deadlines pass.
        return Service(
            name, command, health=self._worker_health(heartbeats, engine), policy=WORKER_POLICY,
            ask=StopMethod.CLOSE_INPUT,
            judge=_judge_exit, needs=(engine,), needs_once=True, environment=environment,
        )  # fmt: skip

    def _worker_health(self, heartbeats: Path, engine: Service) -> HealthCheck:
        """The worker's own heartbeat, and the answer of /healthz, which any worker may give."""
        moving = Moving(lambda: touched(heartbeats), STUCK_S, must_move_first=True, late_s=LATE_S)
        answers = Patience(self._probe.answer, STUCK_S, excused=lambda: self._is_excused or not engine.healthy)

        def health(pid: int) -> HealthReport:
            report = moving(pid)
            return answers(pid) if report.health is ServiceHealth.HEALTHY else report

        return health

    def _probe_healthz(self) -> HealthReport:
        """Requests GET /healthz: 200 while tasks are started, and the engine that runs them answers."""
        host, port = self._socket.getsockname()[:2]
        connection = http.client.HTTPConnection(ALL_ADDRESSES.get(host, host), port, timeout=HEALTHZ_S)
        self._is_excused = False
        try:
            connection.request("GET", "/healthz", headers={"Connection": "close"})
            answer = connection.getresponse()
            if answer.status == http.client.OK:
                return HEALTHY
            problems = [str(one) for one in json.loads(answer.read(65_536))["problems"]]
            is_workers_fault = any(problem.startswith(WORKERS_FAULTS) for problem in problems)
            self._is_excused = not is_workers_fault or disk_usage(self._data_dir).free < LEAST_ROOM_BYTES
            return HealthReport(ServiceHealth.FAILING, "; ".join(problems))
        except TimeoutError:
            return HealthReport(ServiceHealth.FAILING, f"GET /healthz: no answer in {HEALTHZ_S:g} s")
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError) as error:
            return HealthReport(ServiceHealth.FAILING, f"GET /healthz: {error or type(error).__name__}")
        finally:
            connection.close()


def worker_log(config: ServiceConfig, index: int) -> Path:
    """The path of a worker's log file."""
    return Path(config.log.log_dir) / log_name(index)


def _open_socket(config: ServiceConfig) -> socket.socket:
    try:
        from weft.jobs.api.access.keys import Keyring
        from weft.jobs.api.server import listen
        from weft.jobs.api.settings import KEYS_FILE, check_address, listed_keys_of
    except ImportError:
        raise Missing.of_extra("the HTTP server", "serve") from None
    server = config.server
    keyring = Keyring(Path(server.data_dir) / KEYS_FILE, listed=listed_keys_of(server))
    if keyring.problem is not None:
        raise keyring.problem
    check_address(server.host, not keyring.is_empty, server.data_dir)
    return listen(server.host, server.port)


def _judge_exit(how: Exit) -> ExitMeaning:
    """What an exit means: a refusal to start would be repeated; a kill from outside is not a crash of the worker."""
    if how.code == REFUSED:
        return ExitMeaning.FINAL
    return ExitMeaning.HARMLESS if how.signal_name == "SIGKILL" else ExitMeaning.BY_TIME
