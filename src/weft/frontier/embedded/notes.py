"""Strings that an embedded frontier keeps in the meta table of its journal."""

from __future__ import annotations

from contextlib import suppress

from weft.errors import DiskFull
from weft.frontier.embedded.resources import Resources


class EmbeddedNotes:
    """See the contract."""

    def __init__(self, base: Resources) -> None:
        self._journal = base.journal
        self._outbox = base.pods.outbox

    def note(self, name: str, value: str | None = None) -> str:
        """A string kept with the frontier; given a value, it is changed at the next commit."""
        if value is None:
            return str(self._journal.meta(f"note:{name}") or "")
        self._journal.put_meta(f"note:{name}", value)
        return value

    def scope_extended(self, crawl: int, url: str) -> None:
        """Kept here, and sent to all pods."""
        self.extend_here(crawl, url)
        self._outbox.add_scope(crawl, url)

    def extend_here(self, crawl: int, url: str) -> None:
        """Another pod has extended the scope."""
        extensions = self.scope_extensions(crawl)
        if url not in extensions:
            self._journal.put_meta(f"scope:{crawl}", [*extensions, url])
            with suppress(DiskFull):  # everything stays buffered: the next regular commit raises
                self._journal.commit()

    def scope_extensions(self, crawl: int) -> list[str]:
        """Where seeds' redirects have led."""
        return [str(url) for url in self._journal.meta(f"scope:{crawl}") or ()]
