"""Looks for texts in every byte of a folder, also in what is compressed there, wherever it begins in a file."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import quote, quote_plus

from zstd_module import zstd

_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda", b"\x1f\x8b\x08")
_ZSTD = b"\x28\xb5\x2f\xfd"


def found_in(folder: Path, texts: Iterable[str]) -> list[tuple[str, str]]:
    """Files, with each text that they hold: as it is, or as it goes into a URL or a form."""
    wanted = {form.encode() for text in texts for form in (text, quote(text, safe=""), quote_plus(text))}
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [
        (str(path.relative_to(folder)), text.decode())
        for path in files
        for text in sorted(wanted)
        if any(text in piece for piece in _pieces(path.read_bytes()))
    ]


def _pieces(raw: bytes) -> Iterator[bytes]:
    yield raw
    for mark in _ZLIB:
        for at in _places(raw, mark):
            try:
                yield zlib.decompressobj(zlib.MAX_WBITS | 32).decompress(raw[at:])
            except zlib.error:
                continue
    for at in _places(raw, _ZSTD):
        try:
            yield zstd.ZstdDecompressor().decompress(raw[at:])
        except (zstd.ZstdError, EOFError):
            continue


def _places(raw: bytes, mark: bytes) -> Iterator[int]:
    at = raw.find(mark)
    while at >= 0:
        yield at
        at = raw.find(mark, at + 1)
