"""Members are gzip to every reader, compressed or stored."""

from __future__ import annotations

import gzip
import os
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isal import isal_zlib

from weft.store.warc.members import gzip_member

GZIP, ZSTD = b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"


def contents(made: bytes) -> set[bytes]:
    inflate = zlib.decompressobj(31)
    found = {inflate.decompress(made), gzip.decompress(made), isal_zlib.decompress(made, 31)}
    assert inflate.eof and not inflate.unused_data
    return found


@given(st.binary(max_size=300), st.sampled_from([b"", GZIP, ZSTD]), st.binary(max_size=3000))
def test_any_content_comes_back(head: bytes, magic: bytes, body: bytes) -> None:
    assert contents(gzip_member(head, magic + body, b"\r\n\r\n")) == {head + magic + body + b"\r\n\r\n"}


@pytest.mark.parametrize("size", [65_527, 65_528, 65_529, 131_070, 1_000_000])
@pytest.mark.parametrize("magic", [b"", GZIP])
def test_any_size_comes_back(size: int, magic: bytes) -> None:
    body = magic + os.urandom(size)
    assert contents(gzip_member(b"head", body, b"\r\n\r\n")) == {b"head" + body + b"\r\n\r\n"}


def test_what_came_compressed_does_not_grow() -> None:
    body = gzip.compress(os.urandom(50_000))
    assert len(gzip_member(b"", body, b"")) < len(body) + 60
    assert len(gzip_member(b"", b"plain text " * 1000, b"")) < 500
