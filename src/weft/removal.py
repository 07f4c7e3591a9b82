"""Folders that are no longer used: moved away in one step, deleted by a thread.

A folder may hold a million files, and deleting those takes minutes: no caller waits for it. A killed process leaves
what it has moved; the next one that opens the same `Trash` deletes it.
"""

from __future__ import annotations

import re
import shutil
import threading
import time
from itertools import count
from pathlib import Path
from queue import SimpleQueue

_MOVED = re.compile(r"\d{15,}-\d+")


class Trash:
    """Deletes folders in the background. `folder` must be on the same file system as what is discarded."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = count()
        self._moved: SimpleQueue[Path] = SimpleQueue()
        self._thread: threading.Thread | None = None
        if folder.exists():
            self._remove(folder)

    def discard(self, path: Path) -> None:
        """Removes the folder at once for its owner; its files are deleted later. A missing folder is accepted."""
        target = self._folder / f"{time.time_ns()}-{next(self._numbers)}"
        try:
            if not path.exists():
                return
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path.rename(target)
        except OSError:  # it cannot be moved: a mount point, say
            target = path
        self._remove(target)

    def _remove(self, path: Path) -> None:
        self._moved.put(path)
        if self._thread is None:
            self._thread = threading.Thread(target=self._empty, name="removal", daemon=True)
            self._thread.start()

    def _empty(self) -> None:
        while True:
            path = self._moved.get()
            for one in _left_in(path) if path == self._folder else [path]:
                shutil.rmtree(one, ignore_errors=True)


def _left_in(folder: Path) -> list[Path]:
    """Folders that were moved here; other content of a folder of this name is not touched."""
    return [path for path in folder.iterdir() if _MOVED.fullmatch(path.name)] if folder.is_dir() else []
