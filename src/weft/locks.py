"""Locked files that another process may delete: a file that is opened, and locked only then, may be gone in between.

Whoever deletes such a file locks it first: a lock on a file that its path still names is a lock on a file that stays.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def open_locked(path: Path, flags: int, mode: int = 0o600, *, wait: bool = True) -> int:
    """Opens a file with an exclusive lock on it; opens it again if it was deleted or replaced before the lock was held.

    BlockingIOError if another process has the lock and `wait` is False.
    """
    while True:
        fd = os.open(path, flags | os.O_CLOEXEC, mode)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            if is_at(fd, path):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def is_at(fd: int, path: Path) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
