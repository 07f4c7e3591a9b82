"""One process of a crawl, through all its restarts: started, heard, told to stop, killed.

When to do so is the Child's affair (supervise) and the orchestrator's. The heartbeat and the page that is being parsed
stand in a file of the slot; how the process fares, in its status file.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from weft.crawl.ends import SERVER_AWAY
from weft.crawl.order import Order
from weft.engine.progress import Status, read_status
from weft.engine.suspects import pulse
from weft.supervise.child import Child, RestartPolicy, State, Step
from weft.supervise.process import Exit
from weft.telemetry import Log, Slot

DRAIN_S = 12.0  # a process drains for ten seconds; then it is killed
log = Log("weft.crawl.orchestrator")


class Process:
    """A slot, and whoever fills it."""

    def __init__(self, order: Order, pulse_folder: Path, status: Path, *, stuck_s: float) -> None:
        self.slot: Slot = order.slot
        self.starts = 0
        self._order = order
        self._pulse_folder = pulse_folder
        self._status = status
        self._stuck_s = stuck_s
        self._popen: subprocess.Popen[bytes] | None = None
        self._done_before = 0  # requests and pages before this process was started
        self._pulse = (0, 0)
        self._pulse_at = 0.0
        self._began = 0.0
        self.child = self._new_child()

    @property
    def pid(self) -> int:
        """Of the process that there is; 0 if there is none."""
        return self._popen.pid if self._popen is not None else 0

    @property
    def has_ended(self) -> bool:
        """It is gone, and is not to be started again."""
        return self._popen is None and self.child.state is State.DEAD

    def status(self) -> Status:
        """What it has told last."""
        return read_status(self._status) or Status()

    def act(self) -> None:
        """Does what is due: start, tell to stop, kill."""
        step = self.child.next_step()
        if step is Step.START:
            self._spawn()
        elif step is Step.TERMINATE and self._popen is not None:
            self._popen.send_signal(signal.SIGTERM)
            self.child.told_to_stop()
        elif step is Step.KILL:
            self.kill()

    def look(self) -> Exit | None:
        """How it has ended, if it has just done so; one that stands still is killed."""
        if self._popen is None:
            return None
        code = self._popen.poll()
        if code is None:
            self._check_pulse()
            return None
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.close()
        except BrokenPipeError:
            pass
        pid, self._popen = self._popen.pid, None
        how = Exit(code) if code >= 0 else Exit(None, -code)
        log.info(
            "process ended", process=self.slot.name, pid=pid, how=how, seconds=round(time.monotonic() - self._began, 3)
        )
        useful = code == SERVER_AWAY or self._was_of_use()
        self.child.exited(how, failed=False if useful else None)
        return how

    def stop(self, reason: str | None = None) -> None:
        """It shall end; with a reason it is told that, else SIGTERM says that it was interrupted."""
        self.child.stop()
        if reason is not None and self._popen is not None and self._tell(f"{reason}\n".encode()):
            self.child.told_to_stop()

    def begin_anew(self) -> None:
        """A process that has ended is to be started again."""
        self.child = self._new_child()

    def kill(self) -> None:
        """At once."""
        if self._popen is not None and self._popen.poll() is None:
            log.info("process killed", process=self.slot.name, pid=self._popen.pid)
            self._popen.kill()
            self._popen.wait()

    def _new_child(self) -> Child:
        return Child(self.slot.name, RestartPolicy(first_delay_s=0.2, max_failures=6, stop_grace_s=DRAIN_S))

    def _spawn(self) -> None:
        # A terminal's Ctrl-C goes to the whole group; the process is born deaf to it, and hears of it from here.
        heard = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            # Nobody reads the last argument: it is what `ps` shows.
            command = [sys.executable, "-m", f"weft.crawl.{self.slot.role}", self.slot.name]
            self._popen = subprocess.Popen(command, stdin=subprocess.PIPE)  # noqa: S603 (our own modules)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)
        order = msgspec.structs.replace(self._order, incarnation=time.time_ns() // 1_000_000)
        self._tell(order.framed())  # if it has died already, `look` will see how
        self.starts += 1
        log.info(
            "process started" if self.starts == 1 else "process restarted",
            process=self.slot.name,
            pid=self._popen.pid,
            core="any" if order.core is None else order.core,
            incarnation=order.incarnation,
            failures=self.child.failures,
        )
        self.child.spawned(self._popen.pid)
        self.child.ready()
        self._pulse_at = self._began = time.monotonic()
        self._done_before = self._done()

    def _tell(self, data: bytes) -> bool:
        assert self._popen is not None
        assert self._popen.stdin is not None
        try:
            self._popen.stdin.write(data)
            self._popen.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def _was_of_use(self) -> bool:
        """Whether the process that died is no sign of a crash loop: it brought the crawl forward, or a page killed it.

        A page kills twice at most; then it is stored unparsed.
        """
        return pulse(self._pulse_folder)[1] > 0 or self._done() > self._done_before

    def _done(self) -> int:
        status = self.status()
        return status.requests + status.pages

    def _check_pulse(self) -> None:
        now, beat = time.monotonic(), pulse(self._pulse_folder)
        if beat != self._pulse:
            self._pulse, self._pulse_at = beat, now
        elif now - self._pulse_at > self._stuck_s:
            log.error("a process stands still", process=self.slot.name, seconds=now - self._pulse_at, item=beat[1])
            self.kill()
