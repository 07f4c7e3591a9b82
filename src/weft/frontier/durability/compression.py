"""URLs on the disk, compressed: those of one site repeat most of their text. A leading byte marks compressed text."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_LEAST_COMPRESSED_BYTES = 200  # bytes: shorter texts are not compressed
_COMPRESSION_LEVEL = 1  # 400 MB/s
_PLAIN, _COMPRESSED = b"\x00", b"\x01"


def packed(content: bytes) -> bytes:
    """The compressed text, or the text itself if that is shorter."""
    if len(content) >= _LEAST_COMPRESSED_BYTES:
        data = zstd.compress(content, level=_COMPRESSION_LEVEL)
        if len(data) < len(content):
            return _COMPRESSED + data
    return _PLAIN + content


def unpacked(data: bytes) -> bytes:
    """The content; ValueError if it differs from what was written."""
    if data[:1] == _PLAIN:
        return data[1:]
    if data[:1] != _COMPRESSED:
        raise ValueError("neither compressed nor plain")
    try:
        return zstd.decompress(data[1:])
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None
