"""Runs the items of tasks on a hand, in worker processes of the pool: one at a time, so that a death names its item.

It decides nothing about blame: a worker's death is reported, and the brain says whether the item is tried again. The
worker stays for the next task of the run. While its `turn` is not called the worker waits as soon as its slot is full:
that is how a broker without room slows a hand down.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import msgspec

from weft.cluster.batches.batch_messages import EventReport, SharedFacts, StrikeReport
from weft.cluster.batches.installed_code import PreparedCode
from weft.pipelines.files import RunFiles
from weft.pipelines.output.outcome import item_record
from weft.pipelines.pool import events, shared_config
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.delivery import ResultDelivery
from weft.pipelines.pool.engine.local_workers import LocalWorkers
from weft.pipelines.pool.engine.run_request import RunRequest, WorkerView
from weft.pipelines.pool.engine.task import Intaken, PoolTask
from weft.pipelines.pool.engine.verdicts import Verdicts
from weft.pipelines.pool.events import Event, Listener, PoolProgress
from weft.pipelines.pool.record import Result, ResultRecord
from weft.pipelines.pool.settings import PoolSettings
from weft.pipelines.pool.target import CallableTarget
from weft.supervise.pool.owner import Owner
from weft.supervise.pool.suspects import CrashRules, Suspect

_decode = msgspec.msgpack.Decoder(list[ResultRecord]).decode
_SENT = frozenset(
    (events.STARTED, events.STAGE, events.RETRIED, events.WORKER_STARTED, events.WORKER_DIED, events.BATCH_REQUEUED)
)


class SentRecords(msgspec.Struct):
    """Results of a worker that were not yet sent to the broker."""

    pid: int
    data: bytes


class SentLog(msgspec.Struct):
    """The log of an item that has ended, to be sent with its result."""

    item_id: str | int
    pid: int
    data: bytes


class WrittenBytes(msgspec.Struct):
    """A file that an item has written."""

    name: str
    data: bytes


class Outbox:
    """Reports that were not yet sent to the broker, in the order in which they were made: the engine's journal."""

    def __init__(self) -> None:
        self.files: list[WrittenBytes] = []
        self.events: list[EventReport] = []
        self.logs: list[SentLog] = []
        self.records: list[SentRecords] = []
        self.strikes: list[StrikeReport] = []
        self.innocent = False
        self._keeps_logs = False
        self._written: Path | None = None

    def keep(self, *, logs: bool, files: Path | None) -> None:
        """Sets what is sent along with results: logs of items, and files that stages wrote into a folder."""
        self._keeps_logs, self._written = logs, files

    def __bool__(self) -> bool:
        return bool(self.events or self.logs or self.records or self.strikes or self.innocent)

    def append(self, pid: int, data: bytes) -> None:
        """Adds a msgpack array of result records."""
        if self._keeps_logs or self._written is not None:
            for record in _decode(data):
                self.add_log(record.item_id, pid, record.log)
                self._add_files(record)
        self.records.append(SentRecords(pid, data))

    def add_log(self, item_id: str | int, pid: int, path: str | None) -> None:
        """Adds the log of an item, and deletes its file: an item has a new one at its next try."""
        if path is None:
            return
        try:
            data = Path(path).read_bytes()
            Path(path).unlink()
        except OSError:
            return  # a full disk has cost it
        self.logs.append(SentLog(item_id, pid, data))

    def _add_files(self, record: ResultRecord) -> None:
        if self._written is None or (found := item_record(record.value)) is None:
            return
        for written in (one for stage in found.stages for one in stage.files or ()):
            path = RunFiles(self._written).path(written.name)
            with contextlib.suppress(FileNotFoundError):  # a file of the cache: the brain has it
                self.files.append(WrittenBytes(written.name, path.read_bytes()))
                path.unlink()

    def flush(self) -> None:
        """Who drives the engine sends it. A slot may be overwritten before: it would not outlive this process."""

    def clear(self) -> None:
        """Forgets all reports: the broker has them."""
        self.events, self.logs, self.files, self.records, self.strikes = [], [], [], [], []
        self.innocent = False


class ReportingRules(CrashRules):
    """Each death ends a task here: whether it is tried again is decided in the brain."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def strike(self, item: Suspect, *, outside: bool, with_server: bool = False) -> bool:
        """Marks the item, for its report."""
        item.tries += 1
        item.strikes += 1
        item.outside += outside
        item.secluded = with_server
        return True

    def in_company(self, item: Suspect) -> None:
        """There is no company: one item runs at a time."""
        item.tries += 1

    def saw_innocent(self) -> None:
        """Notes for the next report that a worker died from outside, which no item can have caused."""
        self._outbox.innocent = True

    def ended(self, items: Iterable[Suspect]) -> None:
        """The brain knows what the item did to others before."""

    def doubtful(self, item: Suspect) -> bool:
        """It is reported at once."""
        del item
        return False


class ReportingVerdicts(Verdicts):
    """Reports items that workers died with."""

    def __init__(
        self, outbox: Outbox, target: CallableTarget, queue: WorkQueue, delivery: ResultDelivery, progress: PoolProgress
    ) -> None:
        super().__init__(ReportingRules(outbox), target, queue, delivery, progress, None)
        self._outbox = outbox

    def accuse(self, task: PoolTask, result: Result) -> None:
        """Adds a report that a worker process died while it ran this item."""
        self._outbox.add_log(result.item_id, result.worker_pid or 0, result.log)
        self._outbox.strikes.append(
            StrikeReport(
                result.item_id, bool(task.outside), task.secluded, result.death, result.failure_phase,
                result.error or "", result.duration_ms, result.worker_pid,
            )
        )  # fmt: skip


class _NoSource:
    """A source without items: a hand's tasks are put into the queue directly."""

    position = 0
    exhausted = False

    def take(self, looks: int, wanted: int) -> Intaken:
        """Nothing."""
        del looks, wanted
        return Intaken([], [], [])


class HandEngine:
    """The worker of one run, for its tasks one after the other."""

    def __init__(
        self,
        facts: SharedFacts,
        config: bytes,
        code: PreparedCode,
        folder: Path,
        outbox: Outbox,
    ) -> None:
        """`folder`: for files of its own, deleted with it."""
        settings = PoolSettings(**(facts.settings | {"workers": 1}))
        self._folder = folder
        directory = RunDirectory(folder) if facts.logs else None
        target = code.target
        request = RunRequest(target, settings, directory, "each" if facts.logs else "off")
        owner = Owner.this_process()
        self._directory = directory
        inherited = [directory.hold(owner)] if directory is not None else []
        files = private_folders(facts, folder)
        outbox.keep(logs=facts.logs, files=files.get("files"))
        self._queue = WorkQueue(settings.batch_size)
        listeners: list[Listener] = [_listener(outbox)] if facts.events else []
        progress = PoolProgress(listeners, None)
        self._delivery = ResultDelivery(progress, outbox, None, None)
        verdicts = ReportingVerdicts(outbox, target, self._queue, self._delivery, progress)
        self._workers = LocalWorkers(
            request, _NoSource(), self._queue, self._delivery, progress, verdicts, mark=owner.mark,
            config=with_folders(config, files), inherited=inherited, sys_path=code.sys_path, cwd=code.cwd,
        )  # fmt: skip

    def begin(self, tasks: list[PoolTask], *, alone: bool) -> None:
        """The items of a task; one that is suspect gets a new worker."""
        self._workers.resume()
        if alone:
            self._queue.suspects.extend(tasks)
        else:
            self._queue.put_back(tasks)

    @property
    def busy(self) -> bool:
        """Whether items are to be run, or running."""
        return bool(self._workers.outstanding or (self._queue and not self._workers.paused))

    def turn(self, timeout_s: float) -> None:
        """Does what there is to do. BadInput if the function cannot be used here, PoolBroken if no worker starts."""
        self._workers.turn(timeout_s)
        self._delivery.ready.clear()

    def pause(self) -> None:
        """Nothing new is begun."""
        self._workers.pause()

    def left(self) -> list[PoolTask]:
        """What was not begun; it is forgotten here."""
        tasks = [task for batch in self._queue.batches for task in batch] + list(self._queue.suspects)
        self._queue.batches.clear()
        self._queue.suspects.clear()
        return tasks

    def view(self) -> WorkerView:
        """The worker as it is now."""
        return self._workers.view()[0]

    def close(self) -> None:
        """No process and no file is left."""
        self._workers.close()
        if self._directory is not None:
            self._directory.release()
        shutil.rmtree(self._folder, ignore_errors=True)


def _listener(outbox: Outbox) -> Listener:
    def listen(event: Event) -> None:
        if event.kind in _SENT:
            outbox.events.append(EventReport(event.kind, event.item_id, event.worker_pid, event.phase, event.text))

    return listen


def private_folders(facts: SharedFacts, folder: Path) -> dict[str, Path]:
    """For each folder of the run that this hand does not share with the brain, one of its own."""
    apart = [name for name, mark in facts.folders.items() if not Path(mark).is_file()]
    for name in apart:
        (folder / name).mkdir(mode=0o700)
    return {name: folder / name for name in apart}


def with_folders(config: bytes, folders: dict[str, Path]) -> bytes:
    """The run's config with these folders in it."""
    if not folders:
        return config
    return shared_config.encoded(
        {**shared_config.decoded(config), **{name: str(path) for name, path in folders.items()}}
    )


def new_folder(parent: Path, number: int) -> Path:
    """A folder for the files of one engine."""
    folder = parent / f"batches-{os.getpid()}-{number}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
