"""Messages of the orchestrator to its processes: the spec with which one is started, and later notifications.

Both arrive on the process's standard input: the spec first, as a frame; then lines. `stop REASON` ends the process;
`read NUMBER` makes it read the crawl's folder again (settings, seeds, whether the crawl is paused). The folder is the
truth, so a process that is killed before it has read a line misses nothing: it reads the folder when it is restarted.
"""

from __future__ import annotations

import os

import msgspec

from weft.config import Config
from weft.engine.loop.stop import Stop
from weft.frames import framed, read_frame
from weft.telemetry import Slot


class ProcessSpec(msgspec.Struct, frozen=True):
    """The crawl to work on, and the role of the process in it."""

    config: Config
    crawl_id: str
    parent_pid: int
    run: str  # identifies this run of the crawl, through all restarts
    pod: int = 0
    role: str = "fetcher"
    index: int = 0
    pods: int = 1
    servers: tuple[str, ...] = ()  # the Redis of every pod; empty: embedded pods
    incarnation: int = 1  # number of the process in its slot, higher than all before
    core: int | None = None
    started_at: float = 0.0  # start of the run, wall clock; the same for restarts
    changes: int = 0  # how often the folder has changed in this run: the process reads it with all changes

    @property
    def slot(self) -> Slot:
        """The slot of the process."""
        return Slot(self.pod, self.role, self.index)

    def framed(self) -> bytes:
        """The bytes for the pipe."""
        return framed(msgspec.msgpack.encode(self))


def read_spec(fd: int) -> ProcessSpec:
    """Reads the spec from the process's standard input; raises EOFError if the sender is gone."""
    return msgspec.msgpack.decode(read_frame(fd), type=ProcessSpec)


class ControlInput:
    """Reads the lines that the orchestrator sends."""

    def __init__(self, fd: int, changes: int = 0) -> None:
        self.reason: Stop | None = None  # why the process should end
        self.changes = changes  # number of the folder's last change
        self._fd = fd
        self._received = b""
        os.set_blocking(fd, False)

    def read_lines(self) -> None:
        """Reads the lines that have arrived."""
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
