"""A page's statements about the use of its content beyond reading: training, text and data mining. Pure.

- `noai`, `noimageai`: directives in `<meta name=robots>` and X-Robots-Tag, for everyone or for us.
- Content-Usage (IETF AIPREF): a header, as a dictionary of `y` and `n` by category (`train-ai=n, search=y`).
- Content-Signal: a header of the same shape with `yes` and `no` (`ai-train=no, ai-input=no`).
- TDM Reservation Protocol (W3C community group): `tdm-reservation` (1: rights are reserved) and `tdm-policy`, as
  `<meta>` or header; the page's own word counts before the header's.

They are kept as stated; `ai_training` sums them up. What is said for a whole site (robots.txt,
`/.well-known/tdmrep.json`) is not looked at. Malformed values are ignored, as they are not a statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from weft.extract.robots_meta import PRODUCT, words_for
from weft.extract.turbo import Document

MAX_CHARS = 500
_METAS = ("tdm-reservation", "tdm-policy")
_TRAINING = ("train-ai", "ai-train", "train-genai")  # as AIPREF, Content-Signal and AIPREF's drafts of 2025 call it
_NO, _YES = frozenset(("n", "no", "?0")), frozenset(("y", "yes", "?1"))


@dataclass(frozen=True, slots=True)
class Preferences:
    """As stated; None where nothing was."""

    noai: bool = False
    noimageai: bool = False
    content_usage: str | None = None
    content_signal: str | None = None
    tdm_reservation: bool | None = None
    tdm_policy: str | None = None

    @property
    def ai_training(self) -> bool | None:
        """Whether models may be trained with the page: None if it has no statement; one no outweighs any yes."""
        said = [
            False if self.noai else None,
            False if self.tdm_reservation else None,
            _said(self.content_usage),
            _said(self.content_signal),
        ]
        if False in said:
            return False
        return True if True in said else None


def preferences(headers: Iterable[tuple[str, str]], document: Document | None = None) -> Preferences:
    """What a response and its page state; `document` is None for what is no HTML."""
    lines: dict[str, list[str]] = {}
    for name, value in headers:
        lines.setdefault(name.lower(), []).append(value)
    robots, metas = _metas(document) if document is not None else ([], {})
    words = {word.strip().lower() for word in words_for(lines.get("x-robots-tag", ()), PRODUCT)} | set(robots)
    return Preferences(
        noai="noai" in words,
        noimageai="noimageai" in words,
        content_usage=_joined(lines.get("content-usage")),
        content_signal=_joined(lines.get("content-signal")),
        tdm_reservation=_reserved([*metas.get("tdm-reservation", ()), *lines.get("tdm-reservation", ())]),
        tdm_policy=next(iter([*metas.get("tdm-policy", ()), *lines.get("tdm-policy", ())]), "").strip()[:MAX_CHARS]
        or None,
    )


def _metas(document: Document) -> tuple[list[str], dict[str, list[str]]]:
    """The robots directives of a page, and the other metas that are looked at, by name."""
    robots: list[str] = []
    others: dict[str, list[str]] = {}
    for element in document.select("meta[name]"):
        name = (element.attr("name") or "").strip().lower()
        if name in ("robots", PRODUCT):
            robots += [word.strip().lower() for word in (element.attr("content") or "").split(",")]
        elif name in _METAS:
            others.setdefault(name, []).append(element.attr("content") or "")
    return robots, others


def _joined(lines: list[str] | None) -> str | None:
    """A header's lines as one, with single spaces."""
    return " ".join(", ".join(lines).split())[:MAX_CHARS] or None if lines else None


def _reserved(values: Iterable[str]) -> bool | None:
    """The first value that is one: 1 or 0."""
    return next((value.strip() == "1" for value in values if value.strip() in ("0", "1")), None)


def _said(dictionary: str | None) -> bool | None:
    """A dictionary's statement about training; the most restrictive, if several categories apply."""
    said = [value for key, value in _members(dictionary or "") if key in _TRAINING]
    if any(value in _NO for value in said):
        return False
    return True if any(value in _YES for value in said) else None


def _members(dictionary: str) -> Iterator[tuple[str, str]]:
    """Keys and values, the parameters left out; of a key that comes twice the last, as in RFC 9651."""
    found = {}
    for member in dictionary.split(","):
        key, _, value = member.partition(";")[0].partition("=")
        found[key.strip().lower()] = value.strip().strip('"').lower()
    return iter(found.items())
