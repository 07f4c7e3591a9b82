"""The settings of a pool, checked before anything starts. All problems are reported at once."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields

from weft.errors import BadInput

LOCAL = "local"
"""The engine that runs items in processes of this machine."""
WORKER_COUNT = "PIPELINE_WORKER_COUNT"
ITEM_LOGS = ("auto", "each", "worker", "off")
"""A file for each item, or one for each worker; `auto` is `each` up to AUTO_EACH items of the source."""
AUTO_EACH = 2_000
_MAX_WORKERS = 1000
_LARGEST_NUMBER = 10**9  # seconds, megabytes, items: beyond it some clock or counter overflows


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of a pool. Times in seconds; None is no limit."""

    workers: int
    batch_size: int = 50
    item_timeout: float | None = 60.0
    batch_timeout: float | None = 1800.0
    memory_limit_mb: float | None = None
    recycle_after: int | None = None
    crash_tries: int = 2
    heartbeat_timeout: float = 10.0
    start_timeout: float = 60.0
    stop_grace: float = 2.0
    max_ahead: int = 10_000

    def __post_init__(self) -> None:
        problems = [problem for field in fields(self) if (problem := self._problem(field.name))]
        if problems:
            raise BadInput("\n".join(problems))

    def _problem(self, name: str) -> str | None:
        value = getattr(self, name)
        whole = name in ("workers", "batch_size", "recycle_after", "crash_tries", "max_ahead")
        if value is None and name in ("item_timeout", "batch_timeout", "memory_limit_mb", "recycle_after"):
            return None
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            return f"{name} must be a {'whole ' if whole else ''}number, this is {value!r}"
        if not value > 0:
            return f"{name} must be greater than 0, this is {value!r}"
        most = _MAX_WORKERS if name == "workers" else _LARGEST_NUMBER
        if value > most:
            return f"{name} must be at most {most}, this is {value}"
        return None


def item_logs(asked: bool | str) -> str:
    """Checks an option for item logs, one of ITEM_LOGS; True and False are `auto` and `off`."""
    if isinstance(asked, bool):
        return "auto" if asked else "off"
    if asked not in ITEM_LOGS:
        raise BadInput(f"item logs must be auto, each, worker or off, this is {asked!r}")
    return asked


def worker_count(asked: int | None, engine: str = LOCAL) -> int:
    """The number of workers: as asked for, else PIPELINE_WORKER_COUNT, else one less than the processors of this
    process. An engine on other machines uses all that they have.
    """
    if asked is not None:
        return asked
    text = os.environ.get(WORKER_COUNT)
    if text is None and engine != LOCAL:
        return _MAX_WORKERS
    if text is None:
        return max(1, len(os.sched_getaffinity(0)) - 1)
    try:
        return int(text)
    except ValueError:
        raise BadInput(f"{WORKER_COUNT} must be a whole number, this is {text!r}") from None
