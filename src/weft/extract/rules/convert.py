"""Converts a text to a number, a date or a URL; NotConverted if it is none, or ambiguous.

Numbers are written in many ways. Of two kinds of separators the last is the decimal one; of one kind that comes several
times none is; a single comma before exactly three digits separates thousands, a single point never does. Dates become
ISO 8601; a date whose day and month could change places is refused, since a guess would be wrong half the time.
"""

from __future__ import annotations

import re
import unicodedata
from datetime import date, datetime, time
from email.utils import parsedate_to_datetime

from weft import urls
from weft.errors import BadUrl

MAX_NUMBER_CHARS = 40
MAX_INTEGER = 1 << 53  # beyond it a number is a float, which readers of JSON make of it anyway
MAX_DATE_CHARS = 100

_SPACES = "\\s\u00a0\u202f\u2009"
_NUMBER = re.compile(
    r"(?:(?<!\w)(?P<sign>[-+\u2212\u2013]))?"
    rf"(?P<digits>\d(?:[\d.,'\u2019{_SPACES}]{{0,60}}\d)?|(?<!\d)[.,]\d+)(?P<power>[eE][-+]?\d{{1,3}}(?!\w))?"
)
_SPACED = re.compile(r"\s+(?!\d{3}(?!\d))")
_GROUPS = re.compile(r"\d{1,3}(?:\.\d{3})+|\d{1,3}(?:,\d{2,3})*,\d{3}|\d*")  # of 2, as in India
_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_NAMES = "january february march april may june july august september october november december sept".split()
_ZONE = r"(?:\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2}))?"
_TIME = (
    r"(?:[\s,T]+(?:at\s+)?(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:\.\d+)?)?"
    rf"\s*(?P<half>[ap]\.?m\.?)?{_ZONE})?"
)
_FORMS = [
    re.compile(form + _TIME, re.IGNORECASE)
    for form in (
        r"(?P<year>\d{4})[-/.](?P<month>\d{1,2})[-/.](?P<day>\d{1,2})",
        r"(?P<year>\d{4})年\s*(?P<month>\d{1,2})月\s*(?P<day>\d{1,2})日",
        r"(?:[a-z]{3,9},?\s+)?(?P<day>\d{1,2})(?:st|nd|rd|th|\.)?[\s-]+(?:of\s+)?(?P<name>[a-z]{3,9})\.?,?[\s-]+(?P<year>\d{4})",
        r"(?:[a-z]{3,9},?\s+)?(?P<name>[a-z]{3,9})\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?,?\s+(?P<year>\d{4})",
        r"(?P<day>\d{1,2})\.\s?(?P<month>\d{1,2})\.\s?(?P<year>\d{4})",
        r"(?P<first>\d{1,2})[/-](?P<other>\d{1,2})[/-](?P<year>\d{4})",
    )
]


class NotConverted(ValueError):
    """A text that cannot be converted: its `str` is the reason."""


def number(text: str) -> int | float:
    """The first number in a text."""
    match = _NUMBER.search(text[:1000])
    if match is None:
        raise NotConverted(f"{_shown(text)} has no number")
    written = _SPACED.split(match["digits"])[0] if match["digits"][:1].isdigit() else match["digits"]
    digits = _plain(re.sub(r"['\u2019\s]", "", written))
    if digits is None or len(digits) > MAX_NUMBER_CHARS:
        raise NotConverted(f"{_shown(text)} has no number that can be read")
    power = match["power"] if match["power"] and len(written) == len(match["digits"]) else ""
    plain = ("-" if match["sign"] in ("-", "\u2212", "\u2013") else "") + digits + power
    value = float(plain)
    if value in (float("inf"), float("-inf")):
        raise NotConverted(f"{_shown(text)} is too large a number")
    return int(plain) if plain.lstrip("-").isdigit() and abs(value) < MAX_INTEGER else value


def _plain(digits: str) -> str | None:
    """A number with ASCII digits and a point alone, its groups joined; None where its separators make no sense."""
    digits = "".join(str(unicodedata.decimal(char)) if char.isdecimal() else char for char in digits)
    points, commas = digits.count("."), digits.count(",")
    decimal = ""
    if points and commas:
        decimal = max(".", ",", key=digits.rfind)
    elif points == 1 or (commas == 1 and not re.fullmatch(r"[1-9]\d{0,2},\d{3}", digits)):
        decimal = "." if points else ","
    whole, _, part = digits.rpartition(decimal) if decimal else (digits, "", "")
    if not _GROUPS.fullmatch(whole):
        return None
    whole = whole.replace(",", "").replace(".", "")
    return f"{whole or '0'}.{part}" if decimal else whole


def iso_date(text: str) -> str:
    """A date, or a date and a time, in ISO 8601; with the offset from UTC where the text has one."""
    plain = " ".join(text.split())
    if not plain or len(plain) > MAX_DATE_CHARS:
        raise NotConverted(f"{_shown(text)} is not a date")
    if (found := _iso(plain) or _by_form(plain) or _by_mail(plain)) is None:
        raise NotConverted(f"{_shown(text)} is not a date that can be read")
    return found.isoformat()


def _iso(text: str) -> date | datetime | None:
    """What ISO 8601 writes; a number alone, or a week, is more likely something else."""
    if not re.match(r"\d{4}-?\d{2}-?\d{2}(?:$|[T ])", text) or text.isdigit():
        return None
    try:
        return date.fromisoformat(text) if len(text) == 10 else datetime.fromisoformat(text)
    except ValueError:
        return None


def _by_mail(text: str) -> datetime | None:
    """What HTTP and mail write."""
    if ":" not in text:
        return None
    try:
        return parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def _by_form(text: str) -> date | datetime | None:
    for form in _FORMS:
        if (match := form.fullmatch(text)) is None:
            continue
        parts = match.groupdict()
        month, day = _month_and_day(parts, text)
        try:
            found = date(int(parts["year"]), month, day)
            return found if parts["hour"] is None else datetime.combine(found, _time(parts))
        except ValueError:
            raise NotConverted(f"{_shown(text)} is not a date that can be read") from None
    return None


def _month_and_day(parts: dict[str, str | None], text: str) -> tuple[int, int]:
    if parts.get("name") is not None:
        name = (parts["name"] or "").lower()
        known = name in _NAMES or name in _MONTHS
        return (_MONTHS[name[:3]] if known else 0), int(parts["day"] or 0)
    if parts.get("first") is None:
        return int(parts["month"] or 0), int(parts["day"] or 0)
    first, other = int(parts["first"] or 0), int(parts["other"] or 0)
    if first <= 12 and other <= 12 and first != other:
        raise NotConverted(f"{_shown(text)}: which number is the day and which the month?")
    return (other, first) if other <= 12 else (first, other)


def _time(parts: dict[str, str | None]) -> time:
    hour = int(parts["hour"] or 0)
    if half := (parts["half"] or "")[:1].lower():
        if not 1 <= hour <= 12:
            raise ValueError("no such hour")
        hour = hour % 12 + 12 * (half == "p")
    zone = (parts["zone"] or "").upper()
    zone = "+00:00" if zone in ("Z", "UTC", "GMT") else zone
    return time.fromisoformat(f"{hour:02}:{parts['minute']}:{parts['second'] or '00'}{zone}")


def url(text: str, base: str) -> str:
    """A reference made absolute; of http and https, since others lead to no page."""
    try:
        found = urls.parse(text.strip(), base)
    except BadUrl as error:
        raise NotConverted(str(error)) from None
    if not text.strip() or found.protocol not in ("http:", "https:"):
        raise NotConverted(f"{_shown(text)} is not a web address")
    return str(found.href)


def _shown(text: str) -> str:
    plain = " ".join(text[:200].split())
    return repr(plain if len(plain) <= 60 else plain[:59] + "…")
