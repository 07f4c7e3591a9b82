"""The records of a URL of the synthetic web, which the renderer, the server and the oracle share.

A Reference has both its text and its target, so that the oracle never has to resolve a URL: the world that made the
link knows its target.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

# Tags whose links a crawler follows; all other tags only look like links.
FOLLOWED = frozenset({"a", "area", "iframe", "frame", "canonical", "refresh"})
# Tags in the head of a page.
HEAD_TAGS = frozenset({"canonical", "refresh", "noscript-refresh", "stylesheet"})
FOR_EVER = 1 << 30

_MASK = (1 << 64) - 1


def mix(*parts: int) -> int:
    """A 64-bit number that depends on all parts and on nothing else (splitmix64 folded over them)."""
    x = 0x243F6A8885A308D3
    for part in parts:
        x = (x ^ part) + 0x9E3779B97F4A7C15 & _MASK
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & _MASK
        x = (x ^ x >> 27) * 0x94D049BB133111EB & _MASK
        x ^= x >> 31
    return x


class Reference(NamedTuple):
    """One link in a page, or something that looks like one.

    `href` is the attribute's text as it is in the markup. `target` is the canonical URL that a correct parser makes of
    it; None if it is not an http(s) URL.
    """

    href: str
    target: str | None
    tag: str = "a"


@dataclass(frozen=True, slots=True)
class Flaw:
    """How a URL misbehaves: for the first `failures` attempts (FOR_EVER: always), then it answers well.

    `name` is transient, rate-limit, reset, broken or slow; a slow URL fails never and waits `wait_s` always.
    """

    name: str
    failures: int = 0
    status: int = 503
    retry_after_s: int | None = None
    wait_s: float = 0.0


@dataclass(slots=True)
class Resource:
    """Everything known about one URL. `kind` is the word in the arrival log's `note`."""

    path: str
    kind: str = "page"
    status: int = 200
    references: tuple[Reference, ...] | list[Reference] = ()
    location: str | None = None
    leads_to: str | None = None
    content_type: str | None = "text/html"
    charset: str = "utf-8"
    declared: str = "header"
    language: str = "en"
    title: str = ""
    key: int = 0
    size: int = 2500
    head: str = ""
    body: bytes | None = None
    headers: tuple[tuple[str, str], ...] = ()
    nofollow: bool = False
    flaw: Flaw | None = None
    modified: int = 1_700_000_000
    trap: bool = False
    behaviour: str | None = None

    @property
    def is_redirect(self) -> bool:
        return self.location is not None

    @property
    def parsed(self) -> bool:
        """Whether a correct crawler extracts links from it: an answer of 200 that is, or looks like, HTML."""
        html = self.content_type in (None, "text/html")
        return self.status == 200 and html and not self.nofollow
