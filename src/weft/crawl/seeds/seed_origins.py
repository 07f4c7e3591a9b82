"""The origins of a large seed file, read once: if seeds decide the scope, every process needs them.

    DATA/seeds-N.origins    a line for some pieces of seeds-N.pack: their end offset, their new origins, a CRC-32

The lines are appended while the file is read, before the crawl's time is counted. Reading that was interrupted
continues after the last complete line; a resume finds it finished.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from zlib import crc32

from weft import urls
from weft.crawl.seeds.seed_file import all_seeds
from weft.crawl.seeds.seed_streams import Piece, SeedStream
from weft.errors import writing

_WRITE_EVERY_S = 0.5
_REPORT_EVERY_S = 2.0


def recorded_origins_of(home: Path, stream: SeedStream) -> tuple[list[str], int]:
    """The recorded origins of a stream, and the offset of the first piece that is not covered."""
    origins, at = list[str](), 0
    for reached, some, _ in _read_lines(_origins_path(home, stream)):
        origins += some
        at = reached
    return origins, at


def record_origins(
    home: Path, stream: SeedStream, pieces: Callable[[int], Iterable[Piece]], report_progress: Callable[[str], None]
) -> None:
    """Reads the pieces that are not recorded yet; `report_progress` is called with the progress. `pieces`: those of the
    stream from an offset on."""
    path, size = _origins_path(home, stream), 0
    known, at = set[str](), 0
    for at, some, size in _read_lines(path):  # noqa: B007 (the last ones count)
        known.update(some)
    if at >= stream.bytes:
        return
    new, now = list[str](), time.monotonic()
    write_at, report_at = now + _WRITE_EVERY_S, now + _REPORT_EVERY_S
    with writing(path):
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with writing(path), os.fdopen(fd, "wb") as file:
        file.truncate(size)  # an incomplete line
        for piece in pieces(at):
            for seed in all_seeds(piece.lines):
                if (origin := urls.origin_of(seed)) not in known:
                    known.add(origin)
                    new.append(origin)
            if (now := time.monotonic()) >= write_at or piece.end >= stream.bytes:
                file.write(_encode_line(piece.end, new))
                file.flush()
                new, write_at = [], now + _WRITE_EVERY_S
            if now >= report_at:
                report_at = now + _REPORT_EVERY_S
                report_progress(f"reading the scope of the seeds, once: {piece.text_before / stream.text_bytes:.0%}")
        os.fsync(file.fileno())


def _origins_path(home: Path, stream: SeedStream) -> Path:
    return (home / stream.name).with_suffix(".origins")


def _encode_line(at: int, origins: list[str]) -> bytes:
    text = f"{at} {' '.join(origins)}".encode()
    return b"%b\t%08x\n" % (text, crc32(text))


def _read_lines(path: Path) -> Iterator[tuple[int, list[str], int]]:
    """Each complete line: its end offset in the stream, its origins, and its end in the file."""
    end = 0
    try:
        with path.open("rb") as file:
            for line in file:
                text, _, checksum = line.rpartition(b"\t")
                if checksum != b"%08x\n" % crc32(text):
                    return
                end += len(line)
                at, *origins = text.decode().split()
                yield int(at), origins, end
    except FileNotFoundError:
        return
