"""Runs a function over items on a pool of processes that survives the death of its workers.

Names are imported on first use: a worker needs few of them, and starts faster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.pipelines.pool.api import Stream, WorkerPool
    from weft.pipelines.pool.context import Context, Skip
    from weft.pipelines.pool.events import Event
    from weft.pipelines.pool.record import Result, Status
    from weft.pipelines.pool.settings import PoolBroken

__all__ = ["Context", "Event", "PoolBroken", "Result", "Skip", "Status", "Stream", "WorkerPool"]

_HOMES = {
    "Context": "pool.context",
    "Event": "pool.events",
    "PoolBroken": "pool.settings",
    "Result": "pool.record",
    "Skip": "pool.context",
    "Status": "pool.record",
    "Stream": "pool.api",
    "WorkerPool": "pool.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
