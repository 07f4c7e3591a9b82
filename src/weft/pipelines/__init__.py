"""Any list of items, through a function, on a pool of processes that survives its workers."""

from weft.pipelines.context import Context, Skip
from weft.pipelines.events import Event
from weft.pipelines.pool import Stream, WorkerPool
from weft.pipelines.record import Result, Status
from weft.pipelines.settings import PoolBroken

__all__ = ["Context", "Event", "PoolBroken", "Result", "Skip", "Status", "Stream", "WorkerPool"]
