"""A SQLite file that several processes write to, and several threads of each.

WAL with synchronous=FULL: when a call returns, its change is on the disk. A commit waits for the disk, so all steps
that arrive meanwhile from threads of the process go into the next commit together, each in a savepoint of its own. A
separate thread copies committed pages from the log into the file: within a commit the copy would delay its callers for
as long as the disk takes.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from weft.errors import WeftError, is_damage, writing
from weft.files import use_write_ahead_log
from weft.jobs.errors import LeaseLost, StoreDamaged

BUSY_S = 30.0
TOGETHER = 200  # steps in one commit
COPY_AFTER = 50  # The number of commits between two checkpoints of SQLite's log.
_T = TypeVar("_T")


class SqliteFile:
    """The file as used by one process."""

    def __init__(self, path: Path, db: sqlite3.Connection) -> None:
        """`db`: the connection for writes, owned by this object from now on."""
        self._path = path
        self._db = db
        self._idle: deque[sqlite3.Connection] = deque()  # for reading: as many as were ever used at the same time
        self._steps: queue.SimpleQueue[tuple[Callable[[sqlite3.Connection], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._watch_connection, self._watching = connect(path), threading.Lock()
        self._writer = threading.Thread(target=self._write, name="job-store", daemon=True)
        self._writer.start()
        self._commits, self._checkpoint_due, self._is_closed = 0, threading.Event(), False
        self._checkpointer = threading.Thread(target=self._copy, name="job-store-copy", daemon=True)
        self._checkpointer.start()

    def close(self) -> None:
        """Finishes pending steps; the file must not be used afterwards."""
        self._steps.put(None)
        self._writer.join()
        self._is_closed = True
        self._checkpoint_due.set()
        self._checkpointer.join()
        for reader in (self._watch_connection, *self._idle):
            reader.close()
        self._db.close()

    def marker(self) -> object:
        """A value that changes whenever another connection has changed the file; cheap: SQLite's `data_version` of a
        connection that never writes."""
        with self._watching:
            version: object = self._watch_connection.execute("PRAGMA data_version").fetchone()[0]
            return version

    def read(self, query: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs a query, concurrently with writers."""
        try:
            try:
                db = self._idle.pop()
            except IndexError:
                db = connect(self._path)
            try:
                return query(db)
            finally:
                self._idle.append(db)
        except sqlite3.Error as error:
            raise store_error(error, self._path) from error
        except msgspec.MsgspecError as error:
            raise StoreDamaged(self._path, f"is damaged (a record of it: {error})") from error

    def do(self, step: Callable[[sqlite3.Connection], _T]) -> _T:
        """Runs a step, and returns when it is on the disk."""
        done: Future[_T] = Future()
        self._steps.put((step, done))
        return done.result()

    def _write(self) -> None:
        while (first := self._steps.get()) is not None:
            some, is_last = [first], False
            while len(some) < TOGETHER and not self._steps.empty():
                if (more := self._steps.get()) is None:
                    is_last = True
                    break
                some.append(more)
            self._commit_steps(some)
            self._commits += 1
            if self._commits % COPY_AFTER == 0:
                self._checkpoint_due.set()
            if is_last:
                return

    def _copy(self) -> None:
        db = connect(self._path)
        while self._checkpoint_due.wait() and not self._is_closed:
            self._checkpoint_due.clear()
            with suppress(sqlite3.Error):  # tried again later; closing the file does the same
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # blocks neither readers nor writers
        db.close()

    def _commit_steps(self, steps: Sequence[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]]) -> None:
        """Runs several steps in one transaction; a step that fails is rolled back alone."""
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            with writing(self._path):
                self._db.execute("BEGIN IMMEDIATE")
                for step, done in steps:
                    results.append((done, *self._run_step(step)))
                self._db.execute("COMMIT")
        except Exception as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            why = store_error(error, self._path) if isinstance(error, sqlite3.Error) else error
            results = [(done, None, why) for _, done in steps]
        for done, result, problem in results:
            if problem is None:
                done.set_result(result)
            else:
                done.set_exception(problem)

    def _run_step(self, step: Callable[[sqlite3.Connection], Any]) -> tuple[Any, BaseException | None]:
        self._db.execute("SAVEPOINT step")
        try:
            result, problem = step(self._db), None
        except (WeftError, msgspec.MsgspecError) as error:
            self._db.execute("ROLLBACK TO step")
            result, problem = None, error
        self._db.execute("RELEASE step")
        return result, problem


def connect(path: Path) -> sqlite3.Connection:
    """Opens another connection."""
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    use_write_ahead_log(db, BUSY_S)
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    return db


def store_error(error: sqlite3.Error, path: Path) -> WeftError:
    """Converts an SQLite error into one of ours."""
    if is_damage(error) or "no such table" in str(error):
        return StoreDamaged(path, f"is damaged ({error})")
    return WeftError(f"{path}: {error}")


def check_fence(db: sqlite3.Connection, fence: int | None) -> None:
    """Raises LeaseLost for a step of a runner that has lost the lease."""
    if fence is None:
        return
    row = db.execute("SELECT epoch, holder FROM lease").fetchone()
    if row is None or row[0] != fence or not row[1]:
        raise LeaseLost(fence)
