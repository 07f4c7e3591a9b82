"""Stores tasks in one SQLite file, for several processes of one machine.

    tasks    seq → id, owner, lane, state, created_at, finished_at, record (msgpack of `Task`)
    urls     task, place → a batch of its URLs (msgpack), in their order; deleted with the task
    words    owner, key → task, digest, until: idempotency keys; deleted with their task
    counts   lane, state → how many tasks; updated in the step that changes a state
    lease    one row: the runner's holder, epoch and end
    meta     layout, and the secret of webhooks
    served, waiting: see sqlite_slots.py; hooks, deliveries: sqlite_hooks.py
    sites and their tables: see sqlite_sites.py; progress: sqlite_progress.py

The store is the truth about waiting and ended tasks. Each method is one atomic step, durable when it returns (kill -9
and power cut: see sqlite_file.py), and may be called from several threads and processes at once. A step that would
violate the state machine (`model.NEXT`), or expects another state than the task has, changes nothing and reports it in
its result; none ever waits for another task. The runner's steps carry a *fence*, the epoch of its lease: after another
runner has acquired the lease they raise LeaseLost.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from weft.errors import BadInput
from weft.files import altered_layout
from weft.jobs.errors import QueueFull, StoreDamaged, TaskUnknown
from weft.jobs.layout import ENGINE, crawls_in
from weft.jobs.model import NEXT, STARTED, Lane, Task
from weft.jobs.store import sqlite_hooks, sqlite_progress, sqlite_sites, sqlite_slots, steps
from weft.jobs.store.contract import Idempotency, Listing, RunnerLease, Submitted, TaskFinish, Totals
from weft.jobs.store.listing import listing
from weft.jobs.store.sqlite_file import SqliteFile, check_fence, connect, store_error
from weft.scraping import TaskState

LAYOUT = 1
RETRY_AFTER_S = 5.0
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
_decode_urls = msgspec.msgpack.Decoder(list[str]).decode


class SqliteJobStore:
    """The durable store of tasks, webhooks, sites and progress."""

    def __init__(self, path: Path) -> None:
        db = opened(path)
        check_tasks(db, path)
        self._file = file = SqliteFile(path, db)
        self.marker, self.close = file.marker, file.close
        self.hooks = sqlite_hooks.SqliteHooks(file)
        self.sites = sqlite_sites.SqliteSites(file)
        self.progress = sqlite_progress.SqliteProgress(file)

    # ── steps ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(
        self,
        task: Task,
        urls: Sequence[str],
        *,
        idempotency: Idempotency | None = None,
        max_pending: int | None = None,
    ) -> Submitted:
        """Stores a new PENDING task; raises KeyReused, or QueueFull if `max_pending` tasks of its lane wait already."""

        def step(db: sqlite3.Connection) -> Submitted:
            if idempotency is not None:
                known = steps.known(db, task.owner, idempotency, task.created_at)
                if known is not None:
                    return Submitted(known, False)
            waiting = steps.count(db, task.spec.lane, TaskState.PENDING)
            if max_pending is not None and waiting >= max_pending:
                raise QueueFull(waiting, RETRY_AFTER_S)
            steps.insert(db, task, urls)
            if idempotency is not None:
                steps.remember(db, task, idempotency)
            return Submitted(task, True)

        return self._file.do(step)

    def append(self, task_id: str, urls: Sequence[str]) -> Task | None:
        """Adds URLs to a task that is PENDING; None if it is not."""

        def step(db: sqlite3.Connection) -> Task | None:
            task = steps.get(db, task_id)
            if task is None or task.state is not TaskState.PENDING:
                return None
            steps.add_urls(db, task_id, urls)
            return steps.put(db, msgspec.structs.replace(task, url_count=task.url_count + len(urls)))

        return self._file.do(step)

    def remember(self, task: Task, idempotency: Idempotency) -> None:
        """Assigns an idempotency key to an existing task; does nothing if the task was deleted."""

        def step(db: sqlite3.Connection) -> None:
            if steps.get(db, task.id) is not None:
                steps.remember(db, task, idempotency)

        self._file.do(step)

    def remembered(self, owner: str, idempotency: Idempotency, at: float) -> Task | None:
        """The task of an owner's idempotency key; raises KeyReused if the key came with another request."""
        return self._file.read(lambda db: steps.known(db, owner, idempotency, at))

    def move(
        self,
        task_id: str,
        to: TaskState,
        *,
        expect: Collection[TaskState],
        at: float,
        finish: TaskFinish | None = None,
        fence: int | None = None,
    ) -> Task | None:
        """Changes the state of a task; returns the task, or None if it was in none of the expected states or was
        deleted.

        RUNNING sets `started_at` and `deadline_at` the first time; a terminal state sets `finished_at`, and needs
        `finish`. A task without a slot stays without one: PAUSED it waits for FOR_RESUME, resumed for FOR_SLOT.
        """

        def step(db: sqlite3.Connection) -> Task | None:
            check_fence(db, fence)
            task = steps.get(db, task_id)
            if task is None or task.state not in expect or to not in NEXT[task.state]:
                return None
            return steps.moved(db, task, to, at, finish)

        return self._file.do(step)

    def release_slot(
        self, task_id: str, waiting_for: str, until: float | None, *, version: int, fence: int
    ) -> Task | None:
        """Releases the slot of a RUNNING or PAUSED task, or changes what it waits for; None if the task has changed
        since this version. With FOR_SLOT it gets the next free slot."""

        def step(db: sqlite3.Connection) -> Task | None:
            check_fence(db, fence)
            task = steps.get(db, task_id)
            if task is None or task.version != version or task.state not in STARTED or not waiting_for:
                return None
            return steps.put(db, sqlite_slots.waits(db, task, waiting_for, until))

        return self._file.do(step)

    def record_self_pause(
        self, task_id: str, self_paused_at: float, message: str, *, at: float, version: int, fence: int
    ) -> None:
        """Marks a RUNNING task as PAUSED, because its crawl has paused itself at that time; not if the task has changed
        since this version."""

        def step(db: sqlite3.Connection) -> Task | None:
            check_fence(db, fence)
            task = steps.get(db, task_id)
            if task is None or task.version != version or task.state is not TaskState.RUNNING:
                return None
            return steps.pause_as_crawl_did(db, task, at, self_paused_at, message)

        self._file.do(step)

    def claim(self, lane: Lane, slots: int, *, at: float, fence: int, per_owner: int | None = None) -> list[Task]:
        """Assigns the free slots of a lane: first to RUNNING tasks that wait for one, then to PENDING tasks, which
        become RUNNING. No owner gets more than `per_owner`.

        Fair between owners: the owner with the fewest slots is next, and of several the one not served for the longest
        time; of one owner's tasks, the one that has waited longest. Nothing is started for an owner with MOST_WAITING
        tasks that wait without a slot.
        """

        def step(db: sqlite3.Connection) -> list[Task]:
            check_fence(db, fence)
            given = []
            free = sqlite_slots.free(db, lane, slots)
            while free > 0 and (record := sqlite_slots.next_record(db, lane, per_owner)) is not None:
                task = steps.decoded(record)
                if task.state is TaskState.PENDING:
                    given.append(steps.moved(db, task, TaskState.RUNNING, at, None))
                else:
                    given.append(steps.put(db, sqlite_slots.waits_no_more(db, task)))
                sqlite_slots.served(db, task)
                free -= 1
            return given

        return self._file.do(step)

    def delete(self, *task_ids: str, fence: int) -> int:
        """Deletes terminal tasks with their URLs and idempotency keys; returns their number. Tasks that still run are
        kept."""

        def step(db: sqlite3.Connection) -> int:
            check_fence(db, fence)
            tasks = (steps.get(db, task_id) for task_id in task_ids)
            ended = [task for task in tasks if task is not None and task.is_terminal]
            for task in ended:
                for table, column in (("tasks", "id"), ("urls", "task"), ("words", "task")):
                    db.execute(f"DELETE FROM {table} WHERE {column} = ?", (task.id,))  # noqa: S608
                sqlite_hooks.deleted(db, task.id)
                steps.shift(db, task.spec.lane, task.state, None)
            return len(ended)

        return self._file.do(step)

    def lease(self, holder: str, ttl_s: float, *, now: float) -> RunnerLease | None:
        """Acquires or renews the runner's lease; None while another runner holds it. Renewing keeps the epoch."""

        def step(db: sqlite3.Connection) -> RunnerLease | None:
            row = db.execute("SELECT holder, epoch, until FROM lease").fetchone()
            before = RunnerLease(*row) if row else RunnerLease("", 0, 0.0)
            # An end further in the future than any lease lasts: the clock was set back since.
            if before.holder not in ("", holder) and now < before.until <= now + ttl_s:
                return None
            epoch = before.epoch if before.holder == holder else before.epoch + 1
            lease = RunnerLease(holder, epoch, now + ttl_s)
            db.execute("INSERT OR REPLACE INTO lease VALUES (1, ?, ?, ?)", (lease.holder, lease.epoch, lease.until))
            return lease

        return self._file.do(step)

    def release(self, holder: str) -> None:
        """Releases the lease, if this holder has it."""
        self._file.do(lambda db: db.execute("UPDATE lease SET holder = '', until = 0 WHERE holder = ?", (holder,)))

    # ── reading ────────────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, task_id: str, owner: str | None = None) -> Task | None:
        """A task; None if there is none, or if it belongs to another owner. Without `owner`: of any owner."""
        task = self._file.read(lambda db: steps.get(db, task_id))
        return task if task is not None and owner in (None, task.owner) else None

    def task(self, task_id: str, owner: str | None = None) -> Task:
        """A task; raises TaskUnknown if `get` finds none."""
        task = self.get(task_id, owner)
        if task is None:
            raise TaskUnknown(task_id)
        return task

    def urls(self, task_id: str) -> list[str]:
        """The URLs that the task was submitted with, and those appended while it was PENDING."""
        rows = self._file.read(
            lambda db: db.execute("SELECT urls FROM urls WHERE task = ? ORDER BY place", (task_id,)).fetchall()
        )
        return [url for (some,) in rows for url in _decode_urls(some)]

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
        """Tasks, newest first; new tasks do not shift a listing. Raises BadInput for an invalid cursor.

        `text`: part of their first URL, in any case, or the beginning of their id; `host`: that URL's, or a domain
        above it.
        """
        return self._file.read(lambda db: listing(db, owner, states, cursor, limit, text, host))

    def is_claimable(self, lane: Lane, slots: int, per_owner: int | None = None) -> bool:
        """Whether `claim` would assign a slot now."""
        return self._file.read(
            lambda db: (
                sqlite_slots.free(db, lane, slots) > 0 and sqlite_slots.next_record(db, lane, per_owner) is not None
            )
        )

    def started(self, *, with_slot: bool = False) -> list[Task]:
        """Every task that is RUNNING or PAUSED; `with_slot`: only those that hold a slot."""
        which = f"state IN (?, ?) AND {sqlite_slots.HOLDS_ONE}" if with_slot else "state IN (?, ?)"
        return self._select_tasks(which, TaskState.RUNNING, TaskState.PAUSED)

    def waiting(self) -> Mapping[tuple[Lane, TaskState], int]:
        """How many RUNNING and PAUSED tasks of each lane hold no slot."""
        return self._file.read(sqlite_slots.waiting)

    def pending_since(self, before: float, limit: int = 100) -> list[Task]:
        """PENDING tasks that were submitted before a moment, oldest first."""
        return self._select_tasks("state = ? AND created_at < ?", TaskState.PENDING, before, limit=limit)

    def finished_since(self, before: float, limit: int = 100) -> list[Task]:
        """Terminal tasks that ended before a moment, oldest first; without those whose webhook has events to
        deliver."""
        delivered = "NOT EXISTS (SELECT 1 FROM hooks WHERE task = tasks.id AND due IS NOT NULL)"
        return self._select_tasks(f"finished_at < ? AND {delivered}", before, limit=limit, order="finished_at")

    def counts(self, owner: str | None = None) -> Mapping[tuple[Lane, TaskState], int]:
        """How many tasks there are in each lane and state; constant time without `owner`."""
        sql, values = "SELECT lane, state, tasks FROM counts", tuple[str, ...]()
        if owner is not None:
            sql, values = "SELECT lane, state, count(*) FROM tasks WHERE owner = ? GROUP BY lane, state", (owner,)
        rows = self._file.read(lambda db: db.execute(sql, values).fetchall())
        return {(Lane(lane), TaskState(state)): tasks for lane, state, tasks in rows if tasks}

    def totals(self) -> Totals:
        """Totals of all ended tasks, including deleted ones."""
        totals: dict[str, dict[str, int]] = {}
        for kind, name, value in self._file.read(lambda db: db.execute("SELECT * FROM totals").fetchall()):
            totals.setdefault(kind, {})[name] = value
        return Totals(**totals)

    def waiting_before(self, task: Task) -> int:
        """How many PENDING tasks of its owner and lane were submitted before this one; owners are served in turns."""
        sql = """SELECT count(*) FROM tasks WHERE state = ? AND lane = ? AND owner = ? AND
          seq < (SELECT seq FROM tasks WHERE id = ?)"""
        values = (TaskState.PENDING, task.spec.lane, task.owner, task.id)
        return int(self._file.read(lambda db: db.execute(sql, values).fetchone()[0]))

    def holder(self) -> RunnerLease | None:
        """The runner's lease, expired or not; None if it was released."""
        row = self._file.read(lambda db: db.execute("SELECT holder, epoch, until FROM lease").fetchone())
        return RunnerLease(*row) if row and row[0] else None

    # ── internal ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _select_tasks(self, where: str, *values: object, limit: int = -1, order: str = "seq") -> list[Task]:
        sql = f"SELECT record FROM tasks WHERE {where} ORDER BY {order} LIMIT ?"  # noqa: S608
        rows = self._file.read(lambda db: db.execute(sql, (*values, limit)).fetchall())
        return [steps.decoded(record) for (record,) in rows]


def check_store(path: Path) -> None:
    """Opens the file of tasks, creating it if necessary; raises what is wrong with it."""
    db = opened(path)
    check_tasks(db, path)
    db.close()


def check_tasks(db: sqlite3.Connection, path: Path) -> None:
    """Refuses a file that never held a task if the engine has crawls of tasks: it is not the original file, and the
    runner would delete those crawls because no task wants them."""
    try:
        if db.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'tasks'").fetchone() is None:
            crawls = crawls_in(path.parent / ENGINE)
            if crawls:
                raise StoreDamaged(path, f"holds no tasks, though the engine has {crawls:,} crawls of tasks")
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.Error):
            raise store_error(error, path) from error
        raise


def opened(path: Path) -> sqlite3.Connection:
    """Opens the file and creates its tables if necessary."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    try:
        db = connect(path)
        db.execute("BEGIN IMMEDIATE")  # several processes may open it at the same time
        for statement in filter(str.strip, _TABLES.split(";\n")):
            db.execute(statement)
        db.execute("INSERT OR IGNORE INTO meta VALUES ('layout', ?)", (LAYOUT,))
        (layout,) = db.execute("SELECT value FROM meta WHERE name = 'layout'").fetchone()
        altered = altered_layout(db, _TABLES) if layout == LAYOUT else ""
        db.execute("ROLLBACK" if altered else "COMMIT")
    except sqlite3.Error as error:
        raise store_error(error, path) from error
    if altered:
        db.close()
        raise StoreDamaged(path, f"is damaged (its table or index {altered!r} is not what was made)")
    if layout != LAYOUT:
        db.close()
        raise BadInput(f"{path}: has layout {layout}, this Weft reads {LAYOUT}; use the Weft that made it")
    return db
