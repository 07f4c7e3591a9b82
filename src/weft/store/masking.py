"""Keeps credentials out of what is stored and exported: values of request headers that may be secret are masked.

Masked are the headers that carry credentials by definition, and every header in the crawl's settings except those known
to be harmless. A response's headers are stored as received.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MASK = b"[masked]"
ALWAYS = frozenset({"authorization", "proxy-authorization", "cookie", "cookie2"})
HARMLESS = frozenset({
    "accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection", "dnt", "from",
    "host", "if-modified-since", "if-none-match", "pragma", "priority", "range", "referer", "te",
    "upgrade-insecure-requests", "user-agent",
})  # fmt: skip


class Private:
    """The request headers whose values are masked; `configured` are the names in a crawl's settings."""

    def __init__(self, configured: Iterable[str] = ()) -> None:
        names = ALWAYS | ({name.strip().lower() for name in configured} - HARMLESS)
        encoded = [name.encode("utf-8", "replace") for name in sorted(names)]
        self._starts = [b"\n" + name for name in encoded]
        any_of = b"|".join(map(re.escape, encoded))
        self._header = re.compile(rb"\n((?:" + any_of + rb")[ \t]*:)[^\r\n]*", re.IGNORECASE)

    def masked(self, request: bytes) -> bytes:
        """The request with those values masked, in its head only."""
        lower = request.lower()
        for start in self._starts:
            if start in lower:
                break
        else:
            return request  # most; the pattern takes ten times as long
        head, end, body = request.partition(b"\r\n\r\n")
        return self._header.sub(rb"\n\1 " + MASK, head) + end + body
