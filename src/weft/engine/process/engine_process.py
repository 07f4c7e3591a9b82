"""Keeps an engine's process running for a handle: starts, monitors, restarts it, and stops it with the handle.

The process ends when the pipe to it is closed, so it never outlives its owner, however that ends. One that dies is
restarted with a growing delay; all crawls keep their state.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from weft.engine.core import SLOT
from weft.engine.loop.parser.suspects import read_heartbeat, steps_of
from weft.engine.process.channel import Connection, EngineGone
from weft.engine.process.host import HostSpec
from weft.errors import BadInput, Busy, WeftError
from weft.supervise.child import RestartPolicy
from weft.supervise.process import Exit
from weft.supervise.service import Command, ExitMeaning, HealthCheck, Moving, Service, StopMethod

POLL_S = 0.05
START_S = 120.0  # without progress: a frontier of many millions of URLs starts slowly
STUCK_S = 30.0
STOP_S = 15.0
EXIT_REFUSED = 2
ENGINE_RESTARTS = RestartPolicy(
    first_delay_s=0.05, max_delay_s=5.0, start_timeout_s=START_S, max_failures=8, stop_grace_s=STOP_S
)


def engine_service(
    spec: HostSpec,
    *,
    policy: RestartPolicy = ENGINE_RESTARTS,
    health: HealthCheck | None = None,
    judge: Callable[[Exit], ExitMeaning] | None = None,
    on_start: Callable[[int], None] = lambda _: None,
    environment: Mapping[str, str] | None = None,
) -> Service:
    """An engine's process as a service. The end of its input asks it to end, so it ends with its owner."""

    def command() -> Command:
        # No code reads the last argument: `ps` displays it.
        argv = [sys.executable, "-m", "weft.engine.process.host", spec.data_dir]
        return Command(argv, stdin=spec.framed(), keeps_words=True)

    moving = Moving(lambda: read_heartbeat(heartbeat_folder(spec)), STUCK_S, start_s=START_S)
    return Service(
        "engine", command, health=health or moving, policy=policy,
        ask=StopMethod.CLOSE_INPUT, judge=judge or _judge_exit, on_start=on_start, environment=environment,
        ending=lambda: steps_of(heartbeat_folder(spec)),
    )  # fmt: skip


def heartbeat_folder(spec: HostSpec) -> Path:
    """The folder of its heartbeat."""
    return Path(spec.data_dir) / "frontier" / SLOT.name


class EngineProcess:
    """One engine process, through all its restarts; a thread monitors it."""

    def __init__(self, spec: HostSpec, socket: Path) -> None:
        self._socket = socket
        self._heartbeat = heartbeat_folder(spec)
        self._pids: set[int] = set()
        self._service = engine_service(spec, on_start=self._record_pid)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._monitor_process, name="engine-keeper", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """The id of the current process."""
        return self._service.pid

    @property
    def failure(self) -> WeftError | None:
        """Why it is no longer restarted."""
        return self._describe_failure() if self._service.has_ended and not self._stopping.is_set() else None

    def has_started(self, pid: int) -> bool:
        """Whether a process is one of those started here."""
        return pid in self._pids

    def wait_until_ready(self, timeout_s: float) -> Connection:
        """A connection, as soon as the process listens; raises its error if it refuses to start, or if its start made
        no progress for `timeout_s`.
        """
        until, before = time.monotonic() + timeout_s, (0, 0)
        while True:
            if (now := read_heartbeat(self._heartbeat)) != before:
                until, before = time.monotonic() + timeout_s, now
            try:
                return Connection(self._socket)
            except EngineGone as gone:
                if self._service.has_ended:
                    raise self._describe_failure() from None
                if time.monotonic() >= until:
                    raise WeftError(f"the engine has not started in {timeout_s:g} s: {gone}") from None
            time.sleep(0.01)

    def stop(self) -> None:
        """Stops it gracefully."""
        self._stopping.set()
        self._thread.join()

    def _monitor_process(self) -> None:
        service = self._service
        while not service.has_ended:
            service.act()
            service.check()
            if self._stopping.wait(POLL_S):
                service.stop_and_wait()

    def _record_pid(self, pid: int) -> None:
        self._pids.add(pid)

    def _describe_failure(self) -> WeftError:
        said = self._service.stderr_tail.splitlines()
        kind, _, message = (said[-1] if said else "").partition(": ")
        kinds: dict[str, type[WeftError]] = {"BadInput": BadInput, "Busy": Busy}
        if kind in kinds:
            return kinds[kind](message)
        why = said[-1] if said else self._service.child.last_exit
        return WeftError(f"the engine's process keeps dying: {why}")


def _judge_exit(how: Exit) -> ExitMeaning:
    """The meaning of an exit: an error that would occur again is final; a process killed from outside is restarted at
    once.
    """
    if how.code == EXIT_REFUSED:
        return ExitMeaning.FINAL
    return ExitMeaning.HARMLESS if how.signal_name == "SIGKILL" else ExitMeaning.BY_TIME
