"""The parent's side of the keeper: starts it, requests workers, and receives reports of their starts and deaths.

Its death is detected by the pidfd, not by the socket: a worker stopped while it was being forked may still hold the
keeper's end. Invariant: after `close` the keeper is gone, and if it had to be killed, so is every process that carries
the pool's mark in its environment.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from weft.pipelines.pool import keeper
from weft.pipelines.pool.keeper import KeeperMessage
from weft.pipelines.pool.owner import MARK, sweep

_END_PATIENCE_S = 3.0
_BOOT = "import sys; sys.path.insert(0, {src!r}); from weft.pipelines.pool.keeper import main; main({fd}, {parent})"


class KeeperLink:
    """One keeper process."""

    def __init__(self, inherit: list[int], mark: str) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._mark = mark
        boot = _BOOT.format(src=str(Path(__file__).parents[3]), fd=theirs.fileno(), parent=os.getpid())
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own interpreter and code)
                [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", boot],  # type: ignore[attr-defined]
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *inherit],
                start_new_session=True,
                env=os.environ | {MARK: mark},
            )
        except BaseException:
            self.control.close()
            raise
        finally:
            theirs.close()
        self.control.setblocking(False)
        self.pidfd = os.pidfd_open(self._process.pid)

    @property
    def pid(self) -> int:
        """The keeper's process."""
        return self._process.pid

    def spawn(self, slot: int, fds: list[int]) -> bool:
        """Asks for a worker with these descriptors; False when the keeper has gone."""
        try:
            socket.send_fds(self.control, [keeper.encode(KeeperMessage(keeper.SPAWN, slot))], fds)
        except OSError:
            return False
        return True

    def receive(self) -> Iterator[tuple[KeeperMessage, list[int]]]:
        """The messages that have come, with their descriptors."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.control, keeper.MESSAGE_BYTES, 1)
            except OSError:
                return
            if not data:
                return
            yield keeper.decode(data), fds

    def kill(self) -> None:
        """Ends the keeper by force, and with it, by the kernel, its workers."""
        self._process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        """The keeper ends its workers and itself; what it could not end is ended here."""
        self.control.close()
        os.close(self.pidfd)
        try:
            clean = self._process.wait(_END_PATIENCE_S) == 0
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            clean = False
        if not clean:
            sweep(self._mark)  # children of its workers now belong to init, and are identified by the mark alone
