"""What the transport through workers needs of the code that talks to them; its entry point is `cluster.brain`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from weft.bodies import Body
from weft.config import ClusterSection
from weft.fetch.remote.messages import FetchTask, RemoteResult


class HandFacts(Struct, frozen=True):
    """A hand that can be given requests now."""

    name: str
    concurrency: int


class RemoteArrival(Struct, frozen=True):
    """A result that has come, at a time of the monotonic clock. `body` is None where it is lost."""

    result: RemoteResult
    body: Body | None
    at: float


class HandDispatcher(Protocol):
    """Sends tasks to hands and receives what they send. No method waits for the broker."""

    @property
    def is_private(self) -> bool:
        """Whether what goes to the broker can be read by none but the cluster: credentials may go there."""

    def fileno(self) -> int:
        """Readable when `arrivals` has something."""

    def arrivals(self) -> list[RemoteArrival]:
        """The results that have come since the last call."""

    def hands(self) -> Mapping[str, HandFacts]:
        """The hands that are there, by name."""

    def trouble(self) -> str:
        """Why nothing can be sent now; empty if it can."""

    def task(self, make: Callable[[str, int], FetchTask], hand: str, start_by: float) -> None:
        """Sends a task to a hand, if this is possible until `start_by` (monotonic), after which it is not begun. `make`
        is given this process's name and epoch."""

    def count(self, name: str) -> None:
        """Counts something that was refused."""

    def close(self) -> None:
        """Sends nothing more; what is out is not waited for."""


# The settings, the crawl's folder, the process's name, and whether what is wrong with the broker is raised at once.
Connect = Callable[[ClusterSection, Path, str, bool], HandDispatcher]
