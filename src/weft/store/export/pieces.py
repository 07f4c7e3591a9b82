"""Formats that cannot be appended to (sorted CDXJ, Parquet): whole pieces in the folder PATH.part, joined at the end.

Must stay true: a piece under its name is whole; piece N holds the rows from checkpoint N to the next; joining reads the
pieces a little at a time and can be done over.
"""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO, Protocol

from weft.records import Row
from weft.store.errors import writing
from weft.store.export.part import Part, State


class Pieces(Protocol):
    """How a format makes its pieces, and one output of them."""

    def add(self, row: Row) -> bool:
        """Takes a row; False where it is none for this format."""

    def is_full(self) -> bool:
        """Whether as much was taken as a piece should hold."""

    def dump(self, path: Path) -> None:
        """Puts what was taken since the last piece under this name."""

    def join(self, pieces: list[Path], out: BinaryIO) -> None:
        """One output of all pieces."""


class PieceFolder:
    """Pieces into PATH.part/."""

    def __init__(self, part: Part, state: State, pieces: Pieces, stream: BinaryIO | None = None) -> None:
        self._part, self._pieces, self._stream = part, pieces, stream
        self._count = state.pieces
        counted = {self._name(number).name for number in range(state.pieces)}
        for path in part.path.iterdir():
            if path.name not in counted:
                path.unlink()

    def add(self, row: Row) -> bool:
        """Takes a row."""
        return self._pieces.add(row)

    def save(self, state: State) -> bool:
        """Makes what was added count, when there is enough for a piece."""
        if not self._pieces.is_full():
            return False
        self._dump()
        state.pieces = self._count
        return True

    def finish(self) -> Path | None:
        """Joins the pieces; the output appears whole."""
        self._dump()
        paths = [self._name(number) for number in range(self._count)]
        if len(paths) == 1 and self._stream is None:
            self._part.finish_with(paths[0])
            return self._part.final
        if self._stream is not None:
            self._pieces.join(paths, self._stream)
            self._stream.flush()
            return None
        whole = self._part.path / "whole"
        with writing(whole), whole.open("wb", buffering=1 << 18) as out:
            self._pieces.join(paths, out)
        self._part.finish_with(whole)
        return self._part.final

    def close(self) -> None:
        """Pieces stay for the next time."""

    def _dump(self) -> None:
        path = self._name(self._count)
        beside = path.with_suffix(".half")
        with writing(path):
            self._pieces.dump(beside)
            beside.rename(path)
        self._count += 1

    def _name(self, number: int) -> Path:
        return self._part.path / f"{number:06d}"
