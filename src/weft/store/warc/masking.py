"""Keeps credentials out of what is stored and exported: values of request headers that may be secret are masked.

Every header is masked that is not known to be harmless, from whatever source: a crawl's settings, its cookies, a login.
A response's headers are stored as received, except the cookies of a site that a crawl has logged in to: they are the
session, so their values are masked.
"""

from __future__ import annotations

import re

from weft.credentials import HARMLESS

MASK = b"[masked]"
_SECRET_HEADER = re.compile(
    rb"\n(?!(?:" + b"|".join(re.escape(name.encode()) for name in sorted(HARMLESS)) + rb")[ \t]*:)([^:\r\n]+:)[^\r\n]*",
    re.IGNORECASE,
)


_SET_COOKIE = re.compile(rb"(\nset-cookie[ \t]*:[ \t]*)([^;\r\n]*(?:\r?\n[ \t][^;\r\n]*)*)", re.IGNORECASE)


def without_cookie_values(head: bytes) -> bytes:
    """A response's head with the values of its cookies masked; names and attributes are kept."""
    return _SET_COOKIE.sub(_mask_cookie, head)


def _mask_cookie(match: re.Match[bytes]) -> bytes:
    name, equals, _ = match[2].partition(b"=")
    return match[1] + (name + equals if equals else b"") + MASK


def mask_request(request: bytes) -> bytes:
    """The request with secret header values masked, in its head only."""
    head, end, body = request.partition(b"\r\n\r\n")
    return _SECRET_HEADER.sub(rb"\n\1 " + MASK, head) + end + body
