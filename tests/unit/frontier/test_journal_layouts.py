"""A journal of the first layout, which knew one crawl, is brought to the present one; a later one is refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from isal import isal_zlib

from weft.config import PolitenessSection
from weft.errors import BadInput
from weft.frontier.contract import CrawlLimits
from weft.frontier.embedded.frontier import EmbeddedFrontier
from weft.frontier.journal import SCHEMA_VERSION, Journal, packed_items, sealed
from weft.frontier.view import FrontierView
from weft.records import Reason

FIRST = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID;
CREATE TABLE crawls (number INTEGER PRIMARY KEY, record BLOB);
CREATE TABLE journal (seq INTEGER PRIMARY KEY, admitted BLOB, done BLOB);
CREATE TABLE retries (item INTEGER PRIMARY KEY, attempt INTEGER, wall REAL);
CREATE TABLE sites (key TEXT PRIMARY KEY, record BLOB) WITHOUT ROWID;
CREATE TABLE robots (origin TEXT PRIMARY KEY, expires REAL, record BLOB) WITHOUT ROWID;
CREATE TABLE robots_tries (origin TEXT PRIMARY KEY, attempt INTEGER, wall REAL) WITHOUT ROWID;
CREATE TABLE robots_history (origin TEXT, wall REAL, record BLOB, PRIMARY KEY (origin, wall)) WITHOUT ROWID;
CREATE TABLE outbox (pod INTEGER, number INTEGER, message BLOB, PRIMARY KEY (pod, number)) WITHOUT ROWID;
CREATE TABLE refusals (reason TEXT, url TEXT, parent INTEGER);
CREATE TABLE sitemaps (site TEXT PRIMARY KEY, count INTEGER) WITHOUT ROWID;
"""


def first_layout(folder: Path, version: int = 1) -> Path:
    """Four URLs admitted, one of them done, one tried before."""
    folder.mkdir()
    path = folder / "frontier.db"
    lines = "\n".join(f"{item} 0 0 0 0 1 p http://a/{item}" for item in range(1, 5))
    with closing(sqlite3.connect(path)) as db:
        db.executescript(FIRST)
        for name, value in {"schema_version": version, "epoch": 3, "commits": 2}.items():
            db.execute("INSERT INTO meta VALUES (?, ?)", (name, sealed(msgspec.msgpack.encode(value))))
        db.execute("INSERT INTO crawls VALUES (1, ?)", (sealed(msgspec.msgpack.encode({"name": "old", "seed": 5})),))
        db.execute("INSERT INTO journal VALUES (1, ?, NULL)", (isal_zlib.compress(lines.encode(), 1),))
        db.execute("INSERT INTO journal VALUES (2, NULL, ?)", (packed_items([2]),))
        db.execute("INSERT INTO retries VALUES (3, 2, 1000.0)")
        db.execute("INSERT INTO refusals VALUES ('scope', 'http://x/', 1)")
        db.commit()
    return path


def test_the_first_layout_goes_on_as_it_was(tmp_path: Path) -> None:
    first_layout(tmp_path / "f")
    for _ in range(2):  # the second time it is of the present layout
        frontier = EmbeddedFrontier(tmp_path / "f", PolitenessSection(delay_s=1.0, places=1))
        crawl = frontier.crawls.open_crawl("old", CrawlLimits())
        frontier.recovery.recover()
        waiting = {item.item: item.attempt for item in frontier.queue.items(crawl)}
        assert (crawl, waiting) == (1, {1: 0, 3: 2, 4: 0})
        frontier.close()
    frontier = EmbeddedFrontier(tmp_path / "f", PolitenessSection(delay_s=1.0, places=1))
    frontier.crawls.open_crawl("old", CrawlLimits())
    other = frontier.crawls.open_crawl("new", CrawlLimits())
    frontier.recovery.recover()
    assert other == 2, "a new crawl has a number of its own"
    frontier.rejected.refused(other, Reason.TRAP, "http://y/", 2)
    frontier.durability.commit()
    view = FrontierView([tmp_path / "f"])
    assert (view.refusal("http://x/", crawl=1), view.refusal("http://x/", crawl=other)) == ("scope", None)
    view.close()
    frontier.crawls.close_crawl(1)
    frontier.crawls.closed(1)
    while not frontier.crawls.forget_crawls([1]):
        pass
    frontier.close()
    with closing(sqlite3.connect(tmp_path / "f" / "frontier.db")) as db:
        assert db.execute("SELECT count(*) FROM journal WHERE crawl = 1").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM retries").fetchone() == (0,)
        assert db.execute("SELECT * FROM refusals").fetchall() == [("trap", "http://y/", 2, other)]


def test_a_kill_before_the_migration_is_committed_leaves_the_first_layout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = first_layout(tmp_path / "f")
    before = path.read_bytes()

    class Killed(Exception):
        pass

    def killed(_: object) -> bytes:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("weft.frontier.journal.sealed", killed)
        with pytest.raises(Killed):
            Journal(path)
    with closing(sqlite3.connect(path)) as db:
        assert [row[1] for row in db.execute("PRAGMA table_info(journal)")] == ["seq", "admitted", "done"]
    assert len(before) == path.stat().st_size
    journal = Journal(path)
    assert journal.meta("schema_version") == SCHEMA_VERSION
    journal.close()


def test_a_later_layout_is_refused(tmp_path: Path) -> None:
    path = first_layout(tmp_path / "f", version=SCHEMA_VERSION + 1)
    with pytest.raises(BadInput, match=f"has layout {SCHEMA_VERSION + 1}, this Weft reads {SCHEMA_VERSION}"):
        Journal(path)


def test_what_is_forgotten_makes_a_journal_smaller(tmp_path: Path) -> None:
    path = tmp_path / "frontier.db"
    journal = Journal(path)
    for start in range(0, 20_000, 2000):
        for number in range(start, start + 2000):
            journal.admit(1, f"{number} 0 0 0 0 1 p http://a/{number**5}\n".encode(), 1)
        journal.commit()
    journal.close()
    before = path.stat().st_size
    journal = Journal(path)
    while not journal.forget([1], 200):
        pass
    journal.close()
    assert path.stat().st_size < before / 2
