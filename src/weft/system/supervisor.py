"""Keeps everything running that must run: `with Supervisor(config) as supervisor:`, and so `weft up` and `weft serve`.

It holds its folder's lock, ends what a killed supervisor has left there, and monitors its services on a thread of
its own. Whichever way the block is left (its end, an exception, SIGINT, SIGTERM), all services are stopped, those that
depend on others first. If this process is killed its services end with it; what does not is found by the next one.

What is to run besides processes is added here by its own module, as `restart_if_dead` is: by name, over `start`.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec

from weft.config import ServiceConfig, load_service
from weft.engine.process.channel import ChannelServer, Peer, socket_path
from weft.errors import BadInput, WeftError
from weft.files import have_temporary_folder
from weft.jobs.layout import ENGINE
from weft.names import nearest
from weft.supervise import leftovers, process
from weft.supervise.graph import Graph, Kept
from weft.supervise.held import ProcessIdentity
from weft.supervise.notify import ServiceManager
from weft.supervise.service import Service, ServiceHealth
from weft.system import extras
from weft.system import state as kept
from weft.system.celery import CeleryServices, with_cluster
from weft.system.proxies import ProxyKeeping
from weft.system.recorder import Recorder
from weft.system.services import Declaration, Made, declared, has_cluster, wanted
from weft.system.sites import SiteScrapers
from weft.system.state import SystemState
from weft.system.supervisor_metrics import Figures
from weft.telemetry import Log

POLL_S = 0.05
LEFTOVERS_S = 5.0  # grace for processes that a killed supervisor has left, before SIGKILL
STRAYS_S = 1.0  # the same after a stop, when what has started them has ended
VERBS = ("status", "restart", "stop")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
log = Log("weft.system.supervisor")


class Stopping(WeftError):
    """The supervisor was asked to end while a caller waited for services."""


class GivenUp(WeftError):
    """A service has failed so often that it is not started again."""


class Supervisor(SiteScrapers):
    """All services of one data dir. Its methods may be called from any thread."""

    def __init__(
        self,
        config: ServiceConfig | None = None,
        *,
        in_background: bool = False,
        lock: int | None = None,
        **settings: Any,
    ) -> None:
        """`config`, or settings by the names of the service's keys. `lock`: the folder's, which this process has."""
        if config is not None and settings:
            raise BadInput("give a configuration, or settings, not both")
        super().__init__()
        service_config = config or load_service(flags=settings)
        self.data_dir = Path(service_config.server.data_dir).resolve()
        self.config = msgspec.structs.replace(
            service_config, server=msgspec.structs.replace(service_config.server, data_dir=str(self.data_dir))
        )
        self._graph, self._made = Graph(), dict[str, Made]()
        self._mutex = threading.RLock()
        self._asked = threading.Event()  # set when the end was requested
        self._over = threading.Event()
        self._is_closing = self._hurry = self._is_waiting = self._is_up = False
        self._handlers: dict[int, Any] = {}
        self._recorder = Recorder(self.data_dir, self.config, in_background=in_background)
        self._lock, self._handed_lock = -1, lock
        self._mark = ""
        self._declared: dict[str, Declaration] = {}
        self._wanted = wanted(self.config)
        self._proxies = ProxyKeeping(self.config, self._celery)
        self._figures = Figures(self.data_dir / ENGINE / "metrics")
        self._manager = ServiceManager()  # `run` asks who has started this process; inside a program nobody

    # ── from its beginning to its end ──────────────────────────────────────────────────────────────────────────────

    def __enter__(self) -> Supervisor:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Locks the folder, and ends processes that an earlier supervisor has left; Busy if another supervisor runs."""
        handed, self._handed_lock = self._handed_lock, None
        self._lock = kept.acquire_lock(self.data_dir) if handed is None else handed
        self._pid = os.getpid()
        have_temporary_folder(self.data_dir)
        self._asked.clear()
        self._over.clear()
        self._is_closing = self._hurry = self._is_waiting = False
        try:
            self._mark = kept.mark_of(self._lock)
            name, _, value = self._mark.partition("=")
            if has_cluster(self.config):
                self.config = with_cluster(self.config)
            self._declared = declared(self.config, {name: value})
            self._control = ChannelServer(socket_path(self.data_dir, kept.SOCKET), self._command, at_once=VERBS)
        except BaseException:
            os.close(self._lock)
            self._lock = -1
            raise
        self._thread = threading.Thread(target=self._monitor, name="supervisor", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        try:
            self._listen_to_signals()
            self.cleanup_stale_processes()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stops everything, and lets the folder go. Safe to call twice; in a fork of this process it does nothing."""
        if self._lock < 0 or self._pid != os.getpid():
            return
        self._is_closing = True
        self._manager.stopping()
        try:
            self._close_sites()
            self._proxies.close()
            self.stop_all()
        finally:
            self._over.set()
            self._thread.join()
            self._control.close()
            os.close(self._lock)
            self._lock = -1
            atexit.unregister(self.close)
            for number, handler in self._handlers.items():
                signal.signal(number, handler)

    def run(
        self,
        is_up: Callable[[], None],
        names: Sequence[str] | None = None,
        *,
        until_failure: bool = False,
        is_open: Callable[[], None] = lambda: None,
    ) -> None:
        """Runs services until a signal or `weft down` comes; raises why they cannot be started.

        `is_open` is called when the folder is this one's alone, `is_up` when all services are healthy; then systemd is
        told, too.
        """
        self._manager = ServiceManager.from_environment()
        extras.check(self.config, self._wanted if names is None else names)  # before the folder is created
        with self:
            is_open()
            try:
                self._is_waiting = True
                self.start_all(names)
                is_up()
                self._manager.ready(f"all services are up{''.join(f', at {url}' for url in self.urls.values())}")
                self.wait(until_failure=until_failure)
            except Stopping:
                log.info("stopped before all services were up")

    def wait(self, *, until_failure: bool = False) -> None:
        """Returns at a signal or `weft down`. `until_failure`: raises if a service is given up."""
        self._is_waiting = True
        try:
            while not self._asked.wait(POLL_S):
                if until_failure and (failed := [one for one in self._services() if one.has_ended and not one.healthy]):
                    raise _failure_of(failed[0])
        finally:
            self._is_waiting = False

    # ── services ───────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, name: str, timeout_s: float | None = None) -> bool:
        """Has a service run, and what it needs. True when it is healthy, otherwise an error says why it is not; one
        that is healthy is left as it is."""
        with self._mutex:
            if name == "celery":
                self._have_cluster()
            self._make([name])
            needed = self._graph.with_needs(self._graph.named(name))
            self._begin_again([service for service in needed if service.has_ended and not service.healthy])
        self._wait_for([name], timeout_s)
        return True

    def start_redis(self) -> bool:
        """`start` for Redis."""
        return self.start("redis")

    def start_celery(self) -> bool:
        """`start` for Celery: the worker and scheduler, and the Redis that they need."""
        return self.start("celery")

    def is_celery_alive(self) -> bool:
        """Whether the worker answers pings and sends heartbeats, and the scheduler sends its tasks."""
        return self.is_alive("celery")

    def restart_celery_if_dead(self) -> bool:
        """`restart_if_dead` for Celery."""
        return self.restart_if_dead("celery")

    def start_all(self, names: Sequence[str] | None = None) -> None:
        """Starts all services of the configuration, or these, at the same time."""
        chosen = list(self._wanted if names is None else names)
        with self._mutex:
            self._make(chosen)
        self._wait_for(chosen, None)
        self._is_up = True

    def is_alive(self, name: str) -> bool:
        """Whether the service runs and its last health check was good."""
        with self._mutex:
            self._graph.turn()
            services = self._graph.named(self._known(name))
            return bool(services) and all(service.healthy for service in services)

    def restart(self, name: str, timeout_s: float | None = None) -> None:
        """Stops a service in good order and starts it again; returns when it is healthy."""
        self._restart(name)
        self._wait_for([name], timeout_s)

    def restart_if_dead(self, name: str) -> bool:
        """Whether the service is healthy when this returns: it was, or it was restarted. False: it was given up, and
        `status()` has the reason."""
        if self.is_alive(name):
            return True
        with self._mutex:
            services = self._graph.named(name)
            self._begin_again(
                [one for one in services if one.pid is None or one.report.health is ServiceHealth.FAILING]
            )
        try:
            return self.start(name)
        except GivenUp as given_up:
            log.warning("a restart failed", service=name, error=given_up)
            return False

    def stop_all(self) -> None:
        """Stops every service, those that depend on others first; returns when nothing of them is left. Sites keep what
        their runs have, and these continue when the services run again."""
        with self._mutex:
            graph = self._graph
            graph.stop()
        while not graph.has_ended:
            if self._hurry:
                with self._mutex:
                    graph.kill()
            time.sleep(POLL_S / 5)
        with self._mutex:
            if self._graph is graph:  # else another thread has stopped them, too
                for made in reversed(self._made.values()):
                    made.close()
                self._graph, self._made, self._is_up = Graph(), {}, False
        self._end_leftovers([], STRAYS_S)
        with self._mutex:
            self._recorder.write(self._state())

    def cleanup_stale_processes(self) -> list[int]:
        """Ends what an earlier supervisor has left, and what a service that died has; says which processes."""
        return self._end_leftovers(kept.recorded(kept.read(self.data_dir)), LEFTOVERS_S)

    def status(self) -> SystemState:
        """The current status of all services."""
        with self._mutex:
            self._graph.turn()
            return self._state()

    @property
    def urls(self) -> dict[str, str]:
        """The URLs of the services, by name."""
        with self._mutex:
            return {name: made.url for name, made in self._made.items() if made.url}

    def _state(self) -> SystemState:
        idle = [name for name in self._wanted if name not in self._made]
        return self._recorder.state(self._graph, self.urls, idle, self._proxies.row(), is_up=self._is_up)

    # ── proxies ────────────────────────────────────────────────────────────────────────────────────────────────────

    def trigger_proxy_refresh(self) -> str:
        """Has all proxies collected and tested, in the background; gives the job's id. One that runs is left to."""
        return self._proxies.trigger()

    def proxy_progress(self, job_id: str = "") -> dict[str, Any]:
        """The progress keys of a refresh, or of the last one: `proxy_refresh:ID:status` and others, kept for as long as
        tasks are."""
        return self._proxies.progress(job_id)

    def get_proxy_count(self) -> int:
        """The number of proxies that were tested the last time."""
        return self._proxies.count()

    def get_usable_proxy_count(self) -> int:
        """The number of proxies that have passed their last test."""
        return self._proxies.usable()

    def wait_for_proxies(self, timeout: float | None = None) -> bool | None:
        """Until `min_proxies` are usable: True. False: too few have passed; None: the time (in seconds) was over."""
        return self._proxies.wait(timeout)

    # ── inside: making and waiting ─────────────────────────────────────────────────────────────────────────────────

    def _known(self, name: str) -> str:
        """The name of a declared service, or of one of its processes."""
        if self._lock < 0:
            raise BadInput("the supervisor is not open: use it in a `with` block")
        if name in self._declared or self._graph.named(name):
            return name
        if name == "proxies":
            raise BadInput("proxies are no process: `weft proxies refresh` tests them again")
        near = nearest(name, self._declared)
        hint = f"; did you mean {near!r}?" if near else ":"
        raise BadInput(f"no service {name!r}{hint} there are {', '.join(self._declared)}")

    def _celery(self) -> CeleryServices | None:
        made = self._made.get("celery")
        return None if made is None else made.celery

    def _have_cluster(self) -> None:
        """Settings without a cluster get one when Celery is started all the same."""
        if not has_cluster(self.config):
            services = msgspec.structs.replace(self.config.services, with_cluster=True)
            self.config = with_cluster(msgspec.structs.replace(self.config, services=services))
            name, _, value = self._mark.partition("=")
            self._declared = declared(self.config, {name: value})

    def _make(self, names: Iterable[str]) -> None:
        """Makes those that are not there yet, and what they need; none of them is started before all are made."""
        new: dict[str, Made] = {}
        try:
            for name in names:
                self._make_one(self._known(name), new)
        except BaseException:
            for made in reversed(new.values()):
                made.close()
            raise
        for made in new.values():
            self._graph.add(made.services)
        self._made |= new

    def _make_one(self, name: str, new: dict[str, Made]) -> None:
        if name in self._made or name in new or name not in self._declared:
            return
        if self._graph.is_stopping:
            raise Stopping("the services are being stopped")
        declaration = self._declared[name]
        for other in declaration.needs:
            self._make_one(other, new)
        new[name] = declaration.make(self._made | new)

    def _services(self) -> list[Kept]:
        with self._mutex:
            return list(self._graph)

    def _wait_for(self, names: Sequence[str], timeout_s: float | None) -> None:
        """Waits until all are healthy; raises the reason if one will not be."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            with self._mutex:
                services = [service for name in names for service in self._graph.named(name)]
                if self._asked.is_set() or self._graph.is_stopping or not services:
                    raise Stopping("the services are being stopped")
                failed = [
                    service for service in self._graph.with_needs(services) if service.has_ended and not service.healthy
                ]
            if failed:
                raise _failure_of(failed[0])
            if all(service.healthy for service in services):
                return
            if until is not None and time.monotonic() > until:
                late = next(service for service in services if not service.healthy)
                raise WeftError(
                    f"{late.name} is not healthy after {timeout_s:g} s: {late.report.reason or 'no answer'}"
                )
            time.sleep(POLL_S / 5)

    def _restart(self, name: str) -> None:
        with self._mutex:
            services = self._graph.named(self._known(name))
            if not services:
                raise BadInput(f"{name}: is not running here; it is none of the `services` of this supervisor")
            self._begin_again(services)

    def _begin_again(self, services: Iterable[Kept]) -> None:
        """Has services started again; Stopping while all are stopped: what began again then would never end."""
        if self._graph.is_stopping:
            raise Stopping("the services are being stopped")
        for service in services:
            service.restart()

    def _end_leftovers(self, records: Sequence[ProcessIdentity], grace_s: float) -> list[int]:
        """Ends processes that an earlier supervisor has left; this supervisor's own children are kept."""
        ended = []
        for one in leftovers.find(records, self._mark):
            if process.descends_from(one.pid, os.getpid()):
                one.close()
            else:
                ended.append(one)
        leftovers.end(ended, grace_s)
        for declaration in self._declared.values():
            if declaration.name not in self._made:
                declaration.clean_up()
        return [one.pid for one in ended]

    # ── inside: the thread ─────────────────────────────────────────────────────────────────────────────────────────

    def _monitor(self) -> None:
        while not self._over.is_set():
            try:
                select.select([self._control], [], [], POLL_S)
                self._proxies.turn()
                celery = self._celery()
                self._figures.turn(self._proxies.counts(), celery.metrics if celery is not None else None)
                with self._mutex:
                    self._graph.turn()
                    self._control.turn()
                    self._control.reply_to_reads()
                    if self._recorder.is_due(self._graph):
                        self._recorder.write(self._state())
                self._manager.turn()
            except Exception:  # a defect of ours must not leave the services without anybody
                log.error("a turn failed", exc_info=True)
                time.sleep(1.0)

    def _command(self, _: Peer, verb: str, arguments: dict[str, Any]) -> Any:
        """What `weft status`, `weft restart` and `weft down` ask for (see `control`)."""
        if verb == "status":
            return msgspec.to_builtins(self._state())
        if verb == "restart":
            self._restart(str(arguments.get("name")))
            return None
        if verb == "stop":
            self._stop_on_request()
            return None
        raise BadInput(f"no command {verb!r}")

    def _stop_on_request(self) -> None:
        log.info("stopping", reason="it was asked to")
        if self._handlers:
            os.kill(os.getpid(), signal.SIGTERM)  # the main thread is in the block, and leaves it
        else:
            self._asked.set()
            self._graph.stop()

    # ── inside: signals ────────────────────────────────────────────────────────────────────────────────────────────

    def _listen_to_signals(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, self._signalled) for number in SIGNALS}

    def _signalled(self, number: int, _: FrameType | None) -> None:
        """In the main thread, which waits here or does something else inside the block."""
        if self._is_closing:
            self._hurry = True  # the second one: at once
            return
        self._asked.set()
        if self._is_waiting:
            return
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


Orchestrator = Supervisor


def _failure_of(service: Kept) -> WeftError:
    """Why a service was given up: what it refuses is the user's to correct."""
    said = service.stderr_tail.splitlines() if isinstance(service, Service) else []
    kind, _, message = (said[-1] if said else "").partition(": ")
    if kind in ("BadInput", "BadConfig", "Busy", "Damaged", "Missing") and message:
        return BadInput(f"{service.name}: {message}")
    return GivenUp(service.failure)
