"""The parent's end of the keeper: starts it, asks it for workers, hears of their births and deaths.

Invariant: the keeper is a direct child, so its pid is ours until we have waited for it; when it is gone, `close` has
also ended whatever carries the pool's mark in its environment.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from weft.pipelines import keeper
from weft.pipelines.keeper import Message
from weft.supervise import process

_MARK = "WEFT_POOL"
_END_PATIENCE_S = 3.0
_BOOT = "import sys; sys.path.insert(0, {src!r}); from weft.pipelines.keeper import main; main({fd})"


class KeeperLink:
    """One keeper process."""

    def __init__(self, inherit: list[int]) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._mark = f"{os.getpid()}.{time.monotonic_ns()}"
        boot = _BOOT.format(src=str(Path(__file__).parents[2]), fd=theirs.fileno())
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and code)
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", boot],  # type: ignore[attr-defined]
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *inherit],
                start_new_session=True,
                env=os.environ | {_MARK: self._mark},
            )
        except BaseException:
            self.control.close()
            raise
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        """The keeper's process."""
        return self._process.pid

    def spawn(self, slot: int, fds: list[int]) -> bool:
        """Asks for a worker with these descriptors; False when the keeper has gone."""
        try:
            socket.send_fds(self.control, [keeper.encode(Message(keeper.SPAWN, slot))], fds)
        except OSError:
            return False
        return True

    def receive(self) -> tuple[Message, list[int]] | None:
        """The next message and its descriptors; None when the keeper has gone. Call when readable."""
        try:
            data, fds, _, _ = socket.recv_fds(self.control, keeper.MESSAGE_BYTES, 1)
        except OSError:
            return None
        return (keeper.decode(data), fds) if data else None

    def kill(self) -> None:
        """Ends the keeper by force, and with it, by the kernel, its workers."""
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """The keeper ends its workers and itself; what it could not end is ended here."""
        self.control.close()
        try:
            clean = self._process.wait(_END_PATIENCE_S) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            clean = False
        if not clean:
            self._sweep()

    def _sweep(self) -> None:
        """The keeper was killed: what its workers had started now belongs to init, and only the mark tells it."""
        for _ in range(10):
            marked = process.with_environment(f"{_MARK}={self._mark}")
            strays = [pid for pid in marked if process.state(pid) != "Z"]
            if not strays:
                return
            for pid in strays:
                process.kill(pid)
            time.sleep(0.01)
