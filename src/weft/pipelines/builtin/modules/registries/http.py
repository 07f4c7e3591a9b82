"""GETs one URL at a time through Weft's own client: the address guard, limits of size and time, no redirects.

Used for registries, and to learn where a git remote has moved to.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from weft import __version__
from weft.bodies import first_of
from weft.config import FetchSection
from weft.fetch.curl.client import Client
from weft.fetch.decode import decode
from weft.fetch.guard import Guard

_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class HttpReply:
    """The result of a GET. `status` 0: there was no answer, and `problem` has the reason."""

    status: int
    body: bytes
    headers: dict[str, str]
    problem: str = ""


class Getter:
    """A client that sends one request at a time; use it in a `with` block."""

    def __init__(self, *, allow_private: bool, max_bytes: int = 50_000_000) -> None:
        section = FetchSection(
            user_agent_template=f"Weft/{__version__}",
            accept=("*/*",),
            max_body_bytes=max_bytes,
            total_timeout_s=_TIMEOUT_S,
            allow_private=allow_private,
        )
        self._max_bytes = max_bytes
        self._client = Client(section, refusal=Guard(allow_private).check, handles=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def get(self, url: str, headers: Sequence[tuple[str, str]] = ()) -> HttpReply:
        """Sends a GET, and waits for its answer."""
        self._client.submit(url, headers, url)
        until = time.monotonic() + 2 * _TIMEOUT_S  # the client has its own limit; this one is against its mistakes
        while time.monotonic() < until:
            for _, result in self._client.poll(1.0):
                fields = _header_fields(result.head)
                if result.error:
                    return HttpReply(result.status, b"", fields, f"{result.error}: {result.detail}"[:300])
                body = first_of(result.body, self._max_bytes)
                decoded = decode(body, fields.get("content-encoding", ""), self._max_bytes)
                problem = "its body is cut off" if decoded.truncated else ""
                return HttpReply(result.status, decoded.body, fields, problem)
        return HttpReply(0, b"", {}, "no end")

    def close(self) -> None:
        """Closes the client."""
        self._client.close()


def _header_fields(head: bytes) -> dict[str, str]:
    lines = (line.partition(b":") for line in head.splitlines()[1:])
    return {name.decode("latin-1").strip().lower(): value.decode("latin-1").strip() for name, _, value in lines}
