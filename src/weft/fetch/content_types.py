"""Which content types a crawl accepts (`accept`), judged at the head of a response, before its body is read. Pure.

A response without a content type, or with one that says nothing, is judged by its first bytes, as browsers do: it is
text unless it contains bytes that no text has. A compressed body cannot be judged so, and is accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import translate

from weft.fetch.headers import Head

EVERYTHING = "*/*"
SNIFFED_BYTES = 512
SHOWN_CHARS = 100
PDF, BINARY, TEXT = "application/pdf", "application/octet-stream", "text/plain"

NAMES = {  # abbreviations in `accept`
    "text": ("text/*",),
    "html": ("text/html", "application/xhtml+xml"),
    "xml": ("text/xml", "application/xml", "application/*+xml"),
    "json": ("application/json", "application/*+json"),
    "pdf": (PDF,),
}

_SAYS_NOTHING = frozenset(("", "unknown/unknown", "application/unknown", "*/*"))
_NO_TEXT = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]").search
_WIDE = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")  # byte order marks: UTF-16 is text with zeros in it


class Accepting:
    """The accepted content types: abbreviations, globs, `*/*` for all."""

    def __init__(self, patterns: Sequence[str]) -> None:
        globs = [glob for pattern in patterns for glob in NAMES.get(pattern, (pattern.strip().lower(),))]
        self._match = re.compile("|".join(map(translate, globs))).match
        self._known: dict[str, bool] = {}

    def left_out(self, head: bytes, first: bytes) -> str:
        """The type of a response that is not accepted; empty for one that is. `first`: the first bytes of its body."""
        answer = Head(head)
        media = answer.content_type()[0]
        if media in _SAYS_NOTHING:
            if answer.content_encoding:
                return ""
            media = sniffed(first[:SNIFFED_BYTES])
        return "" if self._wants(media) else media[:SHOWN_CHARS]

    def _wants(self, media: str) -> bool:
        wanted = self._known.get(media)
        if wanted is None:
            wanted = self._match(media) is not None
            if len(self._known) < 1000:  # servers make up types
                self._known[media] = wanted
        return wanted


def accepting(patterns: Sequence[str]) -> Accepting | None:
    """None if every type is accepted."""
    return None if EVERYTHING in patterns else Accepting(patterns)


def sniffed(first: bytes) -> str:
    """The type of a body without a content type, from its first bytes."""
    if first.startswith(b"%PDF-"):
        return PDF
    return TEXT if first.startswith(_WIDE) or _NO_TEXT(first) is None else BINARY
