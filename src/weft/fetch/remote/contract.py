"""The interface of the transport to the code that talks to workers; its entry point is `cluster.brain`."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from weft.bodies import Body
from weft.config import ClusterSection
from weft.fetch.remote.messages import FetchTask, RemoteResult


class HandFacts(Struct, frozen=True):
    """A hand (a worker) that can accept requests now."""

    name: str
    concurrency: int


class RemoteArrival(Struct, frozen=True):
    """A result that arrived at a time of the monotonic clock. `body` is None if it is lost."""

    result: RemoteResult
    body: Body | None
    at: float


class HandDispatcher(Protocol):
    """Sends tasks to hands and receives their results. No method waits for the broker."""

    @property
    def is_private(self) -> bool:
        """Whether only the cluster can read what is sent to the broker: then credentials may be sent."""

    def fileno(self) -> int:
        """Readable when `arrivals` has something."""

    def arrivals(self) -> list[RemoteArrival]:
        """The results that have arrived since the last call."""

    def hands(self) -> Mapping[str, HandFacts]:
        """The connected hands, by name."""

    def renderers(self) -> Mapping[str, HandFacts]:
        """The connected hands that render pages, by name; `concurrency` says how many at a time."""

    def browsers(self) -> socket.socket:
        """The engine's end of a connection that behaves like one to a browser process (`fetch.browser.messages`)."""

    def trouble(self) -> str:
        """Why nothing can be sent now; empty if it can."""

    def task(self, make: Callable[[str, int], FetchTask], hand: str, start_by: float) -> None:
        """Sends a task to a hand, if this is possible until `start_by` (monotonic), after which it is not begun. `make`
        is given this process's name and epoch."""

    def count(self, name: str) -> None:
        """Counts a refusal."""

    def close(self) -> None:
        """Sends nothing more; pending tasks are not waited for."""


# The settings, the crawl's folder, the process's name, and whether an error of the broker is raised at once.
Connect = Callable[[ClusterSection, Path, str, bool], HandDispatcher]
