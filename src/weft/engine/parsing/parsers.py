"""Parser children: pages are read in separate processes, so that a page that kills or blocks its parser costs only
itself.

The workers are those of supervise/pool: monitored, with a time and a memory limit, killed and restarted. A child reads
what it is sent in order, so the page that it died on is the first that it has not answered. That page is sent once
more, since the kill may have come from outside; after the second time the page is to blame, `parse_crash` (the rules
are in supervise/pool/suspects.py). A page that takes longer than the limit is `parse_timeout` at once; with rules,
which users write, it has RULES_S, and is then read without them. The other pages of a dead child are sent to the next
one. Children may have a user's code, which is called for each page (`ChildCode`): it has its own limits. A page whose
code takes too long, or kills its child twice, is read without it, and `code_error` says why. Several pages are sent to
each child at a time, so that no page waits for another's transmission.

Must stay true: every page that was submitted is answered exactly once, with what was read or with `Unparsed`; nothing
here blocks but `result`; children end with the process that made them, however it ends.

Called by exports, `weft get`, `weft rebuild`, the service, and by the engine where `parser_children` or rules ask for
it.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import NamedTuple

from weft.engine.loop.stop import CALLBACK_ERROR
from weft.engine.parsing.extracted import Extracted, ParseRequest, Reply, framed, reply_of
from weft.errors import Missing, Unparsed, WeftError
from weft.extract.page import MAX_BYTES
from weft.frames import framed as framed_bytes
from weft.frames import frames
from weft.supervise.child import Child, ChildState, RestartPolicy, Step
from weft.supervise.pool.limits import PoolLimits
from weft.supervise.pool.owner import Owner
from weft.supervise.pool.process_pool import PoolBroken, ProcessPool, SlotMessage, WorkerDeath
from weft.supervise.pool.suspects import CrashRules
from weft.supervise.pool.worker_slot import KillReason, WorkerProcess, WorkerSlot, memory_output
from weft.supervise.process import rss_bytes
from weft.telemetry import Log

PAGE_LIMIT_S = 30.0  # per page
RULES_LIMIT_S = 2.0  # per page with rules, which may take any time
MEMORY_MB = 2048.0  # per child: the worst known page of MAX_BYTES needs 400
MOST_CHILDREN = 4  # with more, reading and writing limit an export
ENOUGH_QUEUED = 4  # pages queued at a child before another child is started
POLL_EVERY_S = 0.5  # the longest wait between two checks whether a page takes too long
CRASH, TIMEOUT = "parse_crash", "parse_timeout"
_MB = 1024 * 1024
_CHECK_EVERY_S = 0.1
_HEARTBEAT_S = 10.0
_POLICY = RestartPolicy(start_timeout_s=60.0, stable_after_s=0, max_failures=3)
log = Log("weft.engine.parsing.parsers")


def one_per_core() -> int:
    """How many children use all cores of this machine."""
    return min(MOST_CHILDREN, len(os.sched_getaffinity(0)))


class ChildCode(NamedTuple):
    """The user's code in the children. `loading` returns the first message to a new child (a `calls.Loading`)."""

    loading: Callable[[], bytes]
    seconds: float  # per page
    memory_mb: float  # that a page may use; over all pages, the growth of a child
    is_kept: bool = False  # its object must keep its state: a child that has grown is not replaced
    modules: Sequence[str] = ()  # of Weft, which every child imports for that code


class PendingPage:
    """A page that was submitted. `done` is True when `page` or `error` is set."""

    __slots__ = (
        "code_error", "code_output",
        "done", "error", "frame", "limit_s", "outside", "page", "position", "request", "secluded", "spent_s", "strikes",
        "tries", "url",
    )  # fmt: skip

    def __init__(self, request: ParseRequest, limit_s: float) -> None:
        self.position, self.url = request.number, request.url
        self.request: ParseRequest | None = request  # None once it is answered
        self.frame = framed(request)
        self.limit_s = limit_s
        self.tries = self.strikes = self.outside = 0  # see suspects.Suspect
        self.secluded = False
        self.spent_s = 0.0  # in the child
        self.done = False
        self.page: Extracted | None = None
        self.error: WeftError | None = None
        self.code_error = ""  # why the page was read without calling the code
        self.code_output = ""  # output of the child that died in the code

    @property
    def is_page(self) -> bool:
        """Whether there is a page to read besides the call of the user's code."""
        return self.request is not None and (not self.request.call or bool(self.request.wanted))

    def drop_call(self, why: str, output: str, limit_s: float) -> None:
        """Reads the page without its call from now on; earlier deaths were the call's, and are not held against it."""
        assert self.request is not None
        self.request.call, self.limit_s = b"", limit_s
        self.tries = self.strikes = self.outside = 0
        self.secluded = False
        self.frame = framed(self.request)
        self.code_error, self.code_output = why, output


class ParserSlot(WorkerSlot[WorkerProcess]):
    """One child and its queue of pages, the oldest first; the queue remains when the child is replaced."""

    def __init__(self, number: int) -> None:
        self.queue: deque[PendingPage] = deque()
        super().__init__(number, Child(f"parser-{number}", _POLICY))

    def _reset(self) -> None:
        super()._reset()
        self.received = bytearray()
        self.spent_s: float | None = None  # on the first page of the queue; None: not measured yet
        self.baseline_mb: float | None = None  # its memory when it was ready
        self.before_mb = 0.0  # ... and before the page that it is reading

    def send_queue(self) -> None:
        """Sends a new child the pages that its predecessor has not answered."""
        for pending in self.queue:
            self.enqueue(pending.frame)

    @property
    def held(self) -> int | None:
        """The number of the page that it is reading."""
        return self.queue[0].position if self.queue and self.child.state is ChildState.RUNNING else None

    @property
    def is_busy(self) -> bool:
        """Whether it has pages."""
        return bool(self.queue)

    def sign(self) -> int | None:
        """The number of the current page: another page means progress."""
        return self.held

    def over_time(self, since_s: float) -> KillReason | None:
        """Why it must be killed. Only time counts in which it was monitored: all processes may have been stopped, as by
        Ctrl-Z.
        """
        self.spent_s = 0.0 if self.spent_s is None else self.spent_s + min(since_s, 2 * POLL_EVERY_S)
        return KillReason.TIMEOUT if self.spent_s > self.queue[0].limit_s else None


class Parsers:
    """Up to `children` processes, started when they are needed."""

    def __init__(
        self,
        children: int = 1,
        *,
        limit_s: float | None = None,
        code: ChildCode | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._code = code
        self._limit_s = PAGE_LIMIT_S if limit_s is None else limit_s
        self.on_done: Callable[[PendingPage], None] = lambda _: (
            None
        )  # called with each page when it is answered, in `turn`
        self._clock = clock
        self._slots = [ParserSlot(number) for number in range(max(1, children))]
        self._pool = ProcessPool(
            f"weft.engine.parsing.parser_child:{'main' if code is None else 'main_with_code'}",
            self._slots,
            lambda connection: WorkerProcess(connection, memory_output()),
            self._begin_child,
            mark=Owner.this_process().mark,
            limits=PoolLimits(_HEARTBEAT_S, MEMORY_MB if code is None else None),
            may_fork=code is None,  # the user's code must not see this process's memory
            preload=code.modules if code is not None else (),
        )
        if code is not None:
            self._pool.begin()
        self._rules = CrashRules()
        self._last_number = 0
        self._checked_at = clock()

    def __enter__(self) -> Parsers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pids(self) -> list[int]:
        """The processes that exist now."""
        return [slot.worker.pid for slot in self._slots if slot.worker is not None and slot.worker.pid]

    @property
    def unanswered(self) -> int:
        """The number of pages that were submitted and are not answered."""
        return sum(len(slot.queue) for slot in self._slots)

    def fileno(self) -> int:
        """Readable when `turn` has something to do."""
        return self._pool.fileno()

    def submit(
        self,
        body: bytes,
        url: str,
        content_type: str | None,
        wanted: Iterable[str],
        *,
        rules: bytes = b"",
        order: bytes = b"",
        call: bytes = b"",
    ) -> PendingPage:
        """Submits a page; `wanted` are names of `extracted.Asked`, and two of them need `rules` and `order`.

        `call` is the call of the user's code: if nothing else is wanted there is no page, and all such calls go to the
        same child.
        """
        self._last_number += 1
        if len(body) > MAX_BYTES and not call:
            body = body[: MAX_BYTES + 1]  # the extra byte reveals that the body was cut
        request = ParseRequest(self._last_number, url, content_type, tuple(wanted), body, rules, order, call=call)
        pending = PendingPage(request, self._limit_of(request))
        slot = self._choose_child() if pending.is_page else self._slots[0]
        slot.queue.append(pending)
        if slot.worker is None:
            self._start_if_due(slot)
        elif slot.kill is None and not slot.retiring:
            slot.enqueue(pending.frame)
            self._pool.push(slot)
        return pending

    def result(self, pending: PendingPage) -> Extracted:
        """Waits for the result of a page; raises Unparsed if the page cannot be parsed."""
        while not pending.done:
            self.turn(POLL_EVERY_S)
        if pending.error is not None:
            raise pending.error
        assert pending.page is not None
        return pending.page

    def turn(self, timeout_s: float = 0.0) -> None:
        """Sends and receives what can be now; waits up to `timeout_s` for the first message."""
        try:
            for event in self._pool.wait(timeout_s):
                if isinstance(event, SlotMessage):
                    event.slot.received += event.data
                    self._receive_replies(event.slot)
                else:
                    self._on_death(event)
        except PoolBroken as broken:
            raise WeftError(f"the processes that parse pages do not start: {broken}") from None
        now = self._clock()
        if now - self._checked_at >= _CHECK_EVERY_S:
            since_s, self._checked_at = now - self._checked_at, now
            self._check_children(since_s)

    def replace_children(self) -> None:
        """Replaces the children between two pages, so that the user's code is loaded again from its file."""
        for slot in self._slots:
            if slot.worker is not None and slot.running and not slot.retiring:
                self._pool.end(slot, again=True)

    def close(self) -> None:
        """Ends the children; unanswered pages are left without a result."""
        self._pool.close()

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _limit_of(self, request: ParseRequest) -> float:
        if request.call and self._code is not None:
            return self._code.seconds
        return min(self._limit_s, RULES_LIMIT_S) if request.rules else self._limit_s

    def _begin_child(self, slot: ParserSlot) -> None:
        """Sends a new child the user's code, then the pages that its predecessor has not answered."""
        if self._code is not None:
            slot.enqueue(framed_bytes(self._code.loading()))
        slot.send_queue()

    def _choose_child(self) -> ParserSlot:
        """The child with the shortest queue; a new one if all have enough."""
        used = [slot for slot in self._slots if slot.worker is not None or slot.queue]
        least = min(used, key=lambda slot: len(slot.queue), default=self._slots[0])
        if len(least.queue) < ENOUGH_QUEUED or len(used) == len(self._slots):
            return least
        return next(slot for slot in self._slots if slot not in used)

    def _start_if_due(self, slot: ParserSlot) -> None:
        if slot.queue and slot.worker is None and slot.child.next_step() is Step.START:
            self._pool.start(slot)

    def _receive_replies(self, slot: ParserSlot) -> None:
        for frame in frames(slot.received):
            reply = reply_of(frame)
            slot.spent_s = None
            if self._code is not None and slot.worker is not None:
                slot.before_mb = rss_bytes(slot.worker.pid) / _MB
            if not reply.number:
                slot.baseline_mb = slot.before_mb
                slot.child.ready()
                continue
            pending = slot.queue.popleft()
            assert pending.position == reply.number, "replies come in the order of the requests"
            pending.page, pending.spent_s = reply.page, reply.spent_s
            if reply.error is not None:
                pending.error = _error_of_reply(pending, reply)
            if pending.outside:
                self._rules.ended([pending])
            self._end_page(pending)

    def _end_page(self, pending: PendingPage) -> None:
        pending.done, pending.frame, pending.request = True, b"", None
        self.on_done(pending)

    def _check_children(self, since_s: float) -> None:
        """Kills children over a limit, and starts those whose pages wait."""
        for death in self._pool.tend(since_s):
            self._on_death(death)
        for slot in self._slots:
            if slot.worker is not None:
                slot.worker.bound_output()
                if (reason := self._pool.limits.over(slot, since_s) or self._over_memory(slot)) is not None:
                    slot.end_by_force(reason)
            else:
                self._start_if_due(slot)

    def _over_memory(self, slot: ParserSlot) -> KillReason | None:
        """With the user's code: a page that uses too much memory costs its child's life. A child that has grown over
        many pages is replaced between two of them, and no page is blamed.
        """
        if self._code is None or slot.worker is None or slot.baseline_mb is None or not slot.running:
            return None
        used_mb = rss_bytes(slot.worker.pid) / _MB
        if used_mb - slot.before_mb > self._code.memory_mb:
            return KillReason.MEMORY
        grown_mb = slot.before_mb - slot.baseline_mb
        if grown_mb > self._code.memory_mb and not (slot.retiring or self._code.is_kept):
            log.info("a parser has grown, and is replaced", megabytes=round(used_mb), pid=slot.worker.pid)
            self._pool.end(slot, again=True)
        return None

    def _on_death(self, death: WorkerDeath[ParserSlot]) -> None:
        """Sends the unanswered pages of a dead child to the next one, except the page that is to blame."""
        slot, is_ready = death.slot, death.slot.child.state is ChildState.RUNNING
        tail = "" if slot.worker is None else slot.worker.stderr_tail()
        if is_ready and slot.queue:
            self._judge_death(slot, death, tail)
        self._pool.remove(slot, death.how, failed=not is_ready and not death.with_server and not slot.retiring)
        if slot.child.state is ChildState.DEAD:
            raise WeftError(f"the processes that parse pages do not start: the last one {death} {tail}".strip())
        self._start_if_due(slot)

    def _judge_death(self, slot: ParserSlot, death: WorkerDeath[ParserSlot], tail: str) -> None:
        """Decides about the page during which a child has died."""
        first, kill = slot.queue[0], slot.kill
        if kill is not None and kill.held != first.position:
            return None  # it was killed for the previous page, which it had answered meanwhile
        if kill is not None and kill.reason is KillReason.TIMEOUT:
            return self._give_up_slow_page(slot, first)
        log.info("a parser has died", how=str(death), url=first.url, deaths=first.strikes + 1, output=tail)
        if death.in_company:
            self._rules.in_company(first)
        elif self._rules.strike(first, outside=death.from_outside, with_server=death.with_server):
            if first.request is not None and first.request.call:
                return self._blame_code(slot, first, f"its process ended: {death}", tail)
            slot.queue.popleft()
            self._fail_page(first, CRASH, f"its parser ended: {death}")
        return None

    def _give_up_slow_page(self, slot: ParserSlot, first: PendingPage) -> None:
        """Reads a slow page without its call or its rules, or gives it up."""
        if first.request is not None and first.request.call:
            tail = "" if slot.worker is None else slot.worker.stderr_tail()
            self._blame_code(slot, first, f"took longer than {first.limit_s:g} s", tail)
        elif first.request is not None and first.request.rules and not first.request.without_rules:
            log.info("rules took too long", url=first.url, seconds=first.limit_s)
            first.request.without_rules, first.limit_s = True, self._limit_s
            first.frame = framed(first.request)
        else:
            slot.queue.popleft()
            self._fail_page(first, TIMEOUT, f"its parser had not ended after {first.limit_s:g} s")

    def _blame_code(self, slot: ParserSlot, first: PendingPage, why: str, output: str) -> None:
        """Records that the user's code has failed on a page."""
        if first.is_page:
            first.drop_call(why, output, self._limit_s)
            return
        slot.queue.popleft()
        self._fail_page(first, CALLBACK_ERROR, why)

    def _fail_page(self, pending: PendingPage, kind: str, detail: str) -> None:
        pending.error = Unparsed(pending.url, kind, detail)
        self._end_page(pending)


def _error_of_reply(pending: PendingPage, reply: Reply) -> WeftError:
    assert reply.error is not None
    kind, text = reply.error
    return Missing.said(text) if kind == Missing.__name__ else Unparsed(pending.url, CRASH, f"{kind}: {text}")
