"""A machine that went down, as the next start of a crawl or an engine sees it."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

from weft.frontier.durability.mark import _MARK_FIELDS, _RECORD_BYTES, read_mark


def reboot(path: Path) -> None:
    """The mark as another boot of the machine left it, which had synced nothing yet."""
    told = read_mark(path)
    assert told is not None
    fields = _MARK_FIELDS.pack(bytes(16), told.commits, 0)
    record = fields + crc32(fields).to_bytes(4, "little")
    path.write_bytes((record + bytes(_RECORD_BYTES - len(record))) * 2)
