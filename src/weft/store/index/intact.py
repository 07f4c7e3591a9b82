"""Checks, when an index is opened, that it is what was written: SQLite keeps no checksums, and one flipped bit in what
finds rows (its own structure, a batch's end, the level of a run) would hide them without an error.

    layout     the text of every table and index, and where each begins, as this version creates them
    structure  of a small file all of it, with the indexes against their tables
    seal       `closed` in `meta`: a checksum of what has none of its own, made by a writer that closes cleanly and
               removed by the next one; it covers the last SEALED_ROWS rows of every table, so that its cost is bounded
    counts     of a small file without a seal (its writer was killed): keys, batches, numbers and counts against rows

Rows have their own checksums, which are checked where they are read; `SlotIndex.verify` reads those of a large file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import lru_cache
from pathlib import Path
from zlib import crc32

import msgspec

from weft.store.errors import DamagedIndex, convert_read_errors
from weft.store.index import schema
from weft.store.index.keys import LAST_KEYED

CHECKED_BYTES = 32 * 1024 * 1024  # this much is read in a fifth of a second
COUNTED_BYTES = 8 * 1024 * 1024  # and the rows of this much are counted
SEALED_ROWS = 10_000
SEAL = "closed"
_FACTS = {"crawl_id", "data_dirs", "data_dir", "rebuilt", "verified", SEAL}
_NUMBERS = {"schema_version", "batch", "durable", "folded"}
_LAYOUT = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
_ROOTS = "SELECT rootpage FROM sqlite_master ORDER BY type, name"
# What the rows' own checksums do not cover.
_SEALED_COLUMNS = {"pages": "seq, batch, number, place, crc", "outputs": "seq, crawl, count, length(record)"}

_SUM = "sum(({0} & 4294967295) + (({0} >> 32) & 4294967295) + seq)"
_KEYS_IN_RUNS = f"""SELECT count(*), coalesce({_SUM.format("key")}, 0) FROM keys
  WHERE run IN (SELECT run FROM runs WHERE level >= 0)"""  # noqa: S608
_KEYS_OF_ROWS = f"""SELECT 2 * count(*), coalesce({_SUM.format("item")} + {_SUM.format("url_hash")}, 0) FROM pages
  WHERE seq <= {LAST_KEYED}"""  # noqa: S608
# Each finds something only in a damaged index.
_CONTRADICTIONS = {
    "its runs do not have the keys that they should have": """SELECT 1 FROM runs r WHERE level >= 0 AND
      (entries, checksum) IS NOT (SELECT count(*), coalesce(sum((key & 4294967295) + ((key >> 32) & 4294967295) + seq),
      0) FROM keys k WHERE k.run = r.run)""",
    "its batches do not have its rows": """SELECT 1 FROM pages p LEFT JOIN batches b USING (batch)
      WHERE b.batch IS NULL OR p.seq NOT BETWEEN b.first AND b.last OR p.fetched_at > b.latest""",
    "its batches are not in order": """SELECT 1 FROM (SELECT first, last, lag(last, 1, 0) OVER (ORDER BY batch)
      AS before FROM batches) WHERE first <= before OR last < first""",
    "its last batch is not the last": """SELECT 1 FROM meta WHERE key = 'batch'
      AND value < (SELECT max(batch) FROM batches)""",
    "its numbers are not in order": """SELECT 1 FROM (SELECT seq, lag(seq, 1, 0) OVER (PARTITION BY crawl
      ORDER BY number) AS before FROM pages) WHERE seq <= before""",
    "its batches have rows out of order": """SELECT 1 FROM (SELECT batch, place,
      lag(batch, 1, 0) OVER in_order AS earlier, lag(place, 1, 0) OVER in_order AS before
      FROM pages WINDOW in_order AS (ORDER BY seq))
      WHERE batch = earlier AND place <= before""",
    # While a crawl is being deleted, they are counted until the last of its rows is gone.
    "it does not count its rows as they are": """SELECT 1 FROM (SELECT crawl, status, error, content_type, depth,
      count(*) AS there, sum(status BETWEEN 200 AND 299 AND file IS NOT NULL) AS stored, sum(length) AS size,
      min(fetched_at) AS begin, max(fetched_at) AS until FROM pages GROUP BY crawl, status, error, content_type, depth)
      LEFT JOIN tally t USING (crawl, status, error, content_type, depth) WHERE t.rows IS NULL OR t.rows < there
      OR t.rows = there AND (t.pages, t.bytes, t.first, t.last) IS NOT (stored, size, begin, until)""",
    "it has an output without a row": """SELECT 1 FROM outputs o LEFT JOIN pages p USING (seq)
      WHERE p.crawl IS NOT o.crawl""",
    "it does not list the requests of its rows": """SELECT 1 WHERE (SELECT count(*) FROM pages WHERE request NOT NULL)
      != (SELECT count(*) FROM asked a JOIN pages p USING (seq) WHERE p.request NOT NULL)""",
}
_encode = msgspec.msgpack.Encoder().encode


def check_is_intact(db: sqlite3.Connection, path: Path) -> None:
    """DamagedIndex for an index that is not what was written."""
    with convert_read_errors(path), _one_read(db):
        is_moved = _check_layout_text(db, path)
        size = path.stat().st_size
        _check_structure(db, path, is_small=is_moved or size <= CHECKED_BYTES)
        _check_meta(db, path)
        seal = schema.read_fact(db, SEAL)
        if seal is not None:
            if seal != _checksum_of_tables(db):
                raise DamagedIndex(path, "it is not what its writer has left")
        elif size <= COUNTED_BYTES:
            _check_counts(db, path)


def seal(db: sqlite3.Connection) -> None:
    """Writes the checksum of a file that is complete; the caller has a transaction, or needs none."""
    db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (SEAL, _checksum_of_tables(db)))


def unseal(db: sqlite3.Connection) -> None:
    """Before the first change."""
    db.execute("DELETE FROM meta WHERE key = ?", (SEAL,))


@contextmanager
def _one_read(db: sqlite3.Connection) -> Iterator[None]:
    """A writer may commit between two statements."""
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("COMMIT")


def _check_layout_text(db: sqlite3.Connection, path: Path) -> bool:
    """Whether its tables begin elsewhere than in a file that SQLite has not rewritten (VACUUM)."""
    layout, roots = _created()
    if tuple(db.execute(_LAYOUT)) != layout:
        raise DamagedIndex(path, "its tables are not those that were made")
    return tuple(db.execute(_ROOTS)) != roots


def _check_structure(db: sqlite3.Connection, path: Path, *, is_small: bool) -> None:
    """Refuses an index that was cut inside a page: SQLite reads the missing bytes as zeros, without an error. A small
    one is read completely.
    """
    log = Path(f"{path}-wal")
    is_cut = path.stat().st_size % db.execute("PRAGMA page_size").fetchone()[0] != 0
    # A full disk can leave half a page, too, but then SQLite's write-ahead log has the whole page.
    may_be_whole = log.exists() and bool(log.stat().st_size)
    if is_cut and not may_be_whole:
        raise DamagedIndex(path, "it ends in the middle of a page")
    if is_cut or is_small:
        problem = db.execute("PRAGMA integrity_check(1)").fetchone()[0]
        if problem != "ok":
            detail = " ".join(str(problem).split())
            raise DamagedIndex(path, "it ends in the middle of a page" if is_cut else detail)


def _check_meta(db: sqlite3.Connection, path: Path) -> None:
    """Each fact decides by its name, so a changed name would be a fact that is missing."""
    facts = dict(db.execute("SELECT key, value FROM meta"))
    if unknown := facts.keys() - _FACTS - _NUMBERS:
        raise DamagedIndex(path, f"it has a fact {min(map(repr, unknown))}")
    for key in sorted(_NUMBERS):
        if not isinstance(facts.get(key), int):
            raise DamagedIndex(path, f"it has no number {key!r}")


def _check_counts(db: sqlite3.Connection, path: Path) -> None:
    for problem, sql in _CONTRADICTIONS.items():
        if db.execute(f"{sql} LIMIT 1").fetchone() is not None:
            raise DamagedIndex(path, problem)
    if db.execute(_KEYS_IN_RUNS).fetchone() != db.execute(_KEYS_OF_ROWS).fetchone():
        raise DamagedIndex(path, "its keys are not those of its rows")


def _checksum_of_tables(db: sqlite3.Connection) -> int:
    total = 0
    for sql in _sealed_queries():
        cursor = db.execute(sql)
        while rows := cursor.fetchmany(1000):
            total = crc32(_encode(rows), total)
    return total


@lru_cache(maxsize=1)
def _created() -> tuple[tuple[tuple[object, ...], ...], tuple[tuple[int], ...]]:
    """The layout that this version creates: the texts, and the first pages."""
    with _new_index() as db:
        return tuple(db.execute(_LAYOUT)), tuple(db.execute(_ROOTS))


@lru_cache(maxsize=1)
def _sealed_queries() -> tuple[str, ...]:
    """The last rows of every table, in the order of their keys."""
    with _new_index() as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return tuple(_sealed_query(db, table) for table in tables)


def _sealed_query(db: sqlite3.Connection, table: str) -> str:
    columns = db.execute("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", (table,)).fetchall()
    order = ", ".join(f"{name} DESC" for (name,) in columns)
    where = f"WHERE key != '{SEAL}'" if table == "meta" else ""
    return f"SELECT {_SEALED_COLUMNS.get(table, '*')} FROM {table} {where} ORDER BY {order} LIMIT {SEALED_ROWS}"  # noqa: S608


@contextmanager
def _new_index() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        db.execute(schema.AUTO_VACUUM)
        schema.create_tables(db)
        yield db
