"""Keeps the sorted runs of keys of an index: makes new ones of new rows, merges them, deletes what was merged.

    runs.level   0 and up: readable, RUNS_PER_MERGE of a level become one of the next; MAKING: is being made of those
                 whose `target` it is, which are readable until it is; DEAD: was merged, its entries are being deleted
    runs.checksum, runs.entries   the sum over all entries and their number: a flipped bit is found when the run is
                 merged, and when the index is checked

Called by the thread that syncs. Invariants: every transaction is short (ENTRIES_PER_STEP entries), so that commits
never wait for the size of a run; after a kill the next call continues; an entry is in exactly one readable run.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from weft.store.errors import DamagedIndex
from weft.store.index import hosts, replaced
from weft.store.index.keys import BEFORE_ALL_HASHES, LAST_KEY, LAST_KEYED, entries_query

RUNS_PER_MERGE = 8
ENTRIES_PER_STEP = 20_000
MAKING, DEAD = -1, -2

_CHECKSUM = "coalesce(sum((key & 4294967295) + ((key >> 32) & 4294967295) + seq), 0)"
_INSERT_NEW_KEYS = f"""INSERT INTO keys SELECT ?1, url_hash, seq FROM pages WHERE seq > {LAST_KEYED} AND seq <= ?2
    UNION ALL SELECT ?1, item, seq FROM pages WHERE seq > {LAST_KEYED} AND seq <= ?2 ORDER BY 2, 3"""  # noqa: S608
_LAST_ENTRY_OF_RUN = "SELECT key, seq FROM keys WHERE run = ? ORDER BY key DESC, seq DESC LIMIT 1"
_COUNT_RUN = f"SELECT count(*), {_CHECKSUM} FROM keys WHERE run = ?"  # noqa: S608
_COUNT_RUN_AFTER = f"{_COUNT_RUN} AND (key, seq) > (?, ?)"
_ADD_TO_TOTALS = "UPDATE runs SET entries = entries + ?, checksum = checksum + ? WHERE run = ?"
_GIVEN_PAIRS = "SELECT json_extract(value, '$[0]') AS key, json_extract(value, '$[1]') AS seq FROM json_each(?1)"
_IS_KEPT = f"runs.level >= {MAKING}"
_COUNT_PAIRS = f"""SELECT keys.run, count(*), {_CHECKSUM.replace("key", "keys.key").replace("seq", "keys.seq")}
    FROM ({_GIVEN_PAIRS}) p CROSS JOIN runs CROSS JOIN keys
    ON keys.run = runs.run AND keys.key = p.key AND keys.seq = p.seq
    WHERE {_IS_KEPT} GROUP BY keys.run"""  # noqa: S608
_DELETE_PAIRS = f"""DELETE FROM keys WHERE (run, key, seq) IN
    (SELECT runs.run, p.key, p.seq FROM ({_GIVEN_PAIRS}) p CROSS JOIN runs WHERE {_IS_KEPT})"""  # noqa: S608

RunQuery = Callable[..., Any]


def make_run(db: sqlite3.Connection, new: replaced.NewRows) -> int:
    """Makes a run of rows that have no keys yet; called in a transaction. Returns the last row's `seq`."""
    last, run = new.last, _next_run_number(db)
    replaced.count_replaced_by(db, new)
    db.execute(_INSERT_NEW_KEYS, (run, last))
    hosts.count_new_rows(db, last)
    db.execute("INSERT INTO runs VALUES (?, 0, NULL, ?, ?)", (run, *db.execute(_COUNT_RUN, (run,)).fetchone()))
    db.execute("UPDATE meta SET value = ? WHERE key = 'folded'", (last,))
    return last


def merge_piece(db: sqlite3.Connection, path: Path) -> bool:
    """One piece of merging, in a transaction of the caller; False when there is none."""
    if dead := db.execute("SELECT run FROM runs WHERE level = ? LIMIT 1", (DEAD,)).fetchone():
        _delete_some_entries(db, *dead)
        return True
    if made := db.execute("SELECT run FROM runs WHERE level = ?", (MAKING,)).fetchone():
        _merge_some(db, path, *made)
        return True
    return _begin_merge(db)


def runs_in_fullest_level(db: sqlite3.Connection) -> int:
    """The number of readable runs in the level that has the most."""
    count = db.execute("SELECT count(*) FROM runs WHERE level >= 0 GROUP BY level ORDER BY 1 DESC LIMIT 1").fetchone()
    return int(count[0]) if count else 0


def delete_entries(db: sqlite3.Connection, pairs: Iterable[tuple[int, int]]) -> None:
    """Deletes these entries (key, seq) from all runs."""
    listed = json.dumps([*pairs])
    for run, entries, checksum in db.execute(_COUNT_PAIRS, (listed,)).fetchall():
        db.execute(_ADD_TO_TOTALS, (-entries, -checksum, run))
    db.execute(_DELETE_PAIRS, (listed,))


def check_piece(query: RunQuery, run: int, after: tuple[int, int], totals: tuple[int, int]) -> tuple[Any, ...] | None:
    """Reads a piece of a run after a position: (the new position, entries and sum so far); None at its end."""
    totals_so_far = query(entries_query([run]), *after, LAST_KEY, ENTRIES_PER_STEP)
    if not totals_so_far:
        return None
    count, total = totals
    total += sum((key & 0xFFFFFFFF) + ((key >> 32) & 0xFFFFFFFF) + seq for key, seq in totals_so_far)
    return totals_so_far[-1], (count + len(totals_so_far), total)


def _begin_merge(db: sqlite3.Connection) -> bool:
    """Chooses the runs to merge: the oldest ones of a level that has enough of them."""
    full = db.execute(
        "SELECT level FROM runs WHERE level >= 0 GROUP BY level HAVING count(*) >= ? ORDER BY level LIMIT 1",
        (RUNS_PER_MERGE,),
    ).fetchone()
    if full is None:
        return False
    target = _next_run_number(db)
    oldest = "SELECT run FROM runs WHERE level = ? ORDER BY run LIMIT ?"
    db.execute(f"UPDATE runs SET target = ? WHERE run IN ({oldest})", (target, *full, RUNS_PER_MERGE))  # noqa: S608
    db.execute("INSERT INTO runs VALUES (?, ?, NULL, 0, 0)", (target, MAKING))
    return True


def _next_run_number(db: sqlite3.Connection) -> int:
    return int(db.execute("SELECT coalesce(max(run), 0) + 1 FROM runs").fetchone()[0])


def _merge_some(db: sqlite3.Connection, path: Path, target: int) -> None:
    sources = [run for (run,) in db.execute("SELECT run FROM runs WHERE target = ? ORDER BY run", (target,))]
    after = db.execute(_LAST_ENTRY_OF_RUN, (target,)).fetchone() or BEFORE_ALL_HASHES
    insert = f"INSERT INTO keys SELECT {target}, key, seq FROM ({entries_query(sources)})"  # noqa: S608
    moved = db.execute(insert, (*after, LAST_KEY, ENTRIES_PER_STEP)).rowcount
    db.execute(_ADD_TO_TOTALS, (*db.execute(_COUNT_RUN_AFTER, (target, *after)).fetchone(), target))
    if moved < ENTRIES_PER_STEP:
        _end_merge(db, path, target, sources)


def _end_merge(db: sqlite3.Connection, path: Path, target: int, sources: Sequence[int]) -> None:
    """The target is complete: it becomes readable, and the sources are no longer."""
    of_sources = "SELECT sum(entries), sum(checksum), max(level) FROM runs WHERE target = ?"
    entries, checksum, level = db.execute(of_sources, (target,)).fetchone()
    made = db.execute("SELECT entries, checksum FROM runs WHERE run = ?", (target,)).fetchone()
    if made != (entries, checksum):
        raise DamagedIndex(path, f"the keys of its runs {', '.join(map(str, sources))} are not what was written")
    db.execute("UPDATE runs SET level = ? WHERE run = ?", (level + 1, target))
    db.execute("UPDATE runs SET level = ?, target = NULL WHERE target = ?", (DEAD, target))


def _delete_some_entries(db: sqlite3.Connection, run: int) -> None:
    end = db.execute(
        "SELECT key, seq FROM keys WHERE run = ? ORDER BY key, seq LIMIT 1 OFFSET ?", (run, ENTRIES_PER_STEP)
    )
    if (upto := end.fetchone()) is not None:
        db.execute("DELETE FROM keys WHERE run = ? AND (key, seq) < (?, ?)", (run, *upto))
        return
    db.execute("DELETE FROM keys WHERE run = ?", (run,))
    db.execute("DELETE FROM runs WHERE run = ?", (run,))
