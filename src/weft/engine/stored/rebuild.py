"""Rebuilds the indexes and texts of a folder from its WARC files, if they are damaged or lost. No other process may use
the folder meanwhile.

The frontier is not touched: it holds what is queued. It learns from the rebuilt rows what is done, since their batches
are later than all that it has acknowledged. Items that it has finished and that have no record any more are queued
again.

An engine's crawls themselves (names, settings, ends) are read from the old index as far as possible, and from the
frontier, which knows those that have not ended. A crawl in neither of them is kept as `recovered-NUMBER`, ended, so
that its pages can be read.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import msgspec

from weft.engine.core import SLOT
from weft.engine.crawls.tenant import TenantRecord
from weft.engine.folder import EngineFolder
from weft.engine.model import CrawlState, EndReason
from weft.engine.parsing.page_reader import PageReader
from weft.engine.parsing.parsers import CRASH, TIMEOUT, Parsers, one_per_core
from weft.engine.stored.finished import FrontierJournals
from weft.errors import WeftError
from weft.frontier.durability.journal import FrontierJournal
from weft.store.contract import StoredPage
from weft.store.index import schema
from weft.store.index.index_writer import CrawlChange
from weft.store.index.query import IndexReader
from weft.store.repair.rebuild import Rebuild, RebuildReport
from weft.store.shard import lock_slot
from weft.store.text import TEXT_FOLDER as TEXTS


def recovered_name(number: int) -> str:
    """The name of a crawl whose own name is lost."""
    return f"recovered-{number}"


def hold_engine(data_dir: Path) -> int:
    """Prevents an engine from starting in its folder until the descriptor is closed; Busy if one runs."""
    return lock_slot(data_dir, SLOT.name)


def is_index_whole(data_dir: Path, *, thorough: bool = True) -> bool:
    """Whether an engine's index can be read; `thorough`: checks it from beginning to end, whatever its size."""
    path = schema.index_path(data_dir, SLOT.name)
    try:
        with closing(IndexReader(path)) as index:
            index.crawls()
        if not thorough:
            return True
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            return bool(db.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok")
    except (WeftError, sqlite3.Error):
        return False


def rebuild_engine(
    data_dir: Path, *, text: bool = False, watch: Callable[[int, int], None] = lambda _done, _all: None
) -> RebuildReport:
    """Rebuilds an engine's index; BadInput if there is no engine, Busy while it runs."""
    folder = EngineFolder([data_dir])
    folder.identity()
    os.close(hold_engine(data_dir))  # a running engine has the frontier open, too
    crawls = _crawls_in_frontier(folder.frontier / "frontier.db") | _crawls_in_index(
        schema.index_path(data_dir, SLOT.name)
    )
    changes = partial(_changes_of_crawls, crawls)
    return rebuild_index(folder, [SLOT.name], text=text, changes=changes, watch=watch)


def rebuild_index(
    folder: EngineFolder,
    slots: Sequence[str],
    *,
    text: bool = False,
    changes: Callable[[Sequence[int]], Sequence[CrawlChange]] | None = None,
    watch: Callable[[int, int], None] = lambda _done, _all: None,
) -> RebuildReport:
    """Rebuilds the indexes of some slots, and texts if the folder has any or `text` demands them."""
    text = text or any((path / TEXTS).is_dir() for path in folder.data_dirs)
    # The state of pods on Redis is on their servers.
    frontiers = FrontierJournals.open(
        [path for home in folder.pod_folders() if (path := home / "frontier.db").exists()]
    )
    try:
        with Parsers(one_per_core()) as parsers:
            return Rebuild(
                folder.data_dirs, folder.identity().id, watch=watch, changes=changes,
                text_of=TextReader(parsers) if text else None,
                after_batch=frontiers.acknowledged if frontiers else 0,
                is_done=frontiers.is_done if frontiers else None,
                missing=frontiers.missing_rows if frontiers else None,
                slots=slots if frontiers or changes else [],
            ).run()  # fmt: skip
    finally:
        if frontiers:
            frontiers.close()


class TextReader:
    """Extracts texts in parser children, in the form in which crawls store them."""

    def __init__(self, parsers: Parsers) -> None:
        self._read_page = PageReader(parsers)

    def __call__(self, stored: StoredPage) -> Callable[[], str | None]:
        """The text; None for a page without text, and for one that has killed its parser in the crawl."""
        if stored.row.error in (CRASH, TIMEOUT):
            return lambda: None
        reading = self._read_page(stored, ("text",))

        def text() -> str | None:
            page = reading()
            return page.text if page is not None and page.mime is not None else None

        return text


def _changes_of_crawls(crawls: dict[int, tuple[str, bytes]], with_rows: Sequence[int]) -> list[CrawlChange]:
    """The records of the crawls for the new index, and the ends of those that have ended."""
    unknown = {number: (recovered_name(number), _record_without_settings()) for number in with_rows if number}
    changes = []
    for number, (name, encoded) in sorted((unknown | crawls).items()):
        record = msgspec.msgpack.decode(encoded, type=TenantRecord)
        has_ended = record.state is CrawlState.ENDED
        changes.append(
            CrawlChange(
                number, name, encoded, record.ended_at or 0.0, str(record.state) if has_ended else "",
                str(record.reason or "") if has_ended else "",
            )
        )  # fmt: skip
    return changes


def _record_without_settings() -> bytes:
    """The record of a crawl whose settings are lost: it has ended, and its stored pages can be read."""
    now = time.time()
    return msgspec.msgpack.encode(
        TenantRecord(settings={}, state=CrawlState.ENDED, reason=EndReason.FAILED, opened_at=now, ended_at=now)
    )


def _crawls_in_index(path: Path) -> dict[int, tuple[str, bytes]]:
    """The crawls of a damaged index, as far as they can be read one by one."""
    found: dict[int, tuple[str, bytes]] = {}
    if not path.exists():
        return found
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            for order in ("ASC", "DESC"):  # from both ends, up to the damage
                _read_crawls_in_order(db, order, found)
    except sqlite3.Error:
        pass
    return found


def _read_crawls_in_order(db: sqlite3.Connection, order: str, found: dict[int, tuple[str, bytes]]) -> None:
    try:
        for number, name, record in db.execute(f"SELECT * FROM crawls ORDER BY number {order}"):  # noqa: S608
            msgspec.msgpack.decode(record, type=TenantRecord)
            found[int(number)] = str(name), bytes(record)
    except (sqlite3.Error, msgspec.MsgspecError, UnicodeDecodeError, TypeError, ValueError):
        return


def _crawls_in_frontier(path: Path) -> dict[int, tuple[str, bytes]]:
    """The names of crawls that have not ended; their settings are only in the index."""
    if not path.exists():
        return {}
    try:
        with closing(FrontierJournal(path)) as journal:
            rows = list(journal.rows("crawls"))
        return {
            int(number): (msgspec.msgpack.decode(record)["name"], _record_without_settings()) for number, record in rows
        }
    except (WeftError, sqlite3.Error, msgspec.MsgspecError, ValueError, KeyError):
        return {}
