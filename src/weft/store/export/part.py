"""Output that may be interrupted: it is written under a temporary name, with a checkpoint of how far it is valid.

    PATH.part         what is written so far; a folder for formats that consist of several files
    PATH.part.state   the checkpoint: the order, the crawl's snapshot, the cursor, and the valid length

Invariant: everything that the checkpoint covers is in PATH.part; anything beyond is cut before continuing; PATH appears
complete, by a rename; one process at a time writes to it. An export with another order, or of a crawl whose index was
rebuilt, starts over.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from weft.errors import BadInput, Busy, Unparsed
from weft.files import open_locked, sync_folder
from weft.records import Row
from weft.store.errors import UnreadableData, convert_write_errors


class PartState(msgspec.Struct):
    """The content of PATH.part.state."""

    order: dict[str, Any]
    snapshot: dict[str, tuple[int, int]]
    since: float
    cursor: Any = None
    length: int = 0
    pieces: int = 0
    rows: int = 0
    unread: int = 0  # pages that could not be read
    unread_pages: list[str] = []  # the first of them, each with the reason
    unparsed: int = 0  # those of them that kill or block their parser: they are not damaged


MOST_UNREAD = 1000  # listed by name


class UnreadPages:
    """Counts unreadable pages in the checkpoint, so that a resumed export includes the earlier ones."""

    def __init__(self, state: PartState) -> None:
        self._state = state

    def add(self, row: Row, error: UnreadableData | Unparsed) -> None:
        """Counts a page."""
        self._state.unread += 1
        self._state.unparsed += isinstance(error, Unparsed)
        if len(self._state.unread_pages) < MOST_UNREAD:
            self._state.unread_pages.append(f"{row.url} ({error})")


class StreamOutput:
    """The common part of outputs to a stream, which cannot be resumed."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def save(self, state: PartState) -> bool:  # noqa: ARG002
        """Flushes what was written."""
        self._out.flush()
        return False

    def finish(self) -> Path | None:
        """Flushes the rest."""
        self._out.flush()
        return None

    def close(self) -> None:
        """Does nothing: the caller closes the stream."""


class ExportPart:
    """The unfinished output of one export, locked by this process."""

    def __init__(self, path: Path, *, folder: bool = False, pieces: bool = False) -> None:
        """`folder`: the output is a folder; `pieces`: it is a file that is joined from pieces in a folder."""
        self.final = path
        self.path = Path(f"{path}.part")
        self._state_path = Path(f"{path}.part.state")
        self._is_folder = folder or pieces
        if folder and path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise BadInput(f"{path} exists already: delete it, or choose another `out`")
        if not folder and path.is_dir():
            raise BadInput(f"{path} is a folder: name a file")
        if not path.parent.is_dir():
            raise BadInput(f"{path.parent} is not a folder: create it first")
        self._lock = _open_locked(self._state_path, path)

    def state(self, order: Mapping[str, Any]) -> PartState | None:
        """The checkpoint of an interrupted export with this order, if its output exists as well."""
        try:
            state = msgspec.json.decode(self._state_path.read_bytes(), type=PartState)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        if state.order != dict(order) or not self.path.exists() or self.path.is_dir() != self._is_folder:
            return None
        if not self._is_folder and self.path.stat().st_size < state.length:
            return None  # a power cut took what the checkpoint covers
        return state

    def begin(self, state: PartState) -> None:
        """Cuts off everything that the checkpoint does not cover; with an empty one, everything."""
        if self._is_folder:
            if state.cursor is None:
                self._delete_output()
            self.path.mkdir(exist_ok=True)
        else:
            if self.path.is_dir():
                self._delete_output()
            with convert_write_errors(self.path):
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                os.ftruncate(fd, state.length)
                os.close(fd)
        self.save(state)

    def save(self, state: PartState) -> None:
        """Writes the checkpoint, after the output that it covers. In place, so that the lock remains on the file."""
        data = msgspec.json.encode(state)
        with convert_write_errors(self._state_path):
            os.pwrite(self._lock, data.ljust(os.fstat(self._lock).st_size), 0)

    def finish(self) -> None:
        """Renames the complete output to its final name."""
        with convert_write_errors(self.final):
            if not self._is_folder:
                _sync_path(self.path)
            self.path.rename(self.final)
            sync_folder(self.final.parent)
        self.drop_state()

    def finish_with(self, made: Path) -> None:
        """Renames a file that was joined from the pieces to the final name, and deletes the pieces."""
        with convert_write_errors(self.final):
            _sync_path(made)
            made.rename(self.final)
            sync_folder(self.final.parent)
        self._delete_output()
        self.drop_state()

    def drop_state(self) -> None:
        """Deletes the checkpoint."""
        self._state_path.unlink(missing_ok=True)

    def close(self) -> None:
        """Releases the lock; unfinished output is kept for the next run."""
        os.close(self._lock)

    def _delete_output(self) -> None:
        if self.path.is_dir() and not self.path.is_symlink():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def _open_locked(path: Path, final: Path) -> int:
    try:
        # An export that ends deletes the file.
        return open_locked(path, os.O_RDWR | os.O_CREAT, 0o644, wait=False)
    except BlockingIOError:
        raise Busy(f"{final}: another export is writing it") from None
    except OSError as error:
        raise BadInput(f"{final} cannot be written: {error.strerror}") from None


def _sync_path(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
