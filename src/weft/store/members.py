"""Makes gzip members, one for each WARC record.

A body that was received compressed is not worth compressing again (41 µs for 20 KB, for nothing): it is put into the
member as stored deflate blocks, after the compressed head. Readers see an ordinary member.
"""

from __future__ import annotations

from isal import isal_zlib

_LEVEL = 1
_GZIP, _RAW = 31, -15
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
_BLOCK = 0xFFFF
_COMPRESSED = (b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd")  # gzip, zstd


def member(head: bytes, body: bytes, tail: bytes) -> bytes:
    """Head, body and tail as one gzip member."""
    if body.startswith(_COMPRESSED):
        return _stored(head, body + tail)
    # For a small head alone, dynamic code tables would cost 5 µs and save 1 % of a page.
    made: bytes = isal_zlib.compress(b"".join((head, body, tail)), _LEVEL if body else 0, _GZIP)
    return made


def _stored(head: bytes, rest: bytes) -> bytes:
    """A member of the compressed head and the rest as it is (RFC 1951 §3.2.4, RFC 1952 §2.3)."""
    deflate = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
    parts = [_HEADER, deflate.compress(head), deflate.flush(isal_zlib.Z_SYNC_FLUSH)]  # ends at a whole byte
    for at in range(0, len(rest), _BLOCK):
        block = rest[at : at + _BLOCK]
        final = b"\1" if at + len(block) == len(rest) else b"\0"
        parts += (final, _le(len(block), 2), _le(len(block) ^ 0xFFFF, 2), block)
    check = isal_zlib.crc32(rest, isal_zlib.crc32(head))
    parts += (_le(check, 4), _le((len(head) + len(rest)) & 0xFFFFFFFF, 4))
    return b"".join(parts)


def _le(number: int, size: int) -> bytes:
    return number.to_bytes(size, "little")
