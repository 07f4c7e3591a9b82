"""The interface between the resolver and an implementation of lookups: c-ares (`dns_cares`) or the C library
(`dns_system`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class LookupResult(NamedTuple):
    """The result of a lookup: addresses and how long they are valid, or an error and its kind, which is counted."""

    host: str
    addresses: tuple[str, ...]
    ttl_s: float = 0.0
    error: str = ""
    kind: str = "found"  # absent, empty, timeout, refused, failed


class Lookups(Protocol):
    """Looks up names."""

    def ask(self, host: str) -> None:
        """Starts a lookup."""

    def fileno(self) -> int:
        """Readable when `completed` has something to do."""

    def completed(self) -> Sequence[LookupResult]:
        """The lookups that have ended."""

    def tick_s(self) -> float | None:
        """How often `completed` must be called while lookups run, though nothing is readable; None: not at all."""

    def close(self) -> None:
        """Drops all running lookups."""
