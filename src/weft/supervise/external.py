"""A service that another owner runs: used while it is healthy, never started, stopped or signalled."""

from __future__ import annotations

import time
from collections.abc import Callable

from weft.errors import BadInput
from weft.supervise.held import ProcessIdentity
from weft.supervise.probe import HealthProbe
from weft.supervise.process import Exit
from weft.supervise.service import HealthReport, Need, ServiceHealth


class External:
    """Has the interface of a `Service`, and no process."""

    pid: int | None = None
    identity: ProcessIdentity | None = None
    starts = 1
    needs: tuple[Need, ...] = ()

    def __init__(self, name: str, ask: Callable[[], HealthReport]) -> None:
        """`ask`: its health check, with a time limit of its own."""
        self.name = name
        self.report = HealthReport(ServiceHealth.STARTING)
        self.last_error = ""
        self.last_error_at = 0.0
        self._probe = HealthProbe(ask)
        self._is_over = False

    @property
    def healthy(self) -> bool:
        """Whether its last health check was good."""
        return not self._is_over and self.report.health is ServiceHealth.HEALTHY

    @property
    def has_ended(self) -> bool:
        """Whether it is not used any more."""
        return self._is_over

    @property
    def failure(self) -> str:
        """Why it cannot be used, in one line."""
        return f"{self.name}: {self.last_error or 'it is not used any more'}"

    def check(self) -> Exit | None:
        """Checks its health."""
        answer = self._probe.answer()
        if answer is not None:
            self.report = answer[1]
            if self.report.health is not ServiceHealth.HEALTHY:
                self.last_error, self.last_error_at = self.report.reason, time.time()
        return None

    def act(self) -> None:
        """Does nothing."""

    def stop(self, *, grace_s: float | None = None) -> None:
        """Stops the health checks; the service itself continues to run."""
        del grace_s
        self._is_over = True
        self._probe.close()

    def kill(self) -> None:
        """Does nothing: another owner runs it."""

    def restart(self) -> None:
        """Does nothing: another owner runs it."""
        raise BadInput(f"{self.name}: Weft has not started it: restart it where it is run")
