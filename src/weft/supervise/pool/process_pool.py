"""The processes of a pool: the fork server, the workers, and the one epoll that watches all of them.

Its user assigns the work; the pool starts, feeds, monitors, ends and removes workers. Invariants: a worker's end is
reported once, after all that it sent was received, and after it and everything it started are gone; after `close` no
process and no descriptor of the pool is left.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from weft.errors import WeftError
from weft.supervise import process
from weft.supervise.child import ChildState, Step
from weft.supervise.held import Adopted
from weft.supervise.pool import fork_server
from weft.supervise.pool.fork_server import ForkMessage, ForkServer
from weft.supervise.pool.limits import LONGEST_POLL_S, PoolLimits
from weft.supervise.pool.suspects import OUTSIDE
from weft.supervise.pool.worker_slot import KillReason, WorkerProcess, WorkerSlot
from weft.supervise.process import Exit

_MAX_SERVER_DEATHS = 5
_MAX_START_FAILURES = 5
MAX_HITS_AT_START = 30
"""With the delays between them, about two minutes in which nothing gets done."""
_KILLED_WORKERS_WAIT_S = 2.0  # after SIGKILL, for all workers of a fork server together
_KERNEL_PATIENCE_S = 5.0
_RECEIVE_BYTES = 1 << 16
S = TypeVar("S", bound=WorkerSlot[Any])


class PoolBroken(WeftError):
    """No worker can be kept running; finished work is kept, and the message gives the reason."""


class SlotMessage(NamedTuple, Generic[S]):
    """A message from a worker."""

    slot: S
    data: bytes


class WorkerDeath(NamedTuple, Generic[S]):
    """The death of a worker. `with_server`: caused by the death of the fork server. `in_company`: several items were
    running then, so that none of them can be blamed.
    """

    slot: S
    how: Exit
    with_server: bool = False
    in_company: bool = False
    note: str = ""

    @property
    def from_outside(self) -> bool:
        """Whether the worker's task is probably not the cause."""
        kill = self.slot.kill
        return self.with_server or (kill.reason is KillReason.HUNG if kill is not None else self.how.signal in OUTSIDE)

    def __str__(self) -> str:
        kill = self.slot.kill
        return kill.reason.value if kill is not None else self.note or str(self.how)


class ProcessPool(Generic[S]):
    """The processes of one pool."""

    def __init__(
        self,
        entry: str,
        slots: Sequence[S],
        make: Callable[[socket.socket], WorkerProcess],
        on_start: Callable[[S], None],
        *,
        mark: str,
        limits: PoolLimits,
        inherit: Sequence[int] = (),
        may_fork: bool = False,
        preload: Sequence[str] = (),
    ) -> None:
        """`entry`: the `module:function` of a worker, called with the descriptors of its socket and of what
        `WorkerProcess.sent` names. `make`: what belongs to a new worker; it gets the parent's end of the socket.
        `on_start`: enqueues its first frames. `inherit`: descriptors that every process of the pool keeps open.
        `may_fork`, `preload`: see ForkServer."""
        self.slots = slots
        self._entry = entry
        self._make = make
        self._on_start = on_start
        self._mark = mark
        self._inherit = inherit
        self._may_fork = may_fork
        self._preload = preload
        self.limits = limits
        self._epoll = select.epoll()
        self._by_fd: dict[int, S] = {}
        self._server: ForkServer | None = None
        self._server_deaths = 0
        self._server_silent_s = 0.0
        self._hit_at_start: set[S] = set()

    def fileno(self) -> int:
        """Readable when `wait` has something; an event loop can watch it."""
        return self._epoll.fileno()

    # ── starting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Starts the fork server before the first worker is needed: its imports take their time meanwhile."""
        if self._server is None:
            self._start_server()

    def start(self, slot: S) -> None:
        """Puts a new worker into a slot."""
        server = self._server or self._start_server()
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            try:
                worker = self._make(ours)
            except BaseException:
                ours.close()
                raise
            server.spawn(slot.number, [theirs.fileno(), *worker.sent()])
        slot.attach(worker)
        self._by_fd[ours.fileno()] = slot
        self._epoll.register(ours.fileno(), select.EPOLLIN)
        self._on_start(slot)
        self.push(slot)

    def _start_server(self) -> ForkServer:
        server = self._server = ForkServer(
            self._entry, self._inherit, self._mark, may_fork=self._may_fork, preload=self._preload
        )
        self._epoll.register(server.control.fileno(), select.EPOLLIN)
        self._epoll.register(server.pidfd, select.EPOLLIN)
        return server

    def worked(self) -> None:
        """Called when items finish: resets the counts of the fork server's deaths, and of workers killed at their
        start.
        """
        self._server_deaths = 0
        if self._hit_at_start:
            for slot in self._hit_at_start:
                slot.child.failures = 0
            self._hit_at_start.clear()

    def hopeless(self, *, ever_ready: bool) -> bool:
        """Whether no worker can be started: every one has failed too often in a row at its start. If one ever started,
        kills from outside are tolerated for longer: they say nothing about the worker's code, and may stop."""
        return all(
            slot.child.failures
            >= (MAX_HITS_AT_START if ever_ready and slot in self._hit_at_start else _MAX_START_FAILURES)
            for slot in self.slots
        )

    # ── sending and receiving ──────────────────────────────────────────────────────────────────────────────────────

    def push(self, slot: S) -> None:
        """Sends the frames that wait for a worker; if its socket is full, the rest is sent when there is room."""
        if not slot.push() and slot.worker is not None and (fd := slot.worker.connection.fileno()) in self._by_fd:
            self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)

    def wait(self, timeout_s: float) -> Iterator[SlotMessage[S] | WorkerDeath[S]]:
        """The events within the time given."""
        for fd, events in self._epoll.poll(timeout_s):
            slot = self._by_fd.get(fd)
            if slot is not None:
                if events & select.EPOLLOUT and slot.push():
                    self._epoll.modify(fd, select.EPOLLIN)
                if events & ~select.EPOLLOUT and (data := self._receive(slot, fd)):
                    yield SlotMessage(slot, data)
            elif self._server is not None and fd in (self._server.control.fileno(), self._server.pidfd):
                has_died = fd == self._server.pidfd
                for message, fds in self._server.receive():
                    yield from self._on_message(message, fds)
                if has_died:
                    yield from self._on_server_death()

    def _receive(self, slot: S, fd: int) -> bytes:
        assert slot.worker is not None
        try:
            data: bytes = slot.worker.connection.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            data = b""
        if not data:
            self._forget(fd)  # closed: the fork server will report its end
        return data

    def _forget(self, fd: int) -> None:
        if self._by_fd.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # ── deaths ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _on_message(self, message: ForkMessage, fds: list[int]) -> Iterator[SlotMessage[S] | WorkerDeath[S]]:
        slot = self.slots[message.slot]
        if message.kind == fork_server.SPAWNED and slot.worker is not None:
            slot.worker.held = Adopted(message.pid, fds[0])
            slot.child.spawned(message.pid)
            if slot.kill is not None:
                slot.end_by_force(slot.kill.reason)  # the kill was decided before it had a pid
        elif message.kind == fork_server.EXITED and slot.worker is not None and slot.worker.pid == message.pid:
            yield from self._rest(slot)
            yield WorkerDeath(slot, Exit.from_wait(message.status, message.peak_rss_kb))
        elif message.kind == fork_server.NO_FORK:
            yield WorkerDeath(slot, Exit(), note=f"no process could be made: {message.text}")
        else:
            for fd in fds:
                os.close(fd)

    def _rest(self, slot: S) -> Iterator[SlotMessage[S]]:
        """The remaining messages of a dead worker."""
        assert slot.worker is not None
        fd = slot.worker.connection.fileno()
        while fd in self._by_fd and (data := self._receive(slot, fd)):
            yield SlotMessage(slot, data)

    def _on_server_death(self) -> Iterator[SlotMessage[S] | WorkerDeath[S]]:
        """Handles its death: all workers died with it, or are killed now; only then may their work be given to others.

        A death while an item runs is counted against the item, so those end; a fork server that keeps dying without one
        makes the pool give up.
        """
        how = self._drop_server()
        running = sum(slot.held is not None for slot in self.slots)
        self._server_deaths = 0 if running else self._server_deaths + 1
        if self._server_deaths > _MAX_SERVER_DEATHS:
            raise PoolBroken(
                f"the process that starts the workers keeps dying before any item is begun; the last one {how}"
            )
        for slot in self.slots:
            if slot.worker is not None:
                yield from self._rest(slot)
                yield WorkerDeath(slot, Exit(), with_server=True, in_company=running > 1)

    def _drop_server(self) -> Exit:
        server, self._server = self._server, None
        assert server is not None
        self._epoll.unregister(server.control.fileno())
        self._epoll.unregister(server.pidfd)
        server.kill()
        workers = [slot.worker.held for slot in self.slots if slot.worker is not None and slot.worker.held is not None]
        for worker in workers:
            worker.send(signal.SIGKILL)
        until_s = time.monotonic() + _KILLED_WORKERS_WAIT_S
        for worker in workers:
            worker.wait(max(0.0, until_s - time.monotonic()))
        return server.close()

    def remove(self, slot: S, how: Exit, *, failed: bool) -> None:
        """Frees the slot of a dead worker, after its user has read its remaining messages; the child's policy decides
        the next step.
        """
        if slot.worker is not None:
            self._forget(slot.worker.connection.fileno())
        hit = failed and slot.kill is None and how.signal in OUTSIDE
        (self._hit_at_start.add if hit else self._hit_at_start.discard)(slot)
        slot.detach()
        slot.child.exited(how, failed=failed)

    # ── watching and ending ────────────────────────────────────────────────────────────────────────────────────────

    def tend(self, since_s: float) -> list[WorkerDeath[S]]:
        """Called regularly, as `limits.over` is for each slot: kills workers whose time for starting or stopping is
        over, and a fork server that was stopped. Returns workers that count as dead though the kernel holds them."""
        for slot in self.slots:
            if slot.worker is not None and slot.child.next_step() is Step.KILL:
                slot.end_by_force(KillReason.START if slot.child.state is ChildState.STARTING else KillReason.STOP)
        stopped = self._server is not None and process.state(self._server.pid) in ("T", "t")
        self._server_silent_s = self._server_silent_s + min(since_s, LONGEST_POLL_S) if stopped else 0.0
        if self._server is not None and self._server_silent_s > self.limits.heartbeat_s:
            self._server.kill()
        return [WorkerDeath(slot, Exit(signal=signal.SIGKILL)) for slot in self.slots if self._beyond_reach(slot)]

    def _beyond_reach(self, slot: S) -> bool:
        """Whether a killed worker is still stuck in the kernel (by a dead file server, say). The pending SIGKILL means
        that it never runs again, so its work may be given to others.
        """
        if slot.kill is None or slot.worker is None or time.monotonic() - slot.kill.at_s < _KERNEL_PATIENCE_S:
            return False
        return process.state(slot.worker.pid) == "D"

    def end(self, slot: S, *, again: bool) -> None:
        """Asks a worker to end after its current item; with `again` a new one replaces it."""
        slot.retiring = True
        slot.child.stop(again=again)
        if slot.worker is not None:
            with contextlib.suppress(OSError):
                slot.worker.connection.shutdown(socket.SHUT_WR)
        slot.child.asked_to_stop()

    def close(self) -> None:
        """Ends all processes now."""
        if self._epoll.closed:
            return
        for slot in self.slots:
            slot.end_by_force(KillReason.STOP)
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for slot in self.slots:
            slot.detach()
        self._by_fd.clear()
        self._epoll.close()
