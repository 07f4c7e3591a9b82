"""Writes a crawl's items to a file: JSON lines as they are committed; CSV, JSON and Parquet completely at the end.

A file of lines belongs to its crawl, which stores the length of the file with its position: what a kill has left after
that is cut off, so a resume neither loses nor repeats an item. The other formats are written from all committed items
each time, and replace the file when complete.
"""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from weft.crawl.items.processed import reader_of
from weft.crawl.items.reading import ItemPosition, position_path, read_position, write_position
from weft.errors import BadInput, Missing, writing

FORMATS = ("jsonl", "csv", "json", "parquet")
STDOUT = "-"
_SAMPLED_ITEMS = 1000  # items from which Parquet's column types are derived at a time


class ItemOutput(Protocol):
    """A file that items are written to."""

    @property
    def written(self) -> int:
        """Items so far."""

    def write_new_items(self) -> None:
        """Writes new items, if the format allows it before the end."""

    def close(self) -> None:
        """Writes the rest after the crawl has ended."""


def check_output(out: str) -> str:
    """The format of an output file; raises BadInput for an unknown suffix, Missing if a required package is not
    installed."""
    if out == STDOUT:
        return "jsonl"
    format_ = Path(out).suffix.lower().lstrip(".")
    format_ = {"jl": "jsonl", "ndjson": "jsonl", "pq": "parquet"}.get(format_, format_)
    if format_ not in FORMATS:
        raise BadInput(f"{out}: its suffix is not that of a format: use {', '.join('.' + one for one in FORMATS)}")
    try:
        if Path(out).is_dir():
            raise BadInput(f"{out} is a folder: name a file")
        if not Path(out).resolve().parent.is_dir():
            raise BadInput(f"{out}: there is no folder {Path(out).resolve().parent}")
        Path(out).exists()
    except (OSError, ValueError) as error:  # a name that is too long, or has a null byte
        raise BadInput(
            f"{out[:100]}: no file can have this name: {getattr(error, 'strerror', None) or error}"
        ) from None
    if format_ == "parquet":
        _import_pyarrow()
    return format_


def open_output(
    data_dirs: Sequence[Path],
    out: str,
    *,
    overwrite: bool = False,
    append: bool = False,
    format_: str = "",
    fields: Sequence[str] = (),
) -> ItemOutput:
    """Opens an output of a crawl; raises BadInput if the file exists and was not written by this crawl, unless it may
    be overwritten.

    `format_`: the format, if the file's name does not tell; `fields`: the fields that are written, in this order.
    """
    format_ = format_ or check_output(out)
    path = position_path(data_dirs, _reader_name(out))
    kept = None if overwrite else read_position(path)
    if out != STDOUT and Path(out).exists() and kept is None and not (overwrite or append):
        raise BadInput(f"{out} exists already: overwrite it with `--overwrite`, or add to it with `--append`")
    if format_ != "jsonl":
        if append:
            raise BadInput(f"{out}: only lines of JSON can be added to a file: leave `--append` out")
        return WholeFile(lambda: with_fields(all_items(data_dirs), fields), Path(out), format_, path, fields)
    return ItemLinesFile(data_dirs, out, path, kept, overwrite=overwrite, fields=fields)


def with_fields(items: Iterator[bytes], fields: Sequence[str]) -> Iterator[bytes]:
    """The items with these fields alone, in this order."""
    if not fields:
        yield from items
        return
    for item in items:
        values = msgspec.json.decode(item)
        yield msgspec.json.encode({name: values[name] for name in fields if name in values})


def all_items(data_dirs: Sequence[Path]) -> Iterator[bytes]:
    """Every committed item of a crawl."""
    reader = reader_of(data_dirs)
    try:
        yield from reader.new_items()
    finally:
        reader.close()


class ItemLinesFile:
    """JSON lines, written as items are committed."""

    def __init__(
        self,
        data_dirs: Sequence[Path],
        out: str,
        path: Path,
        kept: ItemPosition | None,
        *,
        overwrite: bool = False,
        fields: Sequence[str] = (),
    ) -> None:
        """`kept`: the position of an earlier run in the file."""
        self.written = 0
        self._fields = fields
        self._path = path
        self._reader = reader_of(data_dirs, kept)
        self._is_stdout = out == STDOUT
        self._file: BinaryIO
        if self._is_stdout:
            self._file = sys.stdout.buffer
            return
        there = Path(out).stat().st_size if Path(out).exists() and not overwrite else 0
        if kept is not None and there < kept.length:  # the file was deleted or truncated: write all of it again
            kept, there = None, 0
        if kept is None:
            self._reader = reader_of(data_dirs, kept := ItemPosition(length=there))
            write_position(path, kept, durable=True)  # before the file exists: from now on it belongs to the crawl
        with writing(Path(out)):
            self._file = Path(out).open("ab")  # noqa: SIM115 (`close` closes it)
            self._file.truncate(kept.length)
            self._file.seek(0, io.SEEK_END)

    def write_new_items(self) -> None:
        """Writes new items; stores the position when the lines are on the disk."""
        before = self.written
        for item in with_fields(self._reader.new_items(), self._fields):
            self._file.write(item + b"\n")
            self.written += 1
        if self.written == before:
            return
        self._file.flush()
        position = self._reader.position
        if not self._is_stdout:
            os.fsync(self._file.fileno())
            position.length = self._file.tell()
        write_position(self._path, position)

    def close(self) -> None:
        """Writes the remaining items."""
        self.write_new_items()
        self._reader.close()
        if not self._is_stdout:
            self._file.close()


class SeveralOutputs:
    """Several files of one crawl."""

    def __init__(self, outputs: Sequence[ItemOutput]) -> None:
        self._outputs = outputs

    @property
    def written(self) -> int:
        """The number of items so far."""
        return max(one.written for one in self._outputs)

    def write_new_items(self) -> None:
        """Writes the new items."""
        for one in self._outputs:
            one.write_new_items()

    def close(self) -> None:
        """Writes the rest."""
        for one in self._outputs:
            one.close()


OpenItems = Callable[[], Iterator[bytes]]  # returns all items from the first one, at each call


class WholeFile:
    """A file that is written from all items at the end."""

    def __init__(
        self, items: OpenItems, out: Path, format_: str, path: Path | None = None, fields: Sequence[str] = ()
    ) -> None:
        """`path`: where the crawl records that the file is its own. `fields`: the columns of a table."""
        self.written = 0
        self._fields = fields
        self._path = path
        self._items = items
        self._out = out
        self._format = format_

    def write_new_items(self) -> None:
        """Does nothing: the columns are not known before the end."""

    def close(self) -> None:
        """Writes all items to a new file, and replaces the old one."""
        beside = self._out.with_name(f".{self._out.name}.part")
        with writing(self._out):
            with beside.open("wb") as file:
                writers = {
                    "jsonl": self._write_jsonl,
                    "csv": self._write_csv,
                    "json": self._write_json,
                    "parquet": self._write_parquet,
                }
                self.written = writers[self._format](file)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._out)
        if self._path is not None:
            write_position(self._path, ItemPosition())  # so that a resume may replace it

    def _write_jsonl(self, file: BinaryIO) -> int:
        count = 0
        for item in self._items():
            file.write(item + b"\n")
            count += 1
        return count

    def _write_json(self, file: BinaryIO) -> int:
        count = 0
        for item in self._items():
            file.write((b",\n" if count else b"[\n") + item)
            count += 1
        file.write(b"\n]\n" if count else b"[]\n")
        return count

    def _write_csv(self, file: BinaryIO) -> int:
        names, count = dict[str, None](), 0
        for item in self._items() if not self._fields else ():
            names.update(dict.fromkeys(msgspec.json.decode(item)))
        names.update(dict.fromkeys(self._fields))
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        table = csv.writer(text)
        table.writerow(names)
        for item in self._items():
            values = msgspec.json.decode(item)
            table.writerow([_cell_value(values.get(name)) for name in names])
            count += 1
        text.detach()
        return count

    def _write_parquet(self, file: BinaryIO) -> int:
        pa, pq = _import_pyarrow()
        schema, count = self._infer_schema(pa), 0
        with pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for rows in _chunks(self._items()):
                texts = [
                    {field.name: _convert_to_column(pa, field, row.get(field.name)) for field in schema} for row in rows
                ]
                writer.write_table(pa.Table.from_pylist(texts, schema=schema))
                count += len(rows)
        return count

    def _infer_schema(self, pa: Any) -> Any:
        """The columns of all items; a column with values of several types becomes text."""
        columns: dict[str, Any] = {}
        for rows in _chunks(self._items()):
            for name in dict.fromkeys(name for row in rows for name in row):
                kind = _column_type(pa, [row.get(name) for row in rows])
                before = columns.get(name, pa.null())
                columns[name] = _common_type(pa, before, kind)
        fields = [(name, pa.string() if pa.types.is_null(kind) else kind) for name, kind in columns.items()]
        return pa.schema(fields)


def _chunks(items: Iterator[bytes]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    for item in items:
        rows.append(msgspec.json.decode(item))
        if len(rows) == _SAMPLED_ITEMS:
            yield rows
            rows = []
    if rows:
        yield rows


def _column_type(pa: Any, values: list[Any]) -> Any:
    try:
        return pa.array(values).type
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.string()


def _common_type(pa: Any, one: Any, other: Any) -> Any:
    if pa.types.is_null(one) or one == other:
        return other
    if pa.types.is_null(other):
        return one
    numbers = {pa.int64(), pa.float64()}
    return pa.float64() if {one, other} == numbers else pa.string()


def _convert_to_column(pa: Any, field: Any, value: Any) -> Any:
    """A value converted to the type of its column: in a text column every value becomes text."""
    if value is None or not pa.types.is_string(field.type):
        return value
    return _cell_value(value)


def _cell_value(value: Any) -> Any:
    """A value in a table cell: lists and mappings as JSON."""
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _import_pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise Missing.of_extra("pyarrow", "parquet") from None
    return pa, pq


def _reader_name(out: str) -> str:
    return "stdout" if out == STDOUT else sha256(str(Path(out).resolve()).encode()).hexdigest()[:16]
