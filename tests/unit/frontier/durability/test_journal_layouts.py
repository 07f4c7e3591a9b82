"""A journal of another layout is refused; what is forgotten makes it smaller."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from weft.errors import BadInput
from weft.frontier.durability.journal import SCHEMA_VERSION, FrontierJournal, with_checksum


def test_another_layout_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "frontier.db"
    FrontierJournal(path).close()
    for version in (SCHEMA_VERSION - 1, SCHEMA_VERSION + 1):
        with closing(sqlite3.connect(path)) as db:
            value = with_checksum(msgspec.msgpack.encode(version))
            db.execute("INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", (value,))
            db.commit()
        with pytest.raises(BadInput, match=f"has layout {version}, this Weft reads {SCHEMA_VERSION}"):
            FrontierJournal(path)


def test_what_is_forgotten_makes_a_journal_smaller(tmp_path: Path) -> None:
    path = tmp_path / "frontier.db"
    journal = FrontierJournal(path)
    for start in range(0, 20_000, 2000):
        for number in range(start, start + 2000):
            journal.add_admitted_lines(1, f"{number} 0 0 0 0 1 p http://a/{number**5}\n".encode(), 1)
        journal.commit()
    journal.close()
    before = path.stat().st_size
    journal = FrontierJournal(path)
    while not journal.forget_crawls([1], 200):
        pass
    journal.close()
    assert path.stat().st_size < before / 2
