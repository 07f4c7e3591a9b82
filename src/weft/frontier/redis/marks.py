"""The last server operation that each process of a pod has seen: shows whether a restarted server has lost data.

    FOLDER/marks/SLOT   boot id, last operation, last item; a shared mapping, so that a killed process leaves it whole

A mark of an earlier boot shows that there was data, but not how much: a machine that went down may have lost its last
writes, here as on the server.
"""

from __future__ import annotations

import mmap
import struct
from hashlib import sha256
from pathlib import Path

from weft.frontier.requests import boot_id

_LAYOUT = struct.Struct("<16sQQ")


class PodMarks:
    """The marks of a pod; one of them is this process's own."""

    def __init__(self, folder: Path, slot: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._boot = sha256(boot_id().encode()).digest()[:16]
        path = folder / slot
        exists = path.exists()
        if not exists or path.stat().st_size != _LAYOUT.size:
            temporary = path.with_name(f".{slot}")
            # A truncated file shows that there was data before this boot: `known` must not mistake it for none.
            temporary.write_bytes(_LAYOUT.pack(b"", exists, 0))
            temporary.replace(path)
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LAYOUT.size)
        self.is_rebooted = self._map[:16] != self._boot  # since this slot's last process; also if there was none
        self._last_item = 0

    def last_seen(self) -> tuple[int | None, int]:
        """The last operation and item that any process has seen; None: there was data, but the number is unknown."""
        operation: int | None = 0
        item = 0
        for path in self._folder.glob("[!.]*"):
            data = path.read_bytes()
            if len(data) < _LAYOUT.size:
                operation = None  # the file was cut
                continue
            boot, operations, items = _LAYOUT.unpack(data[: _LAYOUT.size])
            item = max(item, items)
            if boot != self._boot:
                operation = None if operations else operation
            elif operation is not None:
                operation = max(operation, operations)
        self._last_item = item
        return operation, item

    def record_seen(self, operation: int, item: int = 0) -> None:
        """Records the last operation and item that this process has seen."""
        self._last_item = max(self._last_item, item)
        _LAYOUT.pack_into(self._map, 0, self._boot, operation, self._last_item)

    def close(self) -> None:
        """Unmaps the file."""
        self._map.close()
