"""Lists of tasks in the SQLite store: newest first, by owner, state, host and text, in both directions.

A cursor is the number of the last task that was seen (`"17"`: older ones), or of the first (`"n17"`: newer ones); tasks
that come later do not shift a list that goes on. A search reads the records themselves, since few ask for one and each
task is written a few times: 10,000 tasks take some 20 ms. One that finds nothing looks at SCANNED tasks, and gives a
cursor to go on from there.
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


class _Facts(msgspec.Struct):
    """What a search looks at."""

    id: str
    url: str


_task = msgspec.msgpack.Decoder(Task).decode
_facts = msgspec.msgpack.Decoder(_Facts).decode


def listing(
    db: sqlite3.Connection,
    owner: str | None,
    states: Collection[TaskState],
    cursor: str | None,
    limit: int,
    text: str = "",
    host: str = "",
) -> Listing:
    """Some tasks, newest first."""
    is_newer, seq = _parsed(cursor)
    where, values = ["seq > ?" if is_newer else "seq < ?"], list[object]([seq])
    if owner is not None:
        where.append("owner = ?")
        values.append(owner)
    if states:
        where.append(f"state IN ({', '.join('?' * len(states))})")
        values += states
    order = "ASC" if is_newer else "DESC"
    sql = f"SELECT seq, record FROM tasks WHERE {' AND '.join(where)} ORDER BY seq {order}"  # noqa: S608
    found, scanned = _found(db.execute(f"{sql} LIMIT ?", (*values, SCANNED)), limit, _test(text, host))
    if is_newer and len(found) <= limit:  # as many as there are: that is where the list begins
        return listing(db, owner, states, None, limit, text, host)
    more = found[limit - 1][0] if len(found) > limit else scanned
    found = found[:limit]
    if is_newer:
        found, more = found[::-1], found[0][0]
    previous = f"n{found[0][0]}" if cursor is not None and found else None
    return Listing(tuple(_task(record) for _, record in found), None if more is None else str(more), previous)


def _found(
    rows: sqlite3.Cursor, limit: int, test: Callable[[bytes], bool] | None
) -> tuple[list[tuple[int, bytes]], int | None]:
    """One more than the limit, where there are; and where to go on, if that was not all that there is to look at."""
    if test is None:
        return list(islice(rows, limit + 1)), None
    found: list[tuple[int, bytes]] = []
    looked = seq = 0
    for seq, record in rows:
        looked += 1
        if test(record):
            found.append((seq, record))
            if len(found) > limit:
                break
    return found, seq if looked == SCANNED else None


def _test(text: str, host: str) -> Callable[[bytes], bool] | None:
    text, host = text.strip().lower(), host.strip().lower().strip(".")

    def test(record: bytes) -> bool:
        facts = _facts(record)
        url = facts.url.lower()
        if text and text not in url and not facts.id.startswith(text):
            return False
        return not host or (host in url and f".{host_of(url)}".endswith(f".{host}"))

    return test if text or host else None


def _parsed(cursor: str | None) -> tuple[bool, int]:
    if cursor is None:
        return False, 1 << 62
    parts = _CURSOR.fullmatch(cursor)
    if parts is None or not cursor.isascii():
        raise BadInput(f"{cursor[:40]!r} is no cursor: use the next_cursor of a listing")
    return bool(parts[1]), int(parts[2])
