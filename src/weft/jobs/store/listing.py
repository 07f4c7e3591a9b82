"""Lists of tasks in the SQLite store: newest first, by owner, state, host and text, in both directions.

A cursor is the number of the last task of a list (`"17"`: older ones follow), or of the first (`"n17"`: newer ones
precede); new tasks do not shift a list. A search reads the records themselves, since searches are rare and each task is
written a few times: 10,000 tasks take some 20 ms. It reads at most SCANNED tasks, and returns a cursor to continue.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Collection
from itertools import islice

import msgspec

from weft.errors import BadInput
from weft.jobs.model import Task
from weft.jobs.store.contract import Listing
from weft.scraping import TaskState
from weft.urls import host_of

SCANNED = 50_000
_CURSOR = re.compile(r"(n?)([0-9]{1,18})")


class _SearchFields(msgspec.Struct):
    """The fields of a task that a search compares."""

    id: str
    url: str


_decode_task = msgspec.msgpack.Decoder(Task).decode
_decode_fields = msgspec.msgpack.Decoder(_SearchFields).decode


def listing(
    db: sqlite3.Connection,
    owner: str | None,
    states: Collection[TaskState],
    cursor: str | None,
    limit: int,
    text: str = "",
    host: str = "",
) -> Listing:
    """Some tasks, newest first; see `SqliteJobStore.listing`."""
    is_newer, seq = _parse_cursor(cursor)
    where, values = ["seq > ?" if is_newer else "seq < ?"], list[object]([seq])
    if owner is not None:
        where.append("owner = ?")
        values.append(owner)
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    order = "ASC" if is_newer else "DESC"
    sql = f"SELECT seq, record FROM tasks WHERE {' AND '.join(where)} ORDER BY seq {order}"  # noqa: S608
    rows, scanned = _matching_tasks(db.execute(f"{sql} LIMIT ?", (*values, SCANNED)), limit, _make_filter(text, host))
    if is_newer and len(rows) <= limit:  # these are all there are: they are the beginning of the list
        return listing(db, owner, states, None, limit, text, host)
    more = rows[limit - 1][0] if len(rows) > limit else scanned
    rows = rows[:limit]
    if is_newer:
        rows, more = rows[::-1], rows[0][0]
    previous = f"n{rows[0][0]}" if cursor is not None and rows else None
    return Listing(tuple(_decode_task(record) for _, record in rows), None if more is None else str(more), previous)


def _matching_tasks(
    rows: sqlite3.Cursor, limit: int, test: Callable[[bytes], bool] | None
) -> tuple[list[tuple[int, bytes]], int | None]:
    """Up to `limit` + 1 matching tasks, and where to continue if there are more to search."""
    if test is None:
        return list(islice(rows, limit + 1)), None
    matching: list[tuple[int, bytes]] = []
    scanned = seq = 0
    for seq, record in rows:
        scanned += 1
        if test(record):
            matching.append((seq, record))
            if len(matching) > limit:
                break
    return matching, seq if scanned == SCANNED else None


def _make_filter(text: str, host: str) -> Callable[[bytes], bool] | None:
    text, host = text.strip().lower(), host.strip().lower().strip(".")

    def test(record: bytes) -> bool:
        facts = _decode_fields(record)
        url = facts.url.lower()
        if text and text not in url and not facts.id.startswith(text):
            return False
        return not host or (host in url and f".{host_of(url)}".endswith(f".{host}"))

    return test if text or host else None


def _parse_cursor(cursor: str | None) -> tuple[bool, int]:
    if cursor is None:
        return False, 1 << 62
    parts = _CURSOR.fullmatch(cursor)
    if parts is None or not cursor.isascii():
        raise BadInput(f"{cursor[:40]!r} is not a cursor: use the next_cursor of a listing")
    return bool(parts[1]), int(parts[2])
