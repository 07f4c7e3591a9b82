"""Keeps an engine's process alive for whoever holds the handle: started, watched, started again, stopped with it.

The process ends when the pipe to it is closed, so it never outlives its owner, whichever way that goes. One that dies
is started again with a growing delay; all crawls are where they were.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from weft.engine.channel import Connection, Gone
from weft.engine.host import HostOrder
from weft.engine.suspects import pulse
from weft.errors import BadInput, Busy, WeftError
from weft.supervise.child import Child, RestartPolicy, State, Step
from weft.supervise.process import Exit
from weft.telemetry import Log

LOOK_S = 0.05
START_S = 120.0  # a frontier of many millions of URLs takes its time
STUCK_S = 30.0
STOP_S = 15.0
POLICY = RestartPolicy(
    first_delay_s=0.05, max_delay_s=5.0, start_timeout_s=START_S, max_failures=8, stop_grace_s=STOP_S
)
log = Log("weft.engine.keeper")


class Keeper:
    """One engine process, through all its restarts; looked after by a thread."""

    def __init__(self, order: HostOrder, socket: Path, pulse_folder: Path) -> None:
        self._order = order
        self._socket = socket
        self._pulse_folder = pulse_folder
        self._popen: subprocess.Popen[bytes] | None = None
        self._child = Child("engine", POLICY)
        self._said = b""
        self._pulse: tuple[int, int] = (0, 0)
        self._pulse_at = 0.0
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._look_after, name="engine-keeper", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        """Of the process that there is now."""
        popen = self._popen
        return popen.pid if popen is not None else None

    def ready(self, timeout_s: float) -> Connection:
        """A connection, as soon as the process listens; raises why it will not."""
        until = time.monotonic() + timeout_s
        while True:
            try:
                return Connection(self._socket)
            except Gone as gone:
                if self._child.state is State.DEAD:
                    raise self._failure() from None
                if time.monotonic() >= until:
                    raise WeftError(f"the engine has not started in {timeout_s:g} s: {gone}") from None
            time.sleep(0.01)

    def stop(self) -> None:
        """Has it end in good order."""
        self._stopping.set()
        self._thread.join()

    def _look_after(self) -> None:
        # The process is started from this thread; nothing of it depends on the thread's life.
        while not (self._stopping.is_set() and self._popen is None):
            if self._stopping.is_set() and self._child.state not in (State.STOPPING, State.DEAD):
                self._child.stop()
            step = self._child.next_step()
            if step is Step.START:
                self._start()
            elif step is Step.TERMINATE:
                self._close_pipe()
                self._child.told_to_stop()
            elif step is Step.KILL and self._popen is not None:
                self._popen.kill()
            self._look()
            if self._child.state is State.DEAD and self._popen is None:
                return
            time.sleep(LOOK_S)

    def _start(self) -> None:
        command = [sys.executable, "-m", "weft.engine.host", self._order.data_dir]  # the last is for `ps` alone
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._popen = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)  # noqa: S603
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(self._order.framed())
            self._popen.stdin.flush()
        except BrokenPipeError:
            pass  # `_look` will see how it has ended
        self._pulse_at = time.monotonic()
        self._child.spawned(self._popen.pid)
        self._child.ready()

    def _look(self) -> None:
        if self._popen is None:
            return
        code = self._popen.poll()
        if code is None:
            beat, now = pulse(self._pulse_folder), time.monotonic()
            if beat != self._pulse:
                self._pulse, self._pulse_at = beat, now
            elif now - self._pulse_at > (STUCK_S if beat[0] else START_S):
                log.error("the engine's process stands still", item=beat[1])
                self._popen.kill()
            return
        assert self._popen.stderr is not None
        self._said = self._popen.stderr.read()
        self._close_pipe()
        self._popen.stderr.close()
        self._popen = None
        # What it refuses it would refuse again; what a signal ended is started at once.
        if code == 2:
            self._child.policy = RestartPolicy(max_failures=1)
        self._child.exited(Exit(code) if code >= 0 else Exit(None, -code), failed=False if code == -9 else None)

    def _close_pipe(self) -> None:
        if self._popen is not None and self._popen.stdin is not None:
            try:
                self._popen.stdin.close()
            except BrokenPipeError:
                pass

    def _failure(self) -> WeftError:
        said = self._said.decode("utf-8", "replace").strip().splitlines()
        kind, _, message = (said[-1] if said else "").partition(": ")
        kinds: dict[str, type[WeftError]] = {"BadInput": BadInput, "Busy": Busy}
        if kind in kinds:
            return kinds[kind](message)
        return WeftError(f"the engine's process keeps dying: {said[-1] if said else self._child.last_exit}")
