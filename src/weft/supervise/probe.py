"""Health checks that take time: over a connection, with a time limit of their own.

A thread asks (`HealthProbe`); the health check (`Patience`) only reads the last result, so that a server that hangs
delays no caller. A process that was healthy gets time to recover, because a busy server is not a dead one; then it is
unhealthy, and replaced.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from weft.supervise.service import HEALTHY, HealthReport, ServiceHealth
from weft.telemetry import Log

EVERY_S = 1.0
SOON_S = 0.1  # while it is not healthy
log = Log("weft.supervise.probe")


class HealthProbe:
    """Repeats a health check until it is closed, on a thread that starts with the first call of `answer`."""

    def __init__(
        self,
        ask: Callable[[], HealthReport],
        *,
        every_s: float = EVERY_S,
        soon_s: float = SOON_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ask` may block, and has a time limit of its own. `soon_s`: the interval while the service is not healthy."""
        self._ask = ask
        self._every_s, self._soon_s = every_s, soon_s
        self._clock = clock
        self._answer: tuple[float, HealthReport] | None = None  # the time of the check, and its result
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def answer(self) -> tuple[float, HealthReport] | None:
        """The last result, and the time of its check; None before the first."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._keep_asking, name="probe", daemon=True)
            self._thread.start()
        return self._answer

    def close(self) -> None:
        """Stops the checks."""
        self._over.set()

    def _keep_asking(self) -> None:
        while not self._over.is_set():
            asked_s = self._clock()
            try:
                report = self._ask()
            except Exception as error:  # a bug of ours is a result too: it must not look like health
                log.error("a probe failed", exc_info=True)
                report = HealthReport(ServiceHealth.FAILING, f"{type(error).__name__}: {error}")
            self._answer = asked_s, report
            self._over.wait(self._every_s if report == HEALTHY else self._soon_s)


class Patience:
    """The health check of one service by a probe's answers."""

    def __init__(
        self,
        answer: Callable[[], tuple[float, HealthReport] | None],
        patience_s: float,
        *,
        excused: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`excused`: while it returns True, the cause is a service that this one needs."""
        self._answer = answer
        self._patience_s = patience_s
        self._excused = excused
        self._clock = clock
        self._pid = 0
        self._since_s = 0.0
        self._good_s: float | None = None  # when this process was last healthy, or excused

    def __call__(self, pid: int) -> HealthReport:
        """The health of the process."""
        now_s = self._clock()
        if pid != self._pid:
            self._pid, self._since_s, self._good_s = pid, now_s, None
        asked_s, report = self._answer() or (0.0, HealthReport(ServiceHealth.STARTING))
        if asked_s < self._since_s:
            report = HealthReport(ServiceHealth.STARTING)  # this process was not checked yet
        if report.health is ServiceHealth.HEALTHY:
            self._good_s = asked_s
            if now_s - asked_s <= self._patience_s:
                return report
            report = HealthReport(ServiceHealth.FAILING, "no answer")  # there was no check since
        if self._good_s is None:
            takes_time = report.health is ServiceHealth.LOADING or (asked_s >= self._since_s and self._excused())
            return HealthReport(ServiceHealth.LOADING if takes_time else ServiceHealth.STARTING, report.reason)
        if self._excused():
            self._good_s = now_s
        bad_s = now_s - self._good_s
        if bad_s <= self._patience_s:
            return HealthReport(ServiceHealth.FAILING, report.reason)
        return HealthReport(ServiceHealth.UNHEALTHY, f"{report.reason or 'no answer'}, for {bad_s:.0f} s")
