"""`weft rebuild` of a service's folder: rebuilds the engine's index from its WARC files, then the file of tasks from
the readable rows of the old one and from the engine's crawls. The service must not run.

A task that only the engine has is restored with its pages, counts and end; it gets the default formats, its webhook and
site are lost, and so is its owner, unless there is a single API key. The damaged file is kept beside the new one.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from shlex import quote
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from weft.engine.core import SLOT
from weft.engine.crawls.tenant import TenantRecord
from weft.engine.folder import EngineFolder
from weft.engine.model import CrawlState
from weft.engine.stored.reader import EngineReader
from weft.engine.stored.rebuild import hold_engine, is_index_whole, rebuild_engine, recovered_name
from weft.errors import BadInput, WeftError
from weft.jobs.api.access.keys import Keyring
from weft.jobs.api.settings import KEYS_FILE
from weft.jobs.crawls import counted, finish_of, finish_without
from weft.jobs.errors import StoreDamaged
from weft.jobs.layout import ENGINE, STORE, crawls_in
from weft.jobs.model import Task, TaskSpec
from weft.jobs.store.contract import TaskFinish
from weft.jobs.store.sqlite import check_tasks, opened
from weft.records import Row
from weft.scraping import FinishReason, TaskState
from weft.store.index import intact, schema
from weft.store.repair.rebuild import RebuildReport

FORMATS = ("markdown", "metadata")
SEEDS_AMONG = 200  # first rows of a crawl that are searched for its seeds
_INSERT_TASK = """INSERT INTO tasks (id, owner, lane, state, created_at, finished_at, record)
    VALUES (?, ?, ?, ?, ?, ?, ?)"""
_MESSAGE_REBUILT = "made again from its pages: what else it was ordered with is lost"
_encode = msgspec.msgpack.Encoder().encode


class RebuiltService(Struct, frozen=True):
    """What was rebuilt."""

    index: RebuildReport | None  # None: the engine's index was intact
    tasks_kept: int | None  # None: the file of tasks was intact
    tasks_from_crawls: int = 0
    kept_as: str = ""  # path of the damaged file of tasks


def is_service(data_dir: Path) -> bool:
    """Whether a folder is a service's data dir."""
    return EngineFolder([data_dir / ENGINE]).exists()


def damage_in(data_dir: Path) -> list[str]:
    """Which of a service's files are damaged, without changing any; empty if there is no service."""
    damaged = []
    if (problem := Keyring(data_dir / KEYS_FILE).problem) is not None:
        damaged.append(str(problem))
    if not is_service(data_dir):
        return damaged
    path, engine, remedy = data_dir / STORE, data_dir / ENGINE, f"`weft rebuild {quote(str(data_dir))}` makes it again"
    if schema.index_path(engine, SLOT.name).exists() and not is_index_whole(engine, thorough=False):
        damaged.append(f"{engine}: the engine's index is damaged: {remedy}")
    try:
        if path.exists():
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
                check_tasks(db, path)
        elif crawls := crawls_in(engine):
            raise StoreDamaged(path, f"is gone, though the engine has {crawls:,} crawls of tasks")
    except (WeftError, sqlite3.Error) as error:
        damaged.append(str(error))
    return damaged


def rebuild_service(data_dir: Path, *, watch: Callable[[int, int], None] = lambda _done, _all: None) -> RebuiltService:
    """Rebuilds what is damaged; raises Busy while the engine runs."""
    engine = data_dir / ENGINE
    if not is_service(data_dir):
        raise BadInput(f"{data_dir} is not the data dir of a service")
    index = None if is_index_whole(engine) else rebuild_engine(engine, watch=watch)
    lock = hold_engine(engine)
    try:
        path = data_dir / STORE
        if index is not None:
            _name_crawls(path, engine)
        if _is_whole(path):
            return RebuiltService(index, None)
        return _rebuild_store(path, engine, index)
    finally:
        os.close(lock)


def _name_crawls(path: Path, engine: Path) -> None:
    """Names crawls whose names were lost with the index after their tasks, by first URL and times; of several matches
    the older crawl gets the older task."""
    with EngineReader(engine) as reader:
        names = {name for _, name, _ in reader.crawls()}
        nameless = sorted(number for number, name, _ in reader.crawls() if name == recovered_name(number))
        seeds = {
            number: [row for _, row in reader.rows(number, 0, SEEDS_AMONG) if not row.depth] for number in nameless
        }
    tasks = sorted((task for task in _old_tasks(path) if task.id not in names), key=lambda task: task.started_at or 0.0)
    with closing(sqlite3.connect(schema.index_path(engine, SLOT.name))) as db, db:
        for number in nameless:
            task = next((task for task in tasks if any(_is_seed(row, task) for row in seeds[number])), None)
            if task is not None:
                tasks.remove(task)
                db.execute("UPDATE crawls SET name = ? WHERE number = ?", (task.id, number))
        intact.seal(db)


def _is_seed(row: Row, task: Task) -> bool:
    begins, ends = task.started_at, task.finished_at or float("inf")
    return row.url == task.url and begins is not None and begins - 1 <= row.fetched_at <= ends + 1


def _old_tasks(path: Path) -> list[Task]:
    """The tasks that can be read from a file, intact or damaged."""
    tasks: dict[str, Task] = {}
    with closing(sqlite3.connect(path)) as db:
        for direction in ("", "ORDER BY 1 DESC"):
            for (record,) in _readable_rows(db, f"SELECT record FROM tasks {direction}"):  # noqa: S608
                with suppress(msgspec.MsgspecError, UnicodeDecodeError):
                    task = msgspec.msgpack.decode(record, type=Task)
                    tasks[task.id] = task
    return list(tasks.values())


def _is_whole(path: Path) -> bool:
    try:
        with closing(opened(path)) as db:
            check_tasks(db, path)
            return bool(db.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")
    except (WeftError, sqlite3.Error):
        return False


def _rebuild_store(path: Path, engine: Path, index: RebuildReport | None) -> RebuiltService:
    new, kept_as = path.with_name(f"{path.name}.rebuilt"), path.with_name(f"{path.name}.damaged-{time.time():.0f}")
    for suffix in ("", "-wal", "-shm"):
        Path(f"{new}{suffix}").unlink(missing_ok=True)
    with closing(opened(new)) as db:
        db.execute("BEGIN")
        _copy_readable_rows(path, db)
        known = {task_id for (task_id,) in db.execute("SELECT id FROM tasks")}
        owner = _only_key(path.parent)
        made = [replace(task, owner=owner) for task in _tasks_of(engine) if task.id not in known]
        for task in made:
            columns = task.id, task.owner, task.spec.lane, task.state, task.created_at, task.finished_at, _encode(task)
            db.execute(_INSERT_TASK, columns)
            db.execute("INSERT OR IGNORE INTO urls VALUES (?, 1, ?)", (task.id, _encode([task.url])))
        db.execute("DELETE FROM counts")
        db.execute("INSERT INTO counts SELECT lane, state, count(*) FROM tasks GROUP BY lane, state")
        db.execute("DELETE FROM lease")
        db.execute("COMMIT")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    for suffix in ("", "-wal", "-shm"):
        if (old := Path(f"{path}{suffix}")).exists():
            old.rename(f"{kept_as}{suffix}")
    new.rename(path)
    return RebuiltService(index, len(known), len(made), str(kept_as))


def _copy_readable_rows(path: Path, new: sqlite3.Connection) -> None:
    """Copies the readable rows of a damaged file, table by table, from both ends up to the damage."""
    listed = new.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    tables = [name for (name,) in listed.fetchall()]
    try:
        with closing(sqlite3.connect(path)) as old:
            for table in tables:
                for direction in ("", "ORDER BY 1 DESC"):
                    for row in _readable_rows(old, f"SELECT * FROM {table} {direction}"):  # noqa: S608
                        marks = ", ".join("?" * len(row))
                        new.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", row)  # noqa: S608
    except sqlite3.Error:
        pass
    for task_id, record in new.execute("SELECT id, record FROM tasks").fetchall():
        try:
            msgspec.msgpack.decode(record, type=Task)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            new.execute("DELETE FROM tasks WHERE id = ?", (task_id,))


def _only_key(data_dir: Path) -> str:
    """The id of the only valid API key, which owns all tasks; empty if there are none or several."""
    try:
        valid = [key.id for key in Keyring(data_dir / KEYS_FILE).all() if key.revoked_at is None]
    except WeftError:
        return ""
    return valid[0] if len(valid) == 1 else ""


def _readable_rows(db: sqlite3.Connection, sql: str) -> Iterator[tuple[Any, ...]]:
    try:
        yield from db.execute(sql)
    except (sqlite3.Error, UnicodeDecodeError):
        return


def _tasks_of(engine: Path) -> Iterator[Task]:
    """A task for each crawl of the engine."""
    with EngineReader(engine) as reader:
        for number, name, record in reader.crawls():
            if record.state is not CrawlState.FORGOTTEN:
                yield _task_of(reader, number, name, record)


def _task_of(reader: EngineReader, number: int, name: str, record: TenantRecord) -> Task:
    given = record.settings
    spec = TaskSpec(
        max_depth=given.get("max_depth") or 0, max_pages=given.get("max_pages"), scope=given.get("scope", "domain"),
        include=tuple(given.get("include") or ()), exclude=tuple(given.get("exclude") or ()),
        extract=given.get("extract") or {}, is_batch=bool(given.get("seeded_urls_only")), formats=FORMATS,
    )  # fmt: skip
    first = next((row.url for _, row in reader.rows(number, 0, 1)), "")
    task = Task(
        id=name, owner="", url=(record.roots or [first])[0] or first, url_count=max(1, len(record.roots)), spec=spec,
        created_at=record.opened_at, started_at=record.opened_at, deadline_at=record.deadline,
    )  # fmt: skip
    if record.state is not CrawlState.ENDED:
        return replace(task, state=TaskState.PAUSED if record.state is CrawlState.PAUSED else TaskState.RUNNING)
    state, finish = finish_of(task, record.last) if record.last is not None else _final_state(reader, number, task)
    return replace(
        task, state=state, finished_at=record.ended_at or record.opened_at, finish_reason=finish.reason,
        progress=finish.progress, errors_by_class=finish.errors_by_class, last_number=finish.last_number,
        message="; ".join(filter(None, [finish.message, _MESSAGE_REBUILT])),
    )  # fmt: skip


def _final_state(reader: EngineReader, number: int, task: Task) -> tuple[TaskState, TaskFinish]:
    progress, classes = counted(reader.ends(number), 0, 0)
    last = reader.last_number(number) + 1
    return finish_without(task, FinishReason.ERROR, progress, errors_by_class=classes, last_number=last)
