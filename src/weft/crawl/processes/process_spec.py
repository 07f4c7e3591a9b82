"""What the orchestrator sends to its processes: the order with which one is started, and later what is to change.

Both come on the process's standard input: the order first, as a frame; then lines. `stop REASON` ends the process;
`read NUMBER` has it read again what the crawl's folder holds (settings, seeds, whether the crawl is paused). The folder
is the truth, so that a process that was killed before it has read a line misses nothing: it reads the folder when it
is started again.
"""

from __future__ import annotations

import os

import msgspec

from weft.config import Config
from weft.engine.loop.stop import Stop
from weft.frames import framed, read_frame
from weft.telemetry import Slot


class ProcessSpec(msgspec.Struct, frozen=True):
    """What the orchestrator wants crawled, and by which of its processes."""

    config: Config
    crawl_id: str
    parent_pid: int
    run: str  # names this run of the crawl, through all its restarts
    pod: int = 0
    role: str = "fetcher"
    index: int = 0
    pods: int = 1
    servers: tuple[str, ...] = ()  # every pod's Redis; none: embedded pods
    incarnation: int = 1  # of the process in its slot, beyond all before
    core: int | None = None
    started_at: float = 0.0  # when the run began, by the wall clock; its restarts have the same
    changes: int = 0  # how often the folder has changed in this run: this process reads it with all of them

    @property
    def slot(self) -> Slot:
        """The place that the process fills."""
        return Slot(self.pod, self.role, self.index)

    def framed(self) -> bytes:
        """As it goes over the pipe."""
        return framed(msgspec.msgpack.encode(self))


def read_spec(fd: int) -> ProcessSpec:
    """The order, from the process's standard input; EOFError if the sender has gone."""
    return msgspec.msgpack.decode(read_frame(fd), type=ProcessSpec)


class Control:
    """Reads the lines that the orchestrator sends."""

    def __init__(self, fd: int, changes: int = 0) -> None:
        self.reason: Stop | None = None  # why the process shall end
        self.changes = changes  # the number of the folder's last change
        self._fd = fd
        self._received = b""
        os.set_blocking(fd, False)

    def read(self) -> None:
        """Reads what has come."""
        try:
            self._received += os.read(self._fd, 4096)
        except BlockingIOError:
            return
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if word == "stop":
                self.reason = Stop(value)
            elif word == "read":
                self.changes = int(value)
