"""The interface to sites for the API and the dashboard: the registry's calls in threads; sites are checked as tasks
are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from weft.jobs.sites.changes import ChangeReport
from weft.jobs.sites.files import site_of
from weft.jobs.sites.registry import SiteRegistry
from weft.jobs.sites.site_model import SiteFile
from weft.jobs.sites.status import SiteView


class Sites:
    """The interface to sites. `owner` as in `JobService`; raises SiteUnknown for sites of other owners."""

    def __init__(
        self,
        registry: SiteRegistry,
        check: Callable[[SiteFile], None],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`check`: raises BadInput for a site that this service cannot run. `wake`: makes the runner check for work."""
        self._registry = registry
        self._check_targets = check
        self._wake = wake
        self._clock = clock

    async def add(self, given: Any, owner: str) -> SiteView:
        """Adds a site from the contents of a file, or replaces the one of the same name; raises SiteConflict if the
        name is taken."""
        file = await asyncio.to_thread(self._check_site, given)
        await asyncio.to_thread(self._registry.add, [file], owner)
        return await self.get(file.name, owner)

    def _check_site(self, given: Any) -> SiteFile:
        file = site_of(given, self._clock())
        self._check_targets(file)
        return file

    async def all(self, owner: str) -> list[SiteView]:
        """All sites of the owner, by name."""
        return await asyncio.to_thread(self._registry.views, None, owner)

    async def get(self, name: str, owner: str) -> SiteView:
        """One site of the owner."""
        return (await asyncio.to_thread(self._registry.views, [name], owner))[0]

    async def run(self, name: str, owner: str) -> SiteView:
        """Requests a run, after the sites that it depends on; a run in progress is left as it is."""
        await asyncio.to_thread(self._registry.run, [name], owner)
        self._wake()
        return await self.get(name, owner)

    async def stop(self, name: str, owner: str) -> SiteView:
        """Requests the end of its run; what it has stored is kept."""
        await asyncio.to_thread(self._registry.stop, [name], owner)
        self._wake()
        return await self.get(name, owner)

    async def remove(self, name: str, owner: str) -> None:
        """Removes a site; raises SiteConflict while it runs, or other sites depend on it."""
        await asyncio.to_thread(self._registry.remove, name, owner)

    async def reports(self, name: str, owner: str, limit: int) -> list[ChangeReport]:
        """The change reports of its last runs, newest first."""
        return await asyncio.to_thread(self._registry.reports, name, limit, owner)
