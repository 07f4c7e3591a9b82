"""The indexes and texts of a folder made again from its WARC files, where they are damaged or gone. Nobody else may
work on the folder meanwhile.

The frontier is not touched: it holds what is queued. It learns from the rebuilt rows what is done, since their batches
are later than all that it has acknowledged. What it has finished and no record tells any more is queued again.

What is known of an engine's crawls themselves (names, settings, ends) is read from the old index as far as it can be,
and from the frontier, which knows those that have not ended. A crawl that neither knows is kept as `recovered-NUMBER`,
ended, so that its pages can be read.
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
from weft.engine.stored.finished import Frontiers
from weft.errors import WeftError
from weft.frontier.durability.journal import Journal
from weft.store.contract import StoredPage
from weft.store.index import schema
from weft.store.index.index_writer import Change
from weft.store.index.query import IndexReader
from weft.store.repair.rebuild import Rebuild, Rebuilt
from weft.store.shard import own
from weft.store.text import FOLDER as TEXTS


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


def rebuild_engine(
    data_dir: Path, *, text: bool = False, watch: Callable[[int, int], None] = lambda _done, _all: None
) -> Rebuilt:
    """Makes an engine's index again; BadInput where there is no engine, Busy while it runs."""
    folder = EngineFolder([data_dir])
    folder.identity()
    os.close(hold_engine(data_dir))  # an engine that runs has the frontier open, too
    crawls = _from_frontier(folder.frontier / "frontier.db") | _from_index(schema.path_of(data_dir, SLOT.name))
    changes = partial(_changes, crawls)
    return rebuild_index(folder, [SLOT.name], text=text, changes=changes, watch=watch)


def rebuild_index(
    folder: EngineFolder,
    slots: Sequence[str],
    *,
    text: bool = False,
    changes: Callable[[Sequence[int]], Sequence[Change]] | None = None,
    watch: Callable[[int, int], None] = lambda _done, _all: None,
) -> Rebuilt:
    """Makes the indexes of some slots again, and texts where the folder has any or `text` asks for them."""
    text = text or any((path / TEXTS).is_dir() for path in folder.data_dirs)
    # What pods on Redis know is on their servers.
    frontiers = Frontiers.open([path for home in folder.frontiers() if (path := home / "frontier.db").exists()])
    try:
        with Parsers(one_per_core()) as parsers:
            return Rebuild(
                folder.data_dirs, folder.identity().id, watch=watch, changes=changes,
                text_of=TextReader(parsers) if text else None,
                after_batch=frontiers.acknowledged if frontiers else 0,
                is_done=frontiers.is_done if frontiers else None,
                missing=frontiers.missing if frontiers else None,
                slots=slots if frontiers or changes else [],
            ).run()  # fmt: skip
    finally:
        if frontiers:
            frontiers.close()


class TextReader:
    """Has texts extracted by parser children, as crawls keep them."""

    def __init__(self, parsers: Parsers) -> None:
        self._read = PageReader(parsers)

    def __call__(self, stored: StoredPage) -> Callable[[], str | None]:
        """None for what holds no text, and for a page of which the crawl knows that it kills its parser."""
        if stored.row.error in (CRASH, TIMEOUT):
            return lambda: None
        reading = self._read(stored, ("text",))

        def text() -> str | None:
            page = reading()
            return page.text if page is not None and page.mime is not None else None

        return text


def _changes(crawls: dict[int, tuple[str, bytes]], with_rows: Sequence[int]) -> list[Change]:
    """The crawls as the new index is to know them; the ends of those that have ended."""
    unknown = {number: (recovered_name(number), _lost_record()) for number in with_rows if number}
    changes = []
    for number, (name, encoded) in sorted((unknown | crawls).items()):
        record = msgspec.msgpack.decode(encoded, type=TenantRecord)
        has_ended = record.state is CrawlState.ENDED
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
        TenantRecord(settings={}, state=CrawlState.ENDED, reason=EndReason.FAILED, opened_at=now, ended_at=now)
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
            msgspec.msgpack.decode(record, type=TenantRecord)
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
