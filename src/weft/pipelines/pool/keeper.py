"""The keeper: a small process with one thread between the parent and its workers, which forks them and cleans up.

    parent ──SPAWN + socket, slot, output──► keeper ──fork──► worker (own session, dies with the keeper)
           ◄─SPAWNED + pidfd, EXITED──────

Why it exists: a fork is only safe from a process without threads, which a parent may have; the kernel's "die with the
parent" is tied to a thread, and the parent's may end early; and some process must outlive a parent killed with -9 long
enough to end the workers and whatever they left running. Invariants: it is a subreaper, so every process a dead worker
leaves, daemonised or not, becomes its child, is recognised as no worker of its own, and is killed before EXITED is
sent; when the parent ends, or closes its socket, it ends everything and itself, also when it was stopped.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import time
from collections.abc import Iterator

import msgspec

from weft.pipelines.pool import worker
from weft.supervise import process

SPAWN, SPAWNED, EXITED, NO_FORK = "spawn", "spawned", "exited", "no fork"
MESSAGE_BYTES = 4096
_ORPHAN_PATIENCE_S = 1.0


class KeeperMessage(msgspec.Struct, array_like=True):
    """Sent both ways between parent and keeper; a slot is named by its number."""

    kind: str
    slot: int
    pid: int = 0
    status: int = 0
    peak_rss_kb: int = 0
    text: str = ""


def encode(message: KeeperMessage) -> bytes:
    """For one packet."""
    return msgspec.msgpack.encode(message)


def decode(data: bytes) -> KeeperMessage:
    """From one packet."""
    return msgspec.msgpack.decode(data, type=KeeperMessage)


def main(control_fd: int, parent_pid: int) -> None:
    """Serves the parent. Returns in the keeper when the parent has gone; a worker never returns from here."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    process.wake_with_parent()
    process.adopt_orphans()
    process.set_name("weft-keeper")
    gc.collect()
    gc.freeze()
    try:
        parent_pidfd = os.pidfd_open(parent_pid)
    except ProcessLookupError:
        return  # the parent has ended already
    seat = Keeper(socket.socket(fileno=control_fd), parent_pidfd).serve()
    if seat is not None:
        gc.unfreeze()
        worker.main(*seat)


class Keeper:
    """The parent of all workers."""

    def __init__(self, control: socket.socket, parent_pidfd: int) -> None:
        self._control = control
        self._pid = os.getpid()
        self._slots: dict[int, tuple[int, int]] = {}  # pidfd -> (pid, slot)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        # a process that the user forked may hold the parent's end of the socket for longer than the parent lives
        self._parent = parent_pidfd
        self._poll.register(parent_pidfd, select.POLLIN)

    def serve(self) -> tuple[int, int, int] | None:
        """Until the parent goes; in a forked worker it returns the file descriptors that are its seat."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._slots:
                    self._on_worker_exit(fd)
                elif fd == self._parent or (request := self._receive()) is None:
                    self._end()
                    return None
                elif (seat := self._spawn(*request)) is not None:
                    return seat

    def _receive(self) -> tuple[KeeperMessage, list[int]] | None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, MESSAGE_BYTES, 3)
        except OSError:
            return None
        return (decode(data), fds) if data else None

    def _spawn(self, request: KeeperMessage, fds: list[int]) -> tuple[int, int, int] | None:
        try:
            pid = os.fork()
        except OSError as error:
            self._close(fds)
            self._send(KeeperMessage(NO_FORK, request.slot, text=str(error)))
            return None
        if pid == 0:
            self._become_worker()
            return fds[0], fds[1], fds[2]
        self._close(fds)
        pidfd = os.pidfd_open(pid)
        self._slots[pidfd] = (pid, request.slot)
        self._poll.register(pidfd, select.POLLIN)
        self._send(KeeperMessage(SPAWNED, request.slot, pid), [pidfd])
        return None

    def _become_worker(self) -> None:
        """In the new process: closes the keeper's descriptors, and undoes its settings."""
        os.setsid()
        process.die_with_parent(self._pid)
        process.adopt_orphans()
        self._control.close()
        self._close([self._parent, *self._slots])
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
            file.write("500")  # when memory runs out, the kernel should kill a worker, not the parent

    def _on_worker_exit(self, pidfd: int) -> None:
        """Cleans up after a dead worker, then reports its exit to the parent."""
        pid, slot = self._slots.pop(pidfd)
        self._poll.unregister(pidfd)
        os.close(pidfd)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)  # still a zombie, so the group's number is still its own
        _, status, usage = os.wait4(pid, 0)
        self._kill_orphans()
        self._send(KeeperMessage(EXITED, slot, pid, status, usage.ru_maxrss))

    def _kill_orphans(self) -> None:
        """Repeats, as each one killed may leave children of its own; does not wait for one that the kernel holds."""
        until_s = time.monotonic() + _ORPHAN_PATIENCE_S
        while (orphans := list(self._orphans())) and time.monotonic() < until_s:
            for pid in orphans:
                process.kill(pid)
            for pid in orphans:
                self._reap(pid)

    def _orphans(self) -> Iterator[int]:
        workers = {pid for pid, _ in self._slots.values()}
        return (pid for pid in process.children(self._pid) if pid not in workers)

    def _reap(self, pid: int) -> None:
        for _ in range(50):
            try:
                if os.waitpid(pid, os.WNOHANG)[0]:
                    return
            except ChildProcessError:
                return
            time.sleep(0.001)

    def _end(self) -> None:
        for pid, _ in self._slots.values():
            process.kill(pid)
            with contextlib.suppress(OSError):
                os.killpg(pid, signal.SIGKILL)
        self._slots.clear()
        self._kill_orphans()

    def _send(self, message: KeeperMessage, fds: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):  # the parent has gone; the next poll says so
            socket.send_fds(self._control, [encode(message)], fds or [])

    def _close(self, fds: list[int]) -> None:
        for fd in fds:
            os.close(fd)
