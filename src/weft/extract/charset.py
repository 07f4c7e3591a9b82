"""Bytes to text: detects a body's encoding and decodes it.

The order is WHATWG's: byte order mark, HTTP header, declaration in the first 1024 bytes. A body that declares nothing
is UTF-8 when it is valid UTF-8; else a late declaration or, last, the statistics of its letters decide (after
chardetng), helped by the page's language and its host's top-level domain.

Invariant: `decode` never raises, whatever the bytes and labels: what cannot be decoded becomes U+FFFD.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal, NamedTuple

from weft.extract.labels import decoder_of, encoding_of
from weft.extract.turbo import detect_encoding

Source = Literal["bom", "header", "meta", "detected", "fallback"]

PRESCAN_BYTES = 1024
LATE_BYTES = 16384
SAMPLE_BYTES = 16384
MAX_TYPE_CHARS = 256
FALLBACK = "windows-1252"
# With fewer non-ASCII letters than this, and no other hint, a guess among the Latin alphabets is unreliable.
FEW_LETTERS = 6

_OTHER_LATIN = frozenset(("windows-1250", "windows-1254", "windows-1257", "windows-1258", "iso-8859-2", "iso-8859-4"))
_ASCII = bytes(range(128))

_BOMS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\0\0", "utf-32le"),  # before utf-16le, whose mark is a prefix of it
    (b"\0\0\xfe\xff", "utf-32be"),
    (b"\xff\xfe", "utf-16le"),
    (b"\xfe\xff", "utf-16be"),
)
_WIDE_STARTS = (
    (b"<\0\0\0", "utf-32le"),
    (b"\0\0\0<", "utf-32be"),
    (b"<\0", "utf-16le"),
    (b"\0<", "utf-16be"),
)
_CHARSET = re.compile(r"charset\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s;\"']+))", re.IGNORECASE)
_QUOTED = rb"(?:[^>\"']++|\"[^\"]*\"|'[^']*')*+"
# Other tags and comments are matched too, so that a <meta> inside them is ignored.
_TAG = re.compile(rb"<!--(?:.*?-->|.*+)|<meta(?=[\s/])(" + _QUOTED + rb")>|<[/A-Za-z]" + _QUOTED + rb">", re.I | re.S)
_ATTRIBUTE = re.compile(rb"([^\s/>\"'=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>\"']+)))?")
_XML = re.compile(rb"<\?xml\s[^>]*?encoding\s*=\s*[\"']([^\"']+)").match
_LANG = re.compile(rb"<html\b[^>]*?\slang\s*=\s*[\"']?([A-Za-z]{2,3}(?:-[A-Za-z]+)?)", re.IGNORECASE).search
_TLD = re.compile(r"^[a-z]+://(?:[^/?#@]*@)?[^/?#:]*\.([a-z]{2}|xn--[a-z0-9-]+)\.?(?::\d*)?(?:[/?#]|$)").match

# Language to country, because the detector takes a top-level domain as its hint.
_COUNTRY = {
    "ja": "jp", "ko": "kr", "zh-tw": "tw", "zh-hk": "hk", "zh-hant": "tw", "zh": "cn", "ru": "ru", "uk": "ua",
    "be": "by", "bg": "bg", "sr": "rs", "mk": "mk", "el": "gr", "he": "il", "iw": "il", "ar": "eg", "fa": "ir",
    "tr": "tr", "az": "az", "th": "th", "vi": "vn", "pl": "pl", "cs": "cz", "sk": "sk", "hu": "hu", "sl": "si",
    "hr": "hr", "ro": "ro", "lt": "lt", "lv": "lv", "et": "ee", "de": "de", "fr": "fr", "es": "es", "it": "it",
    "pt": "pt", "nl": "nl", "sv": "se", "da": "dk", "fi": "fi", "no": "no", "nb": "no", "is": "is", "en": "us",
}  # fmt: skip


class DecodedText(NamedTuple):
    """A body's text, its encoding (WHATWG's name, lower-case) and how that was determined."""

    text: str
    charset: str
    source: Source


def decode(body: bytes, content_type: str | None = None, url: str = "") -> DecodedText:
    """The text of a body; `url` is a hint for the last resort only."""
    if body[:1] in (b"\xef", b"\xff", b"\xfe", b"\0"):
        for mark, encoding in _BOMS:
            if body.startswith(mark):
                return DecodedText(_decode(body[len(mark) :], encoding), encoding, "bom")
    if content_type and (declared := _in_header(content_type[:MAX_TYPE_CHARS])):
        declared = _wide(body) or declared if declared.startswith(("utf-16", "utf-32")) else declared
        return DecodedText(_decode(body, declared), declared, "header")
    if declared := _in_markup(body[:PRESCAN_BYTES]):
        return DecodedText(_decode(body, declared), declared, "meta")
    return _undeclared(body, url)


def as_text(body: bytes, charset: str | None) -> str:
    """A body as text in a charset that `decode` has named; nothing where there is none."""
    if charset is None:
        return ""
    try:
        return body.decode(charset, "replace")
    except LookupError:  # Python has it under another name, or not at all
        return body.decode("latin-1")


@lru_cache(maxsize=512)
def _in_header(content_type: str) -> str | None:
    """The encoding a Content-Type names."""
    match = _CHARSET.search(content_type)
    return encoding_of(match[1] or match[2] or match[3] or "") if match else None


def _in_markup(start: bytes) -> str | None:
    """The encoding a `<meta>` or an XML declaration names."""
    for tag in _TAG.finditer(start):
        if tag[1] is not None and (encoding := _in_meta(tag[1])):
            return encoding
    match = _XML(start)
    return _as_declared_in_ascii(match[1]) if match else None


def _in_meta(attributes: bytes) -> str | None:
    found: dict[bytes, bytes] = {}
    for name, *values in _ATTRIBUTE.findall(attributes):
        found.setdefault(name.lower(), b"".join(values))
    if b"charset" in found:
        return _as_declared_in_ascii(found[b"charset"])
    if found.get(b"http-equiv", b"").strip().lower() == b"content-type":
        match = _CHARSET.search(found.get(b"content", b"").decode("latin-1"))
        return _as_declared_in_ascii((match[1] or match[2] or match[3] or "").encode("latin-1")) if match else None
    return None


def _as_declared_in_ascii(label: bytes) -> str | None:
    """The encoding of a label that was read as ASCII, so that it cannot be a wide one."""
    encoding = encoding_of(label.decode("latin-1"))
    if encoding is None:
        return None
    if encoding.startswith(("utf-16", "utf-32")):
        return "utf-8"
    return FALLBACK if encoding == "x-user-defined" else encoding


def _undeclared(body: bytes, url: str) -> DecodedText:
    if wide := _wide(body):
        return DecodedText(_decode(body, wide), wide, "detected")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.reason == "unexpected end of data" and not body[: error.start].isascii():
            # A body cut inside its last character, as at the cap, is still UTF-8.
            return DecodedText(_decode(body, "utf-8"), "utf-8", "detected")
    else:
        escaped = _escaped(text)
        if escaped is None:
            return DecodedText(text, "utf-8", "detected")
        return DecodedText(_decode(body, escaped), escaped, "detected")
    if late := _in_markup(body[:LATE_BYTES]):
        return DecodedText(_decode(body, late), late, "meta")
    encoding, source = _guess(body, url)
    return DecodedText(_decode(body, encoding), encoding, source)


def _wide(body: bytes) -> str | None:
    """UTF-16 or UTF-32, recognised by the NULs next to a page's first `<`."""
    if b"\0" in body[:4]:
        for start, encoding in _WIDE_STARTS:
            if body.startswith(start):
                return encoding
    return None


def _escaped(text: str) -> str | None:
    """The 7-bit encoding that an ASCII text with escapes to other alphabets is in."""
    if "\x1b" not in text or not text.isascii():
        return None
    if "\x1b$)C" in text:
        return "iso-2022-kr"
    return "iso-2022-jp" if "\x1b$B" in text or "\x1b$@" in text else None


def _guess(body: bytes, url: str) -> tuple[str, Source]:
    """The likeliest encoding by its letters."""
    sample, tld = _sample(body), _hint(body, url)
    name, sureness = detect_encoding(sample, tld)
    encoding = encoding_of(name or "")
    if encoding is None or not sureness:
        return FALLBACK, "fallback"
    if encoding in _OTHER_LATIN and tld is None and len(sample.translate(None, _ASCII)) < FEW_LETTERS:
        return FALLBACK, "fallback"
    return encoding, "detected"


def _sample(body: bytes) -> bytes:
    """The non-ASCII parts of a body, cut at bytes that are inside a character in no encoding."""
    size, kept = 0, []
    for piece in body.split(b"<"):
        if not piece.isascii():
            kept.append(piece)
            size += len(piece)
            if size > SAMPLE_BYTES:
                break
    sample = b"<".join(kept)
    if size <= 4 * SAMPLE_BYTES:
        return sample
    return sample[: sample.rfind(b"\n", 0, SAMPLE_BYTES) + 1] or sample[: 4 * SAMPLE_BYTES]


def _hint(body: bytes, url: str) -> str | None:
    """The top-level domain for the detector: of the page's language, else of its host."""
    if match := _LANG(body, 0, LATE_BYTES):
        lang = match[1].decode("ascii").lower()
        if country := _COUNTRY.get(lang) or _COUNTRY.get(lang[:2]):
            return country
    tld = _TLD(url)
    return tld[1] if tld else None


def _decode(body: bytes, encoding: str) -> str:
    return body.decode(decoder_of(encoding), "replace")
