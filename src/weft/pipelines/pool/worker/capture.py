"""Captures an item's output into its log, and undoes what an item changed in the process.

Python's own prints become log entries line by line, with their time. Output that bypasses Python (subprocesses, native
code, faulthandler) goes to one unnamed file for each worker, which is moved into the log at every entry and at the
item's end; without a pipe or a thread nothing can block on it, and after a death the parent finds the rest there.
"""

from __future__ import annotations

import faulthandler
import io
import logging
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from weft.pipelines.pool.worker.descriptors import identity
from weft.pipelines.pool.worker.item_log import ItemLog, LogHandler
from weft.pipelines.pool.worker.slot import CUT, SharedSlot
from weft.supervise.pool.worker_slot import OUTPUT_LIMIT_BYTES

_MAX_LINE_CHARS = 32_000


class OutputFile:
    """The file behind file descriptors 1 and 2 while output is captured."""

    def __init__(self, fd: int, slot: SharedSlot) -> None:
        self.fd = fd
        self._identity = identity(fd)
        self._slot = slot
        self._dropped_bytes = 0
        self._kept = (os.dup(1), os.dup(2))

    def redirect(self) -> None:
        """Redirects all output of this process and its children to the file."""
        for stream in (1, 2):
            os.dup2(self.fd, stream)
        faulthandler.enable(file=2, all_threads=True)

    def restore(self) -> None:
        """Restores the original output."""
        for stream, kept in zip((1, 2), self._kept, strict=True):
            os.dup2(kept, stream)

    def collect(self) -> tuple[bytes, int]:
        """Returns the output since the last call, and how many bytes of it were dropped. The parent also truncates the
        file, to bound a flood of output, which may leave a gap of NULs.
        """
        try:
            status = os.fstat(self.fd)
            size = status.st_size
            if not size or (status.st_dev, status.st_ino) != self._identity:
                return b"", 0
            data = os.pread(self.fd, OUTPUT_LIMIT_BYTES, 0)
            os.ftruncate(self.fd, 0)
        except OSError:
            return b"", 0  # the item has closed the descriptor
        dropped = self._slot.words[CUT] - self._dropped_bytes
        self._dropped_bytes += dropped
        return data.strip(b"\0"), dropped + size - len(data)


class PrintStream(io.TextIOBase):
    """Replaces sys.stdout and sys.stderr; a whole line is an entry of the item's log."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, log: ItemLog, fd: int) -> None:
        super().__init__()
        self._log = log
        self._fd = fd
        self._rest = ""
        self.buffer = io.FileIO(fd, "wb", closefd=False)

    def write(self, text: str) -> int:
        """Writes text; an unfinished line is kept until the rest of it comes."""
        pending = self._rest + text
        if "\n" in pending or len(pending) > _MAX_LINE_CHARS:
            *lines, pending = pending.split("\n") if "\n" in pending else (pending, "")
            for line in lines:
                if not self._log.printed(line):
                    os.write(self._fd, f"{line}\n".encode(errors=self.errors))
        self._rest = pending
        return len(text)

    def finish(self) -> None:
        """Logs an unfinished line at the end of an item."""
        if self._rest:
            self._log.printed(self._rest)
            self._rest = ""

    def writable(self) -> bool:
        """Always True."""
        return True

    def fileno(self) -> int:
        """The descriptor, for subprocesses that are given this stream."""
        return self._fd


class Capture:
    """Output capture for a worker whose items have logs."""

    def __init__(self, log: ItemLog) -> None:
        self._streams = (PrintStream(log, 1), PrintStream(log, 2))
        sys.stdout, sys.stderr = self._streams
        root = logging.getLogger()
        root.addHandler(LogHandler(log))
        root.setLevel(logging.INFO)

    def finish_item(self) -> None:
        """Logs unfinished lines, and restores the streams if the item replaced them."""
        for stream in self._streams:
            stream.finish()
        sys.stdout, sys.stderr = self._streams


class SignalGuard:
    """Puts signal handlers and timers back after an item that changed them; free for items that do not.

    Created before the user's module is imported, which may bind the functions: `from signal import alarm`."""

    def __init__(self) -> None:
        for name in ("signal", "alarm", "setitimer", "pthread_sigmask", "set_wakeup_fd"):
            setattr(signal, name, self._wrap_function(getattr(signal, name)))
        self.remember()

    def remember(self) -> None:
        """Records the current signal handlers, which `restore` sets again."""
        self._before = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self.changed = False

    def restore(self) -> None:
        """Stops all timers, and restores every signal handler."""
        self.changed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        for number, handler in self._before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        self.changed = False

    def _wrap_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            self.changed = True
            return function(*args, **kwargs)

        return call
