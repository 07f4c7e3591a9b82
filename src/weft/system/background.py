"""The supervisor as a process in the background, which `weft up` starts and leaves behind.

Its configuration comes on standard input, a length and msgpack. Until all services are up, what is wrong goes to
standard error as one line, for `weft up` to read; from then on to its log alone. It has a session of its own, so that a
terminal that is closed does not take it along.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from weft import __version__
from weft.config import ServiceConfig
from weft.engine.process.channel import ERRORS, Connection, EngineGone, error_name, framed, socket_path
from weft.errors import Busy, WeftError
from weft.frames import read_frame
from weft.supervise.leftovers import MARK
from weft.supervise.process import set_name
from weft.system import control, extras
from weft.system import state as kept
from weft.system.services import wanted
from weft.system.state import SystemState
from weft.system.supervisor import SIGNALS, Supervisor
from weft.telemetry import Log, LogFormat, Slot, log_to_file

LOG = "supervisor.log"
POLL_S = 0.02
# Exit codes of a supervisor that was asked to end; negative: before it listened to signals.
_STOPPED_EXIT_CODES = (0, *(128 + number for number in SIGNALS), *(-number for number in SIGNALS))
log = Log("weft.system.background")


def up(config: ServiceConfig, watch: Callable[[SystemState], None]) -> tuple[SystemState, bool]:
    """Has all services run; returns when they are healthy, with whether they were started here.

    Where a supervisor is at work already nothing is started: its services are waited for.
    """
    data_dir = Path(config.server.data_dir)
    extras.check(config, wanted(config))  # before the folder is created
    while True:
        try:
            lock = kept.acquire_lock(data_dir)
        except Busy:
            if not kept.has_supervisor(data_dir):
                raise
            try:
                return control.wait_until_up(data_dir, watch), False
            except EngineGone:
                continue  # it has ended meanwhile
        host = _BackgroundProcess(config, lock)
        try:
            if host.listens(data_dir):
                return control.wait_until_up(data_dir, watch), True
            raise host.failure()
        except EngineGone:
            raise host.failure() from None
        finally:
            host.let_go()


class _BackgroundProcess:
    """The started supervisor, from the side of the process that has started it."""

    def __init__(self, config: ServiceConfig, lock: int) -> None:
        """The lock is handed over: it is held without a gap, so that `weft down` sees a start from its beginning."""
        try:
            self._popen = subprocess.Popen(  # noqa: S603 (a module of ours)
                [sys.executable, "-m", "weft.system.background", config.server.data_dir, str(lock)], pass_fds=(lock,),
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
                # not the mark of another supervisor, in which this may run
                env={name: value for name, value in os.environ.items() if name != MARK},
            )  # fmt: skip
        finally:
            os.close(lock)
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(framed(config))
            self._popen.stdin.close()
        except BrokenPipeError:
            pass  # it has ended, and its message is on standard error

    def listens(self, data_dir: Path) -> bool:
        """Waits until the supervisor accepts requests; False if it has ended instead."""
        while self._popen.poll() is None:
            try:
                connection = Connection(socket_path(data_dir, kept.SOCKET))
            except EngineGone:
                time.sleep(POLL_S)
                continue
            pid = connection.pid
            connection.close()
            if pid == self._popen.pid:
                return True
            time.sleep(POLL_S)
        return False

    def failure(self) -> WeftError:
        """The message about why the supervisor has ended."""
        assert self._popen.stderr is not None
        said = self._popen.stderr.read().decode("utf-8", "replace").strip().splitlines()
        self._popen.wait()
        kind, _, message = (said[-1] if said else "").partition(": ")
        if kind in ERRORS:
            return ERRORS[kind](message)
        if not said and self._popen.returncode in _STOPPED_EXIT_CODES:
            return WeftError("the services were stopped while they were starting, by `weft down` or a signal")
        return WeftError(
            f"the supervisor has ended (exit code {self._popen.returncode}): {said[-1] if said else 'no message'}"
        )

    def let_go(self) -> None:
        """Detaches from the supervisor, which continues to run."""
        if self._popen.stderr is not None:
            self._popen.stderr.close()


def main() -> int:
    """Supervises until it is asked to stop; returns the exit code."""
    config = msgspec.msgpack.decode(read_frame(sys.stdin.fileno()), type=ServiceConfig)
    set_name("supervisor")
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        log_here(config)
        lock = int(sys.argv[2])
        os.set_inheritable(lock, False)
        Supervisor(config, in_background=True, lock=lock).run(_close_standard_error)
    except WeftError as error:
        log.error("stopped", error=error)
        with suppress(OSError):  # the process that started it has ended
            print(f"{error_name(error)}: {' '.join(str(error).splitlines())}", file=sys.stderr, flush=True)
        return error.exit_code
    finally:
        gc.freeze()  # at its end the interpreter would search everything for cycles, several times
    log.always("process ended", pid=os.getpid())
    return 0


def log_here(config: ServiceConfig, shown_as: LogFormat | None = None) -> None:
    """Sends the log of this process, which is the supervisor, to its file."""
    log_to_file(Path(config.log.log_dir), Slot(0, "supervisor"), config.log.log_level, name=LOG, shown_as=shown_as)
    log.always("process started", pid=os.getpid(), weft=__version__)


def log_in_foreground(config: ServiceConfig) -> None:
    """The same with a terminal: warnings are written to standard error as well."""
    log_here(config, config.log.log_format)
    if logging.lastResort is not None and config.log.log_format is None:
        logging.getLogger("weft").addHandler(logging.lastResort)


def _close_standard_error() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    os.close(nowhere)


if __name__ == "__main__":
    sys.exit(main())
