"""Shards as Parquet. pyarrow is an extra, imported here when a shard is opened.

All shards of an output have one schema: the types that the pipeline's file gives, else those of the first rows of the
first shard that has any; it is kept beside the shards until they are published, for a run that is resumed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from weft.errors import BadInput, Missing, WeftError

_BATCH_ROWS = 1_000


def check_columns(columns: dict[str, str] | None) -> None:
    """Checks the column types: raises Missing if pyarrow is not installed, BadInput for an unknown type."""
    try:
        import pyarrow as pa
    except ImportError:
        raise Missing.of_extra("pyarrow", "parquet") from None
    for name, type_ in (columns or {}).items():
        try:
            pa.type_for_alias(type_)
        except ValueError:
            raise BadInput(
                f"output.columns.{name}: pyarrow knows no type {type_!r}; write string, int64, double, bool …"
            ) from None


class ParquetRows:
    """Writes one shard as Parquet."""

    def __init__(self, file: BinaryIO, columns: dict[str, str] | None, kept_schema: Path) -> None:
        self._file = file
        self._columns = columns
        self._kept_schema = kept_schema
        self._rows: list[Mapping[str, Any]] = []
        self._writer: Any = None
        self._schema: Any = None

    def add(self, row: Mapping[str, Any]) -> None:
        """Adds a row; rows are written in batches."""
        self._rows.append(row)
        if len(self._rows) >= _BATCH_ROWS:
            self._write()

    def close(self) -> None:
        """Writes the remaining rows, and finishes the file. It is empty if no rows came and no schema is known."""
        if self._rows or self._kept_schema.exists() or self._columns:
            self._write()
            self._writer.close()

    def abandon(self) -> None:
        """Discards the shard. The writer is marked as closed: else the garbage collector would close it, and print an
        error.
        """
        if self._writer is not None:
            self._writer.is_open = False

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._writer is None:
            self._schema = self._infer_schema()
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        if not self._rows:
            return
        try:
            table = pa.Table.from_pylist([dict(row) for row in self._rows], schema=self._schema)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise WeftError(f"a row does not fit the columns of the output: {error}; give output.columns") from None
        extra = {name for row in self._rows for name in row} - set(self._schema.names)
        if extra:
            raise WeftError(
                f"a row has columns that the first rows had not: {', '.join(sorted(extra))}; give output.columns"
            )
        self._writer.write_table(table)
        self._rows.clear()

    def _infer_schema(self) -> Any:
        import pyarrow as pa

        if self._columns:
            return pa.schema([(name, pa.type_for_alias(type_)) for name, type_ in self._columns.items()])
        if self._kept_schema.exists():
            return pa.ipc.read_schema(pa.py_buffer(self._kept_schema.read_bytes()))
        names = dict.fromkeys(name for row in self._rows for name in row)
        inferred = pa.Table.from_pylist([{name: row.get(name) for name in names} for row in self._rows]).schema
        schema = pa.schema(
            [(field.name, pa.string() if pa.types.is_null(field.type) else field.type) for field in inferred]
        )
        new = self._kept_schema.with_suffix(".part")
        new.write_bytes(schema.serialize().to_pybytes())
        new.replace(self._kept_schema)
        return schema
