"""Webhooks in the file of the tasks: the delivery progress and log of each. Part of `SqliteJobStore`.

    hooks        task → due (null: nothing to do), record (msgpack of `Hook`); written with its task, deleted with it
    deliveries   task, number → record (msgpack of `Delivery`)
    meta         webhook_secret

A hook is due from the moment its task leaves PENDING until it is done; while its receiver fails, at the next attempt.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from weft.jobs.store.sqlite_file import SqliteFile, check_fence
from weft.jobs.webhooks.webhook_model import Attempt, Delivery, Hook, HookState, logged

TABLES = """
CREATE TABLE IF NOT EXISTS hooks (task TEXT PRIMARY KEY, due REAL, record BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS hooks_by_due ON hooks (due) WHERE due IS NOT NULL;
CREATE TABLE IF NOT EXISTS deliveries (task TEXT, number INTEGER, record BLOB NOT NULL,
  PRIMARY KEY (task, number)) WITHOUT ROWID;
"""
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_decode_hook = msgspec.msgpack.Decoder(Hook).decode
_decode_delivery = msgspec.msgpack.Decoder(Delivery).decode


class SqliteHooks:
    """The delivery progress and logs of webhooks."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def get(self, task_id: str) -> Hook | None:
        """The hook of a task; None if it has none, or there is no such task."""
        return self._file.read(lambda db: _get_hook(db, task_id))

    def due(self, now: float, limit: int) -> list[Hook]:
        """Open hooks of tasks that have left PENDING, and whose next attempt is due; longest due first."""
        sql = "SELECT record FROM hooks WHERE due <= ? ORDER BY due LIMIT ?"
        return [
            _decode_hook(record) for (record,) in self._file.read(lambda db: db.execute(sql, (now, limit)).fetchall())
        ]

    def record(self, hook: Hook, attempts: Sequence[Attempt], *, fence: int) -> Hook:
        """Stores a hook's progress and logs attempts in one step. Returns the stored hook: if a replay came in between
        (its `version` is higher), that one is kept."""

        def step(db: sqlite3.Connection) -> Hook:
            check_fence(db, fence)
            now = _get_hook(db, hook.task)
            if now is None:
                return hook  # deleted with its task
            for attempt in attempts:
                _log_attempt(db, hook.task, attempt)
            if now.version != hook.version:
                return now
            _put_hook(db, hook, 0.0 if hook.next_at is None else hook.next_at)
            return hook

        return self._file.do(step)

    def replay(self, task_id: str, after: int | None, numbers: Sequence[int], at: float) -> Hook | None:
        """Opens a hook again: with its cursor set back, with some events to be sent again, or where it stopped. None if
        the task has none."""

        def step(db: sqlite3.Connection) -> Hook | None:
            hook = _get_hook(db, task_id)
            if hook is None:
                return None
            hook = Hook(
                task=task_id, cursor=hook.cursor if after is None else min(after, hook.cursor),
                resend=tuple(sorted({*hook.resend, *numbers})), version=hook.version + 1,
            )  # fmt: skip
            _put_hook(db, hook, at)
            return hook

        return self._file.do(step)

    def deliveries(self, task_id: str, after: int, limit: int) -> list[Delivery]:
        """A part of the log, in the order of the events."""
        sql = "SELECT record FROM deliveries WHERE task = ? AND number > ? ORDER BY number LIMIT ?"
        rows = self._file.read(lambda db: db.execute(sql, (task_id, after, limit)).fetchall())
        return [_decode_delivery(record) for (record,) in rows]

    def secret(self) -> bytes:
        """The service's secret for signatures: random, created on first use, then constant."""

        def step(db: sqlite3.Connection) -> bytes:
            db.execute("INSERT OR IGNORE INTO meta VALUES ('webhook_secret', ?)", (secrets.token_bytes(32),))
            return _read_secret(db)

        return self._file.read(_read_secret) or self._file.do(step)


# ── what steps of tasks call ───────────────────────────────────────────────────────────────────────────────────────


def opened(db: sqlite3.Connection, task_id: str) -> None:
    """Creates the hook of a task that was submitted with a webhook."""
    db.execute("INSERT INTO hooks VALUES (?, NULL, ?)", (task_id, _encode(Hook(task=task_id))))


def left_queue(db: sqlite3.Connection, task_id: str, at: float) -> None:
    """Makes the hook due when its task has left PENDING."""
    db.execute("UPDATE hooks SET due = ? WHERE task = ?", (at, task_id))


def deleted(db: sqlite3.Connection, task_id: str) -> None:
    """Deletes the hook and its log with its task."""
    for table in ("hooks", "deliveries"):
        db.execute(f"DELETE FROM {table} WHERE task = ?", (task_id,))  # noqa: S608


def _get_hook(db: sqlite3.Connection, task_id: str) -> Hook | None:
    row = db.execute("SELECT record FROM hooks WHERE task = ?", (task_id,)).fetchone()
    return _decode_hook(row[0]) if row else None


def _put_hook(db: sqlite3.Connection, hook: Hook, due: float) -> None:
    values = (due if hook.state is HookState.OPEN else None, _encode(hook), hook.task)
    db.execute("UPDATE hooks SET due = ?, record = ? WHERE task = ?", values)


def _log_attempt(db: sqlite3.Connection, task_id: str, attempt: Attempt) -> None:
    sql = "SELECT record FROM deliveries WHERE task = ? AND number = ?"
    row: Any = db.execute(sql, (task_id, attempt.number)).fetchone()
    line = logged(_decode_delivery(row[0]) if row else None, attempt)
    db.execute("INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?)", (task_id, attempt.number, _encode(line)))


def _read_secret(db: sqlite3.Connection) -> bytes:
    row = db.execute("SELECT value FROM meta WHERE name = 'webhook_secret'").fetchone()
    return bytes(row[0]) if row else b""
