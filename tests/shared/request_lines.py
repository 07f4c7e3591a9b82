"""Lines of a request log, as a frontier writes them."""

from __future__ import annotations

from weft.frontier.requests import with_checksum


def with_sums(text: str) -> bytes:
    """Each line with its checksum."""
    return b"".join(map(with_checksum, text.splitlines()))
