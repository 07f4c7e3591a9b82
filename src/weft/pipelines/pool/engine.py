"""The pool's one loop: items in, batches out to the workers, results back, and what to do when a worker dies.

One thread, one epoll. `step` does what there is to do and returns; results wait in `ready`. Invariants: every item of
the source ends in exactly one result; a result reaches `ready` only after it is in the journal; nothing blocks but the
wait for events; after `close` nothing is left, whatever the cause.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool import events, shared_config
from weft.pipelines.pool.autopsy import Autopsy
from weft.pipelines.pool.backlog import Queue
from weft.pipelines.pool.delivery import Delivery
from weft.pipelines.pool.dispatch import Dispatcher
from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.history import History
from weft.pipelines.pool.journal import ResultJournal
from weft.pipelines.pool.member import Member, Seat
from weft.pipelines.pool.record import STAGE, STARTED, Record, Result, to_result
from weft.pipelines.pool.runs import RunDirectory
from weft.pipelines.pool.settings import AUTO_EACH, Settings
from weft.pipelines.pool.slot import CUT, SHARED_LOG
from weft.pipelines.pool.target import Target
from weft.pipelines.pool.task import Intake
from weft.pipelines.pool.wire import Assignment, assignment_frame
from weft.pipelines.pool.worker import READY_FAILED, READY_YES
from weft.supervise import process
from weft.supervise.child import Child, RestartPolicy, State
from weft.supervise.pool.limits import Limits
from weft.supervise.pool.owner import Owner
from weft.supervise.pool.process_pool import MAX_HITS_AT_START, PoolBroken, ProcessPool, WorkerDeath
from weft.supervise.pool.worker_slot import KillReason
from weft.telemetry import Log

_TICK_S = 0.05
_SAMPLE_EVERY_S = 0.5
_REPLAY_AT_ONCE = 500
_decode = msgspec.msgpack.Decoder(list[Record]).decode
_log = Log("weft.pipelines")


class RunRequest(msgspec.Struct, frozen=True):
    """What a run is asked to do."""

    target: Target
    settings: Settings
    directory: RunDirectory | None = None
    logs: str = "off"
    """One of ITEM_LOGS (settings.py)."""
    resume: bool = False
    ordered: bool = False
    max_ahead: int | None = None
    total: int | None = None
    config: bytes = b""
    """What all items share, encoded (shared_config.py)."""


class WorkerView(NamedTuple):
    """One worker, for a display."""

    number: int
    pid: int | None
    state: str
    item_id: str | int | None
    stage: str | None
    seconds: float
    finished: int
    memory_mb: float


class PoolEngine:
    """One run."""

    def __init__(self, order: RunRequest, items: Iterator[Any], listeners: list[events.Listener]) -> None:
        self.order = order
        self.progress = PoolProgress(listeners, order.total)
        self.closed = False
        self._pid = os.getpid()
        self._ticked_s = self._sampled_s = time.monotonic()
        self._start_error: str | None = None
        self._ever_ready = False
        self._drained: set[Member] = set()
        self._seats = 0
        self._config = order.config
        self._owner = Owner.this_process()
        process.open_standard_descriptors()
        self._closing = ExitStack()
        try:
            self._build(items)
        except BaseException:
            self.close()
            raise

    def _build(self, items: Iterator[Any]) -> None:
        order, directory = self.order, self.order.directory
        journal = history = None
        inherited: list[int] = []
        if directory is not None:
            inherited.append(directory.hold(self._owner))
            self._closing.callback(directory.release)
            journal = ResultJournal(directory.journal)
            self._closing.callback(journal.close)
            history = History(directory, journal)
            if not order.resume:
                history.refuse_if_any()
            self._config = shared_config.kept_in(directory.path, order.config, resume=order.resume)
            if order.resume and journal.new and directory.used:
                _log.warning(f"{directory.journal} was missing or empty: every item of the run is done again")
        self._queue = Queue(order.settings.batch_size)
        self._delivery = Delivery(self.progress, journal, history, order.max_ahead)
        self._delivery.ordered = order.ordered
        self._intake = Intake(items, history.done if history is not None and order.resume else None)
        self._replay = self._replayed(history) if history is not None and order.resume else None
        self._autopsy = Autopsy(
            order.settings, order.target, self._queue, self._delivery, self.progress, directory, order.logs != "off"
        )
        self._shares_logs = order.logs == "worker" or (order.logs == "auto" and (order.total or 0) > AUTO_EACH)
        self._pool = self._make_pool(order.settings, inherited)
        self._closing.callback(self._pool.close)
        self._dispatcher = Dispatcher(order.settings, self._intake, self._queue, self._pool, self._delivery)

    def _make_pool(self, settings: Settings, inherited: list[int]) -> ProcessPool[Member]:
        policy = RestartPolicy(
            start_timeout_s=settings.start_timeout, stable_after_s=0, stop_grace_s=settings.stop_grace,
            max_delay_s=5.0, max_failures=MAX_HITS_AT_START,
        )  # fmt: skip
        return ProcessPool(
            "weft.pipelines.pool.worker:main",
            [Member(number, Child(f"worker-{number}", policy), settings) for number in range(settings.workers)],
            self._make_seat,
            self._assign,
            mark=self._owner.mark,
            limits=Limits(settings.heartbeat_timeout, settings.memory_limit_mb),
            inherit=inherited,
        )

    def _make_seat(self, connection: socket.socket) -> Seat:
        self._seats += 1
        directory = self.order.directory
        return Seat.create(connection, directory.slots if directory else None, f"{self._pid}-{self._seats}")

    def _assign(self, member: Member) -> None:
        order = self.order
        logs = str(order.directory.items) if order.directory is not None and order.logs != "off" else None
        assignment = Assignment(
            order.target, sys.path, order.settings.item_timeout, logs, bool(self.progress.listeners), member.number,
            self._config, self._shares_logs,
        )  # fmt: skip
        member.enqueue(assignment_frame(assignment))

    def _share_logs(self) -> None:
        """The source has turned out to be long: from here on a worker has one log for all of its items."""
        self._shares_logs = True
        for member in self._pool.slots:
            if member.worker is not None:
                member.worker.slot.words[SHARED_LOG] = 1

    @property
    def ready(self) -> deque[Result]:
        """Results for the user."""
        return self._delivery.ready

    @property
    def finished(self) -> bool:
        """Everything is done and handed out."""
        done = self._dispatcher.finished and not self._autopsy.undecided
        return self._replay is None and done and not self.ready and not self._delivery.staged

    def fileno(self) -> int:
        """Readable when there is something to do, for an event loop."""
        return self._pool.fileno()

    def step(self, timeout_s: float) -> None:
        """Does what there is to do; if there is nothing, waits for an event, up to a tick or the given time."""
        if self._replay is not None:
            return self._continue_replay()
        self._dispatcher.run()
        if not self._shares_logs and self.order.logs == "auto" and self._intake.position > AUTO_EACH:
            self._share_logs()
        # while it stops, ready results stay where they are, and must not make this a busy loop
        wait_s = timeout_s if self._dispatcher.stopping else min(timeout_s, self.wait_s())
        for happening in self._pool.wait(wait_s):
            if isinstance(happening, WorkerDeath):
                self._on_end(happening)
            else:
                self._look(happening.slot)
        self._tick()
        self._flush()
        if self._intake.exhausted:
            # a source may leave out items that are done: their results are counted all the same
            left_out = self.progress.resumed - self._intake.known
            self.progress.total = self._intake.position + max(0, left_out)
        return None

    def wait_s(self) -> float:
        """How long until something is due."""
        if self.ready or self._delivery.staged or self._dispatcher.hurry or self.finished:
            return 0.0
        now_s = time.monotonic()
        due_s = self._ticked_s + _TICK_S
        wake_s = self._dispatcher.wake_s()
        return max(0.0, (due_s if wake_s is None else min(due_s, wake_s)) - now_s)

    def _replayed(self, history: History) -> Iterator[Result]:
        if not self.order.ordered:
            return history.replay()
        history.index()
        return iter(())

    def _continue_replay(self) -> None:
        assert self._replay is not None
        for _ in range(_REPLAY_AT_ONCE):
            result = next(self._replay, None)
            if result is None:
                self._replay = None
                return
            self._delivery.resumed(result)

    def _look(self, member: Member) -> None:
        """Reads what a worker has put into its slot."""
        if member.worker is None:
            return
        if member.child.state is State.STARTING:
            self._check_start(member)
        ended = member.frames_ended()  # read before the results: a task missing from an ended batch will have none
        self._drain(member)
        self._queue.put_back(member.close_frames(ended))

    def _check_start(self, member: Member) -> None:
        assert member.worker is not None
        word = member.ready_word()
        if word == READY_YES:
            self._ever_ready = True
            member.child.ready()
            self.progress.tell(events.WORKER_STARTED, pid=member.worker.pid)
        elif word == READY_FAILED:
            failure = _decode(member.worker.slot.take()[0].data)[0]
            self._start_error = f"{self.order.target} cannot be used in a worker: {failure.error}"
            if not self._ever_ready:
                raise BadInput(self._start_error)

    def _drain(self, member: Member) -> None:
        """Reads the results that a worker has committed."""
        assert member.worker is not None
        try:
            chunks = [(chunk.data, _decode(chunk.data)) for chunk in member.worker.slot.take()]
        except (ValueError, RecursionError):
            return member.end_by_force(KillReason.BROKEN)
        for data, records in chunks:
            self._deliver(member, data, records)
        if chunks:
            self._pool.worked()
            self._drained.add(member)
        return None

    def _deliver(self, member: Member, data: bytes, records: list[Record]) -> None:
        assert member.worker is not None
        pid, outstanding = member.worker.pid, member.outstanding
        answered = [(outstanding.pop(record.ticket, None), record) for record in records if record.status < STARTED]
        if self.progress.listeners:
            self._tell_starts(records, pid)
        results = [(task.position, to_result(record, pid)) for task, record in answered if task is not None]
        if len(results) != len(records):
            data = msgspec.msgpack.encode([record for task, record in answered if task is not None])
        member.finished += len(results)
        self._autopsy.rules.ended([task for task, _ in answered if task is not None and task.outside])
        self._delivery.add_from_worker(pid, data, results)

    def _tell_starts(self, records: list[Record], pid: int) -> None:
        for record in records:
            if record.status >= STARTED:
                kind = events.STAGE if record.status == STAGE else events.STARTED
                self.progress.tell(kind, record.item_id, pid=pid, phase=record.phase)

    def _on_end(self, ended: WorkerDeath[Member]) -> None:
        """Handles a worker's end: first its results, then its other tasks."""
        member = ended.slot
        if member.worker is None:
            return
        if member.child.state is State.STARTING:
            self._check_start(member)
        self._drain(member)
        self._autopsy.examine(ended)
        if not _was_asked_to_end(ended):
            self.progress.tell(events.WORKER_DIED, pid=member.worker.pid, text=str(ended))
        self._flush()
        failed = not ended.with_server and member.given == 0 and not member.retiring
        if failed:
            self._start_error = self._start_error or self._start_text(ended)
        self._pool.remove(member, ended.how, failed=failed)
        if self._pool.hopeless(ever_ready=self._ever_ready):
            raise PoolBroken(f"every worker dies at its start: {self._start_error}")

    def _start_text(self, ended: WorkerDeath[Member]) -> str:
        """How it ended, and its last output."""
        assert ended.slot.worker is not None
        printed = ended.slot.worker.stderr_tail()
        return f"{ended}\n{printed}" if printed else str(ended)

    def _tick(self) -> None:
        """The checks that are made at every tick."""
        now_s = time.monotonic()
        since_s = now_s - self._ticked_s
        if since_s < _TICK_S:
            return
        self._ticked_s = now_s
        for ended in self._pool.tend(since_s):
            self._on_end(ended)
        self._autopsy.decide()
        for member in self._pool.slots:
            if member.worker is not None:
                self._tick_member(member, since_s)
        if now_s - self._sampled_s > _SAMPLE_EVERY_S:
            self._sampled_s = now_s
            self.progress.sample()

    def _tick_member(self, member: Member, since_s: float) -> None:
        assert member.worker is not None
        member.worker.slot.words[CUT] += member.worker.bound_output()
        if member.worker.slot.settled():
            self._look(member)
        if self._pool.limits.over(member, since_s) is None:
            return
        self._look(member)  # the item may have ended just now
        if (reason := self._pool.limits.over(member, 0.0)) is not None:
            member.end_by_force(reason)

    def _flush(self) -> None:
        self._delivery.flush()
        for member in self._drained:
            if member.worker is not None:
                member.worker.slot.release()
        self._drained.clear()

    def stop(self, grace_s: float) -> None:
        """Nothing new is begun; what is begun may end within the grace; then all workers end."""
        if self.closed:
            return
        self._replay = None
        self._dispatcher.stop()
        until_s = time.monotonic() + grace_s
        while self._dispatcher.outstanding() and time.monotonic() < until_s:
            self.step(0.02)
        self._end_workers()

    def _end_workers(self) -> None:
        """Asks, waits, kills: the pool's patience is the settings' grace."""
        self._dispatcher.stopping = True
        for member in self._pool.slots:
            if member.outstanding:
                member.end_by_force(KillReason.STOP)
            self._pool.end(member, again=False)
        until_s = time.monotonic() + self.order.settings.stop_grace + 1.0
        while any(member.worker is not None for member in self._pool.slots) and time.monotonic() < until_s:
            self.step(0.02)

    def finish(self) -> None:
        """Everything was done: the workers end, the last event goes out."""
        self._end_workers()
        self.progress.tell(events.DONE)
        self.close()

    def close(self) -> None:
        """Ends everything. Does nothing in a process that the user forked: the workers are not its own."""
        if self.closed or os.getpid() != self._pid:
            return
        self.closed = True
        self._closing.close()

    def view(self) -> list[WorkerView]:
        """The workers as they are now."""
        return [self._view_of(member) for member in self._pool.slots]

    def _view_of(self, member: Member) -> WorkerView:
        state, seat = member.child.state.value, member.worker
        if seat is None:
            return WorkerView(member.number, None, state, None, None, 0.0, member.finished, 0.0)
        task = member.current()
        return WorkerView(
            member.number, seat.pid, state, task.item_id if task else None, seat.slot.stage if task else None,
            member.item_ns(time.monotonic_ns()) / 1e9, member.finished, process.rss_bytes(seat.pid) / 1048576,
        )  # fmt: skip


def _was_asked_to_end(ended: WorkerDeath[Member]) -> bool:
    """Whether a worker has only done what it was asked to: at the end of the run, or because it was worn."""
    kill = ended.slot.kill
    return ended.slot.retiring and (kill.reason is KillReason.STOP if kill is not None else ended.how.code == 0)
