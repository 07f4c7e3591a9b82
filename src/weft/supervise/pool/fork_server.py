"""The fork server: a small process with one thread between the parent and its workers, which forks them and cleans up.

    parent ──SPAWN + descriptors──► fork server ──fork──► worker (own session, dies with the fork server)
           ◄─SPAWNED + pidfd, EXITED──

Why it exists: a fork is only safe from a process without threads, which a parent may have; the kernel's "die with the
parent" is tied to a thread, and the parent's may end early; and some process must outlive a parent killed with -9 long
enough to end the workers and whatever they left running. It has imported the worker's code: a fork is ready in a
millisecond.

Invariants: it is a subreaper, so every process a dead worker leaves, daemonised or not, becomes its child, is
recognised as no worker of its own, and is killed before EXITED is sent; when the parent ends, or closes its socket, it
ends everything and itself, also when it was stopped. Its own death is detected by the pidfd, not by the socket: a
worker stopped while it was being forked may still hold its end. After `ForkServer.close` it is gone, and if it had to
be killed, so is every process that carries the pool's mark in its environment.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import msgspec

from weft.supervise import process
from weft.supervise.held import Adopted, Held, Started
from weft.supervise.pool.owner import MARK, sweep
from weft.supervise.process import Exit

SPAWN, SPAWNED, EXITED, NO_FORK = "spawn", "spawned", "exited", "no fork"
_MESSAGE_BYTES = 4096
_MAX_FDS = 8
_END_PATIENCE_S = 3.0
_ORPHAN_PATIENCE_S = 1.0
_BOOT = (
    "import gc, sys; gc.disable(); sys.path.insert(0, {src!r}); "
    "from weft.supervise.pool.fork_server import main; main({entry!r}, {fd}, {parent}, {preload!r})"
)


class ForkMessage(msgspec.Struct, array_like=True):
    """Sent both ways between parent and fork server; a slot is named by its number."""

    kind: str
    slot: int
    pid: int = 0
    status: int = 0
    peak_rss_kb: int = 0
    text: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ForkMessage).decode


class ForkServer:
    """The parent's side: starts the process, requests workers, and receives reports of their starts and deaths."""

    def __init__(
        self, entry: str, inherit: Sequence[int], mark: str, *, may_fork: bool, preload: Sequence[str] = ()
    ) -> None:
        """`entry`: the `module:function` that a worker runs, called with the descriptors it was sent. `may_fork`: this
        process has imported it, and its memory contains nothing that a worker must not see; if it has one thread, the
        server is forked from it, which takes 10 ms instead of 200. `preload`: modules that a new server
        imports as well, because every worker needs them.
        """
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._mark = mark
        try:
            if may_fork and process.is_single_threaded():
                self._held = _forked(entry, theirs.fileno())
            else:
                self._held = _started(entry, theirs.fileno(), inherit, mark, preload)
        except BaseException:
            self.control.close()
            raise
        finally:
            theirs.close()
        self.control.setblocking(False)
        self.pid, self.pidfd = self._held.pid, self._held.fileno()

    def spawn(self, slot: int, fds: list[int]) -> None:
        """Requests a worker with these descriptors; if the fork server has ended, its pidfd reports that."""
        with contextlib.suppress(OSError):
            socket.send_fds(self.control, [_encode(ForkMessage(SPAWN, slot))], fds)

    def receive(self) -> Iterator[tuple[ForkMessage, list[int]]]:
        """The messages that have come, with their descriptors."""
        while True:
            try:
                data, fds, _, _ = socket.recv_fds(self.control, _MESSAGE_BYTES, 1)
            except OSError:
                return
            if not data:
                return
            yield _decode(data), fds

    def kill(self) -> None:
        """Kills it, and with it, by the kernel, its workers."""
        self._held.send(signal.SIGKILL)

    def close(self) -> Exit:
        """Ends its workers and itself; processes that it could not end are ended here. Returns how it ended."""
        self.control.close()
        if not self._held.wait(_END_PATIENCE_S):
            self._held.send(signal.SIGKILL)
            self._held.wait()
        how = self._held.poll() or Exit()
        self._held.close()
        if how.code != 0:
            sweep(self._mark)  # children of its workers now belong to init, and are identified only by the mark
        return how


def _started(entry: str, control_fd: int, inherit: Sequence[int], mark: str, preload: Sequence[str]) -> Held:
    """Starts a new interpreter, which inherits nothing but the given descriptors."""
    src = str(Path(__file__).parents[3])
    boot = _BOOT.format(src=src, entry=entry, fd=control_fd, parent=os.getpid(), preload=tuple(preload))
    return Started(
        subprocess.Popen(  # noqa: S603 (our own interpreter and code)
            [sys.executable, *subprocess._args_from_interpreter_flags(), "-c", boot],  # type: ignore[attr-defined]
            stdin=subprocess.DEVNULL,
            pass_fds=[control_fd, *inherit],
            start_new_session=True,
            env=os.environ | {MARK: mark},
        )
    )


def _forked(entry: str, control_fd: int) -> Held:
    """Forks a copy of this process that closes its files: a lock held open there would outlive it by a moment."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return Adopted(pid, os.pidfd_open(pid))
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        os.closerange(3, control_fd)
        os.closerange(control_fd + 1, os.sysconf("SC_OPEN_MAX"))
        main(entry, control_fd, parent)
    finally:
        os._exit(1)


def main(entry: str, control_fd: int, parent_pid: int, preload: Sequence[str] = ()) -> None:
    """The fork server's process: serves until the parent has ended. A worker runs its entry, and ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    process.wake_with_parent()
    process.adopt_orphans()
    process.set_name("weft-forkserver")
    module, _, name = entry.partition(":")
    run = getattr(import_module(module), name)
    for needed in preload:
        with contextlib.suppress(Exception):  # the worker that needs it reports what is wrong
            import_module(needed)
    gc.enable()
    gc.freeze()
    try:
        parent_pidfd = os.pidfd_open(parent_pid)
    except ProcessLookupError:
        return  # the parent has ended already
    fds = _Server(socket.socket(fileno=control_fd), parent_pidfd).serve()
    if fds is not None:
        gc.unfreeze()
        run(*fds)
    os._exit(0)


class _Server:
    """The parent process of all workers."""

    def __init__(self, control: socket.socket, parent_pidfd: int) -> None:
        self._control = control
        self._pid = os.getpid()
        self._slots: dict[int, tuple[int, int]] = {}  # pidfd -> (pid, slot)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        # a process that the user forked may hold the parent's end of the socket for longer than the parent lives
        self._parent = parent_pidfd
        self._poll.register(parent_pidfd, select.POLLIN)

    def serve(self) -> list[int] | None:
        """Serves until the parent ends; in a forked worker, returns the descriptors that it was sent."""
        while True:
            for fd, _ in self._poll.poll():
                if fd in self._slots:
                    self._on_worker_exit(fd)
                elif fd == self._parent or (request := self._receive()) is None:
                    self._end()
                    return None
                elif self._spawn(*request):
                    return request[1]

    def _receive(self) -> tuple[ForkMessage, list[int]] | None:
        try:
            data, fds, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, _MAX_FDS)
        except OSError:
            return None
        return (_decode(data), fds) if data else None

    def _spawn(self, request: ForkMessage, fds: list[int]) -> bool:
        """Forks; True in the new process."""
        try:
            pid = os.fork()
        except OSError as error:
            self._close(fds)
            self._send(ForkMessage(NO_FORK, request.slot, text=str(error)))
            return False
        if pid == 0:
            self._become_worker()
            return True
        self._close(fds)
        pidfd = os.pidfd_open(pid)
        self._slots[pidfd] = (pid, request.slot)
        self._poll.register(pidfd, select.POLLIN)
        self._send(ForkMessage(SPAWNED, request.slot, pid), [pidfd])
        return False

    def _become_worker(self) -> None:
        """In the new process: closes the fork server's descriptors, and undoes its settings."""
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
        self._send(ForkMessage(EXITED, slot, pid, status, usage.ru_maxrss))

    def _kill_orphans(self) -> None:
        """Kills orphans repeatedly, as each may leave children of its own; does not wait for one that is stuck in the
        kernel.
        """
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

    def _send(self, message: ForkMessage, fds: list[int] | None = None) -> None:
        with contextlib.suppress(OSError):  # the parent has ended; the next poll detects that
            socket.send_fds(self._control, [_encode(message)], fds or [])

    def _close(self, fds: Sequence[int]) -> None:
        for fd in fds:
            os.close(fd)
