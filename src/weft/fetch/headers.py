"""Reads and writes header blocks: `Head` looks headers up in a response's head without parsing all of it.

Most callers need two or three headers, so a look-up is one search in the lower-cased bytes (under a microsecond), and
only `items` walks the lines. Both agree on what a header is: a line with a name before a colon, the name without white
space; any other line is ignored. A folded line belongs to the one before. Values are decoded as UTF-8 where possible,
else as Latin-1, so that no byte is lost and nothing here raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

from weft.credentials import OURS

_CHARSET = re.compile(r""";\s*charset\s*=\s*(?:"([^"]*)"?|'([^']*)'?|([^\s;,"']+))""", re.IGNORECASE)
_SECONDS = re.compile(r"([0-9]{1,10})[0-9]*(?:\.[0-9]*)?")
_INTERIM = re.compile(rb"HTTP/[0-9.]+[ \t]+1[0-9][0-9]")
_FOLD = re.compile(rb"\r?\n[ \t]+")
_NAME = re.compile(rb"[^\x00-\x20:\x7f]+")
_USUAL_CHARS = 100


class Head:
    """A response's head as received."""

    __slots__ = ("_lower", "raw")

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._lower = raw.lower()

    @property
    def status_line(self) -> str:
        """`HTTP/1.1 200 OK`, or nothing."""
        return text(self.raw.partition(b"\n")[0].rstrip(b"\r"))

    def get(self, name: str) -> str | None:
        """The first value of a header."""
        at = self._lower.find(_needle(name))
        return None if at < 0 else self._value(at + len(name) + 2)

    def get_all(self, name: str) -> list[str]:
        """Every value of a header, in order."""
        needle, values, at = _needle(name), [], -1
        while (at := self._lower.find(needle, at + 1)) >= 0:
            values.append(self._value(at + len(needle)))
        return values

    def items(self) -> Iterator[tuple[str, str]]:
        """Every header, names as they were written."""
        at = self.raw.find(b"\n") + 1
        while 0 < at < len(self.raw):
            name = _NAME.match(self.raw, at)
            if name is not None and self.raw[name.end() : name.end() + 1] == b":":
                yield text(name[0]), self._value(name.end() + 1)
            at = self.raw.find(b"\n", at) + 1

    def _value(self, start: int) -> str:
        raw = self.raw
        end = raw.find(b"\n", start)
        if end < 0:
            return text(raw[start:].strip())
        if raw[end + 1 : end + 2] in (b" ", b"\t"):
            return self._folded(start)
        return text(raw[start:end].strip())

    def _folded(self, start: int) -> str:
        end = start
        while (end := self.raw.find(b"\n", end)) >= 0 and self.raw[end + 1 : end + 2] in (b" ", b"\t"):
            end += 1
        return text(_FOLD.sub(b" ", self.raw[start : end if end >= 0 else None]).strip())

    # -- headers that a crawler uses

    def content_type(self) -> tuple[str, str | None]:
        """The media type in lower case, empty if there is none, and the charset as it was written."""
        for value in reversed(self.get_all("content-type")):  # the last valid one, as in browsers
            media, charset = (_usual_type if len(value) <= _USUAL_CHARS else _content_type)(value)
            if media:
                return media, charset
        return "", None

    def retry_after_s(self, now: float) -> float | None:
        """How long to wait, from seconds or a date (`now` is the time of day); None if the header is missing or
        invalid.
        """
        value = self.get("retry-after")
        if value is None:
            return None
        seconds = _SECONDS.fullmatch(value)
        if seconds is not None:
            return float(seconds[0]) if len(value) <= 10 else 1e10
        at = http_date(value)
        return None if at is None else max(0.0, at - now)

    @property
    def content_encoding(self) -> str:
        """The codings of the body in the order they were applied, on however many lines; empty if there are none."""
        return ", ".join(self.get_all("content-encoding"))

    @property
    def location(self) -> str | None:
        """The target of a redirect, as written."""
        return self.get("location")

    @property
    def etag(self) -> str | None:
        """The value for If-None-Match."""
        return self.get("etag")

    @property
    def last_modified(self) -> str | None:
        """The value for If-Modified-Since."""
        return self.get("last-modified")

    @property
    def set_cookies(self) -> list[str]:
        """Every Set-Cookie."""
        return self.get_all("set-cookie")


def http_date(value: str) -> float | None:
    """The time of day that an HTTP date names, in any of its three forms."""
    from email.utils import mktime_tz, parsedate_tz  # slow to import, and most crawls meet no date that matters

    try:
        parts = parsedate_tz(value)
        return None if parts is None else float(mktime_tz(parts))
    except (ValueError, OverflowError, TypeError, IndexError):
        return None


def text(raw: bytes) -> str:
    """Bytes of a header as text."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("latin-1")


@lru_cache(256)
def _needle(name: str) -> bytes:
    return b"\n" + name.lower().encode() + b":"


def _content_type(value: str) -> tuple[str, str | None]:
    """The media type, empty if it is none, and the charset in a Content-Type."""
    media = value.partition(";")[0].strip().lower()
    if "/" not in media:
        return "", None
    found = _CHARSET.search(value)
    return media, (found[1] or found[2] or found[3] or None) if found else None


_usual_type = lru_cache(1024)(_content_type)  # most of the web's pages have one of a few


def final_head(lines: Sequence[bytes]) -> tuple[bytes, bool]:
    """The final response's head among interim ones and trailers, and whether its blank line came."""
    start = 0
    for number, line in enumerate(lines):
        if line in (b"\r\n", b"\n"):
            if not _INTERIM.match(lines[start]):
                return b"".join(lines[start : number + 1]), True
            start = number + 1
    return b"".join(lines[start:]), False


def merged(usual: Sequence[tuple[str, str]], extra: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The usual headers without those that `extra` replaces, then `extra` without the client's own (`OURS`)."""
    named = {name.lower() for name, _ in extra}
    kept = [pair for pair in usual if pair[0].lower() not in named]
    return kept + [pair for pair in extra if pair[0].lower() not in OURS]


def wire(headers: Sequence[tuple[str, str]]) -> tuple[list[bytes], bytes]:
    """Headers in libcurl's form (an empty value is written `name;`), and as it sends them, with the blank line."""
    pairs = [(name.encode(), value.strip().encode()) for name, value in headers]
    lines = [name + b": " + value if value else name + b";" for name, value in pairs]
    sent = [name + b": " + value if value else name + b":" for name, value in pairs]
    return lines, b"\r\n".join([*sent, b"\r\n"])
