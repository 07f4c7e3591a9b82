"""Parquet with Common Crawl's column names, and columns of content where they are asked for.

Row groups are bounded in bytes, so that memory is; pyarrow is an extra and is imported here alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from weft.errors import Missing
from weft.records import Row
from weft.store.export.columns import COLUMN_TYPES, common_crawl_columns
from weft.store.export.facts import ExportColumns, extracted_fields
from weft.store.export.request import CERTAINTY_COLUMN, CONTENT_COLUMNS, RULE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 500  # rows kept as Python objects; then as Arrow's, which need a tenth of the memory
GROUP_ROWS = 10_000
GROUP_BYTES = 4 << 20
PIECE_BYTES = 64 << 20
MOSTLY_UNIQUE_COLUMNS = frozenset(("url_surtkey", "url", "url_path", "url_query", "content_digest", "fetch_redirect"))


def parquet_schema(names: tuple[str, ...]) -> pa.Schema:
    """The schema of these columns; Missing if pyarrow is not installed."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # Arrow's own allocator retains 50 MB more
    try:
        import pyarrow as pa
    except ImportError:
        raise Missing.of_extra("pyarrow", "parquet") from None
    types = {
        "string": pa.string(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
        "timestamp": pa.timestamp("ms", tz="UTC"), "double": pa.float64(),
    }  # fmt: skip
    return pa.schema(
        [(name, types["double" if name == CERTAINTY_COLUMN else COLUMN_TYPES.get(name, "string")]) for name in names]
    )


class ParquetPieces:
    """Files of some row groups each, joined into one at the end."""

    def __init__(
        self,
        facts: ExportColumns,
        names: tuple[str, ...],
        crawl_id: str,
        reads: bool,
        folder: Path,
        crawls: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._crawls = crawls
        self._facts, self._names, self._crawl_id, self._reads = facts, names, crawl_id, reads
        self._contents = [name for name in names if name in CONTENT_COLUMNS]
        self._reads_fields = not set(RULE_COLUMNS).isdisjoint(names)
        self._schema = parquet_schema(names)
        # A dictionary of values that do not repeat costs memory and saves nothing.
        self._repeated = [
            name for name in names if name not in MOSTLY_UNIQUE_COLUMNS and name not in CONTENT_COLUMNS + RULE_COLUMNS
        ]
        self._rows: list[dict[str, object]] = []
        self._group: list[pa.RecordBatch] = []
        self._piece = folder / "growing"
        self._out: BinaryIO | None = None
        self._parquet: Any = None
        self._bytes = self._group_bytes = self._piece_bytes = 0

    def add(self, row: Row) -> bool:
        """Adds a row, if it had a response."""
        if not row.status:
            return False
        content = self._facts.values_of(row) if self._reads else {}
        language, detected = content.pop("language", None), content.pop("mime", None)
        crawl = self._crawls.get(row.crawl, self._crawl_id)
        values = common_crawl_columns(row, crawl, _storable_text(language), _storable_text(detected)) | content
        if self._reads_fields:
            read = extracted_fields(row, RULE_COLUMNS) if row.fields else {}
            values |= {name: _checked_json(read.get(name)) for name in RULE_COLUMNS}
        self._rows.append({name: values[name] for name in self._names})
        self._bytes += 500 + len(row.fields) + sum(len(str(values[name] or "")) for name in self._contents)
        if len(self._rows) >= BATCH_ROWS or self._bytes >= GROUP_BYTES // 4:
            self._end_batch()
        return True

    def is_full(self) -> bool:
        """Whether a piece is long enough."""
        return self._piece_bytes >= PIECE_BYTES

    def dump(self, path: Path) -> None:
        """Ends a piece."""
        self._end_batch()
        self._end_group()
        assert self._out is not None
        self._parquet.close()
        self._out.close()
        self._piece.rename(path)
        self._out = self._parquet = None
        self._piece_bytes = 0

    def join(self, pieces: list[Path], out: BinaryIO) -> None:
        """Writes one file of all row groups."""
        import pyarrow.parquet as pq

        with self._make_writer(out) as writer:
            for path in pieces:
                with pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as piece:
                    for group in range(piece.num_row_groups):
                        writer.write_table(piece.read_row_group(group, use_threads=False))

    def _end_batch(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._group.append(pa.RecordBatch.from_pylist(self._rows, schema=self._schema))
            self._group_bytes += self._bytes
            self._rows.clear()
            self._bytes = 0
        if self._group_bytes >= GROUP_BYTES or len(self._group) * BATCH_ROWS >= GROUP_ROWS:
            self._end_group()

    def _end_group(self) -> None:
        """Writes a row group; the first one opens the piece."""
        import pyarrow as pa

        if self._out is None:
            self._out = self._piece.open("wb")
            self._parquet = self._make_writer(self._out)
        if self._group:
            self._parquet.write_table(pa.Table.from_batches(self._group))
        self._group.clear()
        self._piece_bytes += self._group_bytes
        self._group_bytes = 0

    def _make_writer(self, out: BinaryIO) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetWriter(
            out,
            self._schema,
            compression="zstd",
            use_dictionary=self._repeated,
            data_page_size=1 << 17,
            write_batch_size=256,
        )


def _checked_json(value: object) -> str | None:
    """JSON text: fields differ from crawl to crawl, so no column type fits them."""
    return msgspec.json.encode(value).decode() if value else None


def _storable_text(value: object) -> str | None:
    return value if isinstance(value, str) else None
