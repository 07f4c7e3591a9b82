"""Reading finds whole records, and says where a file is torn."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from weft.records import FetchResult
from weft.store.errors import StoreError
from weft.store.repair.damage import DamageGap
from weft.store.warc.warc_read import WarcScan, parse_record, read_record
from weft.store.warc.warc_records import RecordMaker


def members(bodies: list[bytes]) -> list[bytes]:
    maker = RecordMaker()
    head = b"HTTP/1.1 200 OK\r\n\r\n"
    results = [FetchResult("http://a.test/", 200, head, body, None, "", 1.0, 2.0, "", b"") for body in bodies]
    return [response for result in results if isinstance(response := maker.page(result).response, bytes)]


def test_read_record_finds_each_at_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    parts = members([b"one", b"two" * 100_000, b""])
    path.write_bytes(b"".join(parts))
    offset = 0
    for part, body in zip(parts, [b"one", b"two" * 100_000, b""], strict=True):
        assert read_record(path, offset, len(part)).http().body == body
        offset += len(part)


@pytest.mark.parametrize(("offset", "length"), [(1, 50), (0, 20), (10_000, 50), (0, 10_000)])
def test_read_record_refuses_a_place_without_a_record(tmp_path: Path, offset: int, length: int) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(b"".join(members([b"one"])))
    with pytest.raises(StoreError) as caught:
        read_record(path, offset, length)
    assert caught.value.path == path


def test_read_record_names_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone\.warc\.gz: cannot be read"):
        read_record(tmp_path / "gone.warc.gz", 0, 10)


@pytest.mark.parametrize(
    "data", [b"", b"WARC/1.1\r\nContent-Length: 5\r\n\r\nab", b"GIF89a\r\n\r\n", b"WARC/1.1\r\n\r\n"]
)
def test_parse_refuses_what_is_no_record(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_record(data)


def test_scan_gives_places_and_records(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    bodies = [b"x" * size for size in (0, 1, 300_000, 5_000_000, 7)]
    parts = members(bodies)
    path.write_bytes(b"".join(parts))
    scan = WarcScan(path)
    found = list(scan)
    assert [place.record.http().body for place in found] == bodies
    assert [place.length for place in found] == [len(part) for part in parts]
    assert [place.offset for place in found] == [sum(map(len, parts[:n])) for n in range(5)]
    assert (scan.end, scan.torn) == (path.stat().st_size, False)
    assert [place.offset for place in WarcScan(path, found[3].offset)] == [found[3].offset, found[4].offset]


@pytest.mark.parametrize(
    "tail", [b"", b"\xff" * 40, b"junk", b"\x1f\x8b\x08\0"], ids=["nothing", "ones", "junk", "gzip"]
)
def test_scan_tells_where_a_file_is_torn_at_any_byte(tmp_path: Path, tail: bytes) -> None:
    path = tmp_path / "a.warc.gz"
    parts = members([b"one", b"two", b"three"])
    whole = b"".join(parts)
    ends = [0, len(parts[0]), len(parts[0] + parts[1]), len(whole)]
    for cut in range(0, len(whole) + 1, 5 if tail else 1):
        path.write_bytes(whole[:cut] + tail)
        scan = WarcScan(path)
        count = len(list(scan))
        assert scan.end == max(end for end in ends if end <= cut)
        assert count == ends.index(scan.end)
        assert scan.torn == (cut + len(tail) > scan.end)


def test_scan_passes_over_a_member_that_is_no_record(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    (good,) = members([b"one"])
    odd = gzip.compress(b"no record")
    path.write_bytes(good + odd + good)
    scan = WarcScan(path)
    assert [place.offset for place in scan] == [0, len(good + odd)]
    assert (scan.end, scan.torn, scan.gaps) == (path.stat().st_size, False, [DamageGap(len(good), len(odd))])
    path.write_bytes(good + odd)
    scan = WarcScan(path)
    assert len(list(scan)) == 1
    assert (scan.end, scan.torn, scan.gaps) == (len(good), True, [])


def test_scan_of_an_empty_file_finds_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.warc.gz"
    path.touch()
    scan = WarcScan(path)
    assert list(scan) == []
    assert (scan.end, scan.torn) == (0, False)


def test_files_of_other_writers_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "theirs.warc.gz"
    with path.open("wb") as out:
        writer = WARCWriter(out, gzip=True)
        for n in range(3):
            headers = StatusAndHeaders("200 OK", [("A", "1"), ("a", "2")], protocol="HTTP/1.1")
            record = writer.create_warc_record(
                f"http://a.test/{n}", "response", payload=io.BytesIO(b"body %d" % n), http_headers=headers
            )
            writer.write_record(record)
    found = [place.record.http() for place in WarcScan(path)]
    assert [http.body for http in found] == [b"body 0", b"body 1", b"body 2"]
    assert found[0].headers == (("A", "1"), ("a", "2"))
    assert found[0].get("a") == "1"
    assert found[0].get("b") is None
    assert found[0].status == 200
