"""JSONL and CSV: one row a line.

CSV is RFC 4180 (CRLF, quotes doubled), and no cell is a formula: spreadsheets run what begins with = + - @, a tab or a
carriage return, so such a cell gets a quote before it.
"""

from __future__ import annotations

import csv
import io
import os
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from weft.records import Row
from weft.store.errors import convert_write_errors
from weft.store.export.facts import ExportColumns
from weft.store.export.part import ExportPart, PartState, StreamOutput

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


class LineFormat(Protocol):
    """The line format of an output."""

    footer: bytes
    between: bytes  # two lines

    def header(self) -> bytes: ...
    def line(self, row: Row) -> bytes: ...


class JsonLines:
    """One JSON object a line."""

    footer = between = b""

    def __init__(self, facts: ExportColumns) -> None:
        self._columns = facts

    def header(self) -> bytes:
        """No header."""
        return b""

    def line(self, row: Row) -> bytes:
        """The row as an object."""
        facts = self._columns.values_of(row)
        try:
            return msgspec.json.encode(facts) + b"\n"
        except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot hold
            return msgspec.json.encode({name: _storable_value(value) for name, value in facts.items()}) + b"\n"


class JsonArray(JsonLines):
    """One JSON array, with an object a line."""

    footer, between = b"]\n", b","

    def header(self) -> bytes:
        """The beginning of the array."""
        return b"["


class CsvLines:
    """A header, then one record a row."""

    footer = between = b""

    def __init__(self, facts: ExportColumns) -> None:
        self._columns = facts
        self._out = io.StringIO(newline="")
        self._writer = csv.writer(self._out, lineterminator="\r\n")

    def header(self) -> bytes:
        """The names of the columns."""
        return self._format_record(list(self._columns.columns))

    def line(self, row: Row) -> bytes:
        """The row as a record."""
        return self._format_record([_csv_cell(value) for value in self._columns.values_of(row).values()])

    def _format_record(self, cells: list[object]) -> bytes:
        self._writer.writerow(cells)
        made = self._out.getvalue().encode("utf-8", "replace")
        self._out.seek(0)
        self._out.truncate()
        return made


class LineFile:
    """Writes lines into PATH.part."""

    def __init__(self, part: ExportPart, state: PartState, lines: LineFormat) -> None:
        self._part, self._lines = part, lines
        self._has_lines = state.rows > 0
        with convert_write_errors(part.path):
            self._file = part.path.open("r+b", buffering=1 << 18)
        self._file.seek(state.length)
        if state.length == 0:
            self._file.write(lines.header())

    def add(self, row: Row) -> bool:
        """Writes a row."""
        line = self._lines.line(row)
        with convert_write_errors(self._part.path):
            self._file.write(self._lines.between + line if self._has_lines else line)
        self._has_lines = True
        return True

    def save(self, state: PartState) -> bool:
        """Makes added rows durable."""
        with convert_write_errors(self._part.path):
            self._file.flush()
            os.fdatasync(self._file.fileno())
        state.length = self._file.tell()
        return True

    def finish(self) -> Path | None:
        """Renames the file to its final name."""
        with convert_write_errors(self._part.path):
            self._file.write(self._lines.footer)
        self.close()
        self._part.finish()
        return self._part.final

    def close(self) -> None:
        """Closes the file."""
        with convert_write_errors(self._part.path):
            self._file.close()


class LineStream(StreamOutput):
    """Writes lines to a stream."""

    def __init__(self, out: BinaryIO, lines: LineFormat) -> None:
        super().__init__(out)
        self._lines = lines
        self._has_lines = False
        out.write(lines.header())

    def add(self, row: Row) -> bool:
        """Writes a row."""
        line = self._lines.line(row)
        self._out.write(self._lines.between + line if self._has_lines else line)
        self._has_lines = True
        return True

    def finish(self) -> Path | None:
        """Ends an output that is a single value."""
        self._out.write(self._lines.footer)
        return super().finish()


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, list | dict):
        return msgspec.json.encode(value).decode()
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA_STARTS) else value


def _storable_value(value: object) -> object:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
