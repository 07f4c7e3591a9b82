"""The supervisor's methods for sites (docs/sites.md): what is asked for is written to the store of its data dir, and
done by the runner of its `api` service. From any thread."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.status import SiteHealth, SiteStatus

STOP_S = 10.0


class SiteScrapers:
    """The part of `Supervisor` that is about sites."""

    data_dir: Path

    def __init__(self) -> None:
        self._registry: SiteRegistry | None = None
        self._registering = threading.Lock()

    @property
    def _sites(self) -> SiteRegistry:
        with self._registering:
            if self._registry is None:
                self._registry = SiteRegistry(self.data_dir)
            return self._registry

    def start_site_scraper(self, name: str) -> str:
        """Asks for a run of a site: the id of its task, empty while it waits for sites that it depends on. A second one
        is not begun while it runs."""
        return self._sites.run([name])[name]

    def stop_site_scraper(self, name: str) -> bool:
        """Ends the run of a site, and keeps its results; returns whether none of it runs any more."""
        stopped = self._sites.stop([name])
        return self._sites.wait_stopped(stopped, STOP_S)

    def sites(self) -> list[SiteStatus]:
        """The status of all sites."""
        return self._sites.status()

    def site_progress(self, name: str) -> dict[str, Any]:
        """The progress keys of a site's run, or of its last one: `scrape_NAME:TASK:status` and others."""
        return self._sites.progress(name)

    def health(self, site: str) -> SiteHealth:
        """The health of a site: pages, success rate, errors by class, last success, breaker."""
        return self._sites.health(site)

    def _close_sites(self) -> None:
        with self._registering:
            if self._registry is not None:
                self._registry.close()
                self._registry = None
