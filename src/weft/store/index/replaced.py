"""Counts the rows that are no longer their URL's current visit: a later or better one has replaced them. Updated while
rows get their keys, so that no search for URLs with several rows is needed.

    again           after which item a crawl's rows (0: every crawl's) may be visits of URLs that have a row
    replaced        of a crawl, by kind: rows that do not stand, those of them that count as pages, their bytes, and
                    how many are the last of a page that is gone
    replaced_hosts  of a crawl and a host: 2xx rows that do not stand

A frontier admits a URL once. It has another row only if it was queued again, which is noted in `again` before, or if
redirects led to it. So the rows to check are known; all others cost one comparison.

Invariant: the tables agree with the rows that have keys. They change in the transaction that gives rows their keys or
deletes them.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from weft.store.errors import DamagedIndex
from weft.store.index.keys import LAST_KEYED
from weft.store.index.visits import Visit, current_visit

HASHES_TOGETHER = 1000  # URLs whose visits are read at a time
VISIT_COLUMNS = (
    "p.url, p.item, p.status, p.fetched_at, p.error, p.file IS NOT NULL, p.content_type, p.depth, p.length, "
    "p.crawl, p.request"
)
VISIT_TYPES = tuple[str, int, int, float, str, int, str, int, int, int, str | None]

_MAY_REPLACE_QUERY = f"""SELECT DISTINCT crawl, url_hash FROM pages p NOT INDEXED
    WHERE seq > {LAST_KEYED} AND ?1 IN (crawl, 0)
    AND (hops > 0 OR EXISTS (SELECT 1 FROM again a WHERE a.crawl IN (p.crawl, 0) AND p.item > a.after))"""  # noqa: S608
_HASHES_OF_ROWS = "SELECT DISTINCT crawl, url_hash FROM pages WHERE seq IN (SELECT value FROM json_each(?))"
# A crawl's first row: the rows of earlier crawls are not read.
_FIRST_OF_CRAWL = "SELECT seq FROM pages WHERE crawl = ? ORDER BY number LIMIT 1"
_WITH_WANTED = """WITH wanted(crawl, hash, first) AS MATERIALIZED (SELECT json_extract(value, '$[0]'),
    json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(?1))"""
_SELECT_VISITS = f"""{_WITH_WANTED} SELECT p.seq, {VISIT_COLUMNS} FROM wanted w CROSS JOIN runs r
    CROSS JOIN keys k ON k.run = r.run AND k.key = w.hash AND k.seq >= w.first
    CROSS JOIN pages p ON p.seq = k.seq AND p.crawl = w.crawl WHERE r.level >= 0
    UNION ALL SELECT p.seq, {VISIT_COLUMNS} FROM pages p
    WHERE p.seq > {LAST_KEYED} AND (p.crawl, p.url_hash) IN (SELECT crawl, hash FROM wanted)"""  # noqa: S608
_ADD_COUNTS = """INSERT INTO replaced VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET rows = rows + excluded.rows,
    pages = pages + excluded.pages, bytes = bytes + excluded.bytes, gone = gone + excluded.gone"""
_ADD_HOST = "INSERT INTO replaced_hosts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET pages = pages + excluded.pages"
_SELECT_KINDS = (
    "SELECT crawl, status, error, content_type, depth, rows, pages, bytes, gone FROM replaced WHERE ?1 IN (crawl, 0)"
)
_SELECT_HOSTS = "SELECT crawl, host, pages FROM replaced_hosts WHERE ?1 IN (crawl, 0)"
# Only the hosts that `hosts` counts.
_SELECT_TOP_HOSTS = (
    "SELECT crawl, host, r.pages FROM hosts JOIN replaced_hosts r USING (crawl, host) WHERE ?1 IN (crawl, 0)"
)
_ADD_NOTE = "INSERT INTO again VALUES (?, ?) ON CONFLICT DO UPDATE SET after = min(after, excluded.after)"
COUNT_TABLES = ("replaced", "replaced_hosts", "again")

RowKind = tuple[int, int, str, str, int]  # crawl, status, error, content type, depth
KindCounts = tuple[int, int, int, int]  # rows, pages, bytes, last visits of pages that are gone
_VisitKey = tuple[int, str, str | None]  # crawl, URL and request
_NO_COUNTS: KindCounts = (0, 0, 0, 0)


class ReplacedCounts:
    """Counts of rows that are not their URL's current visit in their crawl."""

    def __init__(self) -> None:
        self.kinds: dict[RowKind, KindCounts] = {}
        self.hosts: Counter[tuple[int, str]] = Counter()

    def add_visits(self, visits: Sequence[Visit], times: int = 1) -> None:
        """Adds the counts of the replaced visits of one URL in one crawl; `times`: -1 subtracts them."""
        if len(visits) < 2:
            return
        chosen, last = current_visit(visits), max(visits, key=attrgetter("fetched_at", "item"))
        for visit in visits:
            if visit is not chosen:
                self._add_visit(visit, times, is_last_of_gone=chosen is None and visit is last)

    def _add_visit(self, visit: Visit, times: int, *, is_last_of_gone: bool) -> None:
        counts = (1, visit.is_page, visit.length if visit.is_page else 0, is_last_of_gone)
        rows, pages, size, gone = (times * int(count) for count in counts)
        self.add_kind(
            (visit.crawl, visit.status, visit.error, visit.content_type, visit.depth), (rows, pages, size, gone)
        )
        if 200 <= visit.status < 300:
            self.hosts[visit.crawl, visit.host] += times

    def add_kind(self, kind: RowKind, more: KindCounts) -> None:
        """Adds counts of one kind."""
        rows, pages, size, gone = self.kinds.get(kind, _NO_COUNTS)
        self.kinds[kind] = rows + more[0], pages + more[1], size + more[2], gone + more[3]

    def add_counts(self, other: ReplacedCounts) -> None:
        """Adds the counts of other rows."""
        for kind, counts in other.kinds.items():
            self.add_kind(kind, counts)
        for host, pages in other.hosts.items():  # `Counter.update` would read a Counter's keys one by one, too
            self.hosts[host] += pages


def may_come_again(db: sqlite3.Connection, crawl: int, after: int) -> None:
    """Rows of items beyond this one may be visits of URLs that have a row."""
    db.execute(_ADD_NOTE, (crawl, after))


def notes(db: sqlite3.Connection) -> dict[int, int]:
    """After which item rows of a crawl (0: of every crawl) may be further visits."""
    return dict(db.execute("SELECT crawl, after FROM again"))


class NewRows(NamedTuple):
    """The rows that have no keys yet: the position of the last one, and what they change."""

    last: int
    changes: ReplacedCounts


def read_new_rows(db: sqlite3.Connection, path: Path) -> NewRows:
    """Reads them in one consistent read: it takes half a second if all are further visits, so no commit waits
    for it.
    """
    (last,) = db.execute(f"SELECT max(coalesce(max(seq), 0), {LAST_KEYED}) FROM pages").fetchone()  # noqa: S608
    return NewRows(int(last), count_by_late_rows(db, path))


def count_replaced_by(db: sqlite3.Connection, new: NewRows) -> None:
    """Counts the rows that new rows replace; called before they get their keys, in that transaction."""
    _change_counts(db, new.changes)


def count_by_late_rows(db: sqlite3.Connection, path: Path, crawl: int = 0) -> ReplacedCounts:
    """What rows without keys replace; those of one crawl, or of all (0)."""
    counts = ReplacedCounts()
    (folded,) = db.execute(f"SELECT {LAST_KEYED}").fetchone()
    for visits in _several_visits(db, path, db.execute(_MAY_REPLACE_QUERY, (crawl,)).fetchall()):
        counts.add_visits([visit for _, visit in visits])
        counts.add_visits([visit for seq, visit in visits if seq <= folded], -1)
    return counts


def subtract_deleted(db: sqlite3.Connection, path: Path, seqs: Sequence[int]) -> None:
    """Subtracts the counts of these rows before they are deleted, in that transaction."""
    counts, gone = ReplacedCounts(), frozenset(seqs)
    (folded,) = db.execute(f"SELECT {LAST_KEYED}").fetchone()
    for visits in _several_visits(db, path, db.execute(_HASHES_OF_ROWS, (json.dumps([*seqs]),)).fetchall()):
        keyed = [(seq, visit) for seq, visit in visits if seq <= folded]
        counts.add_visits([visit for _, visit in keyed], -1)
        counts.add_visits([visit for seq, visit in keyed if seq not in gone])
    _change_counts(db, counts)


def read_counts(db: sqlite3.Connection, path: Path, crawl: int, top: int, most: int) -> ReplacedCounts:
    """The counts of the rows with keys, of one crawl or all (0); with the requested hosts: none, those of the table
    `hosts`, or all if more than `most` are wanted.
    """
    counts = ReplacedCounts()
    for *kind, rows, pages, size, gone in db.execute(_SELECT_KINDS, (crawl,)):
        counts.add_kind(_checked_type(kind, RowKind, path), _checked_type((rows, pages, size, gone), KindCounts, path))
    for of, host, pages in db.execute(_SELECT_HOSTS if top > most else _SELECT_TOP_HOSTS, (crawl,)) if top else ():
        counts.hosts[of, host] += _checked_type(pages, int, path)
    return counts


def group_by_url(visits: Iterable[Visit]) -> Iterator[list[Visit]]:
    """The visits of each URL in each crawl, by the same request."""
    visits_by_url: dict[_VisitKey, list[Visit]] = defaultdict(list)
    for visit in visits:
        visits_by_url[visit.crawl, visit.url, visit.request].append(visit)
    yield from visits_by_url.values()


def host_counts(counts: Mapping[tuple[int, str], int]) -> Counter[str]:
    """The counts of hosts, over all crawls."""
    hosts: Counter[str] = Counter()
    for (_, host), pages in counts.items():
        hosts[host] += pages
    return hosts


def _several_visits(
    db: sqlite3.Connection, path: Path, wanted: Sequence[tuple[int, int]]
) -> Iterator[list[tuple[int, Visit]]]:
    """The visits of URLs with these hashes in their crawls, each with its position, if there are several."""
    first: dict[int, int] = {}
    for start in range(0, len(wanted), HASHES_TOGETHER):
        some = wanted[start : start + HASHES_TOGETHER]
        for crawl in {crawl for crawl, _ in some} - first.keys():
            first[crawl] = db.execute(_FIRST_OF_CRAWL, (crawl,)).fetchone()[0]
        asked = json.dumps(sorted((crawl, hash_, first[crawl]) for crawl, hash_ in some))
        visits_by_url: dict[_VisitKey, list[tuple[int, Visit]]] = defaultdict(list)
        for seq, *values in db.execute(_SELECT_VISITS, (asked,)):
            visit = Visit(*_checked_type(values, VISIT_TYPES, path))
            visits_by_url[visit.crawl, visit.url, visit.request].append((seq, visit))
        yield from (visits for visits in visits_by_url.values() if len(visits) > 1)


def _checked_type(values: Any, kind: Any, path: Path) -> Any:
    """The values, if they are of this type: SQLite keeps no checksums."""
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise DamagedIndex(path, f"a count of it: {error}") from error


def _change_counts(db: sqlite3.Connection, more: ReplacedCounts) -> None:
    db.executemany(_ADD_COUNTS, [(*kind, *counts) for kind, counts in more.kinds.items() if any(counts)])
    db.executemany(_ADD_HOST, [(*host, pages) for host, pages in more.hosts.items() if pages])
