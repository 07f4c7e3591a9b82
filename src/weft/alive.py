"""How work that grows with a crawl reports that it makes progress.

Code that does such work is handed a function without arguments, `alive`, and calls it for each bounded piece: a
thousand rows, a file, a record. The process decides what the call does (a heartbeat, a line for the user).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

Alive = Callable[[], None]
_SQLITE_STEPS = 20_000  # of its virtual machine: less than a millisecond in memory, some seconds on a slow disk


def silent() -> None:
    """For work that no supervisor waits for."""


def watch(db: sqlite3.Connection, alive: Alive | None) -> None:
    """Has a connection call `alive` from inside its statements, which may read a whole table."""
    db.set_progress_handler(None if alive is silent else alive, _SQLITE_STEPS)
