"""The processes of a pool: keeper, workers, and the one epoll that watches all of them.

The engine decides what is to be done; the crew starts, watches, ends and removes workers. Invariants: a worker's end is
reported once, after it and everything it started are gone; after `close` no process, descriptor or slot file of the
pool is left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from weft.pipelines.pool import keeper, slot
from weft.pipelines.pool.crash import OUTSIDE
from weft.pipelines.pool.keeper import KeeperMessage
from weft.pipelines.pool.link import KeeperLink
from weft.pipelines.pool.member import Member, Seat, Why
from weft.pipelines.pool.settings import PoolBroken, Settings
from weft.pipelines.pool.wire import Assignment, assignment_frame
from weft.supervise import process
from weft.supervise.child import Child, RestartPolicy, State, Step
from weft.supervise.process import Exit

_MAX_KEEPER_DEATHS = 5
_MAX_START_FAILURES = 5
_MAX_HITS_AT_START = 30
"""With the delays between them, about two minutes in which nothing gets done."""
_DEATH_PATIENCE_S = 2.0
_KERNEL_PATIENCE_S = 5.0
LONGEST_LOOK_S = 0.25
"""A longer time between two checks means that the parent was busy, not that a worker was silent."""


class Bell(NamedTuple):
    """A worker has something in its slot."""

    member: Member


class WorkerDeath(NamedTuple):
    """A worker has died. `with_keeper`: because its keeper did. `in_company`: several items were running then, so that
    none of them can be blamed."""

    member: Member
    how: Exit
    with_keeper: bool = False
    in_company: bool = False
    note: str = ""


class Crew:
    """All processes of one run."""

    def __init__(
        self, settings: Settings, assign: Callable[[int], Assignment], slots: Path | None, inherit: list[int], mark: str
    ) -> None:
        policy = RestartPolicy(
            start_timeout_s=settings.start_timeout,
            stable_after_s=0,
            stop_grace_s=settings.stop_grace,
            max_delay_s=5.0,
            max_failures=_MAX_HITS_AT_START,
        )
        self.members = [
            Member(number, Child(f"worker-{number}", policy), settings.batch_size) for number in range(settings.workers)
        ]
        self._assign = assign
        self._slots = slots
        self._inherit = inherit
        self._mark = mark
        self._epoll = select.epoll()
        self._by_fd: dict[int, Member] = {}
        self._link: KeeperLink | None = None
        self._keeper_deaths = 0
        self._keeper_silent_s = 0.0
        self._hit_at_start: set[Member] = set()
        self._heartbeat_s = settings.heartbeat_timeout
        self._seats = 0
        self._start_keeper()

    def fileno(self) -> int:
        """Readable when `wait` has something; an event loop can watch it."""
        return self._epoll.fileno()

    def _start_keeper(self) -> None:
        self._link = KeeperLink(self._inherit, self._mark)
        self._epoll.register(self._link.control.fileno(), select.EPOLLIN)
        self._epoll.register(self._link.pidfd, select.EPOLLIN)

    def worked(self) -> None:
        """Items get done: resets the counts of keeper deaths, and of workers killed at their start."""
        self._keeper_deaths = 0
        if self._hit_at_start:
            for member in self._hit_at_start:
                member.child.failures = 0
            self._hit_at_start.clear()

    def hopeless(self, *, ever_ready: bool) -> bool:
        """Whether no worker can be started: every one has failed too often in a row at its start. If one ever started,
        kills from outside are tolerated for longer: they say nothing about the function, and may stop."""
        return all(
            member.child.failures
            >= (_MAX_HITS_AT_START if ever_ready and member in self._hit_at_start else _MAX_START_FAILURES)
            for member in self.members
        )

    def start(self, member: Member) -> None:
        """Puts a new worker into a member's place."""
        if self._link is None:
            self._start_keeper()
        assert self._link is not None
        ours, theirs = socket.socketpair()
        seat, fds = self._make_seat(ours)
        try:
            self._link.spawn(member.number, [theirs.fileno(), *fds])
        finally:
            theirs.close()
            os.close(fds[0])
        member.attach(seat)
        self._by_fd[ours.fileno()] = member
        self._epoll.register(ours.fileno(), select.EPOLLIN)
        member.enqueue(assignment_frame(self._assign(member.number)))
        member.push()

    def _make_seat(self, ours: socket.socket) -> tuple[Seat, list[int]]:
        ours.setblocking(False)
        self._seats += 1
        path = None if self._slots is None else self._slots / f"{os.getpid()}-{self._seats}.slot"
        try:
            slot_fd = slot.create(None if path is None else str(path))
            output_fd = self._output_file()
        except OSError as error:
            ours.close()
            raise PoolBroken(f"a worker has no place for its results in {self._slots}: {error.strerror}") from None
        return Seat(ours, slot.SlotReader(slot_fd), output_fd, path), [slot_fd, output_fd]

    def _output_file(self) -> int:
        """Nameless, on the disk beside the run if there is one; all writers append."""
        if self._slots is None:
            fd = os.memfd_create("weft-output", os.MFD_CLOEXEC)
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
            return fd
        path = self._slots / f"{os.getpid()}-{self._seats}.output"
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        path.unlink()
        return fd

    def wait(self, timeout_s: float) -> Iterator[Bell | WorkerDeath]:
        """What happens within the time given."""
        for fd, events in self._epoll.poll(timeout_s):
            member = self._by_fd.get(fd)
            if member is not None:
                if self._on_bytes(member, fd, events):
                    yield Bell(member)
            elif self._link is not None and fd == self._link.control.fileno():
                yield from self._on_keeper(self._link)
            elif self._link is not None and fd == self._link.pidfd:
                yield from self._on_keeper(self._link)
                yield from self._keeper_died()

    def _on_bytes(self, member: Member, fd: int, events: int) -> bool:
        if events & select.EPOLLOUT and member.push():
            self._epoll.modify(fd, select.EPOLLIN)
        if not events & ~select.EPOLLOUT:
            return False
        assert member.seat is not None
        try:
            rung = bool(member.seat.connection.recv(4096))
        except BlockingIOError:
            return False
        except OSError:
            rung = False
        if not rung:
            self._forget(fd)  # closed: the keeper will report its end
        return rung

    def watch_room(self, member: Member) -> None:
        """The socket was full; the rest goes out when there is room."""
        if member.seat is not None and (fd := member.seat.connection.fileno()) in self._by_fd:
            self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)

    def _forget(self, fd: int) -> None:
        if self._by_fd.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def _on_keeper(self, link: KeeperLink) -> Iterator[WorkerDeath]:
        for message, fds in link.receive():
            yield from self._on_message(message, fds)

    def _on_message(self, message: KeeperMessage, fds: list[int]) -> Iterator[WorkerDeath]:
        member = self.members[message.slot]
        if message.kind == keeper.SPAWNED and member.seat is not None:
            member.seat.pid, member.seat.pidfd = message.pid, fds[0]
            member.child.spawned(message.pid)
            if member.kill is not None:
                member.end_by_force(member.kill.why)  # the kill was decided before it had a pid
        elif message.kind == keeper.EXITED and member.seat is not None and member.seat.pid == message.pid:
            yield WorkerDeath(member, Exit.from_wait(message.status, message.peak_rss_kb))
        elif message.kind == keeper.NO_FORK:
            yield WorkerDeath(member, Exit(), note=f"no process could be made: {message.text}")
        else:
            for fd in fds:
                os.close(fd)

    def _keeper_died(self) -> Iterator[WorkerDeath]:
        """All workers died with it, or are killed now: only then may their work be given to others.

        A death while an item runs is counted against the item, so those end; a keeper that keeps dying without one
        makes the pool give up."""
        self._drop_keeper()
        running = sum(member.current() is not None for member in self.members)
        self._keeper_deaths = 0 if running else self._keeper_deaths + 1
        if self._keeper_deaths > _MAX_KEEPER_DEATHS:
            raise PoolBroken("the process that starts the workers keeps dying before any item is begun")
        for member in self.members:
            if member.seat is not None:
                yield WorkerDeath(member, Exit(), with_keeper=True, in_company=running > 1)

    def _drop_keeper(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        self._epoll.unregister(link.control.fileno())
        self._epoll.unregister(link.pidfd)
        link.kill()
        seats = [member.seat for member in self.members if member.seat is not None]
        for seat in seats:
            seat.signal(signal.SIGKILL)
        until_s = time.monotonic() + _DEATH_PATIENCE_S
        for seat in seats:
            seat.wait_for_death(max(0.0, until_s - time.monotonic()))
        link.close()

    def remove(self, member: Member, how: Exit, *, failed: bool) -> None:
        """Frees the place of a dead worker whose slot was read; the child's policy decides what comes next."""
        if member.seat is not None:
            self._forget(member.seat.connection.fileno())
        hit = failed and member.kill is None and how.signal in OUTSIDE
        (self._hit_at_start.add if hit else self._hit_at_start.discard)(member)
        member.detach()
        member.child.exited(how, failed=failed)

    def end(self, member: Member, *, again: bool) -> None:
        """Asks a worker to end after what it has begun."""
        member.retiring = True
        member.child.stop(again=again)
        if member.seat is not None:
            with contextlib.suppress(OSError):
                member.seat.connection.shutdown(socket.SHUT_WR)
        member.child.told_to_stop()

    def tend(self, since_s: float) -> list[WorkerDeath]:
        """Called regularly: kills workers whose time for starting or stopping is over, and a keeper that was stopped.
        Returns the workers that count as dead although the kernel holds them."""
        for member in self.members:
            if member.child.next_step() is Step.KILL:
                member.end_by_force(Why.START if member.child.state is State.STARTING else Why.STOP)
        stopped = self._link is not None and process.state(self._link.pid) in ("T", "t")
        self._keeper_silent_s = self._keeper_silent_s + min(since_s, LONGEST_LOOK_S) if stopped else 0.0
        if self._link is not None and self._keeper_silent_s > self._heartbeat_s:
            self._link.kill()
        return [
            WorkerDeath(member, Exit(signal=signal.SIGKILL)) for member in self.members if self._beyond_reach(member)
        ]

    def _beyond_reach(self, member: Member) -> bool:
        """Killed long ago and still held by the kernel (by a dead file server, say). The pending SIGKILL means that it
        never runs again, so its work may be given to others."""
        if member.kill is None or member.seat is None or time.monotonic() - member.kill.at_s < _KERNEL_PATIENCE_S:
            return False
        return process.state(member.seat.pid) == "D"

    def close(self) -> None:
        """Everything ends now."""
        if self._epoll.closed:
            return
        for member in self.members:
            member.end_by_force(Why.STOP)
        link, self._link = self._link, None
        if link is not None:
            link.close()
        for member in self.members:
            member.detach()
        self._by_fd.clear()
        self._epoll.close()
