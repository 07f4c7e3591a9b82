"""Files that several processes open at the same time."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from weft.files import use_write_ahead_log


def test_a_new_database_that_another_process_is_opening_is_waited_for(tmp_path: Path) -> None:
    # With a time limit of 0 SQLite refuses at once, as it does where two would wait for each other.
    holder, other = (
        sqlite3.connect(tmp_path / "x.db", timeout=0, isolation_level=None, check_same_thread=False) for _ in range(2)
    )
    holder.execute("BEGIN EXCLUSIVE")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        use_write_ahead_log(other, 0.0)
    release = threading.Timer(0.1, holder.execute, ["ROLLBACK"])
    release.start()
    use_write_ahead_log(other)
    release.join()
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)
