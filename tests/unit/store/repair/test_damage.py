"""Behind a damaged place the next whole record is found, and no record of somebody else's is taken for the file's."""

from __future__ import annotations

import base64
import gzip
import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.records import FetchResult
from weft.store.errors import StoreError
from weft.store.repair import damage
from weft.store.repair.damage import DamageGap, RecordRun, find_runs, measure_member, runs_of_file, writer_of
from weft.store.warc.warc_read import WarcScan
from weft.store.warc.warc_records import RecordMaker

HEAD = b"HTTP/1.1 200 OK\r\n\r\n"


def records(*bodies: bytes, maker: RecordMaker | None = None) -> list[bytes]:
    """Responses by one writer."""
    maker = maker or RecordMaker()
    results = [FetchResult("http://a.test/", 200, HEAD, body, None, "", 1.0, 2.0, "", b"") for body in bodies]
    return [response for result in results if isinstance(response := maker.page(result).response, bytes)]


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def scanned(path: Path, data: bytes, known: Callable[[int], bool] = lambda _: False) -> tuple[list[int], WarcScan]:
    """Where records are found in these bytes, and what the scan says afterwards."""
    path.write_bytes(data)
    scan = WarcScan(path, known=known)
    return [place.offset for place in scan], scan


def never(_offset: int) -> bool:
    return False


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.warc.gz"


def test_a_bit_flipped_anywhere_in_a_record_costs_that_record_alone(path: Path) -> None:
    parts = records(b"first", b"the second " * 9, b"third", b"fourth")
    begin, length = len(parts[0]), len(parts[1])
    rest = [begin + length, begin + length + len(parts[2])]
    unharmed = 0
    for at in range(length):
        data = parts[0] + flipped(parts[1], at) + parts[2] + parts[3]
        found, scan = scanned(path, data)
        if found == [0, begin, *rest]:  # bits that mean nothing: in the gzip header, and those that fill the last byte
            assert 3 <= at < 10 or at == length - 9
            unharmed += 1
            continue
        assert (found, scan.gaps) == ([0, *rest], [DamageGap(begin, length)]), at
        assert (scan.end, scan.torn) == (len(data), False)
    assert unharmed <= 8


@pytest.mark.parametrize("size", [1, 3, 100, damage._CHUNK_BYTES - 2, damage._CHUNK_BYTES, 3 * damage._CHUNK_BYTES + 1])
def test_records_behind_zeros_of_any_length_are_found(path: Path, size: int) -> None:
    one, two = records(b"one", b"two")
    found, scan = scanned(path, one + bytes(size) + two)
    assert (found, scan.gaps, scan.torn) == ([0, len(one) + size], [DamageGap(len(one), size)], False)


@pytest.mark.parametrize("shift", range(-4, 3))
def test_a_record_that_begins_at_the_end_of_what_is_read_at_once_is_found(path: Path, shift: int) -> None:
    (one,) = records(b"one")
    begin = damage._CHUNK_BYTES + 1 + shift  # the search begins at 1
    found, _ = scanned(path, bytes(begin) + one)
    assert found == [begin]


def test_damage_to_the_first_record_leaves_the_others(path: Path) -> None:
    parts = records(b"info", b"one", b"two")
    found, scan = scanned(path, flipped(parts[0], 40) + parts[1] + parts[2])
    assert found == [len(parts[0]), len(parts[0] + parts[1])]
    assert (scan.gaps, scan.torn) == ([DamageGap(0, len(parts[0]))], False)


def test_two_breaks_and_a_torn_end_are_distinguished(path: Path) -> None:
    parts = records(*(b"body %d" % n * 20 for n in range(6)))
    at = [sum(map(len, parts[:n])) for n in range(7)]
    data = b"".join([parts[0], flipped(parts[1], 30), parts[2], flipped(parts[3], 30), parts[4], parts[5][:-1]])
    found, scan = scanned(path, data)
    assert found == [at[0], at[2], at[4]]
    assert scan.gaps == [DamageGap(at[1], len(parts[1])), DamageGap(at[3], len(parts[3]))]
    assert (scan.end, scan.torn) == (at[5], True)


def test_records_inside_a_page_are_not_taken_for_the_file_s_own(path: Path) -> None:
    inner = b"".join(records(b"somebody's page", b"and another"))
    outer = records(b"before", inner, b"behind")
    assert inner in outer[1]  # a body that came compressed is kept as it is
    data = outer[0] + flipped(outer[1], 40) + outer[2]
    found, scan = scanned(path, data)
    assert found == [0, len(outer[0] + outer[1])]
    assert scan.gaps == [DamageGap(len(outer[0]), len(outer[1]))]
    torn, scan = scanned(path, outer[0] + flipped(outer[1], 40))
    assert (torn, scan.end, scan.torn) == ([0], len(outer[0]), True)


def test_another_writer_s_records_count_where_they_reach_the_end_or_the_index_knows_them(path: Path) -> None:
    """A resumed crawl goes on in a file with ids of another prefix, and the damage may lie where they begin."""
    first, later = records(b"one"), records(b"two", b"three", b"four")
    data = first[0] + bytes(50) + later[0] + later[1]
    begin = len(first[0]) + 50
    assert scanned(path, data)[0] == [0, begin, begin + len(later[0])]
    enclosed = data + bytes(9)
    assert scanned(path, enclosed)[0] == [0]
    assert scanned(path, enclosed, lambda offset: offset == begin + len(later[0]))[0][1:] == [
        begin, begin + len(later[0]),
    ]  # fmt: skip
    # What is tied to the end vouches for its writer's records before another break.
    assert scanned(path, enclosed + later[2])[0] == [0, begin, begin + len(later[0]), len(enclosed)]


def test_own_runs_ties_run_to_run_until_nothing_changes() -> None:
    a, b, c, odd = (
        RecordRun(0, 5, {"x"}),
        RecordRun(7, 9, {"x", "y"}),
        RecordRun(11, 12, {"y"}),
        RecordRun(14, 15, {""}),
    )
    assert runs_of_file([a, b, c, odd], {"x"}, 99) == [a, b, c]
    assert runs_of_file([a, b, c, odd], {""}, 99) == []
    assert runs_of_file([a, b, c, odd], set(), 12) == [a, b, c]
    assert runs_of_file([a, b, c, odd], set(), 15) == [odd]


def test_the_ids_of_a_writer_have_all_but_their_serial_in_common() -> None:
    maker = RecordMaker()
    writers = {writer_of(f"<urn:uuid:{maker._new_id()}>") for _ in range(20)}
    assert writers == {f"<urn:uuid:{maker._prefix}"}
    assert writer_of("<urn:1>") == ""


def member(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def record(length: bytes, block: bytes, version: bytes = b"WARC/1.0") -> bytes:
    return version + b"\r\nWARC-Record-ID: <urn:uuid:123456789012>\r\nContent-Length: " + length + b"\r\n\r\n" + block


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (record(b"3", b"abc\r\n\r\n"), True),
        (record(b"3", b"abc"), True),
        (record(b"3", b"ab"), False),
        (record(b"3", b"abc\r\n\r\n+"), False),
        (record(b"0", b"\r\n\r\n"), True),
        (record(b"-1", b""), False),
        (record(b"\xc2\xb2", b""), False),
        (record(b"3", b"abc\r\n\r\n", b"WARC/2.0"), False),
        (record(b"3", b"abc", b"HTTP/1.1"), False),
        (b"WARC/1.1\r\nContent-Length: 3", False),
        (b"WARC/1.1\r\n\r\n", False),
        (b"WARC", False),
        (b"", False),
    ],
)
def test_measure_knows_a_whole_record(content: bytes, whole: bool) -> None:
    made = member(content)
    found = measure_member(io.BytesIO(b"xy" + made + b"behind"), 2)
    assert found == ((len(made), "<urn:uuid:") if whole else None)


def test_measure_takes_the_longest_head_and_no_longer_one() -> None:
    # What hardly gets smaller: of a head of one letter a single step unpacks to a thousand times as much.
    filling = base64.b64encode(random.Random(1).randbytes(2 * damage._MOST_HEAD_BYTES))

    def with_head(size: int) -> io.BytesIO:
        start = b"WARC/1.1\r\nContent-Length: 0\r\nX: "
        return io.BytesIO(member(start + filling[: size - len(start) - 4] + b"\r\n\r\n"))

    assert measure_member(with_head(damage._MOST_HEAD_BYTES), 0) is not None
    assert measure_member(with_head(damage._MOST_HEAD_BYTES + 4 * damage._STEP), 0) is None


def test_what_a_hostile_body_unpacks_to_is_not_kept() -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = packer.compress(record(b"99", b"")) + b"".join(packer.compress(bytes(1 << 20)) for _ in range(64))
    bomb += packer.flush()
    read = io.BytesIO(bomb)
    assert measure_member(read, 0) is None
    assert read.tell() < len(bomb)  # it was not even read to its end


def test_a_file_that_cannot_be_read_is_no_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        list(WarcScan(tmp_path / "gone.warc.gz"))
    with pytest.raises(StoreError, match="cannot be read"):
        list(WarcScan(tmp_path))


def test_find_runs_gives_every_run_with_who_wrote_it() -> None:
    first, second = records(b"one", b"two"), records(b"three")
    data = b"xx" + first[0] + first[1] + b"yy" + second[0]
    seen: list[int] = []

    def known(offset: int) -> bool:
        seen.append(offset)
        return offset == 2 + len(first[0])

    runs = find_runs(io.BytesIO(data), 0, known)
    ends = [2 + len(first[0] + first[1]), len(data)]
    assert [(run.begin, run.end, run.is_known) for run in runs] == [(2, ends[0], True), (ends[0] + 2, ends[1], False)]
    assert [len(run.writers) for run in runs] == [1, 1] and runs[0].writers != runs[1].writers
    assert seen == [2, 2 + len(first[0]), ends[0] + 2]
    assert find_runs(io.BytesIO(data), len(data) - 3, never) == []
