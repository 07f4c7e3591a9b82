"""Reads sitemaps: XML url sets and indexes, plain lists, RSS and Atom feeds; gzip or not. Pure.

This is a scanner, not an XML parser: in one pass it finds the few tags that matter and the text that follows them. So a
broken file gives what could be read, an unescaped `&` in a URL does no harm, and there is nothing to expand: entities
other than the five predefined and the numeric ones stay as written, and nothing external is fetched.

What must stay true: time is linear in the (unpacked) size, which is at most 50 MiB, and at most `limit` pages and
`limit` sitemaps are kept, each of at most 4,096 bytes.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from weft.fetch.decode import decode

MAX_BYTES = 50 * 1024 * 1024  # sitemaps.org: a file is at most this long, unpacked
MAX_ENTRIES = 50_000
MAX_LOC_BYTES = 4096
MAX_TOKENS_PER_ENTRY = 40  # on average: stops a file of nothing but tags before it takes seconds

# A construct matches as a whole, an unclosed one to the end of the file, so no byte is scanned more than a few times.
_COMMENT = rb"<!--(?:.*?-->|.*)"
_CDATA = rb"<!\[CDATA\[(?:.*?\]\]>|.*)"
_SKIPPED = rb"<\?(?:.*?\?>|.*)|<!DOCTYPE[^\[>]*(?:\[(?:.*?\]\s*>|.*)|>)?|" + _COMMENT
_PREFIX = rb"(?:([A-Za-z_][\w.-]*+):)?"
_ENTRIES = rb"url|sitemap|item|entry"
_FACTS = rb"loc|lastmod|link|guid|pubDate|date|updated|published"
_TEXT = rb"((?:[^<]+|" + _CDATA + rb"|" + _COMMENT + rb")*+)"
_TAG = rb"<(?=[A-Za-z_])" + _PREFIX + rb"(?:(" + _ENTRIES + rb")|(" + _FACTS + rb"))((?=[\s/>])[^<>]*+)>" + _TEXT
_END = rb"</" + _PREFIX + rb"(" + _ENTRIES + rb")\s*>"
# Groups: prefix and name of an entry that ends; prefix, name of an entry or of a fact, attributes and text of a tag.
_TOKEN = re.compile(rb"|".join((_END, _TAG, _SKIPPED, _CDATA)), re.DOTALL | re.IGNORECASE)
_ROOT = re.compile(
    rb"(?:\s+|" + _SKIPPED + rb")*+<" + _PREFIX + rb"([A-Za-z_][\w.-]*+)",
    re.DOTALL | re.IGNORECASE,
)
_LINE = re.compile(rb"^[ \t]*(https?://\S{1,%d})[ \t\r]*$" % MAX_LOC_BYTES, re.MULTILINE | re.IGNORECASE)
_INSERT = re.compile(r"<!--.*?-->|<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_ENTITY = re.compile(r"&(?:(amp|lt|gt|quot|apos)|#([0-9]{1,7})|#[xX]([0-9A-Fa-f]{1,6}));")
_NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_ATTRIBUTE = re.compile(r"([\w:.-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)')")
_ENCODING = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.-]{1,40})[\"']")
# Codecs that leave ASCII as it is. Others (utf-7, punycode ...) are not used in sitemaps, and some are slow.
_CODECS = re.compile(r"utf-?8|us-ascii|(iso-?8859|windows|cp|latin|koi8|gb|big5|euc|shift|ks)[\w-]*")
_MONTH = re.compile(r"(\d{4})(?:-(\d\d))?")


@dataclass(frozen=True, slots=True)
class Sitemap:
    """What a sitemap lists: pages, each with the time of its last change (UTC seconds) or None; further sitemaps."""

    urls: list[tuple[str, float | None]] = field(default_factory=list)
    sitemaps: list[str] = field(default_factory=list)
    truncated: bool = False  # the file was cut, broken while packed, or longer than the limits
    error: str | None = None


def parse(body: bytes, limit: int = MAX_ENTRIES) -> Sitemap:
    """Parses any bytes; a file that is not a sitemap lists nothing."""
    packed = body.startswith(b"\x1f\x8b")
    plain, truncated, error = decode(body, "gzip" if packed else "", MAX_BYTES)
    plain = _as_utf8(plain)
    start = _ROOT.match(plain)
    if start is None:
        urls = _lines(plain, limit + 1)
        return Sitemap(urls[:limit], [], truncated or len(urls) > limit, error)
    scan = _Scan((start[1] or b"").lower(), start[2].lower(), _codec(plain), limit)
    full = start[2].lower() != b"html" and scan.read(plain)
    return Sitemap(scan.urls, scan.sitemaps, truncated or full, error)


def timestamp(text: str) -> float | None:
    """A W3C date (of any precision) or a mail date as UTC seconds; None when it is neither. No zone means UTC."""
    text = text.strip()
    if not 4 <= len(text) <= 64:
        return None
    try:
        if month := _MONTH.fullmatch(text):
            when = datetime(int(month[1]), int(month[2] or 1), 1)
        elif text[0].isdigit() and text[4:5] == "-":
            when = datetime.fromisoformat(text)
        else:
            from email.utils import parsedate_to_datetime  # RSS alone has such dates

            when = parsedate_to_datetime(text)
        return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


class _Scan:
    """One pass over the tags. An entry ends where its element ends, or where the next one begins.

    An element with another prefix than the root (`image:loc`) belongs to an extension and is skipped. So is a text that
    is cut by the end of the file: half a URL is a different URL.
    """

    def __init__(self, prefix: bytes, root: bytes, codec: str, limit: int) -> None:
        self.urls: list[tuple[str, float | None]] = []
        self.sitemaps: list[str] = []
        self._prefixes = (b"", prefix)
        self._codec = codec
        self._limit = limit
        self._index = root == b"sitemapindex"
        self._inside = b""  # the entry's element, while one is open
        self._loc = self._guid = ""
        self._changed: float | None = None

    def read(self, body: bytes) -> bool:
        """Scans the file; returns whether a limit cut it off."""
        tokens = _TOKEN.finditer(body)
        for token in islice(tokens, MAX_TOKENS_PER_ENTRY * (self._limit + 1)):
            end_prefix, end, prefix, entry, fact, attributes, text = token.groups()
            if (prefix or end_prefix or b"").lower() not in self._prefixes and (prefix, fact) != (b"dc", b"date"):
                continue
            if end or entry:
                if not self._flush():
                    return True
                self._inside = entry.lower() if entry and not attributes.endswith(b"/") else b""
            elif fact and token.end() < len(body) and not self._record(fact.lower(), attributes, text):
                return True
        return not self._flush() or next(tokens, None) is not None

    def _record(self, fact: bytes, attributes: bytes, text: bytes) -> bool:
        """Records one element of the open entry; False when the limit is reached."""
        room = True
        if fact == b"loc":
            room = bool(self._inside) or self._flush()
            self._loc = self._loc or self._text(attributes, text)
        elif self._inside not in (b"item", b"entry"):
            if fact == b"lastmod":
                self._changed = timestamp(self._text(attributes, text))
        elif fact == b"link":
            self._loc = self._loc or self._href(attributes) or self._text(attributes, text)
        elif fact == b"guid":
            self._guid = self._guid or self._text(attributes, text)
        elif fact != b"published" or self._changed is None:
            self._changed = timestamp(self._text(attributes, text))
        return room

    def _flush(self) -> bool:
        """Keeps the open entry, if it has a URL; False when the limit is reached."""
        loc, changed = self._loc, self._changed
        if not loc and self._guid.startswith(("http://", "https://")):
            loc = self._guid
        self._loc, self._guid, self._changed = "", "", None
        if not loc or len(loc) > MAX_LOC_BYTES:
            return True
        is_index = self._inside == b"sitemap" or (self._index and not self._inside)
        if len(self.sitemaps if is_index else self.urls) >= self._limit:
            return False
        if is_index:
            self.sitemaps.append(loc)
        else:
            self.urls.append((loc, changed))
        return True

    def _text(self, attributes: bytes, raw: bytes) -> str:
        """The text of an element, without comments, CDATA markers and entities."""
        if len(raw) > 4 * MAX_LOC_BYTES or attributes.endswith(b"/"):
            return ""
        text = raw.decode(self._codec, "replace")
        if "<" in text:
            parts = _INSERT.split(text)  # text, CDATA or None, text, ...
            return "".join((part or "") if at % 2 else _unescaped(part) for at, part in enumerate(parts)).strip()
        return _unescaped(text).strip()

    def _href(self, attributes: bytes) -> str:
        """Atom's link: the URL is an attribute, and only the alternate link is the page."""
        pairs = _ATTRIBUTE.findall(attributes[: 4 * MAX_LOC_BYTES].decode(self._codec, "replace"))
        found = {name.lower(): double or single for name, double, single in pairs}
        return _unescaped(found.get("href", "")).strip() if found.get("rel", "alternate") == "alternate" else ""


def _unescaped(text: str) -> str:
    return _ENTITY.sub(_character, text) if "&" in text else text


def _character(entity: re.Match[str]) -> str:
    """The character that an entity stands for; an invalid entity stays as written."""
    name, decimal, hexadecimal = entity.groups()
    if name:
        return _NAMED[name]
    code = int(decimal) if decimal else int(hexadecimal, 16)
    return chr(code) if 32 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else entity[0]


def _as_utf8(body: bytes) -> bytes:
    """The body without a byte order mark; UTF-16 is converted, since the scanner reads bytes."""
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return body.decode("utf-16", "replace").encode("utf-8", "replace")
    if body.startswith((b"<\0", b"\0<")):
        return body.decode("utf-16-le" if body[0] else "utf-16-be", "replace").encode("utf-8", "replace")
    return body.removeprefix(codecs.BOM_UTF8)


def _codec(body: bytes) -> str:
    """The encoding in the XML declaration, if it is a permitted one; else UTF-8."""
    declared = _ENCODING.match(body[:200].lstrip())
    name = declared[1].decode("ascii").lower() if declared else "utf-8"
    try:
        return codecs.lookup(name).name if _CODECS.fullmatch(name) else "utf-8"
    except LookupError:
        return "utf-8"


def _lines(body: bytes, limit: int) -> list[tuple[str, float | None]]:
    """A plain list: one URL in each line; other lines are ignored."""
    return [(line[1].decode("utf-8", "replace"), None) for line in islice(_LINE.finditer(body), limit)]
