"""A folder that one process at a time may change: a cache, an output."""

from __future__ import annotations

import os
from pathlib import Path

from weft.errors import BadInput, Busy
from weft.files import try_lock
from weft.supervise.pool.owner import Owner, owner_of


class FolderLock:
    """The lock on a folder: held from construction to `release`, or to the end of the process."""

    def __init__(self, folder: Path, what: str, name: str = "lock") -> None:
        """Creates the folder if necessary; raises Busy if another process holds the lock."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise BadInput(f"{what} cannot be used: {error.strerror}") from None
        if not try_lock(self._fd):
            owner = owner_of(self._fd)
            os.close(self._fd)
            by = f", process {owner.pid}" if owner is not None else ""
            raise Busy(f"{what} is in use by another run{by}: wait for its end, or name another folder")
        Owner.this_process().sign(self._fd)

    def release(self) -> None:
        """Releases the lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
