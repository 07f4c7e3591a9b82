"""Runs items through functions and stages on a pool of processes that survives the death of its workers.

Names are imported on first use: a worker needs few of them, and starts faster.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.errors import BadInput
    from weft.pipelines.files import RunFiles
    from weft.pipelines.pool.api import Stream, WorkerPool
    from weft.pipelines.pool.context import Context, Skip
    from weft.pipelines.pool.engine.task import Pause
    from weft.pipelines.pool.events import Event
    from weft.pipelines.pool.record import Result, Status
    from weft.pipelines.stage import CollectContext, ItemResult, StageContext, StageOutcome
    from weft.supervise.pool.process_pool import PoolBroken

__all__ = [
    "BadInput",
    "CollectContext",
    "Context",
    "Event",
    "ItemResult",
    "Pause",
    "PoolBroken",
    "Result",
    "RunFiles",
    "Skip",
    "StageContext",
    "StageOutcome",
    "Status",
    "Stream",
    "WorkerPool",
]

_MODULE_OF_NAME = {
    "BadInput": "weft.errors",
    "CollectContext": "weft.pipelines.stage",
    "Context": "weft.pipelines.pool.context",
    "Event": "weft.pipelines.pool.events",
    "ItemResult": "weft.pipelines.stage",
    "Pause": "weft.pipelines.pool.engine.task",
    "PoolBroken": "weft.supervise.pool.process_pool",
    "Result": "weft.pipelines.pool.record",
    "RunFiles": "weft.pipelines.files",
    "Skip": "weft.pipelines.pool.context",
    "StageContext": "weft.pipelines.stage",
    "StageOutcome": "weft.pipelines.stage",
    "Status": "weft.pipelines.pool.record",
    "Stream": "weft.pipelines.pool.api",
    "WorkerPool": "weft.pipelines.pool.api",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF_NAME[name]), name)
