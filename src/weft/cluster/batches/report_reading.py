"""What hands report, applied to the run: results, logs, events, deaths.

Invariant: a report counts once, in its order, and only while its task is out: anything else is counted as refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from weft.cluster.batches.batch_messages import (
    RESULT_KIND,
    BatchReport,
    StrikeReport,
    TaskEnd,
)
from weft.cluster.batches.result_reader import Entry
from weft.cluster.batches.run_board import BodyGone, BrainBoard
from weft.cluster.batches.shipped_logs import ShippedLogs
from weft.cluster.batches.task_book import RemoteTask, RemoteTaskState, TaskBook
from weft.cluster.dispatch import Cluster
from weft.cluster.signing import RefusedMessage
from weft.errors import BadInput, ServerAway, ServerFull, writing
from weft.pipelines.files import RunFiles
from weft.pipelines.pool import events
from weft.pipelines.pool.context import PROCESS
from weft.pipelines.pool.engine.ledger import RunLedger
from weft.pipelines.pool.engine.task import PoolTask
from weft.pipelines.pool.engine.verdicts import Verdicts
from weft.pipelines.pool.record import CRASHED, STARTED, Death, Result, ResultRecord, Status
from weft.supervise.pool.process_pool import PoolBroken
from weft.telemetry import Log

_decode = msgspec.msgpack.Decoder(list[ResultRecord]).decode
_encode = msgspec.msgpack.Encoder().encode
Logs = dict[str, tuple[int, bytes]]
"""Of the items in one report, by id: the worker, and what it logged."""
log = Log("weft.cluster.batches")


class ReportReading:
    """Applies reports to one run."""

    def __init__(
        self, cluster: Cluster, board: BrainBoard, book: TaskBook, verdicts: Verdicts, ledger: RunLedger
    ) -> None:
        self._cluster = cluster
        self._board = board
        self._book = book
        self._verdicts = verdicts
        self._queue = book.queue
        self._delivery = ledger.delivery
        self._progress = ledger.progress
        request = ledger.request
        self._logs = None
        if request.directory is not None and request.logs != "off":
            self._logs = ShippedLogs(request.directory.items, lambda: ledger.shares_logs)
        self._request = request
        self._target = request.target
        self._ever_ready = False
        self._refusing: set[str] = set()
        self._last, self._size = "", 0
        self._bodies: list[str] = []

    def entry(self, entry_id: str, fields: dict[bytes, bytes]) -> None:
        """One entry of the stream. ServerAway, ServerFull: nothing of it was applied, it is to be given again."""
        if (closed := fields.get(b"c")) is not None:
            self._on_closed(closed.decode("ascii", "replace"))
        elif b"m" in fields:
            self._on_report(fields)
        self._last = entry_id
        size = fields.get(b"b", b"")  # not signed
        self._size += int(size) if size.isdigit() and len(size) <= 15 else 0

    def _on_report(self, fields: dict[bytes, bytes]) -> None:
        try:
            report = opened(self._cluster, self._board, fields)
            task = self._task_of(report)
        except (RefusedMessage, msgspec.ValidationError) as error:
            self._refuse(error)
            return
        refs = [one.body for one in report.records] + [one.body for one in report.logs]
        refs += [one.body for one in report.files]
        try:
            bodies = [self._board.get(ref) for ref in refs]
        except BodyGone as error:
            self._book.close(task, str(error), by_force=True)
            return
        self._bodies += [ref.name for ref in refs if ref.name is not None]
        task.number, task.status = report.number, report.status
        self._apply(task, report, bodies)

    def _task_of(self, report: BatchReport) -> RemoteTask:
        task = self._book.tasks.get(report.task)
        if task is None or report.epoch != self._board.epoch:
            raise RefusedMessage("late", "its task is not out")
        if report.number == 0 and task.state is RemoteTaskState.SENT:
            task.state = RemoteTaskState.CLAIMED
            self._book.claimed(task)
            return task
        if report.number != task.number + 1:
            raise RefusedMessage("replayed", "it was there before, or one before it is missing")
        return task

    def _refuse(self, error: Exception) -> None:
        reason = error.reason if isinstance(error, RefusedMessage) else "malformed"
        with suppress(ServerAway, ServerFull):
            self._cluster.broker.count_for("brain", {f"batches-result:refused:{reason}": 1})
        if reason != "late":
            log.warning("a hand's report was refused", reason=reason, why=str(error))

    # ── one report ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _apply(self, task: RemoteTask, report: BatchReport, bodies: list[bytes]) -> None:
        """`bodies`: those of the results, then those of the logs, then those of the files."""
        for event in report.events:
            self._progress.tell(event.kind, event.item_id, None, event.pid, event.phase, event.text)
        rest = iter(bodies[len(report.records) :])
        logs = {str(one.item_id): (one.pid, next(rest)) for one in report.logs}
        for file in report.files:
            write_file(self._request.folders.get("files"), file.name, next(rest))
        for records, data in zip(report.records, bodies, strict=False):
            self._on_records(task, records.pid, data, logs)
        for strike in report.strikes:
            self._on_strike(task, strike, logs)
        if report.innocent:
            self._verdicts.rules.saw_innocent()
        if report.end is not None:
            self._on_end(task, report.end)

    def _on_records(self, task: RemoteTask, pid: int, data: bytes, logs: Logs) -> None:
        found = [record for record in _decode(data) if record.status < STARTED]
        ended: list[tuple[PoolTask, ResultRecord]] = []
        for record in found:
            item = task.items.pop(str(record.item_id), None)
            if item is not None:
                record.log = self._kept_log(record.item_id, logs, record.status)
                ended.append((item, record))
        if len(ended) != len(found) or self._logs is not None:
            data = _encode([record for _, record in ended])
        self._ever_ready = True
        task.finished += len(ended)
        self._verdicts.rules.ended([item for item, _ in ended if item.outside])
        self._delivery.add_from_worker(pid, data, [(item.position, record) for item, record in ended])

    def _kept_log(self, item_id: str | int, logs: Logs, status: int) -> str | None:
        sent = logs.get(str(item_id))
        if sent is None or self._logs is None:
            return None
        return self._logs.keep(item_id, sent[0], sent[1], status)

    def _on_strike(self, task: RemoteTask, strike: StrikeReport, logs: Logs) -> None:
        item = task.items.pop(str(strike.item_id), None)
        if item is None:
            return
        self._ever_ready = True
        if strike.death is not None and (item.death is None or not strike.outside):
            item.death = strike.death
        kept = self._kept_log(strike.item_id, logs, CRASHED)
        guilty = self._verdicts.rules.strike(item, outside=strike.outside, with_server=strike.secluded)
        if not guilty:
            self._verdicts.retry(item, strike.pid, strike.phase, strike.why)
            return
        result = Result(
            item.item_id, Status.CRASHED, None, strike.phase, strike.why, item.tries, strike.duration_ms,
            strike.pid, None, kept, item.death,
        )  # fmt: skip
        self._verdicts.accuse(item, result)

    # ── the end of a task ──────────────────────────────────────────────────────────────────────────────────────────

    def _on_end(self, task: RemoteTask, end: TaskEnd) -> None:
        """What is left of its items was not begun."""
        self._drop(task)
        if end.refused is not None:
            self._on_refusal(task, end)
        self._book.put_back(task)

    def _on_refusal(self, task: RemoteTask, end: TaskEnd) -> None:
        assert end.refused is not None
        why = end.refused.removeprefix(f"{self._target} cannot be used in a worker: ")
        hand = task.status.hand if task.status is not None else "?"
        text = f"{self._target} cannot be used in a worker: {why if hand in why else f'on hand {hand}: {why}'}"
        if not self._ever_ready:
            raise PoolBroken(text) if end.broken else BadInput(text)
        if hand not in self._refusing:
            self._refusing.add(hand)
            log.warning(f"{text}; other hands do its tasks")

    def _drop(self, task: RemoteTask) -> None:
        self._bodies += task.bodies
        del self._book.tasks[task.id]

    def _on_closed(self, task_id: str) -> None:
        """All that the hand had sent was read: now its items are settled, as those of a worker that was killed."""
        task = self._book.tasks.get(task_id)
        if task is None or task.state is not RemoteTaskState.CLOSING:
            return
        self._drop(task)
        left = list(task.items.values())
        if not task.by_force:
            self._queue.put_back(left)
            return
        pid = task.status.pid if task.status is not None else None
        self._progress.tell(events.WORKER_DIED, pid=pid, text=task.why)
        held = task.items.get(str(task.status.item_id)) if task.status is not None else None
        if held is None and left and not task.finished:
            self._blame_batch(task, left)
            return
        rest = [item for item in left if item is not held]
        if held is not None:
            self._blame(task, held)
        self._queue.put_back(rest)
        if rest:
            self._progress.tell(events.BATCH_REQUEUED, pid=pid, text=f"{len(rest)} items")

    def _blame_batch(self, task: RemoteTask, left: list[PoolTask]) -> None:
        """Nothing is known to have been begun: any of them may be the cause."""
        if len(left) == 1:
            self._blame(task, left[0])
            return
        self._queue.bisect(left)
        self._progress.tell(events.BATCH_REQUEUED, text=f"{len(left)} items, halved")

    def _blame(self, task: RemoteTask, item: PoolTask) -> None:
        status = task.status
        phase = (status.stage if status is not None else None) or PROCESS
        pid = status.pid if status is not None else None
        why = f"{task.why} while it held this item"
        if not self._verdicts.rules.strike(item, outside=True):
            self._verdicts.retry(item, pid, phase, why)
            return
        seconds = status.seconds if status is not None else 0.0
        death = item.death or Death()
        result = Result(
            item.item_id, Status.CRASHED, None, phase, why, item.tries, seconds * 1000, pid, None, None, death
        )
        self._verdicts.accuse(item, result)

    # ── the broker ─────────────────────────────────────────────────────────────────────────────────────────────────

    def trim(self) -> None:
        """Everything that was read is in the journal: the broker may forget it."""
        if not self._last:
            return
        self._board.trim(self._last, self._size, self._bodies)
        self._last, self._size, self._bodies = "", 0, []


def left_records(
    cluster: Cluster, board: BrainBoard, entries: list[Entry], files: str | None
) -> Iterator[list[ResultRecord]]:
    """The results in entries that no brain has read, whatever became of their tasks. `files`: where stages write."""
    for _, fields in entries:
        if b"m" not in fields:
            continue
        try:
            report = opened(cluster, board, fields)
            bodies = [board.get(file.body) for file in report.files]
            found = [_decode(board.get(sent.body)) for sent in report.records]
        except (RefusedMessage, msgspec.ValidationError, BodyGone) as error:
            log.warning("results of an earlier try are lost; their items are done again", why=str(error))
            continue
        for file, data in zip(report.files, bodies, strict=True):
            write_file(files, file.name, data)
        for records in found:
            for record in records:
                record.log = None
            yield records


def opened(cluster: Cluster, board: BrainBoard, fields: dict[bytes, bytes]) -> BatchReport:
    """The report in an entry; RefusedMessage if it is not of this run."""
    message = cluster.signer.verify(fields.get(b"m", b"").decode("utf-8", "replace"), RESULT_KIND)
    report = msgspec.convert(message.body, BatchReport)
    if report.run != board.run or report.task != message.id:
        raise RefusedMessage("foreign", "it is of another run")
    return report


def write_file(folder: str | None, name: str, data: bytes) -> None:
    """A file of a stage, before the result that says it is there."""
    if folder is not None:
        with writing(Path(folder)):
            RunFiles(Path(folder)).write(name, data)
