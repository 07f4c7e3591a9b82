"""The files of the service in its data dir, and whether the disk has room."""

import sqlite3
from contextlib import closing
from pathlib import Path
from shutil import disk_usage

STORE = "jobs.db"  # The file with tasks, webhooks and sites.
ENGINE = "engine"  # the engine's folder
LEAST_ROOM_BYTES = 16 << 20  # with less, no task is accepted: it could store no page


def has_room(data_dir: Path) -> bool:
    """Whether the disk has room for what a new task would store."""
    return disk_usage(data_dir).free >= LEAST_ROOM_BYTES


def crawls_in(engine_dir: Path) -> int:
    """How many crawls of tasks the engine has; 0 if it has no index, or none that can be read."""
    total = 0
    for path in engine_dir.glob("index-*.db"):
        try:
            with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
                total += db.execute("SELECT count(*) FROM crawls").fetchone()[0]
        except sqlite3.Error:
            continue
    return total
