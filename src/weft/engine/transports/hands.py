"""The workers on other machines that a process's crawls use: connected when the first crawl asks for them.

The code that talks to them is in a room above this one, and is named by its entry point.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.config import ClusterSection, FetchSection
from weft.errors import Missing
from weft.fetch.contract import Transport
from weft.fetch.remote.contract import Connect, HandDispatcher
from weft.fetch.remote.pool import HandPool
from weft.fetch.remote.remote_client import RemoteTransport
from weft.frontier.contract import Router
from weft.records import HandRoute, Lease

CONNECT = "weft.cluster.brain:connect"


class Hands:
    """Those of one process. `crawls`: its crawls by number."""

    def __init__(
        self, section: ClusterSection, folder: Path, slot: str, crawls: Mapping[int, Any], *, is_alone: bool
    ) -> None:
        """`is_alone`: one crawl, which does not start without its cluster; in an engine of many it waits for that."""
        self._is_alone = is_alone
        self._section = section
        self._folder = folder
        self._slot = slot
        self._crawls = crawls
        self._pool: HandPool | None = None
        self._is_needed = False  # without hands some crawl asks for nothing

    def around(self, inner: Transport, section: FetchSection, handles: int) -> Transport:
        """A transport through them. BadInput, Missing: the key cannot be read, Celery is not there. A crawl that is
        alone also gets what is wrong with its broker, and Busy where another brain has it."""
        if self._pool is None:
            self._pool = HandPool(self._section, self._connect())
        self._is_needed = self._is_needed or section.hands == "cluster"
        return RemoteTransport(inner, self._pool, section, handles)

    def held_up(self) -> str:
        """Why the crawls that need them cannot continue; empty while they can."""
        return self._pool.held_up() if self._pool is not None and self._is_needed else ""

    @property
    def router(self) -> Router | None:
        """What decides at a claim which of them makes a request; None while no crawl uses them."""
        return self._route if self._pool is not None else None

    def failures(self) -> dict[tuple[str, str], int]:
        """By hand and kind, how often they have failed."""
        return self._pool.failures() if self._pool is not None else {}

    def close(self) -> None:
        """Sends nothing more."""
        if self._pool is not None:
            self._pool.close()

    def _connect(self) -> HandDispatcher:
        module, _, name = CONNECT.partition(":")
        try:
            connect: Connect = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            raise Missing.of_extra(f"{error.name}, for workers,", "cluster") from None
        return connect(self._section, self._folder, self._slot, self._is_alone)

    def _route(self, lease: Lease) -> HandRoute | None:
        crawl = self._crawls.get(lease.crawl)
        if self._pool is None or crawl is None or crawl.fetch.hands == "local":
            return None
        return self._pool.route(lease, crawl.fetch, has_secrets=crawl.sends_secrets(lease))
