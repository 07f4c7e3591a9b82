"""Where the values of results are kept, if not in the journal: large ones need not be written twice."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class StoredValue(NamedTuple):
    """The value of one result, once it is stored."""

    journalled: Any
    """What the journal gets: enough for `restore`."""
    delivered: Any
    """What the result has."""


class ValueStore(Protocol):
    """Keeps the values of one run's results.

    An engine stores a value before it journals the result, and flushes and syncs the store before the journal: a
    result that is in the journal has its value in the store, unless a power cut or damage took it.
    """

    def store(self, value: Any) -> StoredValue:
        """Stores the value of a result as its worker sent it."""

    def restore(self, value: Any) -> Any | None:
        """The journalled form of a value of an earlier try, stored now if it was not; None when it is lost."""

    def flush(self) -> None:
        """Writes what was stored to the operating system."""

    def sync(self) -> None:
        """Writes what was stored to the disk."""
