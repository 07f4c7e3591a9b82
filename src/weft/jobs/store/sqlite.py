"""Tasks in one SQLite file, for any number of processes of one machine.

    tasks    seq → id, owner, lane, state, created_at, finished_at, record (msgpack of `Task`)
    urls     task, place → a batch of its URLs (msgpack), in their order; deleted with the task
    words    owner, key → task, digest, until: idempotency keys; deleted with their task
    counts   lane, state → how many tasks; kept in the step that changes a state
    lease    one row: the runner's holder, epoch and end
    meta     layout, and the secret of webhooks
    served, waiting: see sqlite_slots.py; hooks, deliveries: sqlite_hooks.py
    sites and what belongs to them: see sqlite_sites.py; progress: sqlite_progress.py

WAL with synchronous=FULL: what a call has returned is on the disk. A commit waits for the disk, so the steps that come
in meanwhile, from all threads of a process, go into the next one together; each is a savepoint of its own. What was
committed is copied from the log into the file by a thread beside the writer: within a commit it would hold up whoever
waits for that one, for as long as the disk takes.
"""

from __future__ import annotations

import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from weft.errors import BadInput, WeftError, is_damage, writing
from weft.jobs.errors import KeyReused, LeaseLost, QueueFull, StoreDamaged
from weft.jobs.layout import ENGINE, crawls_in
from weft.jobs.model import FOR_RESUME, FOR_SLOT, NEXT, STARTED, Lane, Task
from weft.jobs.store import sqlite_hooks, sqlite_progress, sqlite_sites, sqlite_slots
from weft.jobs.store.contract import Finish, Idempotency, Lease, Listing, Submitted, Totals
from weft.jobs.store.listing import listing
from weft.scraping import TERMINAL, TaskState

LAYOUT = 1
BUSY_S = 30.0
TOGETHER = 200  # steps in one commit
RETRY_AFTER_S = 5.0
COPY_AFTER = 50  # commits
_TABLES = (
    """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS tasks (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL,
  lane TEXT NOT NULL, state TEXT NOT NULL, created_at REAL NOT NULL, finished_at REAL, record BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS tasks_by_state ON tasks (state, lane, owner, seq);
CREATE INDEX IF NOT EXISTS tasks_by_owner ON tasks (owner, seq);
CREATE INDEX IF NOT EXISTS tasks_by_end ON tasks (finished_at) WHERE finished_at IS NOT NULL;
CREATE TABLE IF NOT EXISTS urls (task TEXT, place INTEGER, urls BLOB NOT NULL, PRIMARY KEY (task, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS words (owner TEXT, key TEXT, task TEXT NOT NULL, digest TEXT NOT NULL, until REAL,
  PRIMARY KEY (owner, key)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS words_by_task ON words (task);
CREATE TABLE IF NOT EXISTS counts (lane TEXT, state TEXT, tasks INTEGER NOT NULL,
  PRIMARY KEY (lane, state)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS totals (kind TEXT, name TEXT, value INTEGER NOT NULL,
  PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lease (only INTEGER PRIMARY KEY CHECK (only = 1), holder TEXT NOT NULL,
  epoch INTEGER NOT NULL, until REAL NOT NULL);
"""
    + sqlite_slots.TABLES
    + sqlite_hooks.TABLES
    + sqlite_sites.TABLES
    + sqlite_progress.TABLES
)
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_task = msgspec.msgpack.Decoder(Task).decode
_urls = msgspec.msgpack.Decoder(list[str]).decode


class SqliteJobStore:
    """See `contract.JobStore`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: deque[sqlite3.Connection] = deque()  # for reading: as many as were ever used at the same time
        self._steps: queue.SimpleQueue[tuple[Callable[[sqlite3.Connection], Any], Future[Any]] | None] = (
            queue.SimpleQueue()
        )
        self._db = opened(path)
        check_tasks(self._db, path)
        self._watch, self._watching = _connect(path), threading.Lock()
        self._writer = threading.Thread(target=self._write, name="job-store", daemon=True)
        self._writer.start()
        self._commits, self._to_copy, self._is_closed = 0, threading.Event(), False
        self._copier = threading.Thread(target=self._copy, name="job-store-copy", daemon=True)
        self._copier.start()
        access = _Access(self._do, self._read)
        self.hooks = sqlite_hooks.SqliteHooks(access)
        self.sites = sqlite_sites.SqliteSites(access)
        self.progress = sqlite_progress.SqliteProgress(access)

    def close(self) -> None:
        """Finishes what was begun; nothing may be called after it."""
        self._steps.put(None)
        self._writer.join()
        self._is_closed = True
        self._to_copy.set()
        self._copier.join()
        for reader in (self._watch, *self._idle):
            reader.close()
        self._db.close()

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        task: Task,
        urls: Sequence[str],
        *,
        idempotency: Idempotency | None = None,
        max_pending: int | None = None,
    ) -> Submitted:
        """Keeps a new task, or finds the one that its idempotency key stands for."""

        def step(db: sqlite3.Connection) -> Submitted:
            if idempotency is not None and (known := _known(db, task.owner, idempotency, task.created_at)) is not None:
                return Submitted(known, False)
            if max_pending is not None and (waiting := _count(db, task.spec.lane, TaskState.PENDING)) >= max_pending:
                raise QueueFull(waiting, RETRY_AFTER_S)
            _insert(db, task, urls)
            if idempotency is not None:
                _remember(db, task, idempotency)
            return Submitted(task, True)

        return self._do(step)

    def append(self, task_id: str, urls: Sequence[str]) -> Task | None:
        """Adds URLs to a task that has not started."""

        def step(db: sqlite3.Connection) -> Task | None:
            task = _get(db, task_id)
            if task is None or task.state is not TaskState.PENDING:
                return None
            _add_urls(db, task_id, urls)
            return _put(db, msgspec.structs.replace(task, url_count=task.url_count + len(urls)))

        return self._do(step)

    def remember(self, task: Task, idempotency: Idempotency) -> None:
        """A key for a task that there is already."""

        def step(db: sqlite3.Connection) -> None:
            if _get(db, task.id) is not None:
                _remember(db, task, idempotency)

        self._do(step)

    def remembered(self, owner: str, idempotency: Idempotency, at: float) -> Task | None:
        """The task of a key."""
        return self._read(lambda db: _known(db, owner, idempotency, at))

    def move(
        self,
        task_id: str,
        to: TaskState,
        *,
        expect: Collection[TaskState],
        at: float,
        finish: Finish | None = None,
        fence: int | None = None,
    ) -> Task | None:
        """Compare and set."""

        def step(db: sqlite3.Connection) -> Task | None:
            _check(db, fence)
            task = _get(db, task_id)
            if task is None or task.state not in expect or to not in NEXT[task.state]:
                return None
            return _moved(db, task, to, at, finish)

        return self._do(step)

    def release_slot(
        self, task_id: str, waiting_for: str, until: float | None, *, version: int, fence: int
    ) -> Task | None:
        """Takes a task's slot back."""

        def step(db: sqlite3.Connection) -> Task | None:
            _check(db, fence)
            task = _get(db, task_id)
            if task is None or task.version != version or task.state not in STARTED or not waiting_for:
                return None
            return _put(db, sqlite_slots.waits(db, task, waiting_for, until))

        return self._do(step)

    def claim(self, lane: Lane, slots: int, *, at: float, fence: int, per_owner: int | None = None) -> list[Task]:
        """Gives free slots to tasks that wait."""

        def step(db: sqlite3.Connection) -> list[Task]:
            _check(db, fence)
            given = []
            free = sqlite_slots.free(db, lane, slots)
            while free > 0 and (record := sqlite_slots.next_record(db, lane, per_owner)) is not None:
                task = _task(record)
                if task.state is TaskState.PENDING:
                    given.append(_moved(db, task, TaskState.RUNNING, at, None))
                else:
                    given.append(_put(db, sqlite_slots.waits_no_more(db, task)))
                sqlite_slots.served(db, task)
                free -= 1
            return given

        return self._do(step)

    def delete(self, *task_ids: str, fence: int) -> int:
        """Deletes terminal tasks with all that belongs to them."""

        def step(db: sqlite3.Connection) -> int:
            _check(db, fence)
            tasks = (_get(db, task_id) for task_id in task_ids)
            ended = [task for task in tasks if task is not None and task.is_terminal]
            for task in ended:
                for table, column in (("tasks", "id"), ("urls", "task"), ("words", "task")):
                    db.execute(f"DELETE FROM {table} WHERE {column} = ?", (task.id,))  # noqa: S608
                sqlite_hooks.deleted(db, task.id)
                _shift(db, task.spec.lane, task.state, None)
            return len(ended)

        return self._do(step)

    def lease(self, holder: str, ttl_s: float, *, now: float) -> Lease | None:
        """Takes or renews the runner's lease."""

        def step(db: sqlite3.Connection) -> Lease | None:
            row = db.execute("SELECT holder, epoch, until FROM lease").fetchone()
            before = Lease(*row) if row else Lease("", 0, 0.0)
            # An end further off than any lease lasts is of a clock that was set back since.
            if before.holder not in ("", holder) and now < before.until <= now + ttl_s:
                return None
            epoch = before.epoch if before.holder == holder else before.epoch + 1
            lease = Lease(holder, epoch, now + ttl_s)
            db.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?)", (lease.holder, lease.epoch, lease.until))
            return lease

        return self._do(step)

    def release(self, holder: str) -> None:
        """Gives the lease back."""
        self._do(lambda db: db.execute("UPDATE lease SET holder = '', until = 0 WHERE holder = ?", (holder,)))

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, task_id: str, owner: str | None = None) -> Task | None:
        """A task."""
        task = self._read(lambda db: _get(db, task_id))
        return task if task is not None and owner in (None, task.owner) else None

    def urls(self, task_id: str) -> list[str]:
        """The URLs of its order."""
        found = self._read(
            lambda db: db.execute("SELECT urls FROM urls WHERE task = ? ORDER BY place", (task_id,)).fetchall()
        )
        return [url for (some,) in found for url in _urls(some)]

    def listing(
        self,
        *,
        owner: str | None = None,
        states: Collection[TaskState] = (),
        cursor: str | None = None,
        limit: int = 50,
        text: str = "",
        host: str = "",
    ) -> Listing:
        """Tasks, newest first."""
        return self._read(lambda db: listing(db, owner, states, cursor, limit, text, host))

    def is_claimable(self, lane: Lane, slots: int, per_owner: int | None = None) -> bool:
        """Whether a slot is free, and a task may have it."""
        return self._read(
            lambda db: (
                sqlite_slots.free(db, lane, slots) > 0 and sqlite_slots.next_record(db, lane, per_owner) is not None
            )
        )

    def started(self, *, with_slot: bool = False) -> list[Task]:
        """Those that run or are paused."""
        which = f"state IN (?, ?) AND {sqlite_slots.HOLDS_ONE}" if with_slot else "state IN (?, ?)"
        return self._tasks(which, TaskState.RUNNING, TaskState.PAUSED)

    def waiting(self) -> Mapping[tuple[Lane, TaskState], int]:
        """Started tasks without a slot, by lane and state."""
        return self._read(sqlite_slots.waiting)

    def pending_since(self, before: float, limit: int = 100) -> list[Task]:
        """Those that wait for longer than they may."""
        return self._tasks("state = ? AND created_at < ?", TaskState.PENDING, before, limit=limit)

    def finished_since(self, before: float, limit: int = 100) -> list[Task]:
        """Those that have been kept for long enough."""
        told = "NOT EXISTS (SELECT 1 FROM hooks WHERE task = tasks.id AND due IS NOT NULL)"
        return self._tasks(f"finished_at < ? AND {told}", before, limit=limit, order="finished_at")

    def counts(self, owner: str | None = None) -> Mapping[tuple[Lane, TaskState], int]:
        """Tasks by lane and state."""
        sql, values = "SELECT lane, state, tasks FROM counts", tuple[str, ...]()
        if owner is not None:
            sql, values = "SELECT lane, state, count(*) FROM tasks WHERE owner = ? GROUP BY lane, state", (owner,)
        found = self._read(lambda db: db.execute(sql, values).fetchall())
        return {(Lane(lane), TaskState(state)): tasks for lane, state, tasks in found if tasks}

    def totals(self) -> Totals:
        """What became of all that have ended."""
        found: dict[str, dict[str, int]] = {}
        for kind, name, value in self._read(lambda db: db.execute("SELECT * FROM totals").fetchall()):
            found.setdefault(kind, {})[name] = value
        return Totals(**found)

    def waiting_before(self, task: Task) -> int:
        """How many wait in front of it."""
        sql = """SELECT count(*) FROM tasks WHERE state = ? AND lane = ? AND owner = ? AND
          seq < (SELECT seq FROM tasks WHERE id = ?)"""
        values = (TaskState.PENDING, task.spec.lane, task.owner, task.id)
        return int(self._read(lambda db: db.execute(sql, values).fetchone()[0]))

    def holder(self) -> Lease | None:
        """Who has the lease."""
        row = self._read(lambda db: db.execute("SELECT holder, epoch, until FROM lease").fetchone())
        return Lease(*row) if row and row[0] else None

    def marker(self) -> object:
        """SQLite's own count of other connections' changes, as one that nobody writes through sees it."""
        with self._watching:
            found: object = self._watch.execute("PRAGMA data_version").fetchone()[0]
            return found

    # ── inside ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _tasks(self, where: str, *values: object, limit: int = -1, order: str = "seq") -> list[Task]:
        sql = f"SELECT record FROM tasks WHERE {where} ORDER BY {order} LIMIT ?"  # noqa: S608
        return [_task(record) for (record,) in self._read(lambda db: db.execute(sql, (*values, limit)).fetchall())]

    def _read(self, look: Callable[[sqlite3.Connection], _T]) -> _T:
        try:
            try:
                db = self._idle.pop()
            except IndexError:
                db = _connect(self._path)
            try:
                return look(db)
            finally:
                self._idle.append(db)
        except sqlite3.Error as error:
            raise _told(error, self._path) from error
        except msgspec.MsgspecError as error:
            raise StoreDamaged(self._path, f"is damaged (a record of it: {error})") from error

    def _do(self, step: Callable[[sqlite3.Connection], _T]) -> _T:
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
            self._commit(some)
            self._commits += 1
            if self._commits % COPY_AFTER == 0:
                self._to_copy.set()
            if is_last:
                return

    def _copy(self) -> None:
        db = _connect(self._path)
        while self._to_copy.wait() and not self._is_closed:
            self._to_copy.clear()
            with suppress(sqlite3.Error):  # it is tried again; closing the file does the same
                db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # waits for nobody, and nobody waits for it
        db.close()

    def _commit(self, steps: Sequence[tuple[Callable[[sqlite3.Connection], Any], Future[Any]]]) -> None:
        """Several steps in one transaction: one that is refused takes none of the others with it."""
        results: list[tuple[Future[Any], Any, BaseException | None]] = []
        try:
            with writing(self._path):
                self._db.execute("BEGIN IMMEDIATE")
                for step, done in steps:
                    results.append((done, *self._carry_out(step)))
                self._db.execute("COMMIT")
        except Exception as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            why = _told(error, self._path) if isinstance(error, sqlite3.Error) else error
            results = [(done, None, why) for _, done in steps]
        for done, result, problem in results:
            if problem is None:
                done.set_result(result)
            else:
                done.set_exception(problem)

    def _carry_out(self, step: Callable[[sqlite3.Connection], Any]) -> tuple[Any, BaseException | None]:
        self._db.execute("SAVEPOINT step")
        try:
            result, problem = step(self._db), None
        except (WeftError, msgspec.MsgspecError) as error:
            self._db.execute("ROLLBACK TO step")
            result, problem = None, error
        self._db.execute("RELEASE step")
        return result, problem


class _Access(NamedTuple):
    """The file, for parts of the store that have a module of their own."""

    do: Callable[[Callable[[sqlite3.Connection], Any]], Any]
    read: Callable[[Callable[[sqlite3.Connection], Any]], Any]

    @staticmethod
    def check(db: sqlite3.Connection, fence: int | None) -> None:
        """Refuses a step of a runner that is none any more."""
        _check(db, fence)

    @staticmethod
    def get(db: sqlite3.Connection, task_id: str) -> Task | None:
        """A task, within a step."""
        return _get(db, task_id)

    @staticmethod
    def insert(db: sqlite3.Connection, task: Task, urls: Sequence[str]) -> None:
        """Keeps a new task, within a step."""
        _insert(db, task, urls)


# ── what steps are made of ─────────────────────────────────────────────────────────────────────────────────────────


def _get(db: sqlite3.Connection, task_id: str) -> Task | None:
    row = db.execute("SELECT record FROM tasks WHERE id = ?", (task_id,)).fetchone()
    return _task(row[0]) if row else None


def _insert(db: sqlite3.Connection, task: Task, urls: Sequence[str]) -> None:
    db.execute(
        "INSERT INTO tasks (id, owner, lane, state, created_at, record) VALUES (?, ?, ?, ?, ?, ?)",
        (task.id, task.owner, task.spec.lane, task.state, task.created_at, _encode(task)),
    )
    _add_urls(db, task.id, urls)
    _shift(db, task.spec.lane, None, task.state)
    if task.spec.webhook is not None:
        sqlite_hooks.opened(db, task.id)


def _put(db: sqlite3.Connection, task: Task) -> Task:
    task = msgspec.structs.replace(task, version=task.version + 1)
    db.execute(
        "UPDATE tasks SET state = ?, finished_at = ?, record = ? WHERE id = ?",
        (task.state, task.finished_at, _encode(task), task.id),
    )
    return task


def _moved(db: sqlite3.Connection, task: Task, to: TaskState, at: float, finish: Finish | None) -> Task:
    changes: dict[str, Any] = {"state": to}
    if to is TaskState.RUNNING and task.started_at is None:
        changes |= {"started_at": at, "deadline_at": at + task.spec.timeout_s}
    if to in TERMINAL:
        if finish is None:
            raise BadInput(f"a task that becomes {to} needs a reason")
        changes |= {
            "finished_at": at, "finish_reason": finish.reason, "progress": finish.progress, "message": finish.message,
            "errors_by_class": finish.errors_by_class, "last_number": finish.last_number,
        }  # fmt: skip
        _add_up(db, to, finish)
    if task.waiting_for:
        if to in TERMINAL:
            task = sqlite_slots.waits_no_more(db, task)
        else:
            task = sqlite_slots.waits(db, task, FOR_RESUME if to is TaskState.PAUSED else FOR_SLOT)
    _shift(db, task.spec.lane, task.state, to)
    if task.state is TaskState.PENDING and task.spec.webhook is not None:
        sqlite_hooks.left_queue(db, task.id, at)
    return _put(db, msgspec.structs.replace(task, **changes))


def _add_up(db: sqlite3.Connection, state: TaskState, finish: Finish) -> None:
    ends = {name: getattr(finish.progress, name) for name in ("completed", "gone", "failed", "refused")}
    news = {"tasks": {str(state): 1}, "urls": ends, "errors": finish.errors_by_class}
    sql = "INSERT INTO totals VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET value = value + excluded.value"
    db.executemany(sql, [(kind, name, more) for kind, some in news.items() for name, more in some.items() if more])


def _remember(db: sqlite3.Connection, task: Task, idempotency: Idempotency) -> None:
    word = (task.owner, idempotency.key, task.id, idempotency.digest, idempotency.until)
    db.execute("INSERT OR REPLACE INTO words VALUES (?, ?, ?, ?, ?)", word)


def _known(db: sqlite3.Connection, owner: str, idempotency: Idempotency, at: float) -> Task | None:
    """The task that an idempotency key stands for already."""
    sql = "SELECT task, digest, until FROM words WHERE owner = ? AND key = ?"
    row = db.execute(sql, (owner, idempotency.key)).fetchone()
    if row is None or (row[2] is not None and row[2] <= at):
        return None
    if row[1] != idempotency.digest:
        raise KeyReused(row[0])
    return _get(db, row[0])


def _add_urls(db: sqlite3.Connection, task_id: str, urls: Sequence[str]) -> None:
    place = "SELECT coalesce(max(place), 0) + 1 FROM urls WHERE task = ?"
    db.execute(f"INSERT INTO urls VALUES (?, ({place}), ?)", (task_id, task_id, _encode(list(urls))))  # noqa: S608


def _shift(db: sqlite3.Connection, lane: Lane, before: TaskState | None, after: TaskState | None) -> None:
    for state, change in ((before, -1), (after, 1)):
        if state is not None:
            sql = "INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks"
            db.execute(sql, (lane, state, change))


def _count(db: sqlite3.Connection, lane: Lane, state: TaskState) -> int:
    row = db.execute("SELECT tasks FROM counts WHERE lane = ? AND state = ?", (lane, state)).fetchone()
    return int(row[0]) if row else 0


def _check(db: sqlite3.Connection, fence: int | None) -> None:
    if fence is None:
        return
    row = db.execute("SELECT epoch, holder FROM lease").fetchone()
    if row is None or row[0] != fence or not row[1]:
        raise LeaseLost(fence)


def check_store(path: Path) -> None:
    """Raises what is wrong with the file of tasks, which is made if need be."""
    db = opened(path)
    check_tasks(db, path)
    db.close()


def check_tasks(db: sqlite3.Connection, path: Path) -> None:
    """Refuses a file that never held a task beside an engine that has crawls of tasks: it is not the file that was
    there, and the runner would delete those crawls, since no task wants them."""
    try:
        if db.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'tasks'").fetchone() is None:
            crawls = crawls_in(path.parent / ENGINE)
            if crawls:
                raise StoreDamaged(path, f"holds no tasks, though the engine has {crawls:,} crawls of tasks")
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error):
            raise _told(error, path) from error
        raise


def opened(path: Path) -> sqlite3.Connection:
    """The file, with its tables, which are made if need be."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    try:
        db = _connect(path)
        db.execute("BEGIN IMMEDIATE")  # several processes may open it at the same time
        for statement in filter(str.strip, _TABLES.split(";\n")):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO meta VALUES ('layout', ?)", (LAYOUT,))
        (layout,) = db.execute("SELECT value FROM meta WHERE name = 'layout'").fetchone()
        db.execute("COMMIT")
    except sqlite3.Error as error:
        raise _told(error, path) from error
    if layout != LAYOUT:
        db.close()
        raise BadInput(f"{path}: has layout {layout}, this Weft reads {LAYOUT}; use the Weft that made it")
    return db


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("PRAGMA wal_autocheckpoint = 0")
    return db


def _told(error: sqlite3.Error, path: Path) -> WeftError:
    """SQLite's errors as ours."""
    if is_damage(error) or "no such table" in str(error):
        return StoreDamaged(path, f"is damaged ({error})")
    return WeftError(f"{path}: {error}")
