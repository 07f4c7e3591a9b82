"""The heads of stored responses, by row; the WARC files are kept open between two calls."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

from weft.records import Row
from weft.store.errors import UnreadableData
from weft.store.warc.warc_read import http_head

MOST_OPEN_FILES = 32


class ResponseHeads:
    """Reads heads; `close` closes the files."""

    def __init__(self, warc_path: Callable[[Row], Path]) -> None:
        """`warc_path`: the file of a row's record."""
        self._warc_path = warc_path
        self._open: OrderedDict[Path, int] = OrderedDict()

    def head_of(self, row: Row) -> bytes | None:
        """The head of a row's response; None if its record cannot be read to its end."""
        path = self._warc_path(row)
        try:
            return http_head(path, self._descriptor_of(path), row.warc_offset, row.warc_length)
        except UnreadableData:
            return None

    def close(self) -> None:
        """Closes the WARC files."""
        while self._open:
            os.close(self._open.popitem()[1])

    def _descriptor_of(self, path: Path) -> int:
        fd = self._open.get(path)
        if fd is None:
            try:
                fd = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise UnreadableData(path, f"cannot be read: {error.strerror}") from error
            if len(self._open) > MOST_OPEN_FILES:
                os.close(self._open.popitem(last=False)[1])
        return fd
