"""Which tasks hold the slots of a lane, and which one gets the next. Part of `SqliteJobStore`.

    served   lane, owner → the turn in which an owner last got a slot
    waiting  task → lane, owner, is_ready, turn: tasks that have started and hold no slot; ready ones get the next free
             slot, in the order of their turns

A row of `waiting` is written and deleted in the step that changes `Task.waiting_for`: the slots in use are exactly the
started tasks without such a row, also after a kill.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping

import msgspec

from weft.jobs.model import FOR_SLOT, Lane, Task
from weft.jobs.store.contract import MOST_WAITING
from weft.scraping import TaskState

TABLES = """
CREATE TABLE IF NOT EXISTS served (lane TEXT, owner TEXT, turn INTEGER NOT NULL,
  PRIMARY KEY (lane, owner)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS waiting (task TEXT PRIMARY KEY, lane TEXT NOT NULL, owner TEXT NOT NULL,
  is_ready INTEGER NOT NULL, turn INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS waiting_by_lane ON waiting (lane, is_ready, owner, turn);
"""
HOLDS_ONE = "id NOT IN (SELECT task FROM waiting)"  # The SQL condition that a started task holds a slot.
_STARTED = (TaskState.RUNNING, TaskState.PAUSED)


def waits(db: sqlite3.Connection, task: Task, waiting_for: str, until: float | None = None) -> Task:
    """Takes a task's slot away, and returns the changed task."""
    turn = "SELECT coalesce(max(turn), 0) + 1 FROM waiting"
    db.execute(
        f"INSERT OR REPLACE INTO waiting VALUES (?, ?, ?, ?, ({turn}))",  # noqa: S608
        (task.id, task.spec.lane, task.owner, waiting_for == FOR_SLOT),
    )
    return msgspec.structs.replace(task, waiting_for=waiting_for, waiting_until=until)


def waits_no_more(db: sqlite3.Connection, task: Task) -> Task:
    """Ends a task's wait: it has a slot, or has ended. Returns the changed task."""
    db.execute("DELETE FROM waiting WHERE task = ?", (task.id,))
    return msgspec.structs.replace(task, waiting_for="", waiting_until=None)


def waiting(db: sqlite3.Connection) -> dict[tuple[Lane, TaskState], int]:
    """How many started tasks hold no slot, by lane and state."""
    sql = """SELECT waiting.lane, state, count(*) FROM waiting JOIN tasks ON tasks.id = waiting.task
      GROUP BY waiting.lane, state"""
    return {(Lane(lane), TaskState(state)): tasks for lane, state, tasks in db.execute(sql)}


def free(db: sqlite3.Connection, lane: Lane, slots: int) -> int:
    """How many of a lane's slots are free."""
    sql = """SELECT coalesce(sum(tasks), 0) - (SELECT count(*) FROM waiting WHERE lane = ?) FROM counts
      WHERE lane = ? AND state IN (?, ?)"""
    return slots - int(db.execute(sql, (lane, lane, *_STARTED)).fetchone()[0])


def served(db: sqlite3.Connection, task: Task) -> None:
    """Records that an owner got a slot."""
    lane = task.spec.lane
    turn = "SELECT coalesce(max(turn), 0) + 1 FROM served WHERE lane = ?"
    db.execute(f"INSERT OR REPLACE INTO served VALUES (?, ?, ({turn}))", (lane, task.owner, lane))  # noqa: S608


def next_record(db: sqlite3.Connection, lane: Lane, per_owner: int | None) -> bytes | None:
    """The task that gets the next slot: see `SqliteJobStore.claim`."""
    ready = _count_by_owner(db, "SELECT owner, min(turn) FROM waiting WHERE lane = ? AND is_ready GROUP BY owner", lane)
    pending = _oldest_pending(db, lane)
    if not ready and not pending:
        return None
    without = _count_by_owner(db, "SELECT owner, count(*) FROM waiting WHERE lane = ? GROUP BY owner", lane)
    started = "SELECT owner, count(*) FROM tasks WHERE lane = ? AND state IN (?, ?) GROUP BY owner"
    holding = Counter(_count_by_owner(db, started, lane, *_STARTED))
    holding.subtract(without)
    turns = _count_by_owner(db, "SELECT owner, turn FROM served WHERE lane = ?", lane)

    def first_of(oldest: Mapping[str, int]) -> int | None:
        owners = [one for one in oldest if per_owner is None or holding[one] < per_owner]
        if not owners:
            return None
        return oldest[min(owners, key=lambda one: (holding[one], turns.get(one, 0), oldest[one]))]

    if (turn := first_of(ready)) is not None:
        sql, key = "SELECT record FROM tasks WHERE id = (SELECT task FROM waiting WHERE turn = ?)", turn
    elif (
        seq := first_of({one: seq for one, seq in pending.items() if without.get(one, 0) < MOST_WAITING})
    ) is not None:
        sql, key = "SELECT record FROM tasks WHERE seq = ?", seq
    else:
        return None
    record: bytes = db.execute(sql, (key,)).fetchone()[0]
    return record


def _count_by_owner(db: sqlite3.Connection, sql: str, *values: str) -> dict[str, int]:
    return dict(db.execute(sql, values).fetchall())


def _oldest_pending(db: sqlite3.Connection, lane: Lane) -> dict[str, int]:
    """Owners with PENDING tasks, and the oldest task of each: one index lookup for each owner."""
    oldest: dict[str, int] = {}
    owner = None
    while True:
        above = "" if owner is None else "AND owner > ?"
        sql = f"SELECT owner, seq FROM tasks WHERE state = ? AND lane = ? {above} ORDER BY owner, seq LIMIT 1"  # noqa: S608
        values = (TaskState.PENDING, lane)
        row = db.execute(sql, values if owner is None else (*values, owner)).fetchone()
        if row is None:
            return oldest
        owner, oldest[row[0]] = row
