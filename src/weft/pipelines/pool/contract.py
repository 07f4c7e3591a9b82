"""The seam between a pool's public face and what runs its items: an engine.

`local` runs worker processes on this machine (engine/pool_engine.py). Others come from entry points, Weft's own
`celery` too, which runs items on other machines: a distribution registers a callable under the group
`weft.pool_engines`, and `WorkerPool(..., engine="its-name")` calls it as `make(request, items, listeners)`. What every
engine must keep is in `tests/contract/test_pool_engine.py`: results, events, time limits and crash rules are the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from weft.errors import BadInput, Missing
from weft.pipelines.pool.settings import LOCAL

if TYPE_CHECKING:
    from weft.pipelines.pool.engine.run_request import RunRequest, WorkerView
    from weft.pipelines.pool.events import Listener, PoolProgress
    from weft.pipelines.pool.record import Result

GROUP = "weft.pool_engines"


class RunEngine(Protocol):
    """An engine's run of a pool. It is driven by one thread: nothing happens but in `step`, and results wait in
    `ready`. Where the request has a ValueStore, results go through it (values.py).
    """

    request: RunRequest
    progress: PoolProgress
    closed: bool

    @property
    def ready(self) -> deque[Result]:
        """Results for the user: each item once, and only what is in the journal where there is one."""

    @property
    def finished(self) -> bool:
        """Whether all items are done, and all results handed out."""

    def step(self, timeout_s: float) -> None:
        """Does all work that is due; if there is none, waits for some, up to the given time."""

    def fileno(self) -> int:
        """A descriptor that is readable when `step` has something to do."""

    def wait_s(self) -> float:
        """The seconds until timed work is due, which makes no descriptor readable."""

    def stop(self, grace_s: float) -> None:
        """Starts no more items; those that run may finish within `grace_s`."""

    def finish(self) -> None:
        """Sends the last event after all items are done, and closes everything."""

    def close(self) -> None:
        """Ends all work, whatever its state; a second call does nothing."""

    def view(self) -> list[WorkerView]:
        """The current state of the workers."""


MakeEngine = Callable[["RunRequest", Iterator[Any], "list[Listener]"], RunEngine]


def engine_named(name: str) -> MakeEngine:
    """The factory of the engine with this name; raises BadInput if there is none, Missing if its packages are not
    installed.
    """
    if name == LOCAL:
        from weft.pipelines.pool.engine.pool_engine import PoolEngine

        return PoolEngine
    engines = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in engines:
        others = "".join(f", {other!r}" for other in sorted(engines))
        raise BadInput(
            f"there is no engine {name!r}: choose {LOCAL!r}, which runs the items in processes of this machine{others}"
        )
    try:
        make: MakeEngine = engines[name].load()
    except ImportError as error:
        raise Missing(f"what the engine {name!r} needs", str(error)) from None
    return make
