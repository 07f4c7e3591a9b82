"""A hand's side of a run's board: claims one task, and pushes what comes of it."""

from __future__ import annotations

import enum
import os

import msgspec

from weft.cluster.batches.batch_messages import (
    RESULT_KIND,
    BatchReport,
    BatchTask,
    BodyRef,
    HandStatus,
)
from weft.cluster.batches.run_board import CLAIM_S, KEPT_S, LEASE_S, MOST_BYTES, RunBoard
from weft.cluster.tasks import HandSide
from weft.supervise import process

_VALID_MS = 24 * 3_600_000
_AGAIN_S = 0.2


class Word(enum.StrEnum):
    """What the broker says about a task."""

    OK = "ok"
    FULL = "full"
    BACK = "back"
    STOP = "stop"
    GONE = "gone"
    TAKEN = "taken"
    EPOCH = "epoch"
    LATE = "late"


class HandBoard(RunBoard):
    """A hand's side of a run's board for one task: claims the task for this process, renews its lease, and pushes its
    reports.
    """

    def __init__(self, side: HandSide, task: BatchTask) -> None:
        super().__init__(side.broker, task.run)
        self._side = side
        self._batch = task
        self.task = side.message.id
        self.word = Word.OK
        pid = os.getpid()
        self._holder = f"{side.hand}/{pid}/{process.birth(pid) or 0}"
        self._number = 0
        self._now_ms = side.message.made_ms
        self._claim_ms = int(1000 * CLAIM_S)

    def claim(self) -> bool:
        """Claims the task; True if no process has run it, so that this one is the only one that ever will."""
        status = HandStatus(self._side.hand, self.task)
        report = BatchReport(self._batch.run, self._batch.run_epoch, self.task, 0, status)
        names = [self.root, *(self.name(kind, self.task) for kind in ("claim", "lease", "status")), self.results]
        now_ms, word, holder = self.script(
            "claim", names,
            [self._batch.run_epoch, self._side.message.until_ms, self._holder, self._claim_ms, int(LEASE_S * 1000),
             self._signed(status), self._signed(report), int(KEPT_S * 1000)],
        )  # fmt: skip
        self._now_ms, self.word = int(now_ms), Word(word.decode())
        if self.word is Word.TAKEN:
            self._end_dead_holder(holder.decode())
        return self.word is Word.OK

    def _end_dead_holder(self, holder: str) -> None:
        """Ends the lease of a dead process of this hand. Celery delivers the task again when its process dies: the new
        one need not wait until the lease expires."""
        hand, _, rest = holder.partition("/")
        pid, _, birth = rest.partition("/")
        if hand == self._side.hand and pid.isdigit() and str(process.birth(int(pid)) or "") != birth:
            self.script("abandon", [self.name("claim", self.task), self.name("lease", self.task)], [holder])

    def next_number(self, *, has_body: bool) -> int:
        """The number of the next report; one that only renews the lease has the number of the report before."""
        self._number += has_body
        return self._number

    def put(self, data: bytes, **_: object) -> BodyRef:
        """Stores a body for a report."""
        return super().put(data)

    def push(self, report: BatchReport) -> Word:
        """Sends a report, or only renews the lease if it has nothing to say. GONE: the task is no longer ours."""
        says = bool(report.events or report.logs or report.records or report.strikes or report.innocent or report.end)
        entry = self._signed(report) if says else ""
        bodies = (
            [one.body for one in report.logs]
            + [one.body for one in report.files]
            + [one.body for one in report.records]
        )
        beside = sum(body.size for body in bodies if body.inline is None)
        names = [
            self.root, *(self.name(kind, self.task) for kind in ("claim", "lease", "status")), self.results, self.bytes,
        ]  # fmt: skip
        now_ms, word = self.script(
            "push", names,
            [self._batch.run_epoch, self._holder, int(LEASE_S * 1000), self._claim_ms, self._signed(report.status),
             entry, len(entry) + beside, MOST_BYTES, int(KEPT_S * 1000), int(report.end is not None), self.task],
        )  # fmt: skip
        self._now_ms, found = int(now_ms), Word(word.decode())
        if found is not Word.FULL:
            self.word = found
        return found

    def _signed(self, what: BatchReport | HandStatus) -> str:
        body = msgspec.to_builtins(what)
        return self._side.signer.sign(
            RESULT_KIND, body, made_ms=self._now_ms, until_ms=self._now_ms + _VALID_MS, id_=self.task
        )
