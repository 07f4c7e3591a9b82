"""The progress of jobs that are not tasks, such as a refresh of proxies. Part of `SqliteJobStore`.

progress   key (`KIND:JOB:NAME`), value, until: expired after that moment, and deleted some time later
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import TypeVar

from weft.jobs.store.contract import ProgressValue
from weft.jobs.store.sqlite_file import SqliteFile

TABLES = """
CREATE TABLE IF NOT EXISTS progress (key TEXT PRIMARY KEY, value, until REAL NOT NULL) WITHOUT ROWID;
"""
_T = TypeVar("_T")


class SqliteProgress:
    """The progress of jobs that are not tasks, under keys `KIND:JOB:NAME` with a time to live."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def put(self, kind: str, job_id: str, values: Mapping[str, ProgressValue], *, now: float, ttl_s: float) -> None:
        """Stores values of a job, which expire after `ttl_s`."""
        rows = [(f"{kind}:{job_id}:{name}", value, now + ttl_s) for name, value in values.items()]

        def step(db: sqlite3.Connection) -> None:
            db.execute("DELETE FROM progress WHERE until <= ?", (now,))
            db.executemany("INSERT OR REPLACE INTO progress VALUES (?, ?, ?)", rows)

        self._file.do(step)

    def get(self, kind: str, job_id: str, *, now: float) -> dict[str, ProgressValue]:
        """The values of a job by their keys; empty if there are none, or they have expired."""
        first, last = f"{kind}:{job_id}:", f"{kind}:{job_id};"  # what follows the colon
        sql = "SELECT key, value FROM progress WHERE key >= ? AND key < ? AND until > ?"
        return dict(self._file.read(lambda db: db.execute(sql, (first, last, now)).fetchall()))
