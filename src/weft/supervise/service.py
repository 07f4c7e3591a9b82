"""One service that is kept running: started, health-checked, restarted, stopped, or found alive and adopted.

Its owner has a loop and calls two functions, neither of which waits: `check` reads its state, `act` does the work that
is due. The state machine (`child`) decides what is due; `held` monitors and signals the process; `starter` starts it. A
crawl's processes, an engine's process and managed Redis servers are services.

Invariants: one process at a time; health is checked before anything is done to it; it is not started while a service
that it needs is not healthy; a process that does not stop on request, and makes no progress with that, is killed when
its grace is over; a signal reaches exactly the process that was started or adopted, never one that has reused its pid.
"""

from __future__ import annotations

import enum
import os
import signal
import subprocess
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from weft.supervise import starter
from weft.supervise.child import Child, ChildState, RestartPolicy, Step
from weft.supervise.held import Adopted, Held, ProcessIdentity, Started
from weft.supervise.process import Exit
from weft.telemetry import Log

KILLED_S = 10.0  # a killed process may need a moment to end
DRAIN_EVERY_S = 0.1  # how often standard error is read while waiting for the end
log = Log("weft.supervise.service")


class ServiceHealth(enum.Enum):
    """The result of a health check."""

    STARTING = "starting"  # no answer yet: the start's time limit applies
    LOADING = "loading"  # answers, but cannot be used yet: no time limit
    HEALTHY = "healthy"
    FAILING = "failing"  # was healthy, and is not now: it gets time to recover
    UNHEALTHY = "unhealthy"  # it is killed and restarted


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The answer of a health check."""

    health: ServiceHealth
    reason: str = ""


class Need(Protocol):
    """The interface of a service that another one needs."""

    @property
    def healthy(self) -> bool:
        """Whether it can be used."""


HEALTHY = HealthReport(ServiceHealth.HEALTHY)
HealthCheck = Callable[[int], HealthReport]  # called with the pid, often: it must not block


class ExitMeaning(enum.Enum):
    """The meaning of a process's end for the service."""

    BY_TIME = "by time"  # a failure, unless it had run for long enough
    HARMLESS = "harmless"  # no failure: it did its work, or the cause is elsewhere
    FINAL = "final"  # it would end the same way again: given up at once
    DONE = "done"  # it has done all its work: it is not restarted, and counts as healthy


class StopMethod(enum.Enum):
    """How a process is asked to stop."""

    TERMINATE = "SIGTERM"
    CLOSE_INPUT = "the end of its standard input"


@dataclass(frozen=True, slots=True)
class Command:
    """How a process is started. Created again for each start."""

    argv: Sequence[str]
    stdin: bytes | None = None  # written to it at the start; the pipe is kept open. None: it has no standard input
    env: Mapping[str, str] | None = None
    hears_interrupts: bool = False
    quiet: bool = False  # standard output and error are discarded
    keeps_words: bool = False  # standard error is read here, and its end kept
    new_session: bool = False
    inherits: tuple[int, ...] = ()  # descriptors that belong to the process from now on: closed here


class Moving:
    """Health by progress: a value, read at each check, that must change within a time limit."""

    def __init__(
        self,
        read: Callable[[], Hashable],
        limit_s: float,
        *,
        start_s: float | None = None,
        must_move_first: bool = False,
        late_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`start_s`: the limit until the value has changed once under a process, which may have much to read first.
        `must_move_first`: until then it is starting. `late_s`: from then on it counts as failing, though it is
        given time until the limit."""
        self._read = read
        self._limit_s = limit_s
        self._start_s = limit_s if start_s is None else start_s
        self._must_move_first = must_move_first
        self._late_s = late_s
        self._clock = clock
        self._pid = 0
        self._has_moved = False
        self._value: Hashable = None
        self._since_s = 0.0

    def __call__(self, pid: int) -> HealthReport:
        now_s, value = self._clock(), self._read()
        if pid != self._pid or value != self._value:
            self._has_moved = pid == self._pid
            self._pid, self._value, self._since_s = pid, value, now_s
        still_s = now_s - self._since_s
        why = f"it has stood still for {still_s:.1f} s"
        if still_s > (self._limit_s if self._has_moved else self._start_s):
            return HealthReport(ServiceHealth.UNHEALTHY, why)
        if self._must_move_first and not self._has_moved:
            return HealthReport(ServiceHealth.STARTING)
        return HEALTHY if self._late_s is None or still_s <= self._late_s else HealthReport(ServiceHealth.FAILING, why)


def touched(path: Path) -> int:
    """When a file was last written, for `Moving`; 0 if it does not exist."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class Service:
    """A service, through all its restarts. Its owner calls it from one thread at a time."""

    def __init__(
        self,
        name: str,
        command: Callable[[], Command],
        *,
        health: HealthCheck = lambda _: HEALTHY,
        policy: RestartPolicy | None = None,
        ask: StopMethod = StopMethod.TERMINATE,
        judge: Callable[[Exit], ExitMeaning] = lambda _: ExitMeaning.BY_TIME,
        on_start: Callable[[int], None] = lambda _: None,
        needs: Sequence[Need] = (),
        needs_once: bool = False,
        environment: Mapping[str, str] | None = None,
        words: Callable[[], str] = lambda: "",
        ending: Callable[[], Hashable] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`needs` hold back a start alone: once it runs, it continues when one of them fails. `needs_once`: its first
        start alone, because it has something to do without them.

        `judge`: what an exit without a stop request means. `on_start` gets each new pid, before the descriptors
        that the process inherits are closed here. `environment`: what is added to that of its processes.
        `words`: the end of its output, where that is not on standard error. `ending`: a value that changes while a
        process that was asked to stop makes progress with that; it is killed when it has not for its grace."""
        self.name = name
        self.needs = tuple(needs)
        self._needs_once = needs_once
        self.report = HealthReport(ServiceHealth.STARTING)
        self.stderr_tail = ""
        self.last_error = ""  # the last error, in one line; kept until a process is asked to end
        self.last_error_at = 0.0  # wall clock
        self.starts = 0
        self.was_stopped = False  # its end was requested: it was not given up
        self.is_done = False  # it ended by itself, as intended
        self._clock = clock
        self._environment = environment
        self._words = words
        self._ending = ending
        self._ended_so_far: Hashable = None
        self._command = command
        self._health = health
        self._policy = policy or RestartPolicy()
        self._ask = ask
        self._judge = judge
        self._on_start = on_start
        self._held: Held | None = None
        self.child = Child(name, self._policy, clock=clock)

    @property
    def pid(self) -> int | None:
        """The pid of the current process."""
        held = self._held
        return None if held is None else held.pid

    @property
    def healthy(self) -> bool:
        """Whether it runs and must continue, and the last health check was good; or it is done."""
        if self.is_done:
            return True
        is_there = self._held is not None and self.child.state is not ChildState.STOPPING
        return is_there and self.report.health is ServiceHealth.HEALTHY

    @property
    def has_ended(self) -> bool:
        """Whether there is no process, and none will be started."""
        return self._held is None and self.child.state is ChildState.DEAD

    @property
    def identity(self) -> ProcessIdentity | None:
        """Its identity, for a file from which a later owner can adopt the process."""
        return None if self.pid is None else ProcessIdentity.of(self.pid)

    @property
    def failure(self) -> str:
        """Why it was given up, in one line."""
        times = f", {self.child.counted_failures} times in a row" if self.child.looping else ""
        return f"{self.name} {self.child.last_exit}{times}: {self.stderr_tail or 'it left no message'}"

    # ── called by an owner's loop ───────────────────────────────────────────────────────────────────────────────────

    def check(self) -> Exit | None:
        """Returns its exit, if it has just ended; otherwise checks its health, and kills an unhealthy process."""
        held = self._held
        if held is None:
            return None
        how = held.poll()
        held.drain_stderr()
        if how is not None:
            self._ended(held, how)
            return how
        self._look_at_ending()
        self.report = self._health(held.pid)
        if self.report.health in (ServiceHealth.HEALTHY, ServiceHealth.LOADING):
            self.child.ready(healthy=self.report.health is ServiceHealth.HEALTHY)
        elif self.report.health is ServiceHealth.UNHEALTHY:
            log.error("a service is unhealthy", service=self.name, pid=held.pid, reason=self.report.reason)
            self._went_wrong(self.report.reason)
            self.kill()
        return None

    def act(self) -> None:
        """Does the work that is due: starts it, requests its stop, kills it."""
        step = self.child.next_step()
        if step is Step.START:
            if (self._needs_once and self.starts) or all(other.healthy for other in self.needs):
                self._start()
        elif step is Step.TERMINATE and self._held is not None:
            if self._ask is not StopMethod.CLOSE_INPUT or not self._held.close_input():
                self._held.send(signal.SIGTERM)
            self.child.asked_to_stop()
        elif step is Step.KILL:
            if self.child.state is ChildState.STARTING:
                why = self.report.reason or "it gave no sign"
                self._went_wrong(f"was not ready in {self._policy.start_timeout_s:g} s: {why}")
                self.report = HealthReport(ServiceHealth.UNHEALTHY, self.last_error)
            self.kill()

    # ── requests to a service ───────────────────────────────────────────────────────────────────────────────────────

    def stop(self, message: bytes | None = None, *, grace_s: float | None = None) -> None:
        """Requests its end, which `act` and `check` carry out. A message is written to its input instead of a
        signal.
        """
        self.was_stopped = True
        self._forget_error()
        self.child.stop(grace_s=grace_s)
        if message is not None and self._held is not None and self._held.write_input(message):
            self.child.asked_to_stop()

    def write(self, message: bytes) -> None:
        """Writes to its standard input, if there is a process."""
        if self._held is not None:
            self._held.write_input(message)

    def stop_and_wait(self) -> Exit | None:
        """Stops it and returns when it has exited; it is killed after the grace period."""
        self.stop()
        while self._held is not None:
            self.act()
            self._look_at_ending()
            self._held.wait(DRAIN_EVERY_S)
            how = self._held.poll()
            self._held.drain_stderr()
            if how is not None:
                self._ended(self._held, how)
        return self.child.last_exit

    def kill(self) -> None:
        """Kills it at once. The next check reads how it ended."""
        if self._held is not None and self._held.poll() is None:
            log.info("process killed", service=self.name, pid=self._held.pid)
            self._held.send(signal.SIGKILL)
            self._held.wait(KILLED_S)

    def restart(self) -> None:
        """Stops it gracefully and restarts it; one that waits for its delay, or was given up, starts at once."""
        if self._held is not None:
            self._forget_error()
            self.child.stop(again=True)
        else:
            self.allow_restart()

    def be_done(self) -> None:
        """Called before its first start: it has no work to do."""
        self.is_done = True
        self.child.stop()

    def allow_restart(self) -> None:
        """Allows a restart of one that has ended, or was given up."""
        self.was_stopped = self.is_done = False
        self.child = Child(self.name, self._policy, clock=self._clock)

    def could_not_start(self, why: str) -> None:
        """A start failed before there was a process: that counts as a death without health."""
        log.error("a service cannot be started", service=self.name, reason=why)
        self.stderr_tail = why
        self._went_wrong(why)
        self.starts += 1
        self.child.spawned()
        self.child.exited(Exit(), failed=True)

    def adopt(self, identity: ProcessIdentity | None) -> bool:
        """Adopts a process that an earlier owner has left; False if it has ended, or its pid was reused."""
        if identity is None or self._held is not None or self.child.state is not ChildState.BACKOFF:
            return False
        process = Adopted.adopt(identity)
        if process is None:
            return False
        self._hold(process)
        log.info("process adopted", service=self.name, pid=process.pid)
        return True

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start(self) -> None:
        command = self._command()
        try:
            held = Started(
                starter.start(
                    list(command.argv),
                    hears_interrupts=command.hears_interrupts,
                    stdin=subprocess.DEVNULL if command.stdin is None else subprocess.PIPE,
                    stdout=subprocess.DEVNULL if command.quiet else None,
                    stderr=_stderr(command),
                    env=self._with_environment(command.env),
                    pass_fds=command.inherits,
                    start_new_session=command.new_session,
                )
            )
        except OSError as error:
            self.could_not_start(f"{command.argv[0]}: {error.strerror or error}")
        else:
            self._hold(held)
            self._on_start(held.pid)
            if command.stdin:
                held.write_input(command.stdin)  # if it has died already, `check` reads how
        finally:
            for fd in command.inherits:
                os.close(fd)

    def _with_environment(self, env: Mapping[str, str] | None) -> Mapping[str, str] | None:
        return env if self._environment is None else {**(os.environ if env is None else env), **self._environment}

    def _hold(self, held: Held) -> None:
        self.starts += 1
        self._held, self.report, self.stderr_tail = held, HealthReport(ServiceHealth.STARTING), ""
        self.child.spawned(held.pid)

    def _ended(self, held: Held, how: Exit) -> None:
        was_unhealthy = self.report.health is ServiceHealth.UNHEALTHY  # killed here, for a reason that is reported
        self._held, self.report = None, HealthReport(ServiceHealth.STARTING)
        self.stderr_tail = held.words() or (self._words() if how.signal is None else "")
        held.close()
        asked = self.child.state is ChildState.STOPPING
        verdict = ExitMeaning.BY_TIME if asked else self._judge(how)
        self.is_done = verdict is ExitMeaning.DONE
        if not asked and not self.is_done and not (how.signal == signal.SIGKILL and was_unhealthy):
            self._went_wrong(f"{how}: {self.stderr_tail.splitlines()[-1]}" if self.stderr_tail else str(how))
        is_final = verdict in (ExitMeaning.FINAL, ExitMeaning.DONE)
        self.child.exited(how, failed=False if verdict is ExitMeaning.HARMLESS else None, final=is_final)

    def _look_at_ending(self) -> None:
        if (now := self._ending()) != self._ended_so_far:
            self._ended_so_far = now
            self.child.still_ending()

    def _went_wrong(self, why: str) -> None:
        self.last_error, self.last_error_at = why, time.time()

    def _forget_error(self) -> None:
        """Forgets the error of a process that is asked to end, since that is not its cause; a failed one keeps it."""
        if self._held is not None:
            self.last_error, self.last_error_at = "", 0.0


def _stderr(command: Command) -> int | None:
    if command.keeps_words:
        return subprocess.PIPE
    return subprocess.DEVNULL if command.quiet else None
