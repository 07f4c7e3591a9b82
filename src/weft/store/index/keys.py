"""Finds the rows of a URL, a host or an item: SQL over the sorted runs of keys, for the writer and for readers.

A key is an item (0 or more) or a URL's hash (below 0), whose upper half is its host's; so one order serves look-ups by
item and by URL, and all rows of a host lie side by side. Each run is sorted by (key, seq); a look-up asks every
readable one, of which there are a few times the logarithm of the rows. Rows after `folded` have no keys yet: there are
never many, and a look-up reads them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

LAST_KEYED = "(SELECT value FROM meta WHERE key = 'folded')"
# Looks up a JSON list of keys in the runs.
_POSITIONS_IN_RUNS = """SELECT k.seq FROM json_each(?1) j CROSS JOIN runs r CROSS JOIN keys k
    ON k.run = r.run AND k.key = j.value
    WHERE r.level >= 0"""
_HASHES = "SELECT value FROM json_each(?1)"
# The `seq` of the rows of URLs with these hashes, and of these items.
POSITIONS_OF_HASHES = (
    f"{_POSITIONS_IN_RUNS} UNION ALL SELECT seq FROM pages WHERE seq > {LAST_KEYED} AND url_hash IN ({_HASHES})"  # noqa: S608
)
POSITIONS_OF_ITEMS = (
    f"{_POSITIONS_IN_RUNS} UNION ALL SELECT seq FROM pages WHERE seq > {LAST_KEYED} AND item IN ({_HASHES})"  # noqa: S608
)
# Like `POSITIONS_OF_HASHES`, but for rows that have their keys, and others by their `seq`.
KEYED_POSITIONS = f"{_POSITIONS_IN_RUNS} UNION SELECT value FROM json_each(?2)"  # noqa: S608
ITEMS_IN_RUNS = """SELECT k.key FROM runs r CROSS JOIN keys k ON k.run = r.run AND k.key >= ? AND k.key < ?
    WHERE r.level >= 0"""
READABLE_RUNS = "SELECT run FROM runs WHERE level >= 0 ORDER BY run"
BEFORE_ALL_HASHES = (-(1 << 63), -1)
LAST_KEY = 1 << 62  # beyond every item

RunQuery = Callable[..., list[tuple[Any, ...]]]


def as_json_list(numbers: Iterable[int]) -> str:
    """A list of numbers for a statement, in the order that reads the fewest pages."""
    return json.dumps(sorted(numbers))


def entries_query(runs: Sequence[int], late: str = "") -> str:
    """The next entries (key, seq) of these runs in their order: after ?1, ?2, with keys below ?3, at most ?4. `late`:
    the column of `pages` that is the key of rows without keys, if they are wanted, too."""
    parts = [
        f"SELECT key, seq FROM keys WHERE run = {run} AND (key, seq) > (?1, ?2) AND key < ?3"  # noqa: S608
        for run in runs
    ]
    if late:
        parts.append(
            f"SELECT {late}, seq FROM pages WHERE seq > {LAST_KEYED} AND ({late}, seq) > (?1, ?2) AND {late} < ?3"  # noqa: S608
        )
    return " UNION ALL ".join(parts) + " ORDER BY 1, 2 LIMIT ?4" if parts else "SELECT 0, 0 WHERE 0 = ?4"


def walk_entries(
    query: RunQuery, late: str, after: tuple[int, int], below: int, at_once: int
) -> Iterator[list[tuple[int, int]]]:
    """All entries between two positions in order, in pieces, each consistent in itself; `late` is `item` or `url_hash`.
    `query` runs an SQL statement.
    """
    while True:
        query("BEGIN")  # a run may be merged into another between two statements
        try:
            runs = [run for (run,) in query(READABLE_RUNS)]
            entries = [(key, seq) for key, seq in query(entries_query(runs, late), *after, below, at_once)]
        finally:
            query("COMMIT")
        if entries:
            yield entries
        if len(entries) < at_once:
            return
        after = entries[-1]
