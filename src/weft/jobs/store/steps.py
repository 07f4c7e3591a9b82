"""Operations on tasks that the steps of the store consist of; each takes the writing connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

import msgspec

from weft.errors import BadInput
from weft.jobs.errors import KeyReused
from weft.jobs.model import FOR_RESUME, FOR_SLOT, Lane, Task
from weft.jobs.store import sqlite_hooks, sqlite_slots
from weft.jobs.store.contract import Idempotency, TaskFinish
from weft.scraping import TERMINAL, TaskState

_encode = msgspec.msgpack.Encoder().encode
decoded = msgspec.msgpack.Decoder(Task).decode


def get(db: sqlite3.Connection, task_id: str) -> Task | None:
    """A task by its id; None if there is none."""
    row = db.execute("SELECT record FROM tasks WHERE id = ?", (task_id,)).fetchone()
    return decoded(row[0]) if row else None


def insert(db: sqlite3.Connection, task: Task, urls: Sequence[str]) -> None:
    """Inserts a new task."""
    db.execute(
        "INSERT INTO tasks (id, owner, lane, state, created_at, record) VALUES (?, ?, ?, ?, ?, ?)",
        (task.id, task.owner, task.spec.lane, task.state, task.created_at, _encode(task)),
    )
    add_urls(db, task.id, urls)
    shift(db, task.spec.lane, None, task.state)
    if task.spec.webhook is not None:
        sqlite_hooks.opened(db, task.id)


def put(db: sqlite3.Connection, task: Task) -> Task:
    """Updates a task's row; returns the task with its new version."""
    task = msgspec.structs.replace(task, version=task.version + 1)
    db.execute(
        "UPDATE tasks SET state = ?, finished_at = ?, record = ? WHERE id = ?",
        (task.state, task.finished_at, _encode(task), task.id),
    )
    return task


def moved(db: sqlite3.Connection, task: Task, to: TaskState, at: float, finish: TaskFinish | None) -> Task:
    """Changes the state of a task; returns the changed task."""
    changes: dict[str, Any] = {"state": to}
    if to is TaskState.RUNNING and task.self_paused_at:
        changes["message"] = ""  # it is being retried
    if to is TaskState.RUNNING and task.started_at is None:
        changes |= {"started_at": at, "deadline_at": at + task.spec.timeout_s}
    if to in TERMINAL:
        if finish is None:
            raise BadInput(f"a task that becomes {to} needs a reason")
        changes |= {
            "finished_at": at, "finish_reason": finish.reason, "progress": finish.progress, "message": finish.message,
            "errors_by_class": finish.errors_by_class, "last_number": finish.last_number,
        }  # fmt: skip
        _add_to_totals(db, to, finish)
    if task.waiting_for:
        if to in TERMINAL:
            task = sqlite_slots.waits_no_more(db, task)
        else:
            task = sqlite_slots.waits(db, task, FOR_RESUME if to is TaskState.PAUSED else FOR_SLOT)
    shift(db, task.spec.lane, task.state, to)
    if task.state is TaskState.PENDING and task.spec.webhook is not None:
        sqlite_hooks.left_queue(db, task.id, at)
    return put(db, msgspec.structs.replace(task, **changes))


def pause_as_crawl_did(db: sqlite3.Connection, task: Task, at: float, self_paused_at: float, message: str) -> Task:
    """Marks a RUNNING task as PAUSED, with the reason: its crawl has paused itself."""
    task = msgspec.structs.replace(task, message=message, self_paused_at=self_paused_at)
    return moved(db, task, TaskState.PAUSED, at, None)


def _add_to_totals(db: sqlite3.Connection, state: TaskState, finish: TaskFinish) -> None:
    ends = {name: getattr(finish.progress, name) for name in ("completed", "gone", "failed", "refused")}
    news = {"tasks": {str(state): 1}, "urls": ends, "errors": finish.errors_by_class}
    sql = "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
    db.executemany(sql, [(kind, name, more) for kind, some in news.items() for name, more in some.items() if more])


def remember(db: sqlite3.Connection, task: Task, idempotency: Idempotency) -> None:
    """Stores an idempotency key for a task."""
    word = (task.owner, idempotency.key, task.id, idempotency.digest, idempotency.until)
    db.execute("INSERT OR REPLACE INTO words VALUES (?, ?, ?, ?, ?)", word)


def known(db: sqlite3.Connection, owner: str, idempotency: Idempotency, at: float) -> Task | None:
    """The task of an idempotency key, if the key was used before."""
    sql = "SELECT task, digest, until FROM words WHERE owner = ? AND key = ?"
    row = db.execute(sql, (owner, idempotency.key)).fetchone()
    if row is None or (row[2] is not None and row[2] <= at):
        return None
    if row[1] != idempotency.digest:
        raise KeyReused(row[0])
    return get(db, row[0])


def add_urls(db: sqlite3.Connection, task_id: str, urls: Sequence[str]) -> None:
    """Adds URLs to those of a task."""
    next_place = "SELECT coalesce(max(place), 0) + 1 FROM urls WHERE task = ?"
    db.execute(f"INSERT INTO urls VALUES (?, ({next_place}), ?)", (task_id, task_id, _encode(list(urls))))  # noqa: S608


def shift(db: sqlite3.Connection, lane: Lane, before: TaskState | None, after: TaskState | None) -> None:
    """Counts a task that has changed its state; None: it is new, or deleted."""
    for state, change in ((before, -1), (after, 1)):
        if state is not None:
            sql = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks"
            db.execute(sql, (lane, state, change))


def count(db: sqlite3.Connection, lane: Lane, state: TaskState) -> int:
    """How many tasks of a lane are in a state."""
    row = db.execute("SELECT tasks FROM counts WHERE lane = ? AND state = ?", (lane, state)).fetchone()
    return int(row[0]) if row else 0
