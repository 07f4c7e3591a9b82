"""An engine's index made again from its WARC files, where it is damaged or gone: the crawls with their rows.

What is known of the crawls themselves (names, settings, ends) is read from the old index as far as it can be, and from
the frontier, which knows those that have not ended. A crawl that neither knows is kept as `recovered-NUMBER`, ended, so
that its pages can be read. The engine must not run.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from weft.engine.core import SLOT
from weft.engine.finished import Frontiers
from weft.engine.host import identity_of
from weft.engine.model import EndReason, State
from weft.engine.tenant import Record
from weft.errors import BadInput, WeftError
from weft.frontier.journal import Journal
from weft.store import schema
from weft.store.index import Change
from weft.store.query import IndexReader
from weft.store.rebuild import Rebuild, Rebuilt
from weft.store.shard import own


def is_engine(data_dir: Path) -> bool:
    """Whether a folder is an engine's."""
    return (data_dir / "engine.json").exists()


def recovered_name(number: int) -> str:
    """What a crawl is called whose name is lost."""
    return f"recovered-{number}"


def hold_engine(data_dir: Path) -> int:
    """Keeps an engine from being started in its folder until the descriptor is closed; Busy while one runs."""
    return own(data_dir, SLOT.name)


def is_index_whole(data_dir: Path, *, thorough: bool = True) -> bool:
    """Whether an engine's index can be read; `thorough`: from its beginning to its end, however large it is."""
    path = schema.path_of(data_dir, SLOT.name)
    try:
        with closing(IndexReader(path)) as index:
            index.crawls()
        if not thorough:
            return True
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            return bool(db.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except (WeftError, sqlite3.Error):
        return False


def rebuild_engine(data_dir: Path, *, watch: Callable[[int, int], None] = lambda _done, _all: None) -> Rebuilt:
    """Makes the index again; BadInput where there is no engine, Busy while it runs."""
    if not is_engine(data_dir):
        raise BadInput(f"{data_dir} holds no engine")
    identity = identity_of(data_dir)
    os.close(hold_engine(data_dir))  # an engine that runs has the frontier open, too
    journal = data_dir / "frontier" / "frontier.db"
    crawls = _from_frontier(journal) | _from_index(schema.path_of(data_dir, SLOT.name))
    frontiers = Frontiers.open([journal] if journal.exists() else [])
    try:
        return Rebuild(
            [data_dir], identity.engine_id, watch=watch, slots=[SLOT.name],
            after_batch=frontiers.acknowledged if frontiers else 0,
            is_done=frontiers.is_done if frontiers else None,
            missing=frontiers.missing if frontiers else None,
            changes=lambda with_rows: _changes(crawls, with_rows),
        ).run()  # fmt: skip
    finally:
        if frontiers:
            frontiers.close()


def _changes(crawls: dict[int, tuple[str, bytes]], with_rows: Sequence[int]) -> list[Change]:
    """The crawls as the new index is to know them; the ends of those that have ended."""
    unknown = {number: (recovered_name(number), _lost_record()) for number in with_rows if number}
    changes = []
    for number, (name, encoded) in sorted((unknown | crawls).items()):
        record = msgspec.msgpack.decode(encoded, type=Record)
        has_ended = record.state is State.ENDED
        changes.append(
            Change(
                number, name, encoded, record.ended_at or 0.0, str(record.state) if has_ended else "",
                str(record.reason or "") if has_ended else "",
            )
        )  # fmt: skip
    return changes


def _lost_record() -> bytes:
    """Of a crawl whose settings are lost: it has ended, and what it has stored can be read."""
    now = time.time()
    return msgspec.msgpack.encode(
        Record(settings={}, state=State.ENDED, reason=EndReason.FAILED, opened_at=now, ended_at=now)
    )


def _from_index(path: Path) -> dict[int, tuple[str, bytes]]:
    """The crawls of a damaged index, as far as they can be read one by one."""
    found: dict[int, tuple[str, bytes]] = {}
    if not path.exists():
        return found
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            for order in ("ASC", "DESC"):  # from both ends, up to the damage
                _read_crawls(db, order, found)
    except sqlite3.Error:
        pass
    return found


def _read_crawls(db: sqlite3.Connection, order: str, found: dict[int, tuple[str, bytes]]) -> None:
    try:
        for number, name, record in db.execute(f"SELECT * FROM crawls ORDER BY number {order}"):  # noqa: S608
            msgspec.msgpack.decode(record, type=Record)
            found[int(number)] = str(name), bytes(record)
    except (sqlite3.Error, msgspec.MsgspecError, UnicodeDecodeError, TypeError, ValueError):
        return


def _from_frontier(path: Path) -> dict[int, tuple[str, bytes]]:
    """Names of crawls that have not ended; their settings are in the index alone."""
    if not path.exists():
        return {}
    try:
        with closing(Journal(path)) as journal:
            rows = list(journal.rows("crawls"))
        return {int(number): (msgspec.msgpack.decode(record)["name"], _lost_record()) for number, record in rows}
    except (WeftError, sqlite3.Error, msgspec.MsgspecError, ValueError, KeyError):
        return {}
