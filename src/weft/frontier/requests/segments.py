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
from weft.frontier.requests.log_packing import LogPacker, PartIndex
from weft.frontier.requests.packed_log import PART_BYTES, PackedSegment, UnreadableLog, write_packed

_BYTES_BETWEEN_PAUSES = 256 * 1024  # of lines that are read between two calls of `pause`
_LEDGER_NAME = "deleted.json"


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


class DeletedRequests(Struct, frozen=True):
    """The record of what retention has deleted."""

    through: int = -1  # every file up to this number
    until: float = 0.0  # the latest request in them, by the wall clock
    requests: int = 0


def segment_name(serial: int, suffix: str = ".log") -> str:
    """A file's name."""
    return f"requests-{serial:05d}{suffix}"


def segment_serial(path: Path) -> int:
    """A file's number; -1 for a file that does not belong to the log."""
    name, _, number = path.stem.rpartition("-")
    return int(number) if name == "requests" and number.isdecimal() else -1


def segments_of(folder: Path) -> list[Segment]:
    """The valid files of a log, oldest first."""
    paths_by_serial: dict[int, dict[str, Path]] = {}
    for path in folder.glob("requests-*"):
        if path.suffix in (".log", ".packed") and (serial := segment_serial(path)) >= 0:
            paths_by_serial.setdefault(serial, {})[path.suffix] = path
    with suppress(UnreadableLog):
        through = deleted_from(folder).through
        paths_by_serial = {serial: paths for serial, paths in paths_by_serial.items() if serial > through}
    return [
        Segment(serial, paths.get(".log"), paths.get(".packed")) for serial, paths in sorted(paths_by_serial.items())
    ]


def deleted_from(folder: Path) -> DeletedRequests:
    """The record of deletions of a log; UnreadableLog if it is damaged."""
    path = folder / _LEDGER_NAME
    try:
        values = json.loads(path.read_bytes())
        deleted = DeletedRequests(int(values["through"]), float(values["until"]), int(values["requests"]))
        if values["sum"] != _checksum_of(deleted):
            raise ValueError
    except FileNotFoundError:
        return DeletedRequests()
    except (ValueError, KeyError, TypeError):
        raise UnreadableLog(path, "the record of what was deleted is damaged") from None
    return deleted


def record_deleted(folder: Path, deleted: DeletedRequests) -> None:
    """Records deletions before the files are deleted."""
    values = {
        "through": deleted.through,
        "until": deleted.until,
        "requests": deleted.requests,
        "sum": _checksum_of(deleted),
    }
    replace_file(folder / _LEDGER_NAME, json.dumps(values).encode())


def _checksum_of(deleted: DeletedRequests) -> int:
    return crc32(f"{deleted.through} {deleted.until!r} {deleted.requests}".encode())


def pack_segment(plain: Path, out: Path, carried: dict[int, int], pause: Callable[[], None] = silent) -> int:
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


def _packers(plain: Path, carried: dict[int, int], pause: Callable[[], None]) -> Iterator[LogPacker]:
    """One filled packer for each part of a file; there is always one."""
    packer = LogPacker(carried)
    with plain.open("rb") as file:
        while data := file.read(_BYTES_BETWEEN_PAUSES):
            if not data.endswith(b"\n"):
                data += file.readline()
            if packer.raw_bytes + len(data) > PART_BYTES and packer.raw_bytes:
                yield packer
                packer = LogPacker(packer.open_requests())
            packer.add_lines(data)
            pause()
    yield packer


def open_requests_after(segment: Segment | None) -> dict[int, int]:
    """The requests that are open at the end of a segment, with their blocks."""
    if segment is None:
        return {}
    if segment.packed is not None:
        with suppress(UnreadableLog, OSError):
            return PackedSegment(segment.packed).parts[-1].open_requests()
    opened: dict[int, int] = {}
    if segment.plain is not None:
        for packer in _packers(segment.plain, opened, silent):
            opened = packer.open_requests()
    return opened


def replace_by_packed(segment: Segment, before: Segment | None, pause: Callable[[], None]) -> bool:
    """Replaces a closed file by a packed one; False if the file is damaged, which is kept unchanged."""
    assert segment.plain is not None
    packed, beside = segment.plain.with_suffix(".packed"), segment.plain.with_suffix(".tmp")
    if segment.packed is not None and _has_all_lines(segment.packed, segment.plain):
        segment.plain.unlink()
        return True
    beside.unlink(missing_ok=True)
    try:
        with writing(packed):
            unreadable = pack_segment(segment.plain, beside, open_requests_after(before), pause)
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


def _has_all_lines(packed: Path, plain: Path) -> bool:
    """Whether a packed file has all lines of a plain one: after a kill both may exist."""
    try:
        segment = PackedSegment(packed)
        for part in segment.parts:
            for frame in part.frame_positions():
                segment.read_frame(frame)
        return segment.raw_bytes == plain.stat().st_size
    except (UnreadableLog, OSError):
        return False
