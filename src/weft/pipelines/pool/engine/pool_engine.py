"""The local engine of a pool: items in, batches out to the workers of this machine, results back.

One thread. `step` does what there is to do and returns; results wait in `ready`. Invariants: every item of the source
ends in exactly one result; a result reaches `ready` only after it is in the journal; nothing blocks but the wait for
events; after `close` nothing is left, whatever the cause.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from typing import Any

from weft.pipelines.pool import events
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.ledger import RunLedger
from weft.pipelines.pool.engine.local_workers import LocalWorkers
from weft.pipelines.pool.engine.run_request import RunRequest, WorkerView
from weft.pipelines.pool.engine.verdicts import Verdicts
from weft.pipelines.pool.record import Result
from weft.supervise import process
from weft.supervise.pool.suspects import CrashRules


class PoolEngine:
    """A run on the workers of this machine."""

    def __init__(self, request: RunRequest, items: Iterator[Any], listeners: list[events.Listener]) -> None:
        process.open_standard_descriptors()
        self.request = request
        self.closed = False
        self._pid = os.getpid()
        self._ledger = ledger = RunLedger(request, items, listeners)
        self.progress = ledger.progress
        queue = WorkQueue(request.settings.batch_size)
        rules = CrashRules(request.settings.crash_tries)
        verdicts = Verdicts(rules, request.target, queue, ledger.delivery, self.progress, request.directory)
        try:
            self._workers = LocalWorkers(
                request, ledger.intake, queue, ledger.delivery, self.progress, verdicts, mark=ledger.owner.mark,
                config=ledger.config, inherited=ledger.inherited, wants_shared_logs=lambda: ledger.shares_logs,
            )  # fmt: skip
        except BaseException:
            ledger.close()
            raise

    @property
    def ready(self) -> deque[Result]:
        """The results that the user may get."""
        return self._ledger.ready

    @property
    def finished(self) -> bool:
        """Whether all items are done, and all results handed out."""
        return not self._ledger.replaying and self._workers.finished and not self._ledger.waiting

    def fileno(self) -> int:
        """A descriptor that is readable when `step` has something to do."""
        return self._workers.fileno()

    def step(self, timeout_s: float) -> None:
        """Does all work that is due; if there is none, waits for an event, at most until the next check or the given
        time.
        """
        if self._ledger.replaying:
            return self._ledger.replay_some()
        self._workers.turn(timeout_s)
        return self._ledger.sum_up()

    def wait_s(self) -> float:
        """The seconds until timed work is due."""
        return self._workers.wait_s()

    def stop(self, grace_s: float) -> None:
        """Starts no more items; those that run may finish within `grace_s`, then all workers end."""
        if self.closed:
            return
        self._ledger.stop_replay()
        self._workers.stop(grace_s)
        self._workers.end()

    def finish(self) -> None:
        """Ends the workers and sends the last event, after all items are done."""
        self._workers.end()
        self.progress.tell(events.DONE)
        self.close()

    def close(self) -> None:
        """Ends everything. Does nothing in a process that the user forked: the workers are not its own."""
        if self.closed or os.getpid() != self._pid:
            return
        self.closed = True
        try:
            self._workers.close()
        finally:
            self._ledger.close()

    def view(self) -> list[WorkerView]:
        """The current state of the workers."""
        return self._workers.view()
