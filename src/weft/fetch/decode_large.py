"""Undoes the Content-Encoding of a body that is in a file: a slice at a time, keeping its beginning.

The counterpart of `decode` for bodies in files. A page is parsed from its first megabytes, so the rest is decoded only
to check that it is whole and within the limit. Memory: the kept bytes, and a few hundred KB for each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

import brotli
from isal import isal_zlib

from weft.bodies import FileBody
from weft.fetch.decode import BROKEN, EARLY, GZIP, MAGIC, MAX_LAYERS, MAX_MEMBERS, RAW, ZLIB, DecodedBody, zstd_frame

STEP = 256 * 1024  # unpacked at a time
SLICE = 16 * 1024  # given to a decoder at a time


class _Fault(Exception):
    """An error in a layer's data."""


class _Broken(Exception):
    """An error with the layer's name."""


_FAULTS: tuple[type[Exception], ...] = (_Fault, *BROKEN)


def decode_file(body: FileBody, encoding_header: str, limit: int, keep: int) -> DecodedBody:
    """The first `keep` bytes of a body without its codings. Truncated without an error: it is longer than `limit`."""
    names = [name for part in encoding_header.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    unknown = next((name for name in names if name not in _LAYERS), None)
    if len(names) > MAX_LAYERS or unknown is not None:
        why = f"unknown coding {unknown[:40]!r}" if unknown is not None else f"more than {MAX_LAYERS} codings"
        return DecodedBody(body.first(keep), error=why)
    data: Iterable[bytes] = _sliced(body)
    for name in reversed(names):
        data = _named(name, _LAYERS[name](data))
    kept, size = bytearray(), 0
    try:
        for piece in data:
            size += len(piece)
            kept += piece[: keep - len(kept)]
            if size > limit:
                return DecodedBody(bytes(kept), truncated=True)
    except _Broken as why:
        return DecodedBody(bytes(kept), truncated=True, error=str(why))
    return DecodedBody(bytes(kept))


def _sliced(body: FileBody) -> Iterator[bytes]:
    """The body in small slices: a decoder that meets an error does not return the output of the same slice."""
    for chunk in body.chunks():
        yield from (chunk[at : at + SLICE] for at in range(0, len(chunk), SLICE))


def _named(name: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from pieces
    except _FAULTS as why:
        raise _Broken(f"{name}: {why}") from None


def _members(data: Iterable[bytes], make: Callable[[], Any], magic: bytes = b"") -> Iterator[bytes]:
    """Members of gzip, frames of zstd: one after the other, each by a new decoder."""
    decoder, count = make(), 1
    for chunk in data:
        rest = chunk
        while rest or not decoder.eof:
            if decoder.eof:
                if not rest.startswith(magic[: len(rest)]):
                    return  # data after the last member is ignored, as by gzip itself
                decoder, count = make(), count + 1
                if count > MAX_MEMBERS:
                    raise _Fault(f"more than {MAX_MEMBERS} members")
            piece = decoder.decompress(rest, STEP)
            if piece:
                yield piece
            if decoder.eof:
                rest = decoder.unused_data
                continue
            rest = getattr(decoder, "unconsumed_tail", b"")
            if not rest and len(piece) < STEP:
                break
    if not decoder.eof:
        raise _Fault(EARLY)


def _gzip(data: Iterable[bytes]) -> Iterator[bytes]:
    return _members(data, lambda: isal_zlib.decompressobj(GZIP), MAGIC)


def _zstd(data: Iterable[bytes]) -> Iterator[bytes]:
    return _members(data, zstd_frame)


def _deflate(data: Iterable[bytes]) -> Iterator[bytes]:
    """zlib's format, raw deflate or gzip: the first two bytes almost always decide."""
    source = iter(data)
    first = next(source, b"")
    whole = _chained(first, source)
    if first.startswith(MAGIC):
        return _gzip(whole)
    wrapped = len(first) > 1 and first[0] & 15 == 8 and int.from_bytes(first[:2], "big") % 31 == 0
    return _members(whole, lambda: isal_zlib.decompressobj(ZLIB if wrapped else RAW), b"\0no second member")


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _brotli(data: Iterable[bytes]) -> Iterator[bytes]:
    decoder = brotli.Decompressor()
    for chunk in data:
        piece = cast("bytes", decoder.process(chunk, output_buffer_limit=STEP))
        while piece:
            yield piece
            if decoder.is_finished():
                return
            piece = decoder.process(b"", output_buffer_limit=STEP)
    if not decoder.is_finished():
        raise _Fault(EARLY)


_LAYERS: dict[str, Callable[[Iterable[bytes]], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
