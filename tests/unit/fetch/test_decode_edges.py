"""Content codings at their edges: cut at every byte, sizes at the steps in which they are unpacked, limits at the size.

Where a frame or a member ends is known from how the body was put together, so what is whole is not a matter of opinion.
"""

from __future__ import annotations

import gzip
import random
import zlib
from collections.abc import Callable
from functools import cache, partial

import brotli
import pytest
import zstd_module

from weft.fetch.decode import BROTLI_STEP, MEMBER_BYTES, DecodedBody, decode

LIMIT = 50_000_000
KIB = 1024


@cache
def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def skippable(size: int, kind: int = 0) -> bytes:
    return (0x184D2A50 + kind).to_bytes(4, "little") + size.to_bytes(4, "little") + b"s" * size


def zstd(data: bytes, *, checksum: bool = False, content_size: bool = True) -> bytes:
    parameter = zstd_module.zstd.CompressionParameter
    flags = {int(parameter.checksum_flag): int(checksum), int(parameter.content_size_flag): int(content_size)}
    return zstd_module.zstd.compress(data, options=flags)


def ends_of(frames: list[bytes]) -> set[int]:
    return {sum(map(len, frames[: number + 1])) for number in range(len(frames))}


@pytest.mark.parametrize(
    ("coding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("zstd", partial(zstd, checksum=True))],
)
def test_a_fault_behind_what_the_limit_cuts_off_is_not_told(coding: str, pack: Callable[[bytes], bytes]) -> None:
    body = bytearray(pack(noise(102)))
    body[-1] ^= 1
    assert decode(bytes(body), coding, 100) == DecodedBody(noise(102)[:100], truncated=True)


# ── zstd ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("content_size", [False, True])
def test_a_zstd_body_is_whole_where_a_frame_ends_and_nowhere_else(checksum: bool, content_size: bool) -> None:
    texts = [b"", b"a", b"some text, and more of it " * 20, bytes(1000), noise(300)]
    frames = [zstd(text, checksum=checksum, content_size=content_size) for text in texts]
    frames = [frames[0], skippable(5), frames[1], frames[2], skippable(0, 15), frames[3], frames[4], skippable(200)]
    body, ends = b"".join(frames), ends_of(frames)
    for cut in range(1, len(body) + 1):
        assert decode(body[:cut], "zstd", LIMIT).truncated == (cut not in ends), cut
    assert decode(body, "zstd", LIMIT) == DecodedBody(b"".join(texts))


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize(
    "text",
    [noise(300 * KIB), b"x" * 400 * KIB, noise(150 * KIB) + bytes(300 * KIB)],
    ids=["raw blocks", "repeated bytes", "both"],
)
def test_a_zstd_frame_of_several_blocks_is_whole_at_its_end(text: bytes, checksum: bool) -> None:
    frame = zstd(text, checksum=checksum, content_size=False)
    assert decode(frame, "zstd", LIMIT) == DecodedBody(text)
    assert decode(frame + zstd(b"more"), "zstd", LIMIT) == DecodedBody(text + b"more")
    for cut in {*range(1, min(60, len(frame))), *range(max(1, len(frame) - 60), len(frame)), len(frame) // 2}:
        result = decode(frame[:cut], "zstd", LIMIT)
        assert (result.truncated, result.error) == (True, "zstd: ends early"), cut
        assert text.startswith(result.body)


def test_a_skippable_frame_that_claims_more_than_there_is_is_cut() -> None:
    body = zstd(b"text") + (0x184D2A5F).to_bytes(4, "little") + (1000).to_bytes(4, "little") + b"s" * 999
    assert decode(body, "zstd", LIMIT) == DecodedBody(b"text", truncated=True, error="zstd: ends early")
    assert decode(body + b"s", "zstd", LIMIT) == DecodedBody(b"text")


# ── sizes and limits ───────────────────────────────────────────────────────────────────────────────────────────────


def gzip_in_two(data: bytes) -> bytes:
    half = len(data) // 2
    return gzip.compress(data[:half], 1) + gzip.compress(data[half:], 1)


PACKERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", lambda data: gzip.compress(data, 1)),
    ("gzip", gzip_in_two),
    ("deflate", lambda data: zlib.compress(data, 1)),
    ("br", lambda data: bytes(brotli.compress(data, quality=1))),
    ("zstd", zstd_module.zstd.compress),
]
STEPS = [64 * KIB, BROTLI_STEP, 2 * BROTLI_STEP]


@pytest.mark.parametrize(("name", "pack"), PACKERS, ids=["gzip", "members", "deflate", "br", "zstd"])
@pytest.mark.parametrize("size", sorted({step + more for step in STEPS for more in (-1, 0, 1)}))
def test_the_limit_is_exact_at_the_steps_in_which_a_body_is_unpacked(
    name: str, pack: Callable[[bytes], bytes], size: int
) -> None:
    data = (noise(10 * KIB) * (size // (10 * KIB) + 1))[:size]
    packed = pack(data)
    for limit in (size + 1, size):
        assert decode(packed, name, limit) == DecodedBody(data), limit
    for limit in (size - 1, size // 2, size // 2 + 1, 64 * KIB - 2):
        assert decode(packed, name, limit) == DecodedBody(data[:limit], truncated=True), limit


@pytest.mark.parametrize("size", [64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 3_000_000])
def test_a_zstd_body_that_unpacks_to_far_more_than_it_is_comes_out_whole(size: int) -> None:
    for limit in (size, size + 1, LIMIT):
        assert decode(zstd_module.zstd.compress(bytes(size)), "zstd", limit) == DecodedBody(bytes(size)), limit
    assert decode(zstd_module.zstd.compress(bytes(size)), "zstd", size - 1) == DecodedBody(
        bytes(size - 1), truncated=True
    )


@pytest.mark.parametrize("size", [1, 2, 3])
def test_tiny_limits(size: int) -> None:
    for name, pack in PACKERS:
        assert decode(pack(b"abc"), name, size) == DecodedBody(b"abc"[:size], truncated=size < 3), name


# ── gzip's members ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [MEMBER_BYTES - 50, MEMBER_BYTES, 3 * MEMBER_BYTES + 7])
def test_a_later_member_is_whole_at_its_end_however_long_it_is(size: int) -> None:
    members = [gzip.compress(b"first", 1), gzip.compress(noise(size), 1), gzip.compress(b"last", 1)]
    body = b"".join(members)
    assert decode(body, "gzip", LIMIT) == DecodedBody(b"first" + noise(size) + b"last")
    second = len(members[0]) + len(members[1])
    assert decode(body[:second], "gzip", LIMIT) == DecodedBody(b"first" + noise(size))
    for missing in (1, 2, 8, 9, 100, MEMBER_BYTES // 2):
        result = decode(body[: second - missing], "gzip", LIMIT)
        assert (result.truncated, result.error) == (True, "gzip: ends early"), missing
        assert (b"first" + noise(size)).startswith(result.body)
        assert len(result.body) > size - missing - 1000


def test_a_limit_within_a_later_member_cuts_there() -> None:
    body = gzip.compress(b"0123456789", 1) + gzip.compress(noise(3 * MEMBER_BYTES), 1) + gzip.compress(b"x", 1)
    whole = b"0123456789" + noise(3 * MEMBER_BYTES) + b"x"
    for limit in (11, 10 + MEMBER_BYTES, len(whole) - 1):
        assert decode(body, "gzip", limit) == DecodedBody(whole[:limit], truncated=True), limit
    assert decode(body, "gzip", len(whole)) == DecodedBody(whole)


def test_what_is_broken_beyond_the_limit_is_not_come_upon() -> None:
    """The limit cut it, and not the error: the rest is not unpacked."""
    packer = zlib.compressobj(6, wbits=31)
    later = packer.compress(noise(MEMBER_BYTES * 15 // 8)) + packer.flush(zlib.Z_FULL_FLUSH) + b"\xff" * 20
    assert len(later) < 2 * MEMBER_BYTES, "in the second piece that is fed, far from its beginning"
    body, limit = gzip.compress(b"first", 1) + later, MEMBER_BYTES + 200
    assert decode(body, "gzip", limit) == DecodedBody(
        (b"first" + noise(MEMBER_BYTES * 15 // 8))[:limit], truncated=True
    )
    assert decode(body, "gzip", LIMIT).error is not None


# ── broken bodies ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("name", "wbits"), [("gzip", 31), ("deflate", 15)])
@pytest.mark.parametrize("at", [20, 100, 4096, 4097, 5000, 9000])
def test_all_that_comes_before_a_break_is_read(name: str, wbits: int, at: int) -> None:
    text = b"".join(b"%d some words, " % number for number in range(20_000))
    packer = zlib.compressobj(6, wbits=wbits)
    packed = bytearray(packer.compress(text) + packer.flush())
    packed[at:] = b"\xff" * (len(packed) - at)
    unpacker, readable = zlib.decompressobj(wbits), b""
    try:
        for place in range(len(packed)):
            readable += unpacker.decompress(bytes(packed[place : place + 1]))
        pytest.fail("the body is not broken")
    except zlib.error:
        pass
    result = decode(bytes(packed), name, LIMIT)
    assert result.truncated and result.error
    # One decoder may read a symbol or two more than the other before it notices.
    assert result.body[: len(readable) - 600] == readable[: len(readable) - 600]
    assert abs(len(result.body) - len(readable)) <= 600


def test_a_break_behind_the_limit_is_not_reached() -> None:
    text = noise(200 * KIB)
    for name, pack in PACKERS:
        packed = bytearray(pack(text))
        packed[-3000:-2000] = b"\xff" * 1000
        result = decode(bytes(packed), name, 1000)
        assert (result.body, result.truncated) == (text[:1000], True), name


# ── which coding it is ─────────────────────────────────────────────────────────────────────────────────────────────


def test_deflate_is_read_in_whichever_of_its_forms_gives_more() -> None:
    packer = zlib.compressobj(wbits=-15)
    raw = packer.compress(b"raw and plain") + packer.flush()
    assert decode(raw, "deflate", LIMIT) == DecodedBody(b"raw and plain")
    stored = b"\x78\x01\x00\xfe\xffA" + b"\x01\x05\x00\xfa\xffhello"  # raw, but its first two bytes are zlib's
    assert zlib.decompress(stored, wbits=-15) == b"Ahello"
    assert decode(stored, "deflate", LIMIT) == DecodedBody(b"Ahello")
    result = decode(b"\x78\x01never", "deflate", LIMIT)
    assert result.truncated and result.error
    text = bytes(200)
    wrapped = bytearray(zlib.compress(text))
    wrapped[-1] ^= 255
    result = decode(bytes(wrapped), "deflate", LIMIT)
    assert (result.body, result.truncated) == (text, True), "the checksum alone is wrong"


@pytest.mark.parametrize(
    ("body", "is_gzip"), [(b"\x1f", True), (b"\x1f\x8b", True), (b"\x1f\x8c", False), (b"x", False)]
)
def test_what_does_not_begin_like_gzip_is_kept_as_it_is(body: bytes, is_gzip: bool) -> None:
    result = decode(body, "gzip", LIMIT)
    if is_gzip:
        assert (result.body, result.truncated, result.error) == (b"", True, "gzip: ends early")
    else:
        assert result == DecodedBody(body, error="gzip: no gzip data")


def test_the_first_of_two_reasons_is_reported() -> None:
    inner = gzip.compress(b"some text " * 1000)
    outer = zlib.compress(inner[:-20])
    result = decode(outer, "gzip, deflate", LIMIT)
    assert (result.truncated, result.error) == (True, "gzip: ends early")
    result = decode(zlib.compress(b"plain"), "gzip, deflate", LIMIT)
    assert result == DecodedBody(b"plain", error="gzip: no gzip data")
    result = decode(gzip.compress(b"plain"), "br, gzip, gzip", LIMIT)
    assert result == DecodedBody(b"plain", error="gzip: no gzip data"), "what is not packed is not unpacked further"


def test_a_raw_stored_block_is_none_of_zlibs_whatever_its_padding() -> None:
    """With some of the five bits that nobody reads it begins as a body of zlib's does, but for one bit."""
    for first in range(1, 256, 8):  # the last block, stored
        size = -(first << 8) % 31 or 31  # so that both bytes are a multiple of 31, as in a header of zlib's
        block = bytes([first]) + size.to_bytes(2, "little") + (size ^ 0xFFFF).to_bytes(2, "little") + noise(size)
        assert decode(block, "deflate", LIMIT) == DecodedBody(noise(size)), first
        for cut in range(1, len(block)):
            result = decode(block[:cut], "deflate", LIMIT)
            assert (result.truncated, result.error) == (True, "deflate: ends early"), (first, cut)
            assert noise(size).startswith(result.body)


def test_of_an_empty_body_nothing_is_undone() -> None:
    assert decode(b"", "exi, gzip", LIMIT) == DecodedBody(b"")
