"""The display of a run: the command line draws it, other callers need none."""

from __future__ import annotations

from typing import Protocol

from weft.pipelines.pool.engine.run_request import WorkerView
from weft.pipelines.pool.events import PoolCounts
from weft.pipelines.pool.record import Result


class WatchedStream(Protocol):
    """What a view needs of a stream."""

    def counts(self) -> PoolCounts:
        """How far it is."""

    def workers(self) -> list[WorkerView]:
        """What each worker does now."""


class View(Protocol):
    """Shows a run."""

    def update(self, stream: WatchedStream) -> None:
        """As often as you like."""

    def failed(self, result: Result) -> None:
        """An item that did not end well."""

    def close(self, stream: WatchedStream) -> None:
        """The last picture."""


class NoView:
    """Shows nothing."""

    def update(self, stream: WatchedStream) -> None:
        """Nothing."""

    def failed(self, result: Result) -> None:
        """Nothing."""

    def close(self, stream: WatchedStream) -> None:
        """Nothing."""
