"""Named strings in the meta table of an embedded frontier's journal."""

from __future__ import annotations

from contextlib import suppress

from weft.errors import DiskFull
from weft.frontier.embedded.resources import FrontierResources


class EmbeddedNotes:
    """See the contract."""

    def __init__(self, base: FrontierResources) -> None:
        self._journal = base.journal
        self._outbox = base.pods.outbox

    def note(self, name: str, value: str | None = None) -> str:
        """A string by name; a given value is stored at the next commit."""
        if value is None:
            return str(self._journal.meta(f"note:{name}") or "")
        self._journal.put_meta(f"note:{name}", value)
        return value

    def scope_extended(self, crawl: int, url: str) -> None:
        """Recorded here, and sent to all pods."""
        self.extend_here(crawl, url)
        self._outbox.add_scope(crawl, url)

    def extend_here(self, crawl: int, url: str) -> None:
        """Records a scope extension of another pod."""
        extensions = self.scope_extensions(crawl)
        if url not in extensions:
            self._journal.put_meta(f"scope:{crawl}", [*extensions, url])
            with suppress(DiskFull):  # everything stays buffered: the next regular commit raises
                self._journal.commit()

    def scope_extensions(self, crawl: int) -> list[str]:
        """The targets of seeds' redirects."""
        return [str(url) for url in self._journal.meta(f"scope:{crawl}") or ()]
