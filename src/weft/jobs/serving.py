"""`weft serve`: one engine process and some workers that answer requests, kept running by this one.

It holds the service's folder and its listening socket: both are had before anything is started, or refused with one
message. A part that dies is started again, and clients that connect meanwhile wait in the socket's queue. If this
process is killed, the others end with it: the engine sees its pipe close, the workers too.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weft.config import ServiceConfig
from weft.engine.channel import Connection, Gone, socket_path
from weft.engine.handle import Engine
from weft.errors import BadInput, Busy, Missing, WeftError
from weft.jobs.crawls import engine_settings
from weft.jobs.worker import WorkerOrder, hold_parts
from weft.supervise.child import RestartPolicy
from weft.supervise.process import Exit
from weft.supervise.service import Ask, Command, Moving, Service, Verdict
from weft.telemetry import Log

if TYPE_CHECKING:
    import socket

LOOK_S = 0.05
EARLIER_S = 15.0  # for the workers of a supervisor that was killed
DRAIN_S = 2.0  # for its engine
STUCK_S = 30.0  # without a heartbeat for this long a worker is killed
POLICY = RestartPolicy(first_delay_s=0.05, max_delay_s=5.0, start_timeout_s=60.0, max_failures=8, stop_grace_s=10.0)
REFUSED = 2
ENGINE = "engine"
log = Log("weft.jobs.serving")


class Serving:
    """The service, from its start to its end."""

    def __init__(self, config: ServiceConfig) -> None:
        """Takes the folder and the port; raises what is in the way."""
        self._config = config
        self._data_dir = Path(config.server.data_dir)
        self._stopping = threading.Event()
        self._lock = _locked(self._data_dir)
        self._engine: Engine | None = None
        self._socket: socket.socket | None = None
        self._workers: list[Service] = []
        self._pulses = [self._data_dir / f"worker{index}.pulse" for index in range(config.server.workers)]
        try:
            _wait_for_earlier_parts(self._data_dir)
            self._socket = _listening(config)
            self._engine = Engine(self._data_dir / ENGINE, **engine_settings(config))
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """Where it answers."""
        assert self._socket is not None
        host, port = self._socket.getsockname()[:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def stop(self) -> None:
        """Has it end; for signal handlers and other threads."""
        self._stopping.set()

    def run(self, is_ready: Callable[[], None] = lambda: None) -> None:
        """Returns after `stop`, when all has ended in good order; raises why a part cannot be kept running."""
        for pulse in self._pulses:
            pulse.unlink(missing_ok=True)  # of an earlier run
        self._workers = [self._worker(index, pulse) for index, pulse in enumerate(self._pulses)]
        told = False
        try:
            while not self._stopping.is_set():
                for worker in self._workers:
                    worker.act()
                    worker.look()
                self._check()
                if not told and all(_touched(pulse) for pulse in self._pulses):
                    told = True
                    is_ready()
                self._stopping.wait(LOOK_S)
        finally:
            self.close()

    def _check(self) -> None:
        for worker in self._workers:
            if worker.has_ended:
                raise _failure(worker)
        if self._engine is not None and (why := self._engine.failure) is not None:
            raise why

    def close(self) -> None:
        """Ends the workers first: what they still answer needs the engine."""
        for worker in self._workers:
            worker.stop()
        for worker in self._workers:
            worker.stop_and_wait()
        if self._engine is not None:
            self._engine.close()
        if self._socket is not None:
            self._socket.close()
        os.close(self._lock)

    def _worker(self, index: int, pulse: Path) -> Service:
        assert self._socket is not None
        listening = self._socket
        order = WorkerOrder(self._config, index, listening.fileno(), str(pulse))

        def command() -> Command:
            argv = [sys.executable, "-m", "weft.jobs.worker", str(self._data_dir), str(index)]
            # The process gets a copy of the socket; what is handed over is closed here, so it is one more.
            fd = os.dup(listening.fileno())
            mine = WorkerOrder(order.config, index, fd, order.pulse)
            return Command(argv, stdin=mine.framed(), keeps_words=True, inherits=(fd,))

        return Service(
            f"api{index}", command, health=Moving(lambda: _touched(pulse), STUCK_S), policy=POLICY,
            ask=Ask.CLOSE_INPUT, judge=_judged,
        )  # fmt: skip


def run_until_signalled(serving: Serving, is_ready: Callable[[], None]) -> None:
    """Runs it under the eyes of a person or a supervisor: SIGINT and SIGTERM end it in good order."""

    def stop(_signal: int, _frame: object) -> None:
        serving.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        serving.run(is_ready)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _locked(data_dir: Path) -> int:
    try:
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(data_dir / "service.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise BadInput(f"data dir {data_dir}: there is a file of that name; choose another place") from None
    except OSError as error:
        raise BadInput(f"data dir {data_dir}: {error.strerror}; choose another `data_dir`") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Busy(f"data dir {data_dir}: another `weft serve` is running there; choose another `data_dir`") from None
    return lock


def _wait_for_earlier_parts(data_dir: Path) -> None:
    """A supervisor that was killed leaves workers and an engine, which end by themselves: the workers hold the port,
    and the engine has the old settings. The lock is ours, so they are nobody else's; an engine may be killed any time.
    """
    until = time.monotonic() + EARLIER_S
    while True:
        try:
            os.close(hold_parts(data_dir, fcntl.LOCK_EX | fcntl.LOCK_NB))
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise Busy(f"data dir {data_dir}: workers of an earlier `weft serve` are still running") from None
        time.sleep(LOOK_S)
    until = time.monotonic() + DRAIN_S
    while (pid := _engine_there(data_dir / ENGINE)) is not None:
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(LOOK_S)


def _engine_there(engine_dir: Path) -> int | None:
    try:
        connection = Connection(socket_path(engine_dir))
    except Gone:
        return None
    try:
        return connection.pid
    finally:
        connection.close()


def _listening(config: ServiceConfig) -> socket.socket:
    try:
        from weft.jobs.api.keys import Keyring
        from weft.jobs.api.server import listen
        from weft.jobs.api.settings import KEYS_FILE, check_address
    except ImportError:
        raise Missing.of_extra("the HTTP server", "serve") from None
    server = config.server
    has_keys = not Keyring(Path(server.data_dir) / KEYS_FILE).is_empty
    check_address(server.host, has_keys)
    return listen(server.host, server.port)


def _touched(pulse: Path) -> int:
    try:
        return pulse.stat().st_mtime_ns
    except OSError:
        return 0


def _judged(how: Exit) -> Verdict:
    if how.code == REFUSED:
        return Verdict.FINAL
    return Verdict.HARMLESS if how.signal_name == "SIGKILL" else Verdict.BY_TIME


def _failure(worker: Service) -> WeftError:
    said = worker.last_words.splitlines()
    kind, _, message = (said[-1] if said else "").partition(": ")
    if kind in ("BadInput", "Busy", "Missing") and message:
        return BadInput(message)
    return WeftError(worker.failure)
