"""WARC files of any tool are read, whole or broken; what cannot be read is said, and costs nothing else."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from weft.errors import BadInput
from weft.records import FetchResult
from weft.store.errors import StoreError, UnreadableData
from weft.store.warc.foreign_warc import FoundRecord, RecordReader, UnreadableStretch, find_records
from weft.store.warc.warc_content import ContentPosition
from weft.store.warc.warc_records import RecordMaker

BODIES = [b"first", Random(1).randbytes(300_000), b"", b"<p>third</p>" * 4000, b"last"]
LIMIT = 1 << 24


def warcio_file(bodies: list[bytes], compressed: bool) -> bytes:
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=compressed)
    out.write(b"")
    writer.write_record(writer.create_warcinfo_record("x.warc.gz", {"software": "warcio"}))
    for number, body in enumerate(bodies):
        head = StatusAndHeaders("200 OK", [("Content-Type", "text/html")], protocol="HTTP/1.1")
        writer.write_record(
            writer.create_warc_record(
                f"https://a.test/{number}", "response", payload=io.BytesIO(body), http_headers=head
            )
        )
    return out.getvalue()


def weft_file(bodies: list[bytes]) -> bytes:
    maker = RecordMaker()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"
    made = [
        maker.page(FetchResult("http://a.test/", 200, head, body, None, "", 1.0, 2.0, "", b"")).response
        for body in bodies
    ]
    return b"".join(part for part in made if isinstance(part, bytes))


def in_blocks(data: bytes) -> bytes:
    """gzip members that end anywhere, as bgzip makes them."""
    return b"".join(gzip.compress(data[at : at + 20_001]) for at in range(0, len(data), 20_001))


FORMS: dict[str, Callable[[], bytes]] = {
    "gzip-per-record": lambda: warcio_file(BODIES, compressed=True),
    "plain": lambda: warcio_file(BODIES, compressed=False),
    "gzip-whole": lambda: gzip.compress(warcio_file(BODIES, compressed=False)),
    "gzip-blocks": lambda: in_blocks(warcio_file(BODIES, compressed=False)),
    "weft": lambda: weft_file(BODIES),
    "bare-lines": lambda: b"".join(
        b"WARC/1.0\nWARC-Type: response\nContent-Length: %d\n\nHTTP/1.1 200 OK\n\n%b\n\n" % (len(body) + 17, body)
        for body in BODIES
    ),
}


@pytest.fixture(params=FORMS)
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "some.warc"
    path.write_bytes(FORMS[request.param]())
    return path


def responses(path: Path) -> list[FoundRecord]:
    found = [record for record in find_records(path) if isinstance(record, FoundRecord)]
    return [record for record in found if record.headers["warc-type"] == "response"]


def damage(path: Path) -> list[UnreadableStretch]:
    return [record for record in find_records(path) if isinstance(record, UnreadableStretch)]


def bodies(path: Path, records: list[FoundRecord]) -> list[bytes]:
    reader = RecordReader()
    read = [reader.read(path, record.place, LIMIT)[0].http().body for record in records]
    reader.close()
    return read


def test_every_record_is_found_and_read_again(whole: Path) -> None:
    found = responses(whole)
    assert damage(whole) == []
    assert bodies(whole, found) == BODIES
    assert all(record.start.startswith(b"HTTP/1.1 200 OK") for record in found)


def test_records_are_read_in_any_order(whole: Path) -> None:
    found = responses(whole)
    order = [*Random(3).sample(range(len(found)), len(found)), 0, 0, 4, 4]
    assert bodies(whole, [found[number] for number in order]) == [BODIES[number] for number in order]


def test_no_more_of_a_block_is_read_than_wanted(whole: Path) -> None:
    reader = RecordReader()
    found = responses(whole)
    record, is_cut = reader.read(whole, found[1].place, 1000)
    assert (len(record.block), is_cut) == (1000, True)
    assert reader.read(whole, found[4].place, 1000)[1] is False
    reader.close()


@pytest.mark.parametrize("share", [0.02, 0.3, 0.55, 0.8, 0.999])
def test_of_a_file_that_is_cut_all_before_the_cut_is_found(whole: Path, share: float) -> None:
    data = whole.read_bytes()
    whole.write_bytes(data[: int(share * len(data))])
    found = bodies(whole, responses(whole))
    assert found == BODIES[: len(found)]
    assert len(damage(whole)) == 1
    assert len(found) < len(BODIES)


@pytest.mark.parametrize("compressed", [True, False])
def test_a_cut_anywhere_costs_one_record(tmp_path: Path, compressed: bool) -> None:
    small = [b"one", b"two", b"three"]
    path, data = tmp_path / "a.warc", warcio_file(small, compressed)
    path.write_bytes(data)
    starts = [record.place.offset for record in find_records(path) if isinstance(record, FoundRecord)]
    for size in range(8, len(data) - 4, 5):
        path.write_bytes(data[:size])
        found = [record for record in find_records(path) if isinstance(record, FoundRecord)]
        begun = sum(1 for start in starts if start < size)
        assert begun - 1 <= len(found) <= begun, size
        assert len(damage(path)) == (0 if len(found) == begun else 1), size


@pytest.mark.parametrize("form", ["gzip-per-record", "weft"])
def test_a_damaged_member_is_said_and_the_next_record_found(tmp_path: Path, form: str) -> None:
    path = tmp_path / "a.warc.gz"
    data = bytearray(FORMS[form]())
    path.write_bytes(data)
    places = [record.place.offset for record in responses(path)]
    data[places[1] + 5000 : places[1] + 5100] = bytes(100)
    data[places[3] + 40] ^= 0xFF
    path.write_bytes(data)
    assert bodies(path, responses(path)) == [BODIES[0], BODIES[2], BODIES[4]]
    assert [found.offset for found in damage(path)] == [places[1], places[3]]


def test_a_wrong_length_in_a_plain_file_costs_one_record(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    data = warcio_file([b"one" * 50, b"two" * 50, b"three" * 50], compressed=False)
    wrong = b"Content-Length: 200"
    path.write_bytes(data)
    length = responses(path)[1].headers["content-length"].encode()
    at = data.index(b"Content-Length: " + length, responses(path)[1].place.offset)
    path.write_bytes(data[:at] + wrong[: 16 + len(length)] + data[at + 16 + len(length) :])
    found = bodies(path, responses(path))
    assert found[0] == b"one" * 50
    assert found[-1] == b"three" * 50
    assert len(damage(path)) == 1


def test_what_stands_between_records_costs_none(tmp_path: Path) -> None:
    path = tmp_path / "a.warc"
    for data, other in (
        (weft_file([b"one"]), weft_file([b"two"])),
        (gzip.decompress(weft_file([b"one"])), gzip.decompress(weft_file([b"two"]))),
    ):
        path.write_bytes(data + b"\0" * 3000 + b"\r\n\r\n" + other)
        assert bodies(path, responses(path)) == [b"one", b"two"]
        assert [found.offset for found in damage(path)] == [len(data)]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (b"<!doctype html>", "is no WARC file"),
        (b"\x28\xb5\x2f\xfd\0\0\0\0", "zstd"),
        (b"\x50\x2a\x4d\x18\0\0\0\0", "zstd"),
    ],
)
def test_what_is_no_warc_file_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(data)
    with pytest.raises(BadInput, match=said):
        list(find_records(path))


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"<html>", mtime=0), b"WARC/1.0\r\n", b"WARC/1.0\r\n\r\n", b"WARC/1.0\r\nContent-Length: x\r\n\r\n"],
)
def test_a_file_without_any_record_is_damage(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.warc"
    path.write_bytes(data)
    assert [type(found) for found in find_records(path)] == [UnreadableStretch]


def test_a_missing_file_and_a_place_without_a_record_are_said(tmp_path: Path, whole: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        list(find_records(tmp_path / "gone.warc"))
    reader = RecordReader()
    with pytest.raises(UnreadableData):
        reader.read(tmp_path / "gone.warc", ContentPosition(0), LIMIT)
    for place in (ContentPosition(3), ContentPosition(10**9), ContentPosition(0, 7)):
        with pytest.raises(UnreadableData):
            reader.read(whole, place, LIMIT)
    assert reader.read(whole, responses(whole)[0].place, LIMIT)[0].http().body == BODIES[0]
    reader.close()


@pytest.mark.parametrize("size", [(1 << 17) + extra for extra in range(-600, 200, 25)])
def test_what_a_decoder_holds_back_is_asked_for(tmp_path: Path, size: int) -> None:
    path = tmp_path / "a.warc.gz"
    path.write_bytes(weft_file([bytes(size)]))
    assert bodies(path, responses(path)) == [bytes(size)]
    assert damage(path) == []


def test_a_record_that_unpacks_to_very_much_is_gone_through_in_little_memory(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "a.warc.gz"
    path.write_bytes(weft_file([bytes(60_000_000), b"after"]))
    tracemalloc.start()
    found = responses(path)
    reader = RecordReader()
    record, is_cut = reader.read(path, found[0].place, 1 << 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    reader.close()
    assert len(found) == 2 and is_cut and len(record.block) == 1 << 20
    assert peak < 8 << 20
