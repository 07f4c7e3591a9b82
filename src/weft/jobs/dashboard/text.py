"""Formats values for people: numbers, times, sizes, and untrusted texts.

A title or URL of a scraped page may be anything: 100 KB long, with control characters, or with marks that change the
direction of the text around it. `one_line` makes one short line of it; templates escape it and isolate it (`<bdi>`).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from weft.urls import MAX_LENGTH

TITLE = 160  # The characters that are shown of a title.
URL = 300
# Control characters, direction marks and overrides, line separators, and invisible characters.
_INVISIBLE_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]+"
)
_SPACES = re.compile(r"\s+")
_STACKED_MARKS = re.compile(
    "([\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff]{3})[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u20d0-\u20ff]+"
)


def one_line(text: str, most: int = TITLE) -> str:
    """An untrusted text in one line of at most `most` characters."""
    line = _SPACES.sub(" ", _INVISIBLE_CHARACTERS.sub(" ", text[: 8 * most])).strip()
    line = _STACKED_MARKS.sub(r"\1", line)
    return line if len(line) <= most and len(text) <= 8 * most else line[: most - 1].rstrip() + "…"


def paragraph(text: str, most: int) -> str:
    """The beginning of a longer untrusted text, with its line breaks."""
    lines = (_INVISIBLE_CHARACTERS.sub(" ", line.expandtabs(4)).rstrip() for line in text[: 2 * most].split("\n"))
    whole = "\n".join(lines)
    return whole if len(whole) <= most and len(text) <= 2 * most else whole[: most - 1].rstrip() + "…"


def split_url(url: str, most: int = URL) -> tuple[str, str]:
    """A URL's host with its port, and the rest, for display."""
    scheme, _, rest = one_line(url, most).partition("://")
    if not rest:
        return scheme, ""
    host, slash, path = rest.partition("/")
    return host, slash + path


def link(url: str) -> str:
    """A URL that may be linked: http or https in canonical form; otherwise empty."""
    is_one = url.startswith(("http://", "https://")) and url.isascii() and len(url) <= MAX_LENGTH
    return url if is_one and url.isprintable() else ""


def count(number: float) -> str:
    """A whole number with separators: 1,234"""
    return f"{number:,.0f}"


def decimal(number: float) -> str:
    """A rate: 0.04, 0.4, 12.3, 1,234"""
    if 0 < number < 0.1:
        return f"{number:.2f}"
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"


def percent(share: float | None) -> str:
    """A share of 0 to 1 as 97.3 %; a dash for None."""
    return "–" if share is None else f"{100 * share:.1f}".removesuffix(".0") + " %"


def size(number: float) -> str:
    """A number of bytes: 512 B, 1.4 MB"""
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" or number >= 100 else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:,.1f} TB"


def duration(seconds: float | None) -> str:
    """A duration: 7 ms, 4.2 s, 3 min 05 s, 1 h 02 min; a dash for None."""
    if seconds is None:
        return "–"
    if 0 < seconds < 0.1:
        return f"{max(1, round(1000 * seconds))} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def ago(at: float | None, now: float) -> str:
    """The approximate time since `at`."""
    if at is None:
        return "–"
    seconds = max(0, round(now - at))
    if seconds < 5:
        return "now"
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit} ago"
    return f"{seconds} s ago"


def clock(at: float | None) -> str:
    """A time in UTC."""
    return "–" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def machine_time(at: float | None) -> str:
    """A time for the `datetime` attribute of HTML."""
    return "" if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
