"""What the supervisor's Celery processes have in common: their specs, their logs, and that they end with it.

A spec comes on standard input, a length and msgpack, so that neither key nor broker are in a command line.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from pathlib import Path

import msgspec

from weft.cluster.supervised.ticks import TickEntry
from weft.frames import framed
from weft.telemetry import LogFormat, Slot, log_to_file

WORKER_LOG, SCHEDULER_LOG = "celery_worker.log", "celery_beat.log"
VISIBILITY_S = 3600.0


class LogSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The folder, level and format of the log of a process."""

    folder: str
    level: str = "INFO"
    shown_as: LogFormat | None = None


class SchedulerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The tasks that the scheduler sends, and when."""

    broker: str
    key: str
    entries: tuple[tuple[TickEntry, str], ...]  # with the kind of task
    heartbeat: str  # the file that is touched while it is well
    logs: LogSpec

    def framed(self) -> bytes:
        """The settings as they are sent over the pipe."""
        return framed(msgspec.msgpack.encode(self))


class HandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the supervised worker."""

    broker: str
    key: str
    concurrency: int
    visibility_s: float
    logs: LogSpec

    def framed(self) -> bytes:
        """The settings as they are sent over the pipe."""
        return framed(msgspec.msgpack.encode(self))


def log_of(spec: LogSpec, slot: Slot, name: str) -> None:
    """Sends this process's log to its file, and what Celery has to warn of with it."""
    handler = log_to_file(Path(spec.folder), slot, spec.level, name=name, shown_as=spec.shown_as)
    for library in ("celery", "kombu"):
        logger = logging.getLogger(library)
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        logger.propagate = False

    def rotate_no_more() -> None:
        handler.maxBytes = 0

    os.register_at_fork(after_in_child=rotate_no_more)  # one process rotates a file


def end_with(pipe: int) -> None:
    """Has this process asked to stop when the other end of the pipe is closed."""

    def watch() -> None:
        os.read(pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="supervisor's pipe", daemon=True).start()
