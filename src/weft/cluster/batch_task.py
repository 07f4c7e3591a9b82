"""The task of queue `batches`: runs items of a pool's run, and sends each result as it ends.

Celery may deliver a task again, while it runs or after its process has died: it is claimed once, and whatever died with
it is the brain's affair. A task that was delivered again because its process died ends that process's lease, so that
the brain need not wait for it.
"""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

import msgspec

from weft.cluster.batches.batch_messages import (
    LONGEST_S,
    WORK_S,
    BatchReport,
    BatchTask,
    FileReport,
    HandStatus,
    LogReport,
    Records,
    SharedFacts,
    TaskEnd,
    unpacked,
)
from weft.cluster.batches.hand_engine import HandEngine, Outbox, new_folder
from weft.cluster.batches.hand_side import HandBoard, Word
from weft.cluster.batches.installed_code import prepare_code
from weft.cluster.batches.run_board import LEASE_S, BodyGone
from weft.cluster.hand_end import ends
from weft.cluster.tasks import HandSide
from weft.errors import BadInput, ServerAway, ServerFull, WeftError
from weft.pipelines.pool.engine.task import PoolTask
from weft.telemetry import Log

_RENEW_S = 0.5
_TURN_S = 0.05
_IDLE_S = 30.0
_AGAIN_S = 0.2
_REFUSED_S = 1.0
"""A hand that cannot run a function leaves the tasks to others for so long."""
log = Log("weft.cluster.batches")


def run(body: dict[str, Any], side: HandSide) -> dict[str, Any]:
    """Runs what the task has; everything that the brain must know goes by the run's board."""
    task = msgspec.convert(body, BatchTask)
    board = HandBoard(side, task)
    if not board.claim():
        return {"word": board.word}
    with _kept.lock:
        try:
            _Work(side, task, board).run()
        finally:
            _kept.touch()
    return {"word": board.word}


class KeptEngine:
    """The engine of the last task, for the next one of its run. What is not used for a while is closed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._key: tuple[str, str] = ("", "")
        self._engine: HandEngine | None = None
        self._number = 0
        self._used_s = 0.0
        self._watcher: threading.Thread | None = None
        self.outbox = Outbox()

    def engine(self, side: HandSide, task: BatchTask, board: HandBoard) -> HandEngine:
        """For this run's function; BadInput if that is not to be had here."""
        key = (task.run, task.facts.digest)
        if self._engine is not None and self._key == key:
            return self._engine
        self.close()
        self._number += 1
        facts = msgspec.json.decode(board.get(task.facts), type=SharedFacts)
        code = prepare_code(facts, side, board)
        folder = new_folder(side.folder, self._number)
        self._engine = HandEngine(facts, base64.b64decode(facts.config), code, folder, self.outbox)
        self._key = key
        return self._engine

    def touch(self) -> None:
        """It was used just now."""
        self._used_s = time.monotonic()
        if self._engine is not None and self._watcher is None:
            self._watcher = threading.Thread(target=self._close_idle, daemon=True, name="weft-batches-idle")
            self._watcher.start()

    def _close_idle(self) -> None:
        """A run that has ended must not keep its worker: nobody says so to a hand."""
        while True:
            time.sleep(1.0)
            with self.lock:
                if time.monotonic() - self._used_s > _IDLE_S:
                    self.close()
                    self._watcher = None
                    return

    def close(self) -> None:
        """No worker is left, and nothing of it is sent."""
        engine, self._engine = self._engine, None
        self.outbox = Outbox()
        if engine is not None:
            engine.close()


_kept = KeptEngine()


class _Work:
    """One task, from its claim to its end."""

    def __init__(self, side: HandSide, task: BatchTask, board: HandBoard) -> None:
        self._side = side
        self._task = task
        self._board = board
        self._engine: HandEngine | None = None
        self._sent_s = time.monotonic()
        self._item: str | int | None = None
        self._announced: str | int | None = None

    def run(self) -> None:
        """Everything that goes wrong with the items' function is the task's end, with the reason."""
        end = TaskEnd()
        try:
            self._run_items()
        except (BodyGone, ServerAway, ServerFull) as error:
            log.warning("a task is returned", task=self._board.task, why=str(error))
        except BadInput as error:
            end = TaskEnd(refused=str(error))
        except WeftError as error:
            end = TaskEnd(refused=str(error), broken=True)
        except Exception as error:
            log.error("a task failed", exc_info=True, task=self._board.task)
            end = TaskEnd(refused=f"{type(error).__name__}: {error}", broken=True)
        if self._board.word is not Word.GONE:
            self._send(end)
        if self._board.word is Word.GONE or end.refused is not None:
            _kept.close()  # an item may be running, of which nobody wants to know
        if end.refused is not None:
            time.sleep(_REFUSED_S)

    def _run_items(self) -> None:
        task, board = self._task, self._board
        payloads = unpacked(board.get(task.payloads))
        self._engine = engine = _kept.engine(self._side, task, board)
        tasks = [
            PoolTask(place, item.item_id, payload, item.tries)
            for place, (item, payload) in enumerate(zip(task.items, payloads, strict=True))
        ]
        engine.begin(tasks, alone=task.alone)
        until_s = time.monotonic() + WORK_S
        while engine.busy and board.word is not Word.GONE:
            engine.turn(_TURN_S)
            self._report()
            if time.monotonic() > until_s or board.word in (Word.BACK, Word.STOP) or ends(self._side):
                engine.pause()
        engine.left()

    def _report(self) -> None:
        """What is new, at once: results, and an item that is still running a turn later, which the brain must know if
        this process dies. Else a sign of life."""
        assert self._engine is not None
        before, self._item = self._item, self._engine.view().item_id
        is_new = self._item is not None and self._item == before and self._item != self._announced
        if _kept.outbox or is_new or time.monotonic() - self._sent_s > _RENEW_S:
            self._announced = self._item
            self._send(None)

    def _send(self, end: TaskEnd | None) -> None:
        """Until the broker has it, or the task is no longer ours."""
        report = self._composed(end)
        began_s = time.monotonic()
        while (word := self._pushed(report)) in (Word.FULL, None):
            waited_s = time.monotonic() - began_s
            if waited_s > LONGEST_S or (word is None and ends(self._side)):
                break
            if word is None and waited_s > LEASE_S and self._engine is not None:
                self._engine.pause()  # by now the brain may have given the items to others
            time.sleep(_AGAIN_S)
        self._sent_s = time.monotonic()
        _kept.outbox.clear()

    def _pushed(self, report: BatchReport) -> Word | None:
        """What the broker said; None while it is away."""
        try:
            return self._board.push(report)
        except (ServerAway, ServerFull) as error:
            log.warning("results wait for the broker", why=str(error))
            return None

    def _composed(self, end: TaskEnd | None) -> BatchReport:
        outbox, board, task = _kept.outbox, self._board, self._task
        return BatchReport(
            task.run, task.run_epoch, board.task, board.next_number(has_body=bool(outbox) or end is not None),
            self._status(),
            events=outbox.events,
            logs=[LogReport(one.item_id, one.pid, board.put(one.data)) for one in outbox.logs],
            files=[FileReport(one.name, board.put(one.data)) for one in outbox.files],
            records=[Records(one.pid, board.put(one.data)) for one in outbox.records],
            strikes=outbox.strikes,
            innocent=outbox.innocent,
            end=end,
        )  # fmt: skip

    def _status(self) -> HandStatus:
        hand, task = self._side.hand, self._board.task
        if self._engine is None:
            return HandStatus(hand, task)
        view = self._engine.view()
        return HandStatus(
            hand, task, view.pid, view.state, view.item_id, view.stage, round(view.seconds, 1), view.finished,
            round(view.memory_mb, 1),
        )  # fmt: skip
