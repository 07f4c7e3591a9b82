"""Bodies in memory and in files: what goes where, that memory is bounded, and that nothing is left open or behind."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest

from weft.bodies import ALONE_BYTES, LEAST_BYTES, Arriving, FileBody, Spool, chunks_of, first_of, held_bytes

PIECE = bytes(range(256)) * 64  # 16 KB


def arrived(spool: Spool, pieces: int) -> Arriving:
    arriving = Arriving(spool)
    for _ in range(pieces):
        arriving.add(PIECE)
    return arriving


def open_files() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_small_body_stays_in_memory(tmp_path: Path) -> None:
    spool = Spool(1 << 20, tmp_path)
    arriving = arrived(spool, 2)
    body = arriving.whole()
    assert body == PIECE * 2 and spool.held == held_bytes(body) == 2 * len(PIECE)
    arriving.clear()
    assert (spool.held, spool.files, arriving.size) == (0, 0, 0)


def test_a_large_body_goes_to_a_file_without_a_name(tmp_path: Path) -> None:
    spool, before = Spool(1 << 30, tmp_path), open_files()
    arriving = arrived(spool, ALONE_BYTES // len(PIECE) + 5)
    assert spool.held <= 4 * len(PIECE) and spool.files == 1
    body = arriving.whole()
    arriving.clear()
    assert isinstance(body, FileBody) and len(body) == ALONE_BYTES + 5 * len(PIECE) and held_bytes(body) == 0
    assert b"".join(chunks_of(body)) == PIECE * (len(body) // len(PIECE))
    assert first_of(body, 300) == PIECE[:300]
    assert list(tmp_path.iterdir()) == []
    del body
    assert open_files() == before and spool.held == 0


def test_when_memory_is_short_lesser_bodies_go_to_files_and_the_smallest_stay(tmp_path: Path) -> None:
    spool = Spool(1 << 20, tmp_path)
    many = [arrived(spool, 3 * LEAST_BYTES // len(PIECE)) for _ in range(40)]
    assert spool.held <= spool.limit + 3 * LEAST_BYTES and spool.files > 20
    small = [arrived(spool, 1) for _ in range(10)]
    assert all(isinstance(one.whole(), bytes) for one in small)
    assert all(b"".join(chunks_of(one.whole())) == PIECE * 12 for one in many)
    for one in many + small:
        one.clear()
    assert spool.held == 0


def test_small_bodies_alone_take_no_more_than_twice_the_memory(tmp_path: Path) -> None:
    spool = Spool(1 << 20, tmp_path)
    small = [arrived(spool, 2) for _ in range(200)]
    assert spool.held <= 2 * spool.limit + len(PIECE)
    assert all(b"".join(chunks_of(one.whole())) == PIECE * 2 for one in small)
    for one in small:
        one.clear()
    assert spool.held == 0


def test_an_empty_body_is_empty(tmp_path: Path) -> None:
    assert Arriving(Spool(1 << 20, tmp_path)).whole() == b""


def test_what_is_dropped_leaves_nothing_open(tmp_path: Path) -> None:
    spool, before = Spool(1 << 20, tmp_path), open_files()
    arrived(spool, 200).clear()
    assert open_files() == before and spool.held == 0


def test_a_disk_that_is_full_is_told(tmp_path: Path) -> None:
    class Full(Spool):
        def new_file(self) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    arriving = Arriving(Full(1 << 20, tmp_path))
    with pytest.raises(OSError, match="No space left"):
        arriving.add(PIECE * 200)
    arriving.clear()


def test_a_file_that_was_cut_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "cut"
    path.write_bytes(b"x" * 100)
    body = FileBody(os.open(path, os.O_RDONLY), 0, 200)
    with pytest.raises(OSError, match="ends after 100 of 200"):
        b"".join(body.chunks())
