"""A process that a service holds: one that it has started, or one that it has adopted.

Both are monitored and signalled through a descriptor of the process (pidfd), so that a signal can never reach a later
process with the same pid. A process that was started here is reaped, and its exit status is known; of an adopted one,
as a rule, only that it has ended.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from weft.supervise import process
from weft.supervise.process import Exit

WORDS_BYTES = 8192  # of standard error that are kept
_PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """Identifies a process for good, also in a file: its pid, its birth, its command line."""

    pid: int
    birth: int
    argv: tuple[str, ...]

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity | None:
        """The identity of a running process."""
        birth, argv = process.birth(pid), process.command_line(pid)
        return None if birth is None or not argv else cls(pid, birth, argv)


class Held(ABC):
    """The common part of both: the descriptor."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid = pid
        self._pidfd = pidfd

    def fileno(self) -> int:
        """Readable when it has ended."""
        return self._pidfd

    @abstractmethod
    def poll(self) -> Exit | None:
        """Its exit; None while it runs."""

    def send(self, number: int) -> None:
        """Sends a signal to exactly this process; does nothing if it has ended."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, number)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for its end; False after the timeout."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))

    def write_input(self, data: bytes) -> bool:
        """Writes to its standard input; False if there is none, or its other end is closed."""
        del data
        return False

    def close_input(self) -> bool:
        """Closes its standard input; False if there is none."""
        return False

    def drain_stderr(self) -> None:
        """Reads its standard error, so that it never blocks on a full pipe; an adopted process has none here."""
        return

    def words(self) -> str:
        """The end of its standard error, if it is kept."""
        return ""

    def close(self) -> None:
        """Closes the descriptor; the process has ended, or continues without us."""
        os.close(self._pidfd)


class Started(Held):
    """A child of this process."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        try:
            super().__init__(popen.pid, os.pidfd_open(popen.pid))  # not reaped yet: the pid is still its own
        except OSError:
            popen.kill()
            popen.wait()
            raise
        self._popen = popen
        self._words: deque[bytes] = deque()
        self._kept = 0
        if popen.stderr is not None:
            os.set_blocking(popen.stderr.fileno(), False)

    def poll(self) -> Exit | None:
        """Its exit; reaps it."""
        code = self._popen.poll()
        if code is None:
            return None
        return Exit(code) if code >= 0 else Exit(None, -code)

    def send(self, number: int) -> None:
        """Sends a signal."""
        if self._popen.returncode is None:
            super().send(number)

    def write_input(self, data: bytes) -> bool:
        """Writes to its standard input."""
        if self._popen.stdin is None or self._popen.stdin.closed:
            return False
        try:
            self._popen.stdin.write(data)
            self._popen.stdin.flush()
        except BrokenPipeError:
            return False
        return True

    def close_input(self) -> bool:
        """Closes its standard input."""
        if self._popen.stdin is None:
            return False
        with suppress(BrokenPipeError):
            self._popen.stdin.close()
        return True

    def drain_stderr(self) -> None:
        """Reads its standard error; the last WORDS_BYTES are kept."""
        while self._popen.stderr is not None and not self._popen.stderr.closed:
            try:
                piece = os.read(self._popen.stderr.fileno(), _PIECE)
            except BlockingIOError:
                return
            if not piece:
                return
            self._words.append(piece)
            self._kept += len(piece)
            while self._kept - len(self._words[0]) >= WORDS_BYTES:
                self._kept -= len(self._words.popleft())

    def words(self) -> str:
        """The end of its standard error."""
        return b"".join(self._words)[-WORDS_BYTES:].decode("utf-8", "replace").strip()

    def close(self) -> None:
        """Closes pipes and descriptor."""
        self.close_input()
        if self._popen.stderr is not None:
            self._popen.stderr.close()
        super().close()


class Adopted(Held):
    """A process that this one has not started."""

    @classmethod
    def adopt(cls, identity: ProcessIdentity) -> Adopted | None:
        """The process of this identity; None if it has ended, is a zombie, or its pid was reused."""
        return cls.adopt_if(identity.pid, lambda pid: ProcessIdentity.of(pid) == identity)

    @classmethod
    def adopt_if(cls, pid: int, is_it: Callable[[int], bool]) -> Adopted | None:
        """The process with this pid, if `is_it` accepts it, and it runs."""
        try:
            pidfd = os.pidfd_open(pid)
        except (OSError, ValueError, OverflowError):  # no process can have such a pid
            return None
        # Checked after the descriptor was opened: a match now is a match of the descriptor's process.
        if is_it(pid) and not process.has_ended(pid):
            return cls(pid, pidfd)
        os.close(pidfd)
        return None

    def poll(self) -> Exit | None:
        """Whether it has ended; with its exit status, if the kernel made it our child."""
        if not self.wait(0):
            return None
        try:
            ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return Exit()
        if ended is None:
            return Exit()
        return Exit(ended.si_status) if ended.si_code == os.CLD_EXITED else Exit(None, ended.si_status)
