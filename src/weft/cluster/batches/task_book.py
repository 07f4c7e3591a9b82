"""The tasks of a run that are out: sent, claimed by hands, watched, and closed when their hand is lost.

Invariant: an item is in the queue or in exactly one task here, until it has its result.
"""

from __future__ import annotations

import enum
import time
from dataclasses import dataclass

import msgspec

from weft.cluster.application import queue_name, queue_of
from weft.cluster.batches.batch_messages import (
    INLINE_BYTES,
    KIND,
    RESULT_KIND,
    BatchTask,
    BodyRef,
    HandStatus,
    SentItem,
    SharedFacts,
    packed,
)
from weft.cluster.batches.run_board import LEASE_S, BrainBoard
from weft.cluster.dispatch import Cluster
from weft.cluster.signing import RefusedMessage, new_id
from weft.cluster.tasks import task_name
from weft.errors import ServerAway
from weft.pipelines.pool.engine.backlog import WorkQueue
from weft.pipelines.pool.engine.run_request import WorkerView
from weft.pipelines.pool.engine.task import PoolTask
from weft.telemetry import Log

_AHEAD = 2
_HEARTBEAT_S = 5.0
_UNCLAIMED_S = 10.0
_GRACE_S = 60.0
_SHARE_AFTER_S = 2.0
_PIECES = 4
MARGIN_OF_CELERY_S = 15.0
"""Celery ends the process of a task this much later than the task should end by itself."""
_VALID_MS = 24 * 3_600_000
log = Log("weft.cluster.batches")


class RemoteTaskState(enum.Enum):
    """The state of a task that was sent to a hand."""

    SENT = "sent"
    CLAIMED = "claimed"
    CLOSING = "closing"


@dataclass(slots=True, eq=False)
class RemoteTask:
    """A task that was sent to a hand and has not ended."""

    id: str
    text: str
    items: dict[str, PoolTask]
    """What has no result yet, by id, in its order."""
    sent_s: float
    bodies: list[str]
    state: RemoteTaskState = RemoteTaskState.SENT
    claimed_s: float = 0.0
    number: int = 0
    finished: int = 0
    status: HandStatus | None = None
    why: str = ""
    """Why it was closed."""
    by_force: bool = False
    """Its hand was lost, or did not end: not the run that stops."""
    asked_back: bool = False
    """Its hand is to return what it has not begun."""


class TaskBook:
    """All tasks of one run that were sent and have not ended."""

    def __init__(self, cluster: Cluster, board: BrainBoard, queue: WorkQueue, limit_s: float) -> None:
        self.tasks: dict[str, RemoteTask] = {}
        self.ever_claimed = False
        self._cluster = cluster
        self._board = board
        self.queue = queue
        self._limit_s = limit_s
        self._facts_data = self._code_data = b""
        self._facts = BodyRef()
        self._code = ""
        self._clock_ms = 0
        self._heard_s = 0.0
        self._reached_s = time.monotonic()
        self._away_since_s: float | None = None
        self._now_ms_at_s = 0.0
        self._queue_key = queue_name(cluster.key.cluster_id, KIND)

    # ── the run ────────────────────────────────────────────────────────────────────────────────────────────────────

    def open(self, facts: SharedFacts, code: bytes) -> None:
        """Begins a new epoch, and stores on the broker what all tasks of the run share."""
        self._facts_data = msgspec.json.encode(facts)
        self._code_data = code if facts.shipped is not None else b""
        self._code = f"code-{facts.shipped.digest}" if facts.shipped is not None else ""
        self._begin_epoch()

    def _begin_epoch(self) -> None:
        self._clock(self._board.open())
        self._facts = self._board.put(self._facts_data, name="facts")
        if self._code:
            self._board.put(self._code_data, name=self._code)
        self._heard_s = time.monotonic()

    def _clock(self, now_ms: int) -> None:
        self._clock_ms, self._now_ms_at_s = now_ms, time.monotonic()

    def _now_ms(self) -> int:
        return self._clock_ms + int(1000 * (time.monotonic() - self._now_ms_at_s))

    def _kept(self) -> list[str]:
        """The names of the bodies that the run has stored on the broker."""
        own = ["facts", *([self._code] if self._code else [])]
        return [*own, *(name for task in self.tasks.values() for name in task.bodies)]

    def forget(self) -> None:
        """The run is over here; where tasks are still out, what they have sent stays for a resume."""
        self._board.forget(self._kept(), results=not self.tasks)

    # ── sending ────────────────────────────────────────────────────────────────────────────────────────────────────

    def has_room(self, most: int) -> bool:
        """Whether one more should be sent: hands find one waiting when they have ended theirs, and no more wait than
        there are hands at work."""
        waiting = sum(task.state is RemoteTaskState.SENT for task in self.tasks.values())
        claimed = len(self.tasks) - waiting
        return len(self.tasks) < most and waiting < max(_AHEAD, claimed) and self._away_since_s is None

    def send(self, items: list[PoolTask], *, alone: bool) -> None:
        """One task; if the broker does not take it, its items are in the queue again."""
        try:
            task = self._composed(items, alone=alone)
            self._publish(task)
        except BaseException:
            if alone:
                (self.queue.exclusive if items[0].secluded else self.queue.suspects).extendleft(items)
            else:
                self.queue.put_back(items)
            raise
        self.tasks[task.id] = task

    def _composed(self, items: list[PoolTask], *, alone: bool) -> RemoteTask:
        data = packed([item.payload for item in items])
        name = new_id() if len(data) > INLINE_BYTES else None
        payloads = self._board.put(data, name=name)
        sent = [SentItem(item.item_id, item.tries) for item in items]
        body = BatchTask(self._board.run, self._board.epoch, self._facts, sent, payloads, alone)
        id_, now_ms = new_id(), self._now_ms()
        text = self._cluster.signer.sign(
            KIND, msgspec.to_builtins(body), made_ms=now_ms, until_ms=now_ms + _VALID_MS, id_=id_
        )
        return RemoteTask(
            id_, text, {str(item.item_id): item for item in items}, time.monotonic(), [name] if name else []
        )

    def _publish(self, task: RemoteTask) -> None:
        from kombu.exceptions import OperationalError

        options = {
            "queue": queue_of(self._cluster.key.cluster_id, KIND),
            "task_id": task.id,
            "ignore_result": True,
            "time_limit": self._limit_s + MARGIN_OF_CELERY_S,
        }
        try:
            with self._cluster.broker.asking():
                self._cluster.application.signature(task_name(KIND), args=(task.text,), options=options).apply_async()
        except OperationalError as error:
            raise ServerAway(f"{self._cluster.broker.where}: {error}") from None
        task.sent_s = time.monotonic()

    # ── watching ───────────────────────────────────────────────────────────────────────────────────────────────────

    def broker_away(self, why: str) -> None:
        """Nothing can be decided; the run continues when it is back."""
        if self._away_since_s is None:
            self._away_since_s = time.monotonic()
            log.warning(f"{why}; the run continues when it answers")

    def watch(self, now_s: float) -> bool:
        """Called twice a second: the run's own sign of life, hands that are lost, tasks that no hand has. True: the
        broker had lost the run, which was opened again."""
        is_due = now_s - self._heard_s > _HEARTBEAT_S or self._away_since_s is not None
        if is_due and not self._heartbeat():
            return True
        claimed = [task for task in self.tasks.values() if task.state is RemoteTaskState.CLAIMED]
        ids = [task.id for task in claimed]
        for task, status in zip(claimed, self._board.statuses(ids), strict=True):
            self._note(task, status)
        alive = self._board.leases(ids)
        if now_s - self._reached_s > LEASE_S + 1.0:  # nobody could renew a lease while the broker was away
            for task, lives in zip(claimed, alive, strict=True):
                self._check(task, now_s, lives=lives)
        self._give_up_unclaimed(now_s)
        return False

    def _heartbeat(self) -> bool:
        now_ms, is_there = self._board.heartbeat(self._kept())
        self._clock(now_ms)
        self._heard_s = time.monotonic()
        if self._away_since_s is not None:
            self._away_since_s, self._reached_s = None, time.monotonic()
            log.info("the broker answers again")
        if not is_there:
            self._begin_again()
        return is_there

    def _begin_again(self) -> None:
        """The broker has lost the run, or this process slept for longer than it counts: what is out is worthless."""
        log.warning(f"{self._cluster.broker.where} has lost what was out; its items are sent again")
        self._begin_epoch()
        for task in list(self.tasks.values()):
            self.queue.put_back(list(task.items.values()))
        self.tasks.clear()

    def _note(self, task: RemoteTask, text: str | None) -> None:
        if text is None:
            return
        try:
            status = msgspec.convert(self._cluster.signer.verify(text, RESULT_KIND).body, HandStatus)
        except (RefusedMessage, msgspec.ValidationError):
            self._cluster.broker.count_for("brain", {"batches:refused:status": 1})
            return
        if status.task == task.id:
            task.status = status

    def _check(self, task: RemoteTask, now_s: float, *, lives: bool) -> None:
        hand = task.status.hand if task.status is not None else "?"
        if not lives:
            self.close(task, f"hand {hand} was lost", by_force=True)
        elif now_s - task.claimed_s > self._limit_s + _GRACE_S:
            self.close(task, f"hand {hand} did not end its task in time", by_force=True)

    def close(self, task: RemoteTask, why: str, *, by_force: bool) -> None:
        """Nothing that comes after counts; its items are settled when the mark comes."""
        self._board.close_task(task.id)
        task.state, task.why, task.by_force = RemoteTaskState.CLOSING, why, by_force

    def _give_up_unclaimed(self, now_s: float) -> None:
        """A hand may die with a task that it had not claimed: its items go out in another one."""
        late = [
            task for task in self.tasks.values()
            if task.state is RemoteTaskState.SENT and now_s - task.sent_s > _UNCLAIMED_S
        ]  # fmt: skip
        if late and self._cluster.broker.queue_length(self._queue_key) == 0:
            for task in late:
                self.close(task, "no hand has begun it", by_force=False)

    def share_out(self, now_s: float) -> None:
        """Nothing else is left to be done, and hands may be idle: those that have more than one item return what they
        have not begun. It is sent again in smaller pieces."""
        if any(task.state is not RemoteTaskState.CLAIMED for task in self.tasks.values()):
            return
        for task in self.tasks.values():
            if len(task.items) > 1 and not task.asked_back and now_s - task.claimed_s > _SHARE_AFTER_S:
                self._board.ask_back(task.id)
                task.asked_back = True

    def put_back(self, task: RemoteTask) -> None:
        """What was not begun of a task that has ended."""
        left = list(task.items.values())
        size = -(-len(left) // _PIECES) if task.asked_back else len(left)
        for at in range(len(left), 0, -max(1, size)):
            self.queue.put_back(left[max(0, at - size) : at])

    def claimed(self, task: RemoteTask) -> None:
        """A hand has it."""
        task.claimed_s = time.monotonic()
        self.ever_claimed = True

    # ── the end ────────────────────────────────────────────────────────────────────────────────────────────────────

    def stop(self) -> None:
        """What was not begun comes back."""
        self._board.ask_stop()
        for task in list(self.tasks.values()):
            if task.state is RemoteTaskState.SENT:
                self.close(task, "the run stops", by_force=False)

    def close_all(self) -> None:
        """What still runs is left to itself; nothing of it counts."""
        for task in list(self.tasks.values()):
            if task.state is not RemoteTaskState.CLOSING:
                self.close(task, "the run stops", by_force=False)

    def view(self) -> list[WorkerView]:
        """What hands do, as they last said."""
        known = [task.status for task in self.tasks.values() if task.status is not None]
        return [
            WorkerView(
                number, one.pid, one.state, one.item_id, one.stage, one.seconds, one.finished, one.memory_mb
            )
            for number, one in enumerate(sorted(known, key=lambda one: (one.hand, one.pid or 0)))
        ]  # fmt: skip
