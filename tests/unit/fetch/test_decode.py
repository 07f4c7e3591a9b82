"""Content codings: what comes back, and how much of it, from good, cut, broken and hostile bodies."""

from __future__ import annotations

import gzip
import random
import time
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import patience
from zstd_module import zstd

from weft.fetch.decode import MAX_MEMBERS, DecodedBody, decode

MIB = 1024 * 1024
LIMIT = 10 * MIB


@cache
def page(size: int) -> bytes:
    """Text that packs about as well as a page does."""
    words = random.Random(size).choices(
        "the a crawl of <p> </p> page <a href='/x'> link web 1 2 3 weave".split(), k=size // 3
    )
    return " ".join(words).encode()[:size]


def gz(data: bytes) -> bytes:
    return gzip.compress(data, 1)


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def zstd_stream(data: bytes) -> bytes:
    """As a server streams it: without the size, with a checksum."""
    options: dict[int, int] = {
        zstd.CompressionParameter.content_size_flag: 0,
        zstd.CompressionParameter.checksum_flag: 1,
    }
    return zstd.compress(data, options=options)


def br(data: bytes) -> bytes:
    return bytes(brotli.compress(data, quality=5))


CODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gz),
    ("x-gzip", gz),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("deflate", gz),
    ("br", br),
    ("zstd", zstd.compress),
    ("zstd", zstd_stream),
]
each_coding = pytest.mark.parametrize(
    ("name", "pack"), CODERS, ids=lambda value: value if isinstance(value, str) else ""
)


@each_coding
@pytest.mark.parametrize("size", [1, 100, 42_000, 300_000])
def test_a_coding_is_undone(name: str, pack: Callable[[bytes], bytes], size: int) -> None:
    assert decode(pack(page(size)), name, LIMIT) == DecodedBody(page(size), truncated=False, error=None)


@each_coding
def test_a_packed_nothing_is_nothing(name: str, pack: Callable[[bytes], bytes]) -> None:
    assert decode(pack(b""), name, LIMIT) == DecodedBody(b"")


@each_coding
def test_an_empty_body_is_no_error(name: str, pack: Callable[[bytes], bytes]) -> None:
    assert decode(b"", name, LIMIT) == DecodedBody(b"")


@each_coding
def test_the_limit_is_exact(name: str, pack: Callable[[bytes], bytes]) -> None:
    data = page(300_000)
    assert decode(pack(data), name, 300_000) == DecodedBody(data)
    assert decode(pack(data), name, 299_999) == DecodedBody(data[:-1], truncated=True)
    assert decode(pack(data), name, 1) == DecodedBody(data[:1], truncated=True)


@each_coding
def test_a_cut_body_gives_its_readable_part_and_says_so(name: str, pack: Callable[[bytes], bytes]) -> None:
    data = page(600_000)
    packed = pack(data)
    result = decode(packed[: len(packed) // 2], name, LIMIT)
    assert result.truncated
    assert result.error == f"{name}: ends early"
    assert data.startswith(result.body)
    assert len(result.body) > 130_000


@each_coding
def test_a_body_that_lacks_only_its_last_byte_is_not_whole(name: str, pack: Callable[[bytes], bytes]) -> None:
    data = page(42_000)
    result = decode(pack(data)[:-1], name, LIMIT)
    assert result.truncated and result.error == f"{name}: ends early"
    assert data.startswith(result.body)


@each_coding
def test_a_broken_body_gives_what_comes_before(name: str, pack: Callable[[bytes], bytes]) -> None:
    data = page(600_000)
    packed = bytearray(pack(data))
    packed[len(packed) // 2 :] = b"\xff" * 2000
    result = decode(bytes(packed), name, LIMIT)
    assert result.truncated and result.error and result.error.startswith(name)
    common = next(
        (at for at, pair in enumerate(zip(result.body, data, strict=False)) if pair[0] != pair[1]), len(result.body)
    )
    assert common > 130_000


@pytest.mark.parametrize("size", [70, 71, 4200, 4201])
def test_of_a_broken_body_the_byte_before_the_fault_is_kept(size: int) -> None:
    data = page(size)
    stored = b"\x00" + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + data  # a block as it is
    result = decode(b"\x78\x01" + stored + b"\x07", "deflate", LIMIT)  # and one of a kind that there is not
    assert (result.body, result.truncated) == (data, True) and result.error


@pytest.mark.parametrize("name", ["gzip", "br", "zstd"])
def test_a_body_that_is_not_so_coded_is_an_error(name: str) -> None:
    result = decode(b"<html>plain</html>", name, LIMIT)
    assert result.error is not None and result.error.startswith(name)


def test_a_plain_body_that_claims_gzip_is_kept() -> None:
    assert decode(b"<html>plain</html>", "gzip", LIMIT) == DecodedBody(
        b"<html>plain</html>", error="gzip: no gzip data"
    )


# ── headers


@pytest.mark.parametrize("header", ["", "identity", " , ", "identity, identity", "Identity"])
def test_no_coding_leaves_the_body_alone(header: str) -> None:
    assert decode(b"body", header, LIMIT) == DecodedBody(b"body")
    assert decode(b"body", header, 3) == DecodedBody(b"bod", truncated=True)


@pytest.mark.parametrize("header", ["GZIP", " gzip ", "gzip,", "identity, gzip", "gzip, identity", "X-Gzip"])
def test_the_header_may_be_written_loosely(header: str) -> None:
    assert decode(gzip.compress(b"body"), header, LIMIT) == DecodedBody(b"body")


def test_stacked_codings_are_undone_from_the_last() -> None:
    data = page(42_000)
    assert decode(br(gz(data)), "gzip, br", LIMIT) == DecodedBody(data)
    assert decode(gzip.compress(zlib.compress(zstd.compress(data))), "zstd, deflate, gzip", LIMIT) == DecodedBody(data)


def test_more_than_three_codings_are_refused() -> None:
    body = gzip.compress(gzip.compress(gzip.compress(gzip.compress(b"x"))))
    assert decode(body, "gzip, gzip, gzip", LIMIT).body == gzip.compress(b"x")
    result = decode(body, "gzip, gzip, gzip, gzip", LIMIT)
    assert result.body == body and result.error == "more than 3 codings"


@pytest.mark.parametrize("header", ["lzma", "compress", "utf-8", "gzip;q=1", "gzip br"])
def test_an_unknown_coding_is_named(header: str) -> None:
    result = decode(b"body", header, LIMIT)
    assert result.body == b"body" and not result.truncated
    assert result.error is not None and result.error.startswith("unknown coding")


def test_an_unknown_coding_under_a_known_one_leaves_what_was_undone() -> None:
    assert decode(gzip.compress(b"body"), "exi, gzip", LIMIT) == DecodedBody(b"body", error="unknown coding 'exi'")


def test_a_cut_outer_coding_is_the_one_reported() -> None:
    data = page(600_000)
    packed = br(gz(data))
    result = decode(packed[: len(packed) // 2], "gzip, br", LIMIT)
    assert result.error == "br: ends early" and result.truncated
    assert data.startswith(result.body) and result.body


# ── gzip's members


def test_the_members_of_a_gzip_body_are_joined() -> None:
    parts = [page(size) for size in (10, 70_000, 0, 200_000, 5)]
    packed = b"".join(gz(part) for part in parts)
    assert decode(packed, "gzip", LIMIT) == DecodedBody(b"".join(parts))
    assert decode(packed, "gzip", 100_000) == DecodedBody(b"".join(parts)[:100_000], truncated=True)
    assert decode(packed, "gzip", 10) == DecodedBody(parts[0], truncated=True)


def test_the_limit_at_the_end_of_a_member_is_exact() -> None:
    packed = gzip.compress(b"ab") + gzip.compress(b"cd")
    assert decode(packed, "gzip", 4) == DecodedBody(b"abcd")
    assert decode(packed, "gzip", 2) == DecodedBody(b"ab", truncated=True)
    assert decode(gzip.compress(b"ab") + gzip.compress(b""), "gzip", 2) == DecodedBody(b"ab")


@pytest.mark.parametrize("garbage", [b"\0" * 512, b"garbage", b"\x1f", b"\n"])
def test_garbage_after_the_last_member_is_ignored(garbage: bytes) -> None:
    assert decode(gzip.compress(b"body") + garbage, "gzip", LIMIT) == DecodedBody(b"body")
    assert decode(gzip.compress(b"body") * 2 + garbage, "gzip", LIMIT) == DecodedBody(b"bodybody")


def test_a_broken_later_member_leaves_the_earlier_ones() -> None:
    data = page(500_000)
    second = bytearray(gz(data))
    second[-5] ^= 255  # its checksum
    result = decode(gzip.compress(b"first") + bytes(second), "gzip", LIMIT)
    assert result.body == b"first" + data and result.truncated and result.error
    result = decode(gzip.compress(b"first") + bytes(second[:-100]), "gzip", LIMIT)
    assert result.error == "gzip: ends early" and result.body.startswith(b"first" + data[:400_000])


def test_a_wrong_checksum_keeps_the_text_and_is_reported() -> None:
    packed = bytearray(gz(page(42_000)))
    packed[-6] ^= 255
    result = decode(bytes(packed), "gzip", LIMIT)
    assert result.body == page(42_000) and result.truncated and result.error


def test_a_flood_of_empty_members_is_stopped() -> None:
    packed = gzip.compress(b"") * 500_000
    start = time.process_time()
    result = decode(packed, "gzip", LIMIT)
    assert time.process_time() - start < patience(3)
    assert result.error == f"gzip: more than {MAX_MEMBERS} members"
    assert result.truncated


def test_the_frames_of_a_zstd_body_are_joined() -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"
    packed = skippable + zstd_stream(b"ab") + zstd.compress(page(300_000)) + skippable
    assert decode(packed, "zstd", LIMIT) == DecodedBody(b"ab" + page(300_000))
    assert decode(packed[:-1], "zstd", LIMIT).error == "zstd: ends early"
    assert decode(packed + zstd.compress(b"x")[:3], "zstd", LIMIT).truncated


# ── bombs


# Made by the test that decodes them: every worker reads this file.
BOMBS: list[tuple[str, Callable[[], bytes]]] = [
    ("gzip", lambda: gzip.compress(bytes(48 * MIB), 1)),
    ("deflate", lambda: zlib.compress(bytes(48 * MIB), 1)),
    ("br", lambda: brotli.compress(bytes(48 * MIB), quality=1)),
    ("zstd", lambda: zstd.compress(bytes(48 * MIB))),
    ("gzip", lambda: gzip.compress(bytes(MIB), 1) * 48),
    ("gzip, gzip", lambda: gzip.compress(gzip.compress(bytes(48 * MIB), 1), 1)),
]


@pytest.mark.parametrize(("name", "make"), BOMBS, ids=["gzip", "deflate", "br", "zstd", "members", "nested"])
def test_a_bomb_stops_at_the_limit(name: str, make: Callable[[], bytes]) -> None:
    bomb = make()
    tracemalloc.start()
    result = decode(bomb, name, 4 * MIB)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result == DecodedBody(bytes(4 * MIB), truncated=True)
    assert peak < 16 * MIB


def test_a_zstd_window_above_eight_mebibytes_is_refused() -> None:
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    result = decode(packer.compress(bytes(MIB)) + packer.flush(), "zstd", LIMIT)
    assert result.truncated and result.error and "memory" in result.error


# ── anything


@settings(max_examples=300)
@given(
    st.binary(max_size=400),
    st.sampled_from(["gzip", "deflate", "br", "zstd", "gzip, br", "zstd, gzip"]),
    st.integers(1, 500),
)
def test_any_body_gives_an_answer_within_the_limit(body: bytes, header: str, limit: int) -> None:
    assert len(decode(body, header, limit).body) <= limit


@pytest.mark.parametrize("size", [0, 1, 200, 6000])
@pytest.mark.parametrize("more", [b"", b"more"])
def test_a_zstd_frame_whose_header_lies_about_its_size_gives_what_it_has(size: int, more: bytes) -> None:
    frame = bytearray(zstd.compress(random.Random(1).randbytes(size)))
    assert frame[4] >> 5 & 1  # a single segment: its size follows
    frame[5] ^= 2
    found = decode(bytes(frame) + more, "zstd", 5000)
    assert found.truncated and "corrupt" in (found.error or "").lower() and len(found.body) <= 5000


@settings(max_examples=300)
@given(st.binary(max_size=3000), st.sampled_from(CODERS), st.data())
def test_a_damaged_body_gives_an_answer(
    data: bytes, coder: tuple[str, Callable[[bytes], bytes]], draw: st.DataObject
) -> None:
    name, pack = coder
    packed = bytearray(pack(data))
    at = draw.draw(st.integers(0, len(packed) - 1))
    packed[at] ^= draw.draw(st.integers(1, 255))
    assert len(decode(bytes(packed), name, 5000).body) <= 5000
    cut = decode(bytes(pack(data)[:at]), name, 5000)
    assert cut.truncated or at == 0 or cut.error or cut.body == data
