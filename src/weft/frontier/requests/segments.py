"""The files of one request log, and how a closed one is packed and, at last, deleted.

    requests-00007.log      lines; the newest is appended to
    requests-00006.packed   a closed one, packed (`packed`)
    deleted.json            what retention has deleted, written before it is: its files count no more from then on

A number that is neither there nor deleted is a loss. A closed file with a line that cannot be read stays as it is.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from weft.alive import silent
from weft.errors import writing
from weft.files import replace_file, sync_folder
from weft.frontier.requests.log_packing import Packer, PartIndex
from weft.frontier.requests.packed_log import PART_BYTES, PackedSegment, Unjudged, write_packed

_PIECE_BYTES = 256 * 1024  # of lines that are read between two calls of `pause`
_LEDGER = "deleted.json"


class Segment(Struct, frozen=True):
    """One file of a log; while it is packed, both are there."""

    serial: int
    plain: Path | None
    packed: Path | None

    @property
    def path(self) -> Path:
        """The path of the file that is read."""
        path = self.packed or self.plain
        assert path is not None
        return path


class Deleted(Struct, frozen=True):
    """The record of what retention has deleted."""

    through: int = -1  # every file up to this number
    until: float = 0.0  # the latest request in them, by the wall clock
    requests: int = 0


def name_of(serial: int, suffix: str = ".log") -> str:
    """A file's name."""
    return f"requests-{serial:05d}{suffix}"


def serial_of(path: Path) -> int:
    """A file's number; -1 for a file that does not belong to the log."""
    name, _, number = path.stem.rpartition("-")
    return int(number) if name == "requests" and number.isdecimal() else -1


def segments_of(folder: Path) -> list[Segment]:
    """The valid files of a log, oldest first."""
    found: dict[int, dict[str, Path]] = {}
    for path in folder.glob("requests-*"):
        if path.suffix in (".log", ".packed") and (serial := serial_of(path)) >= 0:
            found.setdefault(serial, {})[path.suffix] = path
    with suppress(Unjudged):
        through = deleted_from(folder).through
        found = {serial: paths for serial, paths in found.items() if serial > through}
    return [Segment(serial, paths.get(".log"), paths.get(".packed")) for serial, paths in sorted(found.items())]


def deleted_from(folder: Path) -> Deleted:
    """The record of deletions of a log; Unjudged if it is damaged."""
    path = folder / _LEDGER
    try:
        values = json.loads(path.read_bytes())
        deleted = Deleted(int(values["through"]), float(values["until"]), int(values["requests"]))
        if values["sum"] != _sum(deleted):
            raise ValueError
    except FileNotFoundError:
        return Deleted()
    except (ValueError, KeyError, TypeError):
        raise Unjudged(path, "the record of what was deleted is damaged") from None
    return deleted


def record_deleted(folder: Path, deleted: Deleted) -> None:
    """Records deletions before the files are deleted."""
    values = {"through": deleted.through, "until": deleted.until, "requests": deleted.requests, "sum": _sum(deleted)}
    replace_file(folder / _LEDGER, json.dumps(values).encode())


def _sum(deleted: Deleted) -> int:
    return crc32(f"{deleted.through} {deleted.until!r} {deleted.requests}".encode())


def pack(plain: Path, out: Path, carried: dict[int, int], pause: Callable[[], None] = silent) -> int:
    """Writes a packed copy of a file; `carried`: the requests open before it. Returns how many lines could not be read.

    `pause` is called after each piece, and may raise to stop the work.
    """
    parts: list[tuple[list[bytes], PartIndex]] = []
    raw_bytes = unreadable = offset = 0
    for packer in _packers(plain, carried, pause):
        *frames, index = packer.frames(offset)
        raw_bytes += packer.raw_bytes
        unreadable += packer.unreadable
        pieces = []
        for frame in frames:
            assert isinstance(frame, bytes)
            pieces.append(frame)
            offset += len(frame)
            pause()
        assert isinstance(index, PartIndex)
        parts.append((pieces, index))
    write_packed(out, raw_bytes, parts)
    return unreadable


def _packers(plain: Path, carried: dict[int, int], pause: Callable[[], None]) -> Iterator[Packer]:
    """One filled packer for each part of a file; there is always one."""
    packer = Packer(carried)
    with plain.open("rb") as file:
        while data := file.read(_PIECE_BYTES):
            if not data.endswith(b"\n"):
                data += file.readline()
            if packer.raw_bytes + len(data) > PART_BYTES and packer.raw_bytes:
                yield packer
                packer = Packer(packer.open())
            packer.add(data)
            pause()
    yield packer


def open_after(segment: Segment | None) -> dict[int, int]:
    """The requests that are open at the end of a segment, with their blocks."""
    if segment is None:
        return {}
    if segment.packed is not None:
        with suppress(Unjudged, OSError):
            return PackedSegment(segment.packed).parts[-1].open()
    opened: dict[int, int] = {}
    if segment.plain is not None:
        for packer in _packers(segment.plain, opened, silent):
            opened = packer.open()
    return opened


def replace_by_packed(segment: Segment, before: Segment | None, pause: Callable[[], None]) -> bool:
    """Replaces a closed file by a packed one; False if the file is damaged, which is kept unchanged."""
    assert segment.plain is not None
    packed, beside = segment.plain.with_suffix(".packed"), segment.plain.with_suffix(".tmp")
    if segment.packed is not None and _is_whole(segment.packed, segment.plain):
        segment.plain.unlink()
        return True
    beside.unlink(missing_ok=True)
    try:
        with writing(packed):
            unreadable = pack(segment.plain, beside, open_after(before), pause)
            if unreadable:
                return False
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(packed)
            sync_folder(packed.parent)
            segment.plain.unlink()
    finally:
        beside.unlink(missing_ok=True)
    return True


def _is_whole(packed: Path, plain: Path) -> bool:
    """Whether a packed file has all lines of a plain one: after a kill both may exist."""
    try:
        segment = PackedSegment(packed)
        for part in segment.parts:
            for frame in part.frames():
                segment.read(frame)
        return segment.raw_bytes == plain.stat().st_size
    except (Unjudged, OSError):
        return False
