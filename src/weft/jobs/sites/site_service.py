"""Sites as front doors see them: the registry's calls on threads, and what is added is checked as orders are."""

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
    """What a front door calls. `owner` as in `JobService`; SiteUnknown for another's."""

    def __init__(
        self,
        registry: SiteRegistry,
        check: Callable[[SiteFile], None],
        wake: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`check`: BadInput for a site that this service cannot run. `wake`: tells the runner to look."""
        self._registry = registry
        self._check = check
        self._wake = wake
        self._clock = clock

    async def add(self, given: Any, owner: str) -> SiteView:
        """Keeps a site of what a file would hold; one of the same name is replaced. SiteConflict: the name is taken."""
        file = await asyncio.to_thread(self._checked, given)
        await asyncio.to_thread(self._registry.add, [file], owner)
        return await self.get(file.name, owner)

    def _checked(self, given: Any) -> SiteFile:
        file = site_of(given, self._clock())
        self._check(file)
        return file

    async def all(self, owner: str) -> list[SiteView]:
        """All of them, by name."""
        return await asyncio.to_thread(self._registry.views, None, owner)

    async def get(self, name: str, owner: str) -> SiteView:
        """One of them."""
        return (await asyncio.to_thread(self._registry.views, [name], owner))[0]

    async def run(self, name: str, owner: str) -> SiteView:
        """Asks for a run, after those of the sites that it needs; one that runs already is left as it is."""
        await asyncio.to_thread(self._registry.run, [name], owner)
        self._wake()
        return await self.get(name, owner)

    async def stop(self, name: str, owner: str) -> SiteView:
        """Asks for the end of its run; what that has is kept."""
        await asyncio.to_thread(self._registry.stop, [name], owner)
        self._wake()
        return await self.get(name, owner)

    async def remove(self, name: str, owner: str) -> None:
        """Forgets it; SiteConflict while it runs, or others depend on it."""
        await asyncio.to_thread(self._registry.remove, name, owner)

    async def reports(self, name: str, owner: str, limit: int) -> list[ChangeReport]:
        """What its last runs have found, newest first."""
        return await asyncio.to_thread(self._registry.reports, name, limit, owner)
