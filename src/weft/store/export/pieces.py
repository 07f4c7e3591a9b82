"""Formats that cannot be appended to (sorted CDXJ, Parquet): pieces in the folder PATH.part, joined at the end.

Must stay true: a piece under its final name is complete; piece N holds the rows from checkpoint N to the next; joining
reads the pieces a little at a time and can be repeated.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

from weft.records import Row
from weft.store.errors import convert_write_errors
from weft.store.export.part import ExportPart, PartState


class PieceFormat(Protocol):
    """The part of a format that writes pieces and joins them."""

    def add(self, row: Row) -> bool:
        """Adds a row; False if the format does not include it."""

    def is_full(self) -> bool:
        """Whether enough rows were added for a piece."""

    def dump(self, path: Path) -> None:
        """Writes the rows added since the last piece to this file."""

    def join(self, pieces: list[Path], out: BinaryIO) -> None:
        """Joins all pieces into one output."""


class PieceFolder:
    """Writes pieces into PATH.part/."""

    def __init__(self, part: ExportPart, state: PartState, pieces: PieceFormat, stream: BinaryIO | None = None) -> None:
        self._part, self._pieces, self._stream = part, pieces, stream
        self._count = state.pieces
        counted = {self._piece_path(number).name for number in range(state.pieces)}
        for path in part.path.iterdir():
            if path.name not in counted:
                path.unlink()

    def add(self, row: Row) -> bool:
        """Adds a row."""
        return self._pieces.add(row)

    def save(self, state: PartState) -> bool:
        """Writes a piece, if there are enough rows for one."""
        if not self._pieces.is_full():
            return False
        self._write_piece()
        state.pieces = self._count
        return True

    def finish(self) -> Path | None:
        """Joins the pieces; the output appears complete."""
        self._write_piece()
        paths = [self._piece_path(number) for number in range(self._count)]
        if len(paths) == 1 and self._stream is None:
            self._part.finish_with(paths[0])
            return self._part.final
        if self._stream is not None:
            self._pieces.join(paths, self._stream)
            self._stream.flush()
            return None
        whole = self._part.path / "whole"
        with convert_write_errors(whole), whole.open("wb", buffering=1 << 18) as out:
            self._pieces.join(paths, out)
        self._part.finish_with(whole)
        return self._part.final

    def close(self) -> None:
        """Closes nothing: the pieces are kept for the next run."""

    def _write_piece(self) -> None:
        path = self._piece_path(self._count)
        temporary = path.with_suffix(".half")
        with convert_write_errors(path):
            self._pieces.dump(temporary)
            temporary.rename(path)
        self._count += 1

    def _piece_path(self, number: int) -> Path:
        return self._part.path / f"{number:06d}"
