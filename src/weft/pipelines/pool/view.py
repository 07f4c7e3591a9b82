"""What a run is shown by: the command line draws it, other callers need none."""

from __future__ import annotations

from typing import Protocol

from weft.pipelines.pool.engine import WorkerView
from weft.pipelines.pool.events import Counts
from weft.pipelines.pool.record import Result


class Watched(Protocol):
    """What a view needs of a stream."""

    def counts(self) -> Counts:
        """How far it is."""

    def workers(self) -> list[WorkerView]:
        """What each worker does now."""


class View(Protocol):
    """Shows a run."""

    def update(self, stream: Watched) -> None:
        """As often as you like."""

    def failed(self, result: Result) -> None:
        """An item that did not end well."""

    def close(self, stream: Watched) -> None:
        """The last picture."""


class NoView:
    """Shows nothing."""

    def update(self, stream: Watched) -> None:
        """Nothing."""

    def failed(self, result: Result) -> None:
        """Nothing."""

    def close(self, stream: Watched) -> None:
        """Nothing."""
