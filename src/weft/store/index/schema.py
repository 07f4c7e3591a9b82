"""The index's layout: one SQLite file for each slot and data dir, `index-{slot}.db`.

    pages    one row for each ended item, in the order of their commits (`seq`, which is never used twice while a key of
             it is left); `file` is the WARC file of its response, 0 for one that is kept as text alone, NULL where none
             is kept; `number` counts the rows and changes of state of one crawl in the order of their commits, `place`
             those of all crawls in one batch; `crc` is the checksum of the other values, since SQLite keeps none, and a
             flipped bit in a URL would be a page that nobody finds
    keys     (run, key, seq): the way from a URL, a host or an item to its rows (`runs`, `keys`)
    runs     the sorted runs of keys, their sizes and checksums
    hosts    how many pages the hosts of a crawl have, of rows that have their keys (`hosts`)
    again, replaced, replaced_hosts  the rows of which later visits took the place, counted (`replaced`)
    batches  the first and last `seq` of each batch that has rows, and the latest time of any row up to it
    files    the slot's WARC files and how much of each is committed
    outputs  what a user's code has made of a page, by the `seq` of its row: behind a checksum and compressed, with how
             many items that is; written with the row. Those of `lost` rows go to `lost_outputs`, by item
    asked    (url_hash, seq) of rows whose request is no plain GET of the URL, by the hash of the URL alone
    tally    how many rows, pages (stored 2xx) and bytes a crawl has of each kind, counted in the rows' transaction
    crawls   the crawls of an engine that has many: number, name, and what else is known of it
    changes  their changes of state, numbered with their rows
    visited  of a crawl that asks for pages which its owner knows: what was found at them before
    lost     rows that were removed because their bytes are gone, until their URLs are queued again
    meta     schema_version, crawl_id, data_dirs, data_dir, and the numbers `batch`, `durable` and `folded` (the last
             `seq` that has its keys); `rebuilt` until a writer has opened an index that was made again; `verified`
             while rows are checked: the last `seq` that was; `closed` while no writer has it (`intact`)

Everything that grows with the crawl grows at its end: a table in the order of items, as links are found and not as
their pages are fetched, writes 18 KB for a row of 300 bytes (docs/decisions/0063).

WAL, so that readers and the writer never wait for each other. `synchronous=NORMAL` survives kill -9; what
`SlotIndex.sync` has synced survives a power cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast
from zlib import crc32

import msgspec
from isal import isal_zlib

from weft import urls
from weft.errors import BadInput
from weft.records import MAY_SUCCEED, Reason, Row, RowOutput
from weft.store.errors import DamagedIndex, rebuild_advice

_INFLATE_ERROR = cast(type[Exception], isal_zlib.error)  # its stub wrongly declares an instance
SCHEMA_VERSION = 9
APPLICATION_ID = 0x57656674  # "Weft"

# The kind of an error; rows that another visit may change are selected by kinds and statuses.
ERROR_KIND = "CASE instr(error, ':') WHEN 0 THEN error ELSE substr(error, 1, instr(error, ':') - 1) END"
_KINDS = ", ".join(f"'{kind}'" for kind in sorted({*MAY_SUCCEED, Reason.ADDRESS}))
MAY_CHANGE = f"(status IN (408, 429) OR status >= 500 OR {ERROR_KIND} IN ({_KINDS}))"

ADD_TO_TALLY = """INSERT INTO tally SELECT crawl, status, error, content_type, depth, count(*),
  sum(status BETWEEN 200 AND 299 AND file IS NOT NULL), sum(length), min(fetched_at), max(fetched_at)
  FROM pages WHERE seq BETWEEN ? AND ? GROUP BY crawl, status, error, content_type, depth
  ON CONFLICT DO UPDATE SET rows = rows + excluded.rows, pages = pages + excluded.pages, bytes = bytes + excluded.bytes,
  first = min(first, excluded.first), last = max(last, excluded.last)"""

AUTO_VACUUM = "PRAGMA auto_vacuum = INCREMENTAL"  # so that deleted crawls free disk space
CREATE_TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE files (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, length INTEGER NOT NULL, last INTEGER NOT NULL,
  crawl INTEGER NOT NULL DEFAULT 0);
CREATE TABLE pages (
  seq INTEGER PRIMARY KEY, batch INTEGER NOT NULL, item INTEGER NOT NULL, url_hash INTEGER NOT NULL,
  crawl INTEGER NOT NULL, url TEXT NOT NULL, final_url TEXT, status INTEGER NOT NULL, fetched_at REAL NOT NULL,
  content_type TEXT NOT NULL, charset TEXT NOT NULL, language TEXT NOT NULL, title TEXT NOT NULL,
  depth INTEGER NOT NULL, parent INTEGER NOT NULL, digest TEXT NOT NULL, length INTEGER NOT NULL, error TEXT NOT NULL,
  hops INTEGER NOT NULL, file INTEGER, warc_offset INTEGER NOT NULL, warc_length INTEGER NOT NULL,
  number INTEGER NOT NULL, place INTEGER NOT NULL, crc INTEGER NOT NULL, fields TEXT, rendered INTEGER NOT NULL,
  request TEXT
);
CREATE TABLE outputs (seq INTEGER PRIMARY KEY, crawl INTEGER NOT NULL, count INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE lost_outputs (item INTEGER PRIMARY KEY, count INTEGER NOT NULL, record BLOB NOT NULL);
CREATE TABLE asked (url_hash INTEGER, seq INTEGER, PRIMARY KEY (url_hash, seq)) WITHOUT ROWID;
CREATE INDEX pages_by_number ON pages (crawl, number);
CREATE INDEX pages_led ON pages (seq) WHERE hops > 0;
CREATE INDEX pages_may_change ON pages (item) WHERE {MAY_CHANGE};
CREATE TABLE tally (
  crawl INTEGER, status INTEGER, error TEXT, content_type TEXT, depth INTEGER, rows INTEGER, pages INTEGER,
  bytes INTEGER, first REAL, last REAL, PRIMARY KEY (crawl, status, error, content_type, depth)
) WITHOUT ROWID;
CREATE TABLE crawls (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, record BLOB NOT NULL);
CREATE TABLE changes (crawl INTEGER, number INTEGER, batch INTEGER NOT NULL, at REAL NOT NULL, state TEXT NOT NULL,
  reason TEXT NOT NULL, place INTEGER NOT NULL, PRIMARY KEY (crawl, number)) WITHOUT ROWID;
CREATE INDEX changes_by_batch ON changes (batch);
CREATE TABLE lost (item INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE visited (crawl INTEGER, url_hash INTEGER, record BLOB NOT NULL, PRIMARY KEY (crawl, url_hash))
  WITHOUT ROWID;
CREATE TABLE keys (run INTEGER, key INTEGER, seq INTEGER, PRIMARY KEY (run, key, seq)) WITHOUT ROWID;
CREATE TABLE runs (run INTEGER PRIMARY KEY, level INTEGER NOT NULL, target INTEGER, entries INTEGER NOT NULL,
  checksum INTEGER NOT NULL);
CREATE TABLE hosts (crawl INTEGER, host TEXT, pages INTEGER NOT NULL, PRIMARY KEY (crawl, host)) WITHOUT ROWID;
CREATE TABLE again (crawl INTEGER PRIMARY KEY, after INTEGER NOT NULL);
CREATE TABLE replaced (
  crawl INTEGER, status INTEGER, error TEXT, content_type TEXT, depth INTEGER, rows INTEGER, pages INTEGER,
  bytes INTEGER, gone INTEGER, PRIMARY KEY (crawl, status, error, content_type, depth)
) WITHOUT ROWID;
CREATE TABLE replaced_hosts (crawl INTEGER, host TEXT, pages INTEGER NOT NULL, PRIMARY KEY (crawl, host))
  WITHOUT ROWID;
CREATE TABLE batches (batch INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, latest REAL NOT NULL);
INSERT INTO meta VALUES ('schema_version', {SCHEMA_VERSION}), ('batch', 0), ('durable', 0), ('folded', 0);
"""  # noqa: S608 - no value in it

# The values of `values_of` and their checksum, then the name of the file.
_ROW_COLUMNS = (
    "item", "url_hash", "crawl", "url", "final_url", "status", "fetched_at", "content_type", "charset",
    "language", "title", "depth", "parent", "digest", "length", "error", "hops", "file", "warc_offset", "warc_length",
    "rendered", "fields", "request", "crc",
)  # fmt: skip
_FILE_INDEX = _ROW_COLUMNS.index("file")
SELECTED_COLUMNS = ", ".join([*(f"p.{name}" for name in _ROW_COLUMNS), "coalesce(f.name, '')"])
PAGES_WITH_FILES = "pages p LEFT JOIN files f ON f.id = p.file"
PAGES_MAY_CHANGE = PAGES_WITH_FILES.replace("pages p", "pages p INDEXED BY pages_may_change")
_ROW_TYPES = tuple[
    int, int, int, str, str | None, int, float, str, str, str, str, int, int, str, int, str, int, int | None, int,
    int, int, str | None, str | None, int, str,
]  # fmt: skip
# The values of `values_of`, between those that the commit adds.
_STORED_COLUMNS = ("seq", "batch", *_ROW_COLUMNS, "number", "place")
INSERT_ROW = f"INSERT INTO pages ({','.join(_STORED_COLUMNS)}) VALUES ({','.join('?' * len(_STORED_COLUMNS))})"  # noqa: S608
# The first `seq` of the batches after one; NULL if there is none.
FIRST_AFTER_BATCH = "(SELECT first FROM batches WHERE batch > ? ORDER BY batch LIMIT 1)"
ITEMS_SINCE = f"SELECT item FROM pages WHERE seq >= {FIRST_AFTER_BATCH}"  # noqa: S608
FETCHED_AT_INDEX = _ROW_COLUMNS.index("fetched_at")
_encode_values = msgspec.msgpack.Encoder().encode


def column_index(column: str) -> int:
    """The index of a column among the values of a row."""
    return _ROW_COLUMNS.index(column)


def decode_rows(selected: Iterable[tuple[Any, ...]], path: Path) -> list[Row]:
    """Decodes rows; DamagedIndex if one differs from what was written."""
    try:
        return [_decode_row(msgspec.convert(values, _ROW_TYPES), path) for values in selected]
    except msgspec.ValidationError as error:
        raise DamagedIndex(path, f"a row of it: {error}") from error


def check_row(values: tuple[Any, ...], path: Path) -> None:
    """Raises DamagedIndex for a row that differs from what was written."""
    *written, crc, name = values
    if crc != checksum(written):
        raise DamagedIndex(path, f"the row of item {values[0]} is not what was written")
    if values[_FILE_INDEX] and not name:
        raise DamagedIndex(path, f"it does not know the file of item {values[0]}")


def _decode_row(values: tuple[Any, ...], path: Path) -> Row:
    check_row(values, path)
    item, _, crawl, url, final_url, *facts, _, offset, length, rendered, read, request, _, name = values
    fields: list[Any] = [
        item,
        crawl,
        url,
        url if final_url is None else final_url,
        *facts,
        name,
        offset,
        length,
        read or "",
        rendered,
        request or "",
    ]
    return Row(*fields)


def values_of(row: Row, digest: str, file: int | None, offset: int, length: int) -> tuple[Any, ...]:
    """The values of a row in the index, without its batch; the last is their checksum."""
    url, final_url = row.url, row.final_url
    values = (
        row.item,
        row_hash(row),
        row.crawl,
        url,
        None if final_url == url else _storable_text(final_url),
        row.status,
        row.fetched_at,
        _storable_text(row.content_type),
        row.charset,
        row.language,
        _storable_text(row.title),
        row.depth,
        row.parent,
        digest,
        row.length,
        _storable_text(row.error),
        row.hops,
        file,
        offset,
        length,
        row.rendered if file else 0,
        row.fields or None,
        row.request or None,
    )
    return (*values, checksum(values))


def checksum(values: Sequence[Any]) -> int:
    """The checksum of a row's values."""
    return crc32(_encode_values(values))


def _storable_text(text: str) -> str:
    """Text that SQLite can store: half a surrogate pair, which a broken page may contain, would make every
    commit fail.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def url_hash(url: str) -> int:
    """A number for a URL that is the same in every process and run, adjacent to those of its host; always below
    zero.
    """
    return _hash_with_host(url, url)


def row_hash(row: Row) -> int:
    """The number under which a row is found: a request other than a plain GET is no visit of the URL's page. Those of a
    URL are listed in `asked`.
    """
    return _hash_with_host(row.url, f"{row.request} {row.url}" if row.request else row.url)


def _hash_with_host(url: str, text: str) -> int:
    low = sha256(text.encode("utf-8", "surrogatepass")).digest()[:4]
    return _origin_hash(url[: url.index("/", 8) + 1]) + int.from_bytes(low, "big")


def hashes_of(host: str) -> range:
    """The range of the numbers of a host's URLs; a few other hosts may share it."""
    first = _host_hash(host)
    return range(first, first + (1 << 32))


@lru_cache(maxsize=4096)
def _origin_hash(origin: str) -> int:
    return _host_hash(urls.host_of(origin))


def _host_hash(host: str) -> int:
    high = int.from_bytes(sha256(host.encode("utf-8", "surrogatepass")).digest()[:4], "big") >> 1
    return (high << 32) - (1 << 63)


def pack_output(output: RowOutput) -> bytes:
    """An output's data in the stored form."""
    return crc32(output.data).to_bytes(4, "little") + isal_zlib.compress(output.data, 1)


def unpack_output(count: int, record: bytes, path: Path) -> RowOutput:
    """Decodes an output; DamagedIndex if it differs from what was written."""
    try:
        data = isal_zlib.decompress(record[4:])
    except _INFLATE_ERROR as error:
        raise DamagedIndex(path, f"an output of it: {error}") from error
    if crc32(data).to_bytes(4, "little") != record[:4]:
        raise DamagedIndex(path, "an output is not what was written")
    return RowOutput(count, data)


def index_path(data_dir: Path, slot: str) -> Path:
    """The path of a slot's index in a data dir."""
    return data_dir / f"index-{slot}.db"


def slot_of_index(path: Path) -> str:
    """The slot of an index file."""
    return path.name.removeprefix("index-").removesuffix(".db")


def is_empty(db: sqlite3.Connection, path: Path) -> bool:
    """Whether the file has no tables yet: its creator has only begun, or died there."""
    try:
        return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorname == "SQLITE_NOTADB":
            raise BadInput(
                f"{path} is not an index of Weft ({error}): if it was one, {rebuild_advice(path.parent)}; "
                "else choose another data dir"
            ) from error
        raise


def create_tables(db: sqlite3.Connection) -> None:
    """Creates the tables of a new index, in the caller's transaction; AUTO_VACUUM comes before it."""
    for statement in filter(str.strip, CREATE_TABLES.split(";\n")):
        db.execute(statement)


def check_layout(db: sqlite3.Connection, path: Path) -> None:
    """Refuses a file of another program or another layout."""
    if db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise BadInput(
            f"{path} is not an index of Weft, but another SQLite file: if it was one, {rebuild_advice(path.parent)}; "
            "else choose another data dir"
        )
    version = read_fact(db, "schema_version")
    if not isinstance(version, int):
        raise DamagedIndex(path, f"its layout is {version!r}")
    if version != SCHEMA_VERSION:
        raise BadInput(
            f"{path} has layout {version}, this Weft reads layout {SCHEMA_VERSION}: use the Weft that made it"
        )


def check_facts(db: sqlite3.Connection, path: Path, facts: Mapping[str, object]) -> None:
    """Refuses data dirs that are not the crawl's, or are in another order: pages would be searched in the wrong
    folder.
    """
    for key in ("data_dirs", "data_dir"):
        if key in facts and read_fact(db, key) != facts[key]:
            where = f"number {read_fact(db, 'data_dir')} of {read_fact(db, 'data_dirs')} data dirs (counted from 0)"
            raise BadInput(f"{path.parent} was made as {where}: name the same ones in the same order")


def read_fact(db: sqlite3.Connection, key: str) -> object:
    """A value in `meta`."""
    value_row = db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
    return value_row[0] if value_row else None
