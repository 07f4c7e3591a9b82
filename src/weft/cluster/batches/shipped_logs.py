"""The logs of items that ran on hands, as files of the run: the same folders and names as those of local workers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from weft.pipelines.pool.record import OK, SKIPPED, STATUSES
from weft.pipelines.pool.worker.item_log import append_to, entry, index_line, index_path, log_path, shared_path


class ShippedLogs:
    """Writes the log of each item that has ended. A full disk costs the log, never the item."""

    def __init__(self, folder: Path, is_shared: Callable[[], bool]) -> None:
        """`is_shared`: whether a worker has one log for all of its items, from now on."""
        self._folder = str(folder)
        self._is_shared = is_shared

    def keep(self, item_id: str | int, pid: int, data: bytes, status: int) -> str:
        """Where the log is."""
        own = log_path(self._folder, item_id, pid)
        with contextlib.suppress(OSError):
            if not self._is_shared():
                append_to(own, data)
                return own
            section = entry("INFO", "begin", "Item", {"item": item_id}) + data
            shared = shared_path(self._folder, pid)
            offset = append_to(shared, section)
            append_to(index_path(shared), index_line(item_id, STATUSES[status], offset, len(section)))
            if status in (OK, SKIPPED):
                return shared
            append_to(own, section)
        return own
