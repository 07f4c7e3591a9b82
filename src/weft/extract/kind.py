"""What a body is: HTML, a feed, other XML, text, or something without text.

The content type decides where it is meaningful; where it is missing, malformed or a server's default, the first bytes
do (after the WHATWG MIME Sniffing Standard). A declared HTML page that begins like a PDF or an image is one: no page of
text begins so.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache


class BodyKind(StrEnum):
    """The kind of a body, which decides what can be extracted from it."""

    HTML = "html"
    FEED = "feed"
    XML = "xml"
    TEXT = "text"
    OTHER = "other"


SNIFFED_BYTES = 1445

_USELESS = frozenset(
    "unknown/unknown application/unknown */* application/x-unknown-content-type content/unknown".split()
)
_BY_TYPE = {
    "text/html": BodyKind.HTML,
    "application/xhtml+xml": BodyKind.HTML,
    "application/vnd.wap.xhtml+xml": BodyKind.HTML,
    "application/rss+xml": BodyKind.FEED,
    "application/atom+xml": BodyKind.FEED,
    "application/rdf+xml": BodyKind.FEED,
    "text/xml": BodyKind.XML,
    "application/xml": BodyKind.XML,
    "application/json": BodyKind.TEXT,
    "application/ld+json": BodyKind.TEXT,
    "application/javascript": BodyKind.TEXT,
    "application/x-javascript": BodyKind.TEXT,
    "application/ecmascript": BodyKind.TEXT,
    "application/x-ndjson": BodyKind.TEXT,
    "application/yaml": BodyKind.TEXT,
    "application/toml": BodyKind.TEXT,
}
_MIME = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+/[!#$%&'*+.^_`|~0-9a-z-]+").fullmatch

_MAGIC = (
    b"%PDF-", b"\x89PNG", b"GIF8", b"\xff\xd8\xff", b"PK\x03\x04", b"\x1f\x8b", b"RIFF", b"OggS", b"ID3", b"7z\xbc\xaf",
    b"Rar!", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd", b"\x00\x00\x01\x00", b"wOFF", b"wOF2", b"\x7fELF", b"MZ\x90",
    b"\xd0\xcf\x11\xe0", b"%!PS", b"SQLite format 3", b"\x00asm", b"II*\x00", b"MM\x00*", b"\x1aE\xdf\xa3", b"fLaC",
)  # fmt: skip
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]").search
_HTML = re.compile(
    rb"<(?:!doctype\s+html|html|head|body|title|meta|link|script|style|iframe|frameset|base|h[1-6]|div|font|table|a|b|br|p"
    rb"|ul|ol|main|article|section|nav|header|span|center|form|img|noscript)[\s/>]",
    re.IGNORECASE,
)
_PAGE = re.compile(rb"<(?:!doctype\s+html|html|head|body|title|a\s+href)[\s/>=]", re.IGNORECASE).search
# Text that may precede the first element: XML declaration, processing instructions, comments, a doctype.
_PROLOG = re.compile(rb"(?:\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE\b[^>\[]*(?:\[.*?\]\s*)?>)*", re.DOTALL | re.IGNORECASE)
_ROOT = re.compile(rb"<([A-Za-z_][\w.:-]*)")
_FEEDS = frozenset((b"rss", b"feed", b"rdf"))


def kind_of(body: bytes, content_type: str | None) -> BodyKind:
    """The kind of a body, by its content type if that is specific, otherwise by its first bytes."""
    declared = _declared(content_type[:256]) if content_type else None
    if declared is BodyKind.HTML:
        return _html_or_not(body)
    if declared is BodyKind.XML:
        return _by_root(body[:SNIFFED_BYTES]) or BodyKind.XML
    if declared is BodyKind.TEXT:
        return BodyKind.OTHER if body.startswith(_MAGIC) else BodyKind.TEXT
    return declared if declared is not None else sniff(body)


def sniff(body: bytes) -> BodyKind:
    """What a body is, by its first bytes alone."""
    if body.startswith(_MAGIC):
        return BodyKind.OTHER
    start = _without_bom(body[:SNIFFED_BYTES])
    content = start[_prolog_end(start) :]
    if start.lstrip().startswith(b"<?xml"):
        return _by_root(start) or BodyKind.XML
    if _HTML.match(content) or start.lstrip().startswith(b"<!--"):
        return BodyKind.HTML
    if root := _by_root(start):
        return root
    if _BINARY(start):
        return BodyKind.OTHER
    return BodyKind.HTML if _PAGE(start) else BodyKind.TEXT


@lru_cache(maxsize=512)
def _declared(content_type: str) -> BodyKind | None:
    """The kind that a content type names; None if it is unspecific."""
    mime = content_type.partition(";")[0].strip().lower()
    if not _MIME(mime) or mime in _USELESS:
        return None
    if mime in _BY_TYPE:
        return _BY_TYPE[mime]
    if mime.endswith("+xml"):
        return BodyKind.OTHER if mime.startswith("image/") else BodyKind.XML
    return BodyKind.TEXT if mime.startswith("text/") or mime.endswith("+json") else BodyKind.OTHER


def _html_or_not(body: bytes) -> BodyKind:
    """A body declared as HTML: nearly always that, sometimes a feed or a file served with the wrong type."""
    if body.startswith(_MAGIC):
        return BodyKind.OTHER
    if body[:5] == b"<?xml" and _by_root(body[:SNIFFED_BYTES]) is BodyKind.FEED:
        return BodyKind.FEED
    return BodyKind.HTML


def _by_root(start: bytes) -> BodyKind | None:
    """The kind by the name of the first element; None for any other name."""
    start = _without_bom(start)
    root = _ROOT.match(start, _prolog_end(start))
    if not root:
        return None
    name = root[1].lower()
    if name == b"html" or name.endswith(b":html"):
        return BodyKind.HTML
    return BodyKind.FEED if name.partition(b":")[0] in _FEEDS else None


def _prolog_end(start: bytes) -> int:
    match = _PROLOG.match(start)
    return match.end() if match else 0


def _without_bom(start: bytes) -> bytes:
    """The first bytes as ASCII-compatible ones: no byte order mark, and UTF-16 thinned to its ASCII half."""
    if start.startswith((b"\xff\xfe", b"\xfe\xff")):
        return start[2:].replace(b"\0", b"")
    if start[:1] == b"\0" or start[1:2] == b"\0":
        return start.replace(b"\0", b"")
    return start.removeprefix(b"\xef\xbb\xbf")
