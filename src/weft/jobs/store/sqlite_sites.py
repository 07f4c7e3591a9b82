"""Sites in the file of the tasks: their records, their known pages, and the reports of their runs. Part of
`SqliteJobStore`.

    sites          name → record (msgpack of `SavedSite`)
    site_visits    site, url → digest, time, ETag, Last-Modified of the last visit; the digest of a URL that was no page
                   is empty
    site_reports   task → site, at, record (msgpack of `ChangeReport`); the last REPORTS_KEPT of each site
    meta           site_proxies: whether the service has proxies, written when it starts
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from weft.jobs.model import Task
from weft.jobs.sites.changes import ChangeReport, Learnt
from weft.jobs.sites.site_model import SavedSite
from weft.jobs.store import steps
from weft.jobs.store.sqlite_file import SqliteFile, check_fence
from weft.records import PastVisit

REPORTS_KEPT = 100
TABLES = """
CREATE TABLE IF NOT EXISTS sites (name TEXT PRIMARY KEY, record BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS site_visits (site TEXT, url TEXT, digest TEXT NOT NULL, at REAL NOT NULL, etag TEXT NOT NULL,
  last_modified TEXT NOT NULL, PRIMARY KEY (site, url)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS site_reports (task TEXT PRIMARY KEY, site TEXT NOT NULL, at REAL NOT NULL,
  record BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS site_reports_by_site ON site_reports (site, at);
"""
_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder().encode
_decode_site = msgspec.msgpack.Decoder(SavedSite).decode
_decode_report = msgspec.msgpack.Decoder(ChangeReport).decode


class SqliteSites:
    """Sites, their known pages, and the reports of their runs."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file

    def all(self) -> dict[str, SavedSite]:
        """Every site, by name, at one moment."""
        return self._file.read(_all_sites)

    def change(self, step: Callable[[SqliteLedger], _T], *, fence: int | None = None) -> _T:
        """Runs one step over all sites, with no other in between. It must not call the store."""

        def carried_out(db: sqlite3.Connection) -> _T:
            check_fence(db, fence)
            return step(SqliteLedger(db))

        return self._file.do(carried_out)

    def pages(self, site: str) -> dict[str, PastVisit]:
        """The known URLs of a site, including those that were not a page."""
        return self._file.read(lambda db: _known_pages(db, site))

    def report(self, task_id: str) -> ChangeReport | None:
        """The change report of a run; None before it was made."""
        sql = "SELECT record FROM site_reports WHERE task = ?"
        row = self._file.read(lambda db: db.execute(sql, (task_id,)).fetchone())
        return _decode_report(row[0]) if row else None

    def reports(self, site: str, limit: int) -> list[ChangeReport]:
        """The last reports of a site, newest first."""
        sql = "SELECT record FROM site_reports WHERE site = ? ORDER BY at DESC LIMIT ?"
        rows = self._file.read(lambda db: db.execute(sql, (site, limit)).fetchall())
        return [_decode_report(record) for (record,) in rows]

    def note_proxies(self, has_proxies: bool) -> None:
        """Stores whether the service that runs the sites has proxies; called when it starts."""
        if has_proxies is not self.has_proxies():
            sql = "INSERT OR REPLACE INTO meta VALUES ('site_proxies', ?)"
            self._file.do(lambda db: db.execute(sql, (int(has_proxies),)))

    def has_proxies(self) -> bool | None:
        """Whether the last started service has proxies; None if there was none."""
        row = self._file.read(lambda db: db.execute("SELECT value FROM meta WHERE name = 'site_proxies'").fetchone())
        return None if row is None else bool(row[0])


class SqliteLedger:
    """All sites within one step: its changes are committed together, or not at all."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.sites = _all_sites(db)

    def task(self, task_id: str) -> Task | None:
        """A task in its current state."""
        return steps.get(self._db, task_id)

    def put(self, site: SavedSite) -> None:
        """Stores a site."""
        self.sites[site.name] = site
        self._db.execute("INSERT OR REPLACE INTO sites VALUES (?, ?)", (site.name, _encode(site)))

    def submit(self, task: Task, urls: Sequence[str]) -> None:
        """Stores a new PENDING task."""
        steps.insert(self._db, task, urls)

    def pages(self, site: str) -> dict[str, PastVisit]:
        """The known URLs of a site, including those that were not a page."""
        return _known_pages(self._db, site)

    def learn(self, report: ChangeReport, learnt: Learnt) -> None:
        """Stores the report of a run, and updates the known pages of its site."""
        site = report.site
        forgotten = [(site, url) for url in learnt.forgotten]
        known = [(site, one.url, one.digest, one.at, one.etag, one.last_modified) for one in learnt.known]
        self._db.executemany("DELETE FROM site_visits WHERE site = ? AND url = ?", forgotten)
        self._db.executemany("INSERT OR REPLACE INTO site_visits VALUES (?, ?, ?, ?, ?, ?)", known)
        row = (report.task, site, report.at, _encode(report))
        self._db.execute("INSERT OR REPLACE INTO site_reports VALUES (?, ?, ?, ?)", row)
        kept = "SELECT task FROM site_reports WHERE site = ? ORDER BY at DESC LIMIT ?"
        self._db.execute(
            f"DELETE FROM site_reports WHERE site = ? AND task NOT IN ({kept})",  # noqa: S608
            (site, site, REPORTS_KEPT),
        )

    def forget(self, site: str) -> None:
        """Deletes a site, its pages and its reports; its tasks are kept."""
        self.sites.pop(site, None)
        for table, column in (("sites", "name"), ("site_visits", "site"), ("site_reports", "site")):
            self._db.execute(f"DELETE FROM {table} WHERE {column} = ?", (site,))  # noqa: S608


def _all_sites(db: sqlite3.Connection) -> dict[str, SavedSite]:
    rows = db.execute("SELECT name, record FROM sites ORDER BY name").fetchall()
    return {name: _decode_site(record) for name, record in rows}


def _known_pages(db: sqlite3.Connection, site: str) -> dict[str, PastVisit]:
    sql = "SELECT url, digest, at, etag, last_modified FROM site_visits WHERE site = ?"
    return {values[0]: PastVisit(*values) for values in db.execute(sql, (site,))}
