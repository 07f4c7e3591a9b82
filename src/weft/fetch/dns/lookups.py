"""What the resolver needs from whoever looks names up: c-ares (`dns_cares`) or the C library (`dns_system`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class LookupResult(NamedTuple):
    """A lookup that has ended: addresses and how long they are good for, or an error and its kind, to count by."""

    host: str
    addresses: tuple[str, ...]
    ttl_s: float = 0.0
    error: str = ""
    kind: str = "found"  # absent, empty, timeout, refused, failed


class Lookups(Protocol):
    """Whoever looks names up."""

    def ask(self, host: str) -> None:
        """Starts one."""

    def fileno(self) -> int:
        """Readable when `take` has something to do."""

    def completed(self) -> Sequence[LookupResult]:
        """Those that have ended."""

    def tick_s(self) -> float | None:
        """How often `take` must be called while lookups run, though nothing has come; None: not at all."""

    def close(self) -> None:
        """Drops what runs."""
