"""Undoes Content-Encoding under a size cap: gzip, deflate in both its forms, br, zstd, and stacks of them. Pure.

Called with a whole body as received. Two things must stay true. No more than the limit is returned, and no more than
about twice that is held in memory, whatever the body would unpack to. And nothing raises: of a broken, cut or
mislabelled body the decodable part is returned, with `truncated` set.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import brotli
from isal import isal_zlib

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_LAYERS = 3
MAX_MEMBERS = 10_000  # of one gzip or zstd body: each costs a call, and an empty one needs only a few bytes
MEMBER_BYTES = 64 * 1024  # fed at a time after the first member: the decoder copies what follows a member's end
BROTLI_STEP = 1024 * 1024
ZSTD_WINDOW_LOG = 23  # 8 MiB; RFC 9659: no server may ask for more

GZIP, ZLIB, RAW = 31, 15, -15
MAGIC = b"\x1f\x8b"
EARLY = "ends early"
# isal's stubs call its exception class an instance
BROKEN = cast("tuple[type[Exception], ...]", (isal_zlib.error, brotli.error, zstd.ZstdError))
_ZSTD_OPTIONS: dict[int, int] = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}


class DecodedBody(NamedTuple):
    """A body without its codings. `truncated`: it is not complete; `error` says why, unless the limit cut it."""

    body: bytes
    truncated: bool = False
    error: str | None = None


def decode(body: bytes, encoding_header: str, limit: int) -> DecodedBody:
    """The body without the codings that the Content-Encoding header names, at most `limit` (at least 1) bytes of it."""
    truncated, error = False, None
    names = [name for part in encoding_header.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if len(names) > MAX_LAYERS:
        return _cut(body, limit, f"more than {MAX_LAYERS} codings")
    for name in reversed(names):
        if name not in _CODINGS:
            return _cut(body, limit, f"unknown coding {name[:40]!r}")
        if not body:
            break
        layer = _CODINGS[name](body, limit)
        body = layer.body
        if not truncated and layer.error:  # an earlier cut explains why the next layer ends early
            error = f"{name}: {layer.error}"
        truncated = truncated or layer.truncated
        if layer.error and not layer.truncated:
            break
    return DecodedBody(body, truncated, error) if len(body) <= limit else _cut(body, limit, error)


def _cut(body: bytes, limit: int, error: str | None) -> DecodedBody:
    """The body unchanged, up to the limit."""
    return DecodedBody(body[:limit], len(body) > limit, error)


def _gzip(body: bytes, limit: int) -> DecodedBody:
    """All members; other data after the last is ignored, as gzip itself does."""
    if not MAGIC.startswith(body[:2]):
        return DecodedBody(body, error="no gzip data")
    return _inflate(body, GZIP, limit)


def _deflate(body: bytes, limit: int) -> DecodedBody:
    """RFC 9110 means zlib's format, many servers send raw deflate, some gzip."""
    if body.startswith(MAGIC):
        return _inflate(body, GZIP, limit)
    wrapped = body[0] & 15 == 8 and int.from_bytes(body[:2], "big") % 31 == 0
    tries = [_inflate(body, wbits, limit) for wbits in ((ZLIB,) if wrapped else (RAW,))]
    if tries[0].error and wrapped:
        tries.append(_inflate(body, RAW, limit))
    return max(tries, key=lambda tried: (tried.error is None, len(tried.body)))


def _inflate(body: bytes, wbits: int, limit: int) -> DecodedBody:
    """One deflate stream, and for gzip the members that follow it."""
    inflater = isal_zlib.decompressobj(wbits)
    try:
        out = inflater.decompress(body, limit)
        more = inflater.decompress(inflater.unconsumed_tail, 1) if len(out) == limit and not inflater.eof else b""
    except BROKEN as error:
        return _broken(error, body, limit, lambda: isal_zlib.decompressobj(wbits).decompress)
    if more:
        return DecodedBody(out, truncated=True)
    if not inflater.eof:
        return DecodedBody(out, truncated=True, error=EARLY)
    rest = inflater.unused_data
    return _members(out, rest, limit, _gzip_member, MAGIC) if wbits == GZIP else DecodedBody(out)


def _gzip_member() -> Any:
    return isal_zlib.decompressobj(GZIP)


def zstd_frame() -> Any:
    return zstd.ZstdDecompressor(options=_ZSTD_OPTIONS)


def _members(first: bytes, rest: bytes, limit: int, make: Callable[[], Any], magic: bytes = b"") -> DecodedBody:
    """The further members of a gzip body, or frames of a zstd one, each unpacked by a new decoder.

    What does not begin with `magic` ends the body and is ignored.
    """
    out, room, start = [first], limit - len(first), 0
    for _ in range(MAX_MEMBERS):
        if start >= len(rest) or not rest.startswith(magic, start):
            return DecodedBody(b"".join(out))
        member, start = _member(rest, start, room, make)
        out.append(member.body)
        room -= len(member.body)
        if member.truncated:
            return DecodedBody(b"".join(out), truncated=True, error=member.error)
    return DecodedBody(b"".join(out), truncated=True, error=f"more than {MAX_MEMBERS} members")


def _member(rest: bytes, start: int, room: int, make: Callable[[], Any]) -> tuple[DecodedBody, int]:
    """The member that begins at `start`, and where it ends."""
    decoder, view, fed = make(), memoryview(rest), start
    out = bytearray()
    try:
        while not decoder.eof and fed < len(rest) and len(out) <= room:
            out += decoder.decompress(view[fed : fed + MEMBER_BYTES], room + 1 - len(out))
            fed = min(fed + MEMBER_BYTES, len(rest))
    except BROKEN as error:
        whole = rest[start : fed + MEMBER_BYTES]
        return _broken(error, whole, room, lambda: make().decompress), fed
    if len(out) > room:
        return DecodedBody(bytes(out[:room]), truncated=True), fed
    cut = not decoder.eof
    return DecodedBody(bytes(out), cut, EARLY if cut else None), fed - len(decoder.unused_data)


def _brotli(body: bytes, limit: int) -> DecodedBody:
    """A brotli stream, unpacked by steps: the library's own output limit is overrun by up to its next buffer."""
    decoder, out, size = brotli.Decompressor(), [], 0
    step = min(limit + 1, BROTLI_STEP)
    try:
        piece = decoder.process(body, output_buffer_limit=step)
        while piece and not decoder.is_finished() and size + len(piece) <= limit:
            out.append(piece)
            size += len(piece)
            piece = decoder.process(b"", output_buffer_limit=step)
    except BROKEN as error:
        return _broken(error, body, limit, lambda: brotli.Decompressor().process)
    if size + len(piece) > limit:
        return DecodedBody(b"".join((*out, piece[: limit - size])), truncated=True)
    cut = not decoder.is_finished()
    return DecodedBody(b"".join((*out, piece)), cut, EARLY if cut else None)


def _zstd(body: bytes, limit: int) -> DecodedBody:
    """All frames, skippable ones too."""
    decoder = zstd_frame()
    try:
        out = decoder.decompress(body, limit)
        more = decoder.decompress(b"", 1) if len(out) == limit and not decoder.eof else b""
    except BROKEN as error:
        return _broken(error, body, limit, lambda: zstd_frame().decompress)
    if more:
        return DecodedBody(out, truncated=True)
    if not decoder.eof:
        return DecodedBody(out, truncated=True, error=EARLY)
    return _members(out, decoder.unused_data, limit, zstd_frame)


def _broken(error: Exception, body: bytes, limit: int, make: Callable[[], Callable[[bytes], bytes]]) -> DecodedBody:
    """The part of a body that can be decoded before the error.

    A decoder that raises does not return what it had unpacked. So the body is fed again to a fresh one, in slices, and
    the slice with the error in smaller ones. The error came before the limit, so this stays under it as well.
    """
    good, pieces = 0, [b""]
    for step in (4096, 64, 1):
        feed, pieces = make(), []
        try:
            if good:
                pieces.append(feed(body[:good]))
            while good < len(body):
                pieces.append(feed(body[good : good + step]))
                good += step
        except EOFError:  # in slices, zstd does not notice that a frame is not as long as its header says
            break
        except BROKEN:
            continue
    return DecodedBody(b"".join(pieces)[:limit], truncated=True, error=str(error))


_CODINGS: dict[str, Callable[[bytes, int], DecodedBody]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
