"""The worker processes of this machine: fed, read, watched, and what to do when one dies.

One thread, one epoll: nothing happens but in `turn`. Who uses it gives the tasks (an Intake) and takes the results
(a ResultDelivery). Invariants: what a worker has put into its slot may be overwritten only after `flush` has handed it
on; nothing blocks but the wait for events; after `close` no process is left.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from weft.errors import BadInput
from weft.pipelines.pool import events
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.crash_analysis import CrashAnalysis
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.dispatch import WorkDispatcher
from weft.pipelines.pool.engine.pool_worker import PoolSlot, PoolWorker
from weft.pipelines.pool.engine.run_request import RunRequest, WorkerView
from weft.pipelines.pool.engine.task import TaskSource
from weft.pipelines.pool.engine.verdicts import Verdicts
from weft.pipelines.pool.events import PoolProgress
from weft.pipelines.pool.record import STAGE, STARTED, ResultRecord
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.pool.worker.slot import CUT, SHARED_LOG
from weft.pipelines.pool.worker.wire import Assignment, assignment_frame
from weft.pipelines.pool.worker.worker import READY_FAILED, READY_YES
from weft.supervise import process
from weft.supervise.child import Child, ChildState, RestartPolicy
from weft.supervise.pool.limits import PoolLimits
from weft.supervise.pool.process_pool import MAX_HITS_AT_START, PoolBroken, ProcessPool, WorkerDeath
from weft.supervise.pool.worker_slot import KillReason

_CHECK_EVERY_S = 0.05
_SAMPLE_EVERY_S = 0.5
_decode = msgspec.msgpack.Decoder(list[ResultRecord]).decode
_encode = msgspec.msgpack.Encoder().encode


class LocalWorkers:
    """All workers of one run on this machine."""

    def __init__(
        self,
        request: RunRequest,
        intake: TaskSource,
        queue: WorkQueue,
        delivery: ResultDelivery,
        progress: PoolProgress,
        verdicts: Verdicts,
        *,
        mark: str,
        config: bytes,
        inherited: list[int],
        wants_shared_logs: Callable[[], bool] = bool,
        sys_path: list[str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """`config` as the workers get it; `inherited`: descriptors that they keep open; `wants_shared_logs`: whether a
        worker has one log for all of its items, from then on; `sys_path` and `cwd`: those of the workers, where they
        are not those of this process."""
        self._request = request
        self._queue = queue
        self._delivery = delivery
        self._progress = progress
        self._config = config
        self._sys_path = sys.path if sys_path is None else sys_path
        self._cwd = None if cwd is None else str(cwd)
        self._pid = os.getpid()
        self._checked_s = self._sampled_s = time.monotonic()
        self._start_error: str | None = None
        self._ever_ready = False
        self._drained: set[PoolSlot] = set()
        self._workers_made = 0
        self._wants_shared_logs = wants_shared_logs
        self._shares_logs = wants_shared_logs()
        self._verdicts = verdicts
        directory = request.directory
        self._logs = directory.items if directory is not None and request.logs != "off" else None
        self._crashes = CrashAnalysis(request.settings, queue, verdicts, progress, self._logs)
        self._pool = self._make_pool(request.settings, mark, inherited)
        self._dispatcher = WorkDispatcher(request.settings, intake, queue, self._pool, delivery)

    def _make_pool(self, settings: PoolSettings, mark: str, inherited: list[int]) -> ProcessPool[PoolSlot]:
        policy = RestartPolicy(
            start_timeout_s=settings.start_timeout, stable_after_s=0, stop_grace_s=settings.stop_grace,
            max_delay_s=5.0, max_failures=MAX_HITS_AT_START,
        )  # fmt: skip
        return ProcessPool(
            "weft.pipelines.pool.worker.worker:main",
            [PoolSlot(number, Child(f"worker-{number}", policy), settings) for number in range(settings.workers)],
            self._make_worker,
            self._send_assignment,
            mark=mark,
            limits=PoolLimits(settings.heartbeat_timeout, settings.memory_limit_mb),
            inherit=inherited,
        )

    def _make_worker(self, connection: socket.socket) -> PoolWorker:
        self._workers_made += 1
        directory = self._request.directory
        return PoolWorker.create(
            connection, directory.slots if directory else None, f"{self._pid}-{self._workers_made}"
        )

    def _send_assignment(self, pool_slot: PoolSlot) -> None:
        request = self._request
        assignment = Assignment(
            request.target, self._sys_path, request.settings.item_timeout,
            str(self._logs) if self._logs is not None else None, bool(self._progress.listeners), pool_slot.number,
            self._config, self._shares_logs, self._cwd,
        )  # fmt: skip
        pool_slot.enqueue(assignment_frame(assignment))

    def _share_logs(self) -> None:
        """Switches to one log for each worker, because the source has many items."""
        self._shares_logs = True
        for pool_slot in self._pool.slots:
            if pool_slot.worker is not None:
                pool_slot.worker.slot.words[SHARED_LOG] = 1

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self._dispatcher.finished and not self._verdicts.undecided

    @property
    def outstanding(self) -> int:
        """The number of tasks that workers have."""
        return self._dispatcher.outstanding()

    def fileno(self) -> int:
        """A descriptor that is readable when `turn` has something to do."""
        return self._pool.fileno()

    def turn(self, timeout_s: float) -> None:
        """Does all work that is due; if there is none, waits for an event, at most until the next check or the given
        time.
        """
        self._dispatcher.run()
        if not self._shares_logs and self._wants_shared_logs():
            self._share_logs()
        # while it stops, ready results stay where they are, and must not make this a busy loop
        wait_s = timeout_s if self._dispatcher.stopping else min(timeout_s, self.wait_s())
        for happening in self._pool.wait(wait_s):
            if isinstance(happening, WorkerDeath):
                self._handle_end(happening)
            else:
                self._read_slot(happening.slot)
        self._run_checks()
        self.flush()

    def wait_s(self) -> float:
        """The seconds until timed work is due."""
        if self._delivery.ready or self._delivery.staged or self._dispatcher.hurry or self.finished:
            return 0.0
        now_s = time.monotonic()
        due_s = self._checked_s + _CHECK_EVERY_S
        wake_s = self._dispatcher.wake_s()
        return max(0.0, (due_s if wake_s is None else min(due_s, wake_s)) - now_s)

    def _read_slot(self, pool_slot: PoolSlot) -> None:
        """Reads the new results in a worker's slot."""
        if pool_slot.worker is None:
            return
        if pool_slot.child.state is ChildState.STARTING:
            self._check_start(pool_slot)
        ended = pool_slot.frames_ended()  # read before the results: a task missing from an ended batch will have none
        self._drain_results(pool_slot)
        self._queue.put_back(pool_slot.close_frames(ended))

    def _check_start(self, pool_slot: PoolSlot) -> None:
        assert pool_slot.worker is not None
        word = pool_slot.ready_word()
        if word == READY_YES:
            self._ever_ready = True
            pool_slot.child.ready()
            self._progress.tell(events.WORKER_STARTED, pid=pool_slot.worker.pid)
        elif word == READY_FAILED:
            failure = _decode(pool_slot.worker.slot.take()[0].data)[0]
            self._start_error = f"{self._request.target} cannot be used in a worker: {failure.error}"
            if not self._ever_ready:
                raise BadInput(self._start_error)

    def _drain_results(self, pool_slot: PoolSlot) -> None:
        """Reads the results that a worker has committed."""
        assert pool_slot.worker is not None
        try:
            chunks = [(chunk.data, _decode(chunk.data)) for chunk in pool_slot.worker.slot.take()]
        except (ValueError, RecursionError):
            return pool_slot.end_by_force(KillReason.BROKEN)
        for data, records in chunks:
            self._deliver(pool_slot, data, records)
        if chunks:
            self._pool.worked()
            self._drained.add(pool_slot)
        return None

    def _deliver(self, pool_slot: PoolSlot, data: bytes, records: list[ResultRecord]) -> None:
        assert pool_slot.worker is not None
        pid, outstanding = pool_slot.worker.pid, pool_slot.outstanding
        answered = [(outstanding.pop(record.ticket, None), record) for record in records if record.status < STARTED]
        if self._progress.listeners:
            tell_starts(self._progress, records, pid)
        ended = [(task, record) for task, record in answered if task is not None]
        if len(ended) != len(records):
            data = _encode([record for _, record in ended])
        pool_slot.finished += len(ended)
        self._verdicts.rules.ended([task for task, _ in ended if task.outside])
        self._delivery.add_from_worker(pid, data, [(task.position, record) for task, record in ended])

    def _handle_end(self, ended: WorkerDeath[PoolSlot]) -> None:
        """Handles a worker's end: first its results, then its other tasks."""
        pool_slot = ended.slot
        if pool_slot.worker is None:
            return
        if pool_slot.child.state is ChildState.STARTING:
            self._check_start(pool_slot)
        self._drain_results(pool_slot)
        self._crashes.examine(ended)
        if not _was_asked_to_end(ended):
            self._progress.tell(events.WORKER_DIED, pid=pool_slot.worker.pid, text=str(ended))
        self.flush()
        failed = not ended.with_server and pool_slot.given == 0 and not pool_slot.retiring
        if failed:
            self._start_error = self._start_error or self._start_text(ended)
        self._pool.remove(pool_slot, ended.how, failed=failed)
        if self._pool.hopeless(ever_ready=self._ever_ready):
            raise PoolBroken(f"every worker dies at its start: {self._start_error}")

    def _start_text(self, ended: WorkerDeath[PoolSlot]) -> str:
        """Describes how a worker ended, with its last output."""
        assert ended.slot.worker is not None
        printed = ended.slot.worker.stderr_tail()
        return f"{ended}\n{printed}" if printed else str(ended)

    def _run_checks(self) -> None:
        """Makes the regular checks of all workers."""
        now_s = time.monotonic()
        since_s = now_s - self._checked_s
        if since_s < _CHECK_EVERY_S:
            return
        self._checked_s = now_s
        for ended in self._pool.tend(since_s):
            self._handle_end(ended)
        self._verdicts.decide()
        for pool_slot in self._pool.slots:
            if pool_slot.worker is not None:
                self._check_slot(pool_slot, since_s)
        if now_s - self._sampled_s > _SAMPLE_EVERY_S:
            self._sampled_s = now_s
            self._progress.sample()

    def _check_slot(self, pool_slot: PoolSlot, since_s: float) -> None:
        assert pool_slot.worker is not None
        pool_slot.worker.slot.words[CUT] += pool_slot.worker.bound_output()
        if pool_slot.worker.slot.settled():
            self._read_slot(pool_slot)
        if self._pool.limits.over(pool_slot, since_s) is None:
            return
        self._read_slot(pool_slot)  # the item may have ended just now
        if (reason := self._pool.limits.over(pool_slot, 0.0)) is not None:
            pool_slot.end_by_force(reason)

    def flush(self) -> None:
        """Passes on the results read so far, then lets the workers overwrite them."""
        self._delivery.flush()
        for pool_slot in self._drained:
            if pool_slot.worker is not None:
                pool_slot.worker.slot.release()
        self._drained.clear()

    def stop(self, grace_s: float) -> None:
        """Starts no more items; those that run may finish within `grace_s`."""
        self._dispatcher.stop()
        until_s = time.monotonic() + grace_s
        while self._dispatcher.outstanding() and time.monotonic() < until_s:
            self.turn(0.02)

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self._dispatcher.stopping

    def pause(self) -> None:
        """Starts no more items; tasks that were not begun return to the queue."""
        self._dispatcher.stop()

    def resume(self) -> None:
        """Continues after a pause."""
        self._dispatcher.stopping = False

    def end(self) -> None:
        """Ends all workers: asks them, waits for `stop_grace`, then kills them."""
        self._dispatcher.stopping = True
        for pool_slot in self._pool.slots:
            if pool_slot.outstanding:
                pool_slot.end_by_force(KillReason.STOP)
            self._pool.end(pool_slot, again=False)
        until_s = time.monotonic() + self._request.settings.stop_grace + 1.0
        while any(pool_slot.worker is not None for pool_slot in self._pool.slots) and time.monotonic() < until_s:
            self.turn(0.02)

    def close(self) -> None:
        """Ends all processes at once."""
        self._pool.close()

    def view(self) -> list[WorkerView]:
        """The current state of the workers."""
        return [self._view_of(pool_slot) for pool_slot in self._pool.slots]

    def _view_of(self, pool_slot: PoolSlot) -> WorkerView:
        state, worker = pool_slot.child.state.value, pool_slot.worker
        if worker is None:
            return WorkerView(pool_slot.number, None, state, None, None, 0.0, pool_slot.finished, 0.0)
        task = pool_slot.current()
        return WorkerView(
            pool_slot.number, worker.pid, state, task.item_id if task else None, worker.slot.stage if task else None,
            pool_slot.item_ns(time.monotonic_ns()) / 1e9, pool_slot.finished, process.rss_bytes(worker.pid) / 1048576,
        )  # fmt: skip


def tell_starts(progress: PoolProgress, records: list[ResultRecord], pid: int) -> None:
    """Sends the events of items and stages that have begun."""
    for record in records:
        if record.status >= STARTED:
            kind = events.STAGE if record.status == STAGE else events.STARTED
            progress.tell(kind, record.item_id, pid=pid, phase=record.phase)


def _was_asked_to_end(ended: WorkerDeath[PoolSlot]) -> bool:
    """Whether a worker ended because it was asked to: at the end of the run, or to be replaced."""
    kill = ended.slot.kill
    return ended.slot.retiring and (kill.reason is KillReason.STOP if kill is not None else ended.how.code == 0)
