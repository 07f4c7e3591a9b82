"""The context that a function gets with its item: a log, stages, the deadline, and a way to skip the item."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NoReturn

from weft.pipelines.pool.record import Status
from weft.pipelines.pool.worker.item_log import ItemLog
from weft.pipelines.pool.worker.slot import SharedSlot, stage_label

PROCESS = "process"
"""The phase of what happens outside any stage."""


class Skip(Exception):
    """Raised by a function whose item needs no work: the result is `skipped`, with the reason."""


class ItemEnd:
    """Returned by a function whose value is kept with any status: the outcome of each stage, for example."""

    __slots__ = ("rest", "status")

    def __init__(
        self,
        status: Status,
        value: Any,
        phase: str | None = None,
        error: str | None = None,
        traceback: str | None = None,
    ) -> None:
        self.status = status
        self.rest = (value, phase, error, traceback)


@dataclass(slots=True, eq=False, repr=False)
class Context:
    """The context of one item, on its worker. Stages may be nested; a failure is reported with the innermost."""

    item_id: str | int
    attempt: int
    deadline: float | None
    """When the item is stopped, on the clock of `time.monotonic()`; None without a limit."""
    log: ItemLog
    _slot: SharedSlot
    _on_stage: Callable[[Context], None] | None
    config: Mapping[str, Any]
    """What the pool was given for all items; read-only."""
    phase: str | None = None
    failed_phase: str | None = None

    def stage(self, name: str) -> Stage:
        """Enters a stage: `with context.stage("clone"): ...`, or just the call, until the next one."""
        stage = Stage(self, self.phase)
        self.enter(str(name))
        return stage

    def enter(self, name: str, label: bytes | None = None) -> None:
        """Enters a stage without a `with` block; `label` is the encoded name (`stage_label`), if the caller has it."""
        self.phase = self.log.phase = name
        self._slot.set_label(stage_label(name) if label is None else label)
        if self._on_stage is not None:
            self._on_stage(self)

    def skip(self, reason: str = "") -> NoReturn:
        """Ends the item as `skipped`."""
        raise Skip(reason)

    def remaining_s(self) -> float | None:
        """Seconds until the deadline."""
        return None if self.deadline is None else self.deadline - time.monotonic()

    def set_phase(self, name: str | None) -> None:
        """Sets the phase for the log, the display and a possible failure."""
        self.phase = self._slot.stage = name
        self.log.phase = name or PROCESS


class Stage:
    """A `with` block of a stage: leaves the stage at its end, and records which stage has failed."""

    __slots__ = ("_before", "_context")

    def __init__(self, context: Context, before: str | None) -> None:
        self._context = context
        self._before = before

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        context = self._context
        if error is not None and context.failed_phase is None:
            context.failed_phase = context.phase
        context.set_phase(self._before)
