"""The pool's engine `celery`: the items of a run go to hands in tasks; the run itself stays here.

Journal, order, sink and crash rules are the local engine's own parts (`RunLedger`, `WorkQueue`, `Verdicts`). A hand
that is lost counts as a worker that was killed from outside: what it had finished stays, the item it held is suspect,
the rest goes back. Invariants: every item of the source ends in exactly one result; results of a task count until it is
closed, and none after; a task's results are deleted at the broker only when the journal has them.
"""

from __future__ import annotations

import base64
import os
import select
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from weft.cluster.batches.batch_messages import LONGEST_S, MARGIN_S, WORK_S, SharedFacts, ShippedCode, digest
from weft.cluster.batches.report_reading import ReportReading, left_records
from weft.cluster.batches.result_reader import Entry, ResultReader
from weft.cluster.batches.run_board import BrainBoard
from weft.cluster.batches.run_token import run_token
from weft.cluster.batches.shipped_code import MOST_BYTES, gather, in_zip, zipped
from weft.cluster.batches.task_book import TaskBook
from weft.cluster.broker import is_private
from weft.cluster.dispatch import Cluster
from weft.config import load_service
from weft.errors import BadInput, ServerAway, ServerFull, writing
from weft.pipelines.pool import events
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.dispatch import plan_batch
from weft.pipelines.pool.engine.ledger import RunLedger
from weft.pipelines.pool.engine.run_request import RunRequest, WorkerView
from weft.pipelines.pool.engine.task import PoolTask
from weft.pipelines.pool.engine.verdicts import Verdicts
from weft.pipelines.pool.record import Result, ResultRecord
from weft.pipelines.pool.settings import PoolSettings
from weft.supervise import process
from weft.supervise.pool.suspects import CrashRules
from weft.telemetry import Log

_TICK_S = 0.5
_TRIM_S = 0.2
_ASK_AGAIN_S = 0.05
"""A source that has nothing at the moment is asked again."""
_SILENT_S = 15.0
log = Log("weft.cluster.batches")


def make(request: RunRequest, items: Iterator[Any], listeners: list[events.Listener]) -> CeleryEngine:
    """For the entry point `weft.pool_engines`."""
    return CeleryEngine(request, items, listeners)


class CeleryEngine:
    """One run."""

    def __init__(self, request: RunRequest, items: Iterator[Any], listeners: list[events.Listener]) -> None:
        process.open_standard_descriptors()
        check_limits(request.settings)
        self.request = request
        self.closed = False
        self._pid = os.getpid()
        self._stopping = self._hurry = self._is_hungry = False
        self._ticked_s = self._trimmed_s = self._began_s = time.monotonic()
        self._is_alone = (request.settings.item_timeout or 0.0) > WORK_S
        self._entries: deque[Entry] = deque()
        """What was read from the stream, and not applied yet."""
        self._closing = ExitStack()
        try:
            self._open(items, listeners)
        except BaseException:
            self._closing.close()
            raise

    def _open(self, items: Iterator[Any], listeners: list[events.Listener]) -> None:
        request = self.request
        flags = {name: value for name, value in request.engine_options.items() if value}
        self._cluster = cluster = Cluster.configured(load_service(None, flags=flags).cluster)
        self._closing.callback(cluster.close)
        cluster.broker.check()
        if not is_private(cluster.broker.url):
            log.warning(
                f"{cluster.broker.where} is asked without TLS: items, config and results can be read on the way"
            )
        code = gather([str(request.target), *request.callables], request.code_files)
        self._board = BrainBoard(cluster.broker, run_token(request.directory))
        self._ledger = ledger = RunLedger(request, items, listeners, self._left_over)
        self._closing.callback(ledger.close)
        self.progress = ledger.progress
        self._queue = WorkQueue(request.settings.batch_size)
        rules = CrashRules(request.settings.crash_tries)
        self._verdicts = Verdicts(rules, request.target, self._queue, ledger.delivery, self.progress, request.directory)
        self._book = TaskBook(cluster, self._board, self._queue, self._limit_s())
        self._reading = ReportReading(cluster, self._board, self._book, self._verdicts, ledger)
        self._book.open(self._facts(code.files, code.shipped), zipped(code.shipped))
        self._closing.callback(self._forget)
        self._reader = ResultReader(self._board, "0")
        self._closing.callback(self._reader.close)

    def _facts(self, files: list[Any], shipped: dict[str, bytes]) -> SharedFacts:
        request, target = self.request, self.request.target
        archive = zipped(shipped) if shipped else b""
        fits = bool(shipped) and len(archive) <= MOST_BYTES
        script = in_zip(target.script) if target.script is not None else None
        return SharedFacts(
            target.module, target.name, target.script, base64.b64encode(self._ledger.config).decode(),
            asdict(request.settings), files, ShippedCode(digest(archive), len(archive), script) if fits else None,
            0 if fits else len(archive), bool(self.progress.listeners),
            request.directory is not None and request.logs != "off", self._marked_folders(),
        )  # fmt: skip

    def _marked_folders(self) -> dict[str, str]:
        """A file in each folder of the run: a hand that sees it shares the folder with us."""
        marks = {}
        for name, folder in self.request.folders.items():
            mark = Path(folder) / f".shared-{self._board.run}"
            with writing(Path(folder)):
                mark.parent.mkdir(parents=True, exist_ok=True)
                mark.touch()
            self._closing.callback(mark.unlink, missing_ok=True)
            marks[name] = str(mark)
        return marks

    def _limit_s(self) -> float:
        item_s = self.request.settings.item_timeout or 0.0
        return item_s + MARGIN_S if self._is_alone else WORK_S + item_s + MARGIN_S

    def _left_over(self) -> Iterator[list[ResultRecord]]:
        """What hands had sent to a brain that was killed before it read it."""
        self._board.open()
        after = "0"
        while entries := self._board.read(after, None):
            yield from left_records(self._cluster, self._board, entries, self.request.folders.get("files"))
            after = entries[-1][0]
            self._board.trim(after, 0, ())

    # ── what every engine has ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def ready(self) -> deque[Result]:
        """Results for the user."""
        return self._ledger.ready

    @property
    def finished(self) -> bool:
        """Everything is done and handed out."""
        ledger = self._ledger
        at_rest = ledger.intake.exhausted and not self._queue and not self._book.tasks
        return at_rest and not (ledger.replaying or ledger.waiting or self._verdicts.undecided)

    def fileno(self) -> int:
        """Readable when results have come."""
        return self._reader.fileno()

    def wait_s(self) -> float:
        """How long until something is due."""
        if self._ledger.waiting or self._hurry or self.finished:
            return 0.0
        due_s = max(0.0, self._ticked_s + _TICK_S - time.monotonic())
        return min(due_s, _ASK_AGAIN_S) if self._is_hungry else due_s

    def step(self, timeout_s: float) -> None:
        """Does what there is to do; if there is nothing, waits for results, up to a tick or the given time."""
        if self._ledger.replaying:
            return self._ledger.replay_some()
        try:
            self._send_tasks()
            self._wait(min(timeout_s, self.wait_s()))
            self._read()
            self._tick()
        except (ServerAway, ServerFull) as error:
            self._book.broker_away(str(error))
        self._flush()
        return self._ledger.sum_up()

    def _wait(self, timeout_s: float) -> None:
        if timeout_s > 0:
            select.select([self._reader.fileno()], [], [], timeout_s)

    def _read(self) -> None:
        self._entries.extend(self._reader.take())
        while self._entries:
            self._reading.entry(*self._entries[0])
            self._entries.popleft()

    def _flush(self) -> None:
        """The journal first, then the broker may forget."""
        self._ledger.delivery.flush()
        now_s = time.monotonic()
        if now_s - self._trimmed_s > _TRIM_S:
            self._trimmed_s = now_s
            with suppress(ServerAway, ServerFull):
                self._reading.trim()

    def _tick(self) -> None:
        now_s = time.monotonic()
        if now_s - self._ticked_s < _TICK_S:
            return
        self._ticked_s = now_s
        self._verdicts.decide()
        self.progress.sample()
        if self._book.watch(now_s):
            self._reader.rewind()
        if self._ledger.intake.exhausted and not self._queue:
            self._book.share_out(now_s)
        self._say_if_silent(now_s)

    def _say_if_silent(self, now_s: float) -> None:
        if not self._began_s or self._book.ever_claimed:
            self._began_s = 0.0
        elif now_s - self._began_s > _SILENT_S and self._book.tasks:
            self._began_s = 0.0
            log.warning(
                f"no worker has taken a task at {self._cluster.broker.where} for {_SILENT_S:.0f} s: start one with "
                f"`weft worker` (cluster {self._cluster.key.cluster_id}, queue batches); the run waits"
            )

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send_tasks(self) -> None:
        """As many as hands take: some are always waiting for them, and few."""
        self._hurry = False
        while not self._stopping and self._book.has_room(self.request.settings.workers):
            got = self._next()
            self._is_hungry = got is None and not self._ledger.intake.exhausted
            if got is None:
                return
            self._book.send(got[0], alone=got[1])

    def _next(self) -> tuple[list[PoolTask], bool] | None:
        got = self._queue.next(fresh=True, pool_idle=True)
        if got is None and not self._ledger.intake.exhausted:
            size = 1 if self._is_alone else self.request.settings.batch_size
            batch, self._hurry = plan_batch(self._ledger.intake, self._ledger.delivery, size)
            got = (batch, False) if batch else None
        return got

    def stop(self, grace_s: float) -> None:
        """Nothing new is begun; what is begun may end within the grace."""
        if self.closed:
            return
        self._stopping = True
        self._ledger.stop_replay()
        with suppress(ServerAway, ServerFull):
            self._book.stop()
            self._wait_for_tasks(grace_s)
            self._book.close_all()
            self._wait_for_tasks(1.0)
        self._flush()

    def _wait_for_tasks(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while self._book.tasks and time.monotonic() < until_s:
            self._wait(0.02)
            self._read()
            self._tick()
            self._flush()

    def finish(self) -> None:
        """Everything was done; the last event goes out."""
        self.progress.tell(events.DONE)
        with suppress(ServerAway, ServerFull):
            self._reading.trim()
        self.close()

    def close(self) -> None:
        """Ends everything. Does nothing in a process that the user forked."""
        if self.closed or os.getpid() != self._pid:
            return
        self.closed = True
        self._closing.close()

    def _forget(self) -> None:
        with suppress(ServerAway, ServerFull, BadInput):
            self._book.forget()

    def view(self) -> list[WorkerView]:
        """The workers on hands as they were last heard of."""
        return self._book.view()


def check_limits(settings: PoolSettings) -> None:
    """BadInput where an item may take longer than a task."""
    most_s = LONGEST_S - MARGIN_S
    if settings.item_timeout is None or settings.item_timeout > most_s:
        now = "without a limit" if settings.item_timeout is None else f"{settings.item_timeout:g} s"
        raise BadInput(
            f"item_timeout is {now}: with the engine 'celery' an item may take at most {most_s:g} s; give a limit, or "
            "use the engine 'local'"
        )
