"""The rendering transport for single requests that need a browser, in a crawl whose other pages are not rendered;
opened for the first such request.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from weft.config import FetchSection, PolitenessSection
from weft.errors import BadInput, Missing
from weft.fetch.contract import Transport
from weft.telemetry import Log

log = Log("weft.engine.transports.lazy_rendering")


class LazyRendering:
    """The rendering transport of one crawl. `trouble` is the reason if there is none."""

    def __init__(
        self,
        fetch: FetchSection,
        politeness: PolitenessSection,
        open_transport: Callable[[FetchSection], Transport] | None,
    ) -> None:
        self.trouble = ""
        self._fetch = fetch
        self._politeness = politeness
        self._open_transport = open_transport
        self._transport: Transport | None = None

    def transport(self) -> Transport | None:
        """The transport; None if it cannot be opened."""
        if self._transport is None and not self.trouble:
            self._open_rendering()
        return self._transport

    def _open_rendering(self) -> None:
        if self._fetch.proxies is not None:
            self.trouble = "browsers do not go through proxies"
        elif self._politeness.key_scope == "ip":
            self.trouble = "a browser's requests are not counted by address (politeness_scope: ip)"
        elif self._open_transport is not None:
            try:
                self._transport = self._open_transport(msgspec.structs.replace(self._fetch, render="auto"))
            except (Missing, BadInput) as why:
                self.trouble = str(why)
        if self.trouble:
            log.error("pages are not rendered", why=self.trouble)
