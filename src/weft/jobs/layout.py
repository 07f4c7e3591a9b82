"""Where the service keeps what in its data dir, and whether there is room for more."""

from pathlib import Path
from shutil import disk_usage

STORE = "jobs.db"  # tasks, webhooks and sites
ENGINE = "engine"  # the engine's folder
LEAST_ROOM_BYTES = 16 << 20  # with less, no task is accepted: it could store no page


def has_room(data_dir: Path) -> bool:
    """Whether the disk has room for what a new task would store."""
    return disk_usage(data_dir).free >= LEAST_ROOM_BYTES
