"""Bodies in files lose their codings as those in memory do: the same beginning, the same verdict, in little memory."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Callable
from functools import cache
from hashlib import sha1
from pathlib import Path

import brotli
import pytest
from zstd_module import zstd

from weft.bodies import FileBody
from weft.fetch.decode import decode
from weft.fetch.decode_large import decode_file

PLAIN = b"".join(b"<p>%b</p>\n" % sha1(b"%d" % number).digest().hex().encode() for number in range(20_000))  # 1 MB


def raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


CODINGS: dict[str, Callable[[bytes], bytes]] = {
    "": lambda data: data,
    "gzip": gzip.compress,
    "x-gzip": lambda data: gzip.compress(data[:400_000]) + gzip.compress(data[400_000:]) + b"\0trailing",
    "deflate": zlib.compress,
    "br": lambda data: brotli.compress(data, quality=1),
    "zstd": lambda data: zstd.compress(data[:500_000]) + zstd.compress(data[500_000:]),
    "gzip, br": lambda data: brotli.compress(gzip.compress(data), quality=1),
}


@cache
def packed(encoding: str) -> bytes:
    """Not made where tests are only collected, which every worker does."""
    return CODINGS[encoding](PLAIN)


def in_file(folder: Path, data: bytes) -> FileBody:
    path = folder / "body"
    path.write_bytes(data)
    return FileBody(os.open(path, os.O_RDONLY), 0, len(data))


@pytest.mark.parametrize("encoding", CODINGS)
def test_the_beginning_is_kept_and_the_rest_checked(tmp_path: Path, encoding: str) -> None:
    found = decode_file(in_file(tmp_path, packed(encoding)), encoding, len(PLAIN), 5000)
    assert found == (PLAIN[:5000], False, None)


@pytest.mark.parametrize("encoding", CODINGS)
def test_what_is_over_the_limit_is_cut_without_an_error(tmp_path: Path, encoding: str) -> None:
    found = decode_file(in_file(tmp_path, packed(encoding)), encoding, len(PLAIN) - 1, 5000)
    assert found == (PLAIN[:5000], True, None)


@pytest.mark.parametrize("encoding", [name for name in CODINGS if name and name != "x-gzip"])
def test_what_ends_early_or_is_broken_is_told_as_in_memory(tmp_path: Path, encoding: str) -> None:
    whole = packed(encoding)
    for data in (whole[: len(whole) // 2], whole[: len(whole) // 2] + b"\xff" * 200 + whole[len(whole) // 2 + 200 :]):
        found, known = decode_file(in_file(tmp_path, data), encoding, 10 << 20, 100), decode(data, encoding, 10 << 20)
        assert (found.error is None, found.truncated) == (known.error is None, known.truncated)
        assert found.body == PLAIN[:100]


def test_raw_deflate_is_known(tmp_path: Path) -> None:
    assert decode_file(in_file(tmp_path, raw_deflate(PLAIN)), "deflate", 10 << 20, 99).body == PLAIN[:99]


def test_unknown_codings_and_too_many_leave_the_body_as_it_is(tmp_path: Path) -> None:
    assert decode_file(in_file(tmp_path, PLAIN), "rot13", 10 << 20, 9) == (PLAIN[:9], False, "unknown coding 'rot13'")
    assert decode_file(in_file(tmp_path, PLAIN), "gzip," * 4, 10 << 20, 9).error == "more than 3 codings"


def test_a_bomb_takes_little(tmp_path: Path) -> None:
    bomb = in_file(tmp_path, gzip.compress(b"\0" * (64 << 20), 9))
    found = decode_file(bomb, "gzip", 1 << 20, 100)
    assert found == (b"\0" * 100, True, None)
