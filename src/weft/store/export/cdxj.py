"""CDXJ, the index that replay tools read: key, 14 digits of time, JSON; sorted by bytes.

Time, type and status are read from the records themselves, so that the lines equal those of other indexers for the same
WARC files.
"""

from __future__ import annotations

import heapq
import json
import re
from pathlib import Path
from typing import BinaryIO

from weft.records import Row
from weft.store.export.source import ExportSource
from weft.store.export.surt import surt_key

PIECE_BYTES = 16 << 20
PIECES_PER_MERGE = 64  # files open at a time
_remove_non_digits = re.compile(r"\D").sub
_split_at_mime_end = re.compile(r"[;\s]").split


class CdxjPieces:
    """Sorted runs of lines, merged at the end."""

    def __init__(self, source: ExportSource) -> None:
        self._source = source
        self._lines: list[bytes] = []
        self._bytes = 0

    def add(self, row: Row) -> bool:
        """Adds a row, if it has a record and is a GET of its URL: CDXJ readers look up by URL."""
        if not row.warc_file or row.request:
            return False
        line = self.line(row)
        self._lines.append(line)
        self._bytes += len(line)
        return True

    def line(self, row: Row) -> bytes:
        """The row's line."""
        record = self._source.read_head(row)
        http = record.http()
        mime = http.get("content-type")
        facts = {
            "url": row.url,
            "mime": "warc/revisit"
            if record.kind == "revisit"
            else _split_at_mime_end(mime, maxsplit=1)[0]
            if mime
            else None,
            "status": str(http.status) if http.status else None,
            "digest": record.headers.get("warc-payload-digest"),
            "length": str(row.warc_length),
            "offset": str(row.warc_offset),
            "filename": row.warc_file,
        }
        stamp = _remove_non_digits("", record.headers.get("warc-date", ""))[:14]
        fields = json.dumps({name: value for name, value in facts.items() if value})
        return f"{surt_key(row.url)} {stamp} {fields}\n".encode()

    def is_full(self) -> bool:
        """Whether a run is long enough."""
        return self._bytes >= PIECE_BYTES

    def dump(self, path: Path) -> None:
        """Writes a run."""
        self._lines.sort()
        with path.open("wb", buffering=1 << 18) as out:
            out.writelines(self._lines)
        self._lines.clear()
        self._bytes = 0

    def join(self, pieces: list[Path], out: BinaryIO) -> None:
        """Merges the runs, in several passes if they are many."""
        made = 0
        while len(pieces) > PIECES_PER_MERGE:
            merged = pieces[0].with_name(f"merged-{made}")
            with merged.open("wb", buffering=1 << 18) as run:
                _merge_pieces(pieces[:PIECES_PER_MERGE], run)
            pieces = [*pieces[PIECES_PER_MERGE:], merged]
            made += 1
        _merge_pieces(pieces, out)


def _merge_pieces(pieces: list[Path], out: BinaryIO) -> None:
    files = [path.open("rb", buffering=1 << 16) for path in pieces]
    try:
        out.writelines(heapq.merge(*files))
    finally:
        for file in files:
            file.close()
