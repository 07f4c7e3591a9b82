"""Keeps credentials out of what is stored and exported: values of request headers that may be secret are masked.

Masked is every header that is not known to be harmless, whoever has set it: a crawl's settings, its cookies, a login. A
response's headers are stored as received.
"""

from __future__ import annotations

import re

from weft.credentials import HARMLESS

MASK = b"[masked]"
_HEADER = re.compile(
    rb"\n(?!(?:" + b"|".join(re.escape(name.encode()) for name in sorted(HARMLESS)) + rb")[ \t]*:)([^:\r\n]+:)[^\r\n]*",
    re.IGNORECASE,
)


def masked(request: bytes) -> bytes:
    """The request with those values masked, in its head only."""
    head, end, body = request.partition(b"\r\n\r\n")
    return _HEADER.sub(rb"\n\1 " + MASK, head) + end + body
