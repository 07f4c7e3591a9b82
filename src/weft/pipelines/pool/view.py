"""The display of a run: the command line draws it, other callers need none."""

from __future__ import annotations

from typing import Protocol

from weft.pipelines.pool.engine.run_request import WorkerView
from weft.pipelines.pool.events import PoolCounts
from weft.pipelines.pool.record import Result


class WatchedRun(Protocol):
    """The part of a run that a display needs."""

    def counts(self) -> PoolCounts:
        """The current counts."""

    def workers(self) -> list[WorkerView]:
        """The current state of each worker."""


class RunDisplay(Protocol):
    """Displays the progress of a run of a pipeline."""

    def update(self, run: WatchedRun) -> None:
        """Displays the current progress; may be called at any rate."""

    def failed(self, result: Result) -> None:
        """Displays a failed item."""

    def show_end(self, run: WatchedRun) -> None:
        """Displays the final state, and ends the display."""


class NoView:
    """A display that shows nothing."""

    def update(self, run: WatchedRun) -> None:
        """Does nothing."""

    def failed(self, result: Result) -> None:
        """Does nothing."""

    def show_end(self, run: WatchedRun) -> None:
        """Does nothing."""
