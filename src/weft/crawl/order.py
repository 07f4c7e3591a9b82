"""What the orchestrator sends to its processes: the order with which one is started, and later why it shall end.

Both come on the process's standard input: the order first, as a frame; then, if ever, a line with the
reason to stop.
"""

from __future__ import annotations

import os

import msgspec

from weft.config import Config
from weft.frames import framed, read_frame
from weft.telemetry import Slot


class ProcessOrder(msgspec.Struct, frozen=True):
    """What the orchestrator wants crawled, and by which of its processes."""

    config: Config
    crawl_id: str
    parent_pid: int
    run: str  # names this run of the crawl, through all its restarts
    until: float | None = None  # of the wall clock
    pod: int = 0
    role: str = "fetcher"
    index: int = 0
    pods: int = 1
    servers: tuple[str, ...] = ()  # every pod's Redis; none: embedded pods
    incarnation: int = 1  # of the process in its slot, beyond all before
    core: int | None = None
    started_at: float = 0.0  # when the run began, by the wall clock; its restarts have the same

    @property
    def slot(self) -> Slot:
        """The place that the process fills."""
        return Slot(self.pod, self.role, self.index)

    def framed(self) -> bytes:
        """As it goes over the pipe."""
        return framed(msgspec.msgpack.encode(self))


def read_order(fd: int) -> ProcessOrder:
    """The order, from the process's standard input; EOFError if the sender has gone."""
    return msgspec.msgpack.decode(read_frame(fd), type=ProcessOrder)


class Control:
    """Reads the reason to stop, if the orchestrator sends one."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._received = b""
        os.set_blocking(fd, False)

    def reason(self) -> str | None:
        """Why the process shall end; None until that is received."""
        try:
            self._received += os.read(self._fd, 64)
        except BlockingIOError:
            return None
        line, mark, _ = self._received.partition(b"\n")
        return line.decode() if mark else None
