"""The contract of every transport. There are four: libcurl (`client`), libcurl with proxies between
(`proxies/proxied_client`), one that has pages rendered by a browser and wraps another one (`browser/renderer`), and one
that sends requests to workers (`remote/remote_client`). `engine/transports/transports.py` chooses.

The loop does not depend on the transport. Every submit ends in exactly one `FetchResult` out of `poll`, whatever the
server does. Each transport keeps the promises of `client`: the address guard, the limits of size and time, and that
nothing is sent after `until`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft.fetch.dns.resolver import NameCounts
from weft.records import FetchResult

Done = list[tuple[object, FetchResult]]
NOT_TLS = "the port does not speak TLS, it may be plain HTTP"  # the detail of such a `tls` error


class Transport(Protocol):
    """Fetches many URLs at once, on the caller's thread."""

    @property
    def free(self) -> int:
        """How many transfers may be submitted now."""

    @property
    def in_flight(self) -> int:
        """How many transfers are started and not ended."""

    @property
    def lookups(self) -> NameCounts:
        """The counts of DNS lookups."""

    def submit(
        self,
        url: str,
        headers: Sequence[tuple[str, str]],
        tag: object,
        *,
        keep_bytes: int = 0,
        until: float = ...,
        address: str | None = None,
        filtered: bool = False,
        is_first: bool = False,
        body: bytes | None = None,
        method: str = "",
        timeout_s: float = 0.0,
    ) -> None:
        """Begins one transfer; `poll` gives its result with the tag. See `client.Client.submit`."""

    def address_of(self, host: str) -> str | None:
        """The address for requests to a host: empty if none, None if it is being looked up (`poll` brings the
        answer).
        """

    def poll(self, timeout_s: float) -> Done:
        """Works until a transfer has ended or the time is over; returns the ended transfers."""

    def abort(self, tag: object) -> None:
        """Ends the transfers with this tag at once; they come out of `poll` as aborted."""

    def fileno(self) -> int:
        """Readable when `poll` has something to do."""

    def timeout_s(self) -> float | None:
        """In how many seconds `poll` must be called even if nothing arrives; None: only when something arrives."""

    def close(self) -> None:
        """Drops all transfers in flight and frees all resources."""
