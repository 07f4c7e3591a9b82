"""Parser children: pages are read in processes of their own, so that one that kills or holds its parser costs itself.

A child reads what it is sent in order, so the page that it died on is the first that it has not answered. That page is
sent once more, since whoever killed the child may have meant the child; the second time it is the page, `parse_crash`.
One that takes longer than the limit is `parse_timeout` at once; one that other people's rules or selectors are applied
to has RULES_S, and is then read without them. The child is replaced, and what else it had is sent to
the new one. Several pages are under way to each child, so that none waits for the journey of another.

Must stay true: every page that was submitted is answered exactly once, with what was read or with `Unparsed`; nothing
here blocks but `result`; children end with the process that made them, however it ends.

Called by exports, `weft get`, `weft rebuild`, and by the engine where `parser_children` asks for it.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType

from weft.engine import parser_child
from weft.engine.extracted import Extracted, Reply, Request, framed, reply_of
from weft.errors import Missing, Unparsed, WeftError
from weft.extract.page import MAX_BYTES
from weft.frames import frames
from weft.supervise import process
from weft.telemetry import Log

LIMIT_S = 30.0  # for one page
RULES_S = 2.0  # for one with rules or selectors, which may take any time
START_S = 60.0  # until a child is ready
MOST_CHILDREN = 4  # with more, an export waits for its own reading and writing
ENOUGH = 4  # pages that a child has to do before another one is started
MAX_DEATHS = 2
MAX_FAILED_STARTS = 3
LOOK_EVERY_S = 0.5  # whether a page has taken too long
CRASH, TIMEOUT = "parse_crash", "parse_timeout"
_PIECE = 1 << 16
log = Log("weft.engine.parsers")


def as_many_as_cores() -> int:
    """How many children make use of this machine."""
    return min(MOST_CHILDREN, len(os.sched_getaffinity(0)))


class Pending:
    """A page that was submitted. `done` says that `page` or `error` is there."""

    __slots__ = ("deaths", "done", "error", "frame", "limit_s", "number", "page", "request", "spent_s", "url")

    def __init__(self, request: Request, limit_s: float) -> None:
        self.number, self.url = request.number, request.url
        self.request: Request | None = request  # None once it is answered
        self.frame = framed(request)
        self.limit_s = limit_s
        self.deaths = 0
        self.spent_s = 0.0  # by the child
        self.done = False
        self.page: Extracted | None = None
        self.error: WeftError | None = None


class Parsers:
    """Up to `children` processes, started as they are needed."""

    def __init__(
        self,
        children: int = 1,
        *,
        limit_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = max(1, children)
        self._limit_s = LIMIT_S if limit_s is None else limit_s
        self.on_done: Callable[[Pending], None] = lambda _: None  # gets each page when it is answered, in `turn`
        self._clock = clock
        self._epoll = select.epoll()
        self._children: dict[int, _Child] = {}  # by descriptor
        self._number = 0
        self._failed_starts = 0
        self._looked_at = clock()

    def __enter__(self) -> Parsers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The processes that there are now."""
        return [child.pid for child in self._children.values()]

    @property
    def unanswered(self) -> int:
        """Pages that were submitted and are not answered."""
        return sum(len(child.queue) for child in self._children.values())

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._epoll.fileno()

    def submit(
        self,
        body: bytes,
        url: str,
        content_type: str | None,
        wanted: Iterable[str],
        *,
        rules: bytes = b"",
        order: bytes = b"",
    ) -> Pending:
        """Sends a page to be read; `wanted` are names of `extracted.Asked`, `rules` and `order` are for two of them."""
        self._number += 1
        if len(body) > MAX_BYTES:
            body = body[: MAX_BYTES + 1]  # the one too many says that it was cut
        request = Request(self._number, url, content_type, tuple(wanted), body, rules, order)
        pending = Pending(request, min(self._limit_s, RULES_S) if rules else self._limit_s)
        self._give(self._chosen(), [pending])
        return pending

    def result(self, pending: Pending) -> Extracted:
        """What was read, when it is there; raises Unparsed where the page cannot be parsed."""
        while not pending.done:
            self.turn(LOOK_EVERY_S)
        if pending.error is not None:
            raise pending.error
        assert pending.page is not None
        return pending.page

    def turn(self, timeout_s: float = 0.0) -> None:
        """Sends and receives what can be now; waits so long for the first of it."""
        for fd, events in self._epoll.poll(timeout_s):
            child = self._children.get(fd)
            if child is None:
                continue
            is_alive = True
            if events & select.EPOLLOUT:
                is_alive = child.send()
            if events & ~select.EPOLLOUT:
                is_alive = child.receive() and is_alive
            self._take(child)
            if not is_alive:
                self._replace(child)
            else:
                self._wait_for(child)
        self._look_for_held()

    def close(self) -> None:
        """Ends the children; what is not answered stays so."""
        for child in list(self._children.values()):
            self._remove(child)
            child.kill()
            child.reap()
        self._epoll.close()

    # ── giving ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _chosen(self) -> _Child:
        """The child that has the least to do; a new one where all have enough."""
        least = min(self._children.values(), key=lambda child: len(child.queue), default=None)
        if least is None or (len(least.queue) >= ENOUGH and len(self._children) < self._most):
            return self._start()
        return least

    def _start(self) -> _Child:
        child = _Child()
        self._children[child.fd] = child
        self._epoll.register(child.fd, child.events)
        return child

    def _give(self, child: _Child, pages: Iterable[Pending]) -> None:
        for pending in pages:
            child.queue.append(pending)
            child.unsent.append(memoryview(pending.frame))
        if not child.send():
            self._replace(child)
        else:
            self._wait_for(child)

    def _wait_for(self, child: _Child) -> None:
        if child.events != child.awaited:
            child.awaited = child.events
            self._epoll.modify(child.fd, child.events)

    # ── taking ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, child: _Child) -> None:
        for frame in frames(child.heard):
            reply = reply_of(frame)
            child.waited_s = 0.0
            if not reply.number:
                child.is_ready, self._failed_starts = True, 0
                continue
            pending = child.queue.popleft()
            assert pending.number == reply.number, "replies come in the order of the requests"
            pending.page, pending.spent_s = reply.page, reply.spent_s
            if reply.error is not None:
                pending.error = _error_of(pending, reply)
            self._end(pending)

    def _end(self, pending: Pending) -> None:
        pending.done, pending.frame, pending.request = True, b"", None
        self.on_done(pending)

    def _look_for_held(self) -> None:
        """Ends the children that have been at one page for too long.

        What counts is the time for which we looked: a stop of all processes, as by Ctrl-Z, is nobody's fault.
        """
        now = self._clock()
        passed_s, self._looked_at = min(now - self._looked_at, 2 * LOOK_EVERY_S), now
        for child in list(self._children.values()):
            if not child.queue:
                child.waited_s = 0.0
                continue
            child.waited_s += passed_s
            if child.waited_s > (child.queue[0].limit_s if child.is_ready else START_S):
                child.kill()
                if child.is_ready:
                    self._too_slow(child)
                self._replace(child)

    def _too_slow(self, child: _Child) -> None:
        """The first page of a child has taken too long: it is read without its rules, or not at all."""
        first = child.queue[0]
        if first.request is not None and first.request.rules and not first.request.without_rules:
            log.info("rules took too long", url=first.url, seconds=first.limit_s)
            first.request.without_rules, first.limit_s = True, self._limit_s
            first.frame = framed(first.request)
        else:
            self._fail(child.queue.popleft(), TIMEOUT, f"its parser had not ended after {first.limit_s:g} s")

    # ── deaths ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _replace(self, child: _Child) -> None:
        """A child has died, or was killed: what it had not answered is sent to a new one."""
        self._take(child)  # it may have answered before it died
        self._remove(child)
        how = child.reap()
        if not child.is_ready:
            self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                raise WeftError(f"the processes that parse pages do not start: the last one {how}")
        elif not child.was_killed and child.queue:
            first = child.queue[0]
            first.deaths += 1
            log.info("a parser has died", how=how, url=first.url, deaths=first.deaths)
            if first.deaths >= MAX_DEATHS:
                child.queue.popleft()
                self._fail(first, CRASH, f"its parser ended: {how}")
        if child.queue:
            self._give(self._start(), child.queue)

    def _fail(self, pending: Pending, kind: str, detail: str) -> None:
        pending.error = Unparsed(pending.url, kind, detail)
        self._end(pending)

    def _remove(self, child: _Child) -> None:
        del self._children[child.fd]
        self._epoll.unregister(child.fd)


class _Child:
    """One process, and the pages that it has to do, the oldest first."""

    def __init__(self) -> None:
        self._sock, theirs = socket.socketpair()
        their_life, self._life = os.pipe()
        try:
            if process.is_single_threaded():  # else a lock that another thread holds would stay locked in the child
                self._popen = None
                self.pid = os.fork()
                if self.pid == 0:
                    parser_child.run_forked(theirs.fileno(), their_life)
            else:
                command = [sys.executable, "-m", parser_child.__name__, str(theirs.fileno()), str(their_life)]
                fds = (theirs.fileno(), their_life)
                self._popen = subprocess.Popen(command, pass_fds=fds)  # noqa: S603
                self.pid = self._popen.pid
        except OSError:
            self._sock.close()
            os.close(self._life)
            raise
        finally:
            theirs.close()
            os.close(their_life)
        self._sock.setblocking(False)
        self.fd = self._sock.fileno()
        self.queue: deque[Pending] = deque()
        self.unsent: deque[memoryview] = deque()
        self.heard = bytearray()
        self.awaited = self.events  # what it is registered for
        self.is_ready = False
        self.was_killed = False  # by us
        self.waited_s = 0.0  # for the first page of the queue
        self._exit: process.Exit | None = None

    @property
    def events(self) -> int:
        """What to wait for."""
        return select.EPOLLIN | (select.EPOLLOUT if self.unsent else 0)

    def send(self) -> bool:
        """Sends what goes; False where the child has gone."""
        try:
            while self.unsent:
                sent = self._sock.send(self.unsent[0])
                if sent == len(self.unsent[0]):
                    self.unsent.popleft()
                else:
                    self.unsent[0] = self.unsent[0][sent:]
        except BlockingIOError:
            return True
        except OSError:
            self.receive()
            return False
        return True

    def receive(self) -> bool:
        """Takes what is there; False where the child has gone."""
        try:
            while data := self._sock.recv(_PIECE):
                self.heard += data
                if len(data) < _PIECE:
                    return True
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def kill(self) -> None:
        """Ends it at once."""
        self.was_killed = True
        process.kill(self.pid)

    def reap(self) -> process.Exit:
        """How it has ended."""
        self._sock.close()
        os.close(self._life)
        if self._popen is not None:
            self._popen.returncode = 0  # it is reaped here
        try:
            return process.Exit.from_wait(os.waitpid(self.pid, 0)[1])
        except ChildProcessError:  # somebody else waits for all children of this process
            return process.Exit()


def _error_of(pending: Pending, reply: Reply) -> WeftError:
    assert reply.error is not None
    kind, text = reply.error
    return Missing.said(text) if kind == Missing.__name__ else Unparsed(pending.url, CRASH, f"{kind}: {text}")
