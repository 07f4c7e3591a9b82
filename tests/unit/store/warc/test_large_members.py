"""WARC records of bodies that are in files: what readers see, and that a write that fails can be made again."""

from __future__ import annotations

import gzip
import io
import os
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from weft.bodies import FileBody
from weft.records import FetchResult
from weft.store.warc.members import LargeMember, gzip_member
from weft.store.warc.warc_file import WarcFile
from weft.store.warc.warc_read import http_head, read_record
from weft.store.warc.warc_records import RecordMaker, payload_digest

TEXT = b"".join(b"<p>%d</p>\n" % number for number in range(200_000))
BODIES = {"text": TEXT, "gzip": gzip.compress(os.urandom(1 << 20)), "odd": os.urandom(3 * 65535)}


def in_file(folder: Path, data: bytes) -> FileBody:
    path = folder / "body"
    path.write_bytes(data)
    return FileBody(os.open(path, os.O_RDONLY), 0, len(data))


@pytest.mark.parametrize("kind", BODIES)
def test_a_member_in_pieces_holds_what_one_in_memory_does(tmp_path: Path, kind: str) -> None:
    body = BODIES[kind]
    large = LargeMember(b"head\r\n", in_file(tmp_path, body), b"\r\n\r\n")
    made = b"".join(large.pieces())
    assert gzip.decompress(made) == gzip.decompress(gzip_member(b"head\r\n", body, b"\r\n\r\n"))
    assert len(large) == len(made) and b"".join(large.pieces()) == made


@pytest.mark.parametrize("kind", BODIES)
def test_a_record_is_read_back_whole(tmp_path: Path, kind: str) -> None:
    body, head = BODIES[kind], b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: x\r\n\r\n"
    result = FetchResult(
        "http://a.test/", 200, head, in_file(tmp_path, body), None, "", 1.0, 2.0, "", b"GET / HTTP/1.1"
    )
    page = RecordMaker().page(result)
    assert page.digest == payload_digest(body)
    path = tmp_path / "a.warc.gz"
    file = WarcFile(path, 0)
    file.append([page.request, page.response])
    file.close()
    offset, length = len(page.request), len(page.response)
    assert path.stat().st_size == offset + length
    assert read_record(path, offset, length).http().body == body
    with path.open("rb") as opened:
        assert http_head(path, opened.fileno(), offset, length) == head
    records = list(ArchiveIterator(io.BytesIO(path.read_bytes()), check_digests=True))
    assert len(records) == 2


def test_a_write_that_fails_leaves_the_file_as_it_was_and_can_be_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = WarcFile(tmp_path / "a.warc.gz", 0)
    file.append([b"before"])
    large = LargeMember(b"head", in_file(tmp_path, BODIES["odd"]), b"tail")
    real, written = os.pwrite, 0

    def fills_up(fd: int, data: bytes, at: int) -> int:
        nonlocal written
        written += 1
        if written == 3:
            raise OSError(28, "No space left on device")
        return real(fd, data, at)

    monkeypatch.setattr(os, "pwrite", fills_up)
    with pytest.raises(Exception, match=r"(?i)space|full"):
        file.append([b"x", large, b"y"])
    assert file.path.read_bytes() == b"before"
    assert file.append([large, b"after"]) == 6
    file.close()
    assert file.path.read_bytes()[6:] == b"".join(large.pieces()) + b"after"
