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
    """One run. Driven by one thread: nothing happens but in `step`, and results wait in `ready`. Where the request has
    a ValueStore, results go through it (values.py)."""

    request: RunRequest
    progress: PoolProgress
    closed: bool

    @property
    def ready(self) -> deque[Result]:
        """Results for the user: each item once, and only what is in the journal where there is one."""

    @property
    def finished(self) -> bool:
        """Everything is done and handed out."""

    def step(self, timeout_s: float) -> None:
        """Does what there is to do; if there is nothing, waits for it, up to the given time."""

    def fileno(self) -> int:
        """Readable when there is something to do, for an event loop."""

    def wait_s(self) -> float:
        """How long until something is due that makes no descriptor readable."""

    def stop(self, grace_s: float) -> None:
        """Nothing new is begun; what is begun may end within the grace."""

    def finish(self) -> None:
        """Everything was done: the last event goes out, then all is closed."""

    def close(self) -> None:
        """Ends all work in any state; a second call does nothing."""

    def view(self) -> list[WorkerView]:
        """The workers as they are now."""


MakeEngine = Callable[["RunRequest", Iterator[Any], "list[Listener]"], RunEngine]


def engine_named(name: str) -> MakeEngine:
    """What makes engines of this name; BadInput if there is none, Missing if what it needs is not installed."""
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
