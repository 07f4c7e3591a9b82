"""Makes gzip members, one for each WARC record.

A body that was received compressed is not worth compressing again (41 µs for 20 KB, for nothing): it is put into the
member as stored deflate blocks, after the compressed head. Readers see an ordinary member.
"""

from __future__ import annotations

from collections.abc import Iterator

from isal import isal_zlib

from weft.bodies import FileBody

_COMPRESSION_LEVEL = 1
_GZIP, _RAW = 31, -15
_GZIP_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_BLOCK_BYTES = 0xFFFF
_COMPRESSED_MAGICS = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd")  # gzip, zstd


def gzip_member(head: bytes, body: bytes, tail: bytes) -> bytes:
    """Head, body and tail as one gzip member."""
    if body.startswith(_COMPRESSED_MAGICS):
        return _stored_member(head, body + tail)
    # For a small head only, dynamic code tables would cost 5 µs and save 1 % of a page.
    made: bytes = isal_zlib.compress(b"".join((head, body, tail)), _COMPRESSION_LEVEL if body else 0, _GZIP)
    return made


class LargeMember:
    """A member whose body is in a file: built in pieces while it is written. Its length is known only then."""

    __slots__ = ("_body", "_head", "_length", "_tail")

    def __init__(self, head: bytes, body: FileBody, tail: bytes) -> None:
        self._head = head
        self._body = body
        self._tail = tail
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __bool__(self) -> bool:
        return True

    def pieces(self) -> Iterator[bytes]:
        """The pieces of the member; may be iterated again, if the written bytes had to be removed."""
        self._length = 0
        stored = self._body.first(4).startswith(_COMPRESSED_MAGICS)
        for piece in self._stored_pieces() if stored else self._deflated_pieces():
            self._length += len(piece)
            yield piece

    def _head_body_tail(self) -> Iterator[bytes]:
        yield self._head
        yield from self._body.chunks()
        yield self._tail

    def _deflated_pieces(self) -> Iterator[bytes]:
        deflate = isal_zlib.compressobj(_COMPRESSION_LEVEL, isal_zlib.DEFLATED, _GZIP)
        for part in self._head_body_tail():
            if made := deflate.compress(part):
                yield made
        yield deflate.flush()

    def _stored_pieces(self) -> Iterator[bytes]:
        """The head compressed, the rest in stored blocks; see the function of that name."""
        deflate = isal_zlib.compressobj(_COMPRESSION_LEVEL, isal_zlib.DEFLATED, _RAW)
        yield b"".join((_GZIP_HEADER, deflate.compress(self._head), deflate.flush(isal_zlib.Z_SYNC_FLUSH)))
        check = isal_zlib.crc32(self._head)
        for rest in self._body.chunks():
            check = isal_zlib.crc32(rest, check)
            yield b"".join(_stored_blocks(rest, is_last=False))
        check = isal_zlib.crc32(self._tail, check)
        yield b"".join(_stored_blocks(self._tail, is_last=True))
        size = len(self._head) + len(self._body) + len(self._tail)
        yield _little_endian(check, 4) + _little_endian(size & 0xFFFFFFFF, 4)


def _stored_member(head: bytes, rest: bytes) -> bytes:
    """A member of the compressed head and the rest unchanged (RFC 1951 §3.2.4, RFC 1952 §2.3)."""
    deflate = isal_zlib.compressobj(_COMPRESSION_LEVEL, isal_zlib.DEFLATED, _RAW)
    parts = [_GZIP_HEADER, deflate.compress(head), deflate.flush(isal_zlib.Z_SYNC_FLUSH)]  # ends on a byte boundary
    parts += _stored_blocks(rest, is_last=True)
    check = isal_zlib.crc32(rest, isal_zlib.crc32(head))
    parts += (_little_endian(check, 4), _little_endian((len(head) + len(rest)) & 0xFFFFFFFF, 4))
    return b"".join(parts)


def _stored_blocks(rest: bytes, *, is_last: bool) -> list[bytes]:
    """Data as stored deflate blocks; the last of them may end the stream."""
    parts: list[bytes] = []
    for at in range(0, len(rest), _BLOCK_BYTES):
        block = rest[at : at + _BLOCK_BYTES]
        final = b"\1" if is_last and at + len(block) == len(rest) else b"\0"
        parts += (final, _little_endian(len(block), 2), _little_endian(len(block) ^ 0xFFFF, 2), block)
    return parts


def _little_endian(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")
