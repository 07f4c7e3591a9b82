"""Panels: tables that other products show on the page of the service. They are passed in, and known by this protocol
alone.

`weft serve` passes their names as `module:name`, because a worker is a process of its own; the named callable gets the
service's settings and returns a panel. Panels are read in a thread, at most once in FRESH_S for all viewers; if one
fails, its error is shown instead.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from weft.config import ServiceConfig
from weft.records import PanelTable
from weft.telemetry import Log

FRESH_S = 2.0
ANSWER_S = 5.0
MOST_ROWS = 200
LONG = 24  # The number of characters from which a cell wraps if there is no room.
_NUMBER = re.compile(r"[0-9][0-9,.]*(?:%| ms)?")
log = Log("weft.jobs.dashboard")


class Panel(Protocol):
    """One table on the page of the service."""

    title: str

    def table(self) -> PanelTable:
        """The current contents; bounded in time and size."""


def load_panels(names: Sequence[str], config: ServiceConfig) -> tuple[Panel, ...]:
    """Imports and creates the panels."""
    panels: list[Panel] = []
    for name in names:
        module, _, maker = name.partition(":")
        panels.append(getattr(import_module(module), maker)(config))
    return tuple(panels)


def column_kinds(table: PanelTable) -> tuple[str, ...]:
    """The style of each column: `n` for numbers (aligned right), `long` for texts that wrap."""

    def kind(cells: Sequence[str]) -> str:
        there = [cell for cell in cells if cell]
        if there and all(_NUMBER.fullmatch(cell) for cell in there):
            return "n"
        return "long" if any(len(cell) > LONG for cell in there) else ""

    return tuple(kind([row[index] for row in table.rows]) for index in range(len(table.columns)))


class Panels:
    """All panels, read together."""

    def __init__(self, panels: Sequence[Panel]) -> None:
        self._panels = panels
        self._refreshing = asyncio.Lock()
        self._known: list[tuple[str, PanelTable]] = []
        self._cached_at = float("-inf")

    async def table(self) -> list[tuple[str, PanelTable]]:
        """Title and contents of each panel."""
        async with self._refreshing:
            if time.monotonic() - self._cached_at > FRESH_S:
                self._known = list(await asyncio.gather(*map(self._table_of, self._panels)))
                self._cached_at = time.monotonic()
            return self._known

    @staticmethod
    async def _table_of(panel: Panel) -> tuple[str, PanelTable]:
        try:
            async with asyncio.timeout(ANSWER_S):
                table = await asyncio.to_thread(panel.table)
        except TimeoutError:
            table = PanelTable(note=f"No answer in {ANSWER_S:g} s.")
        except Exception as error:  # an error in another product's panel must not break the page
            log.error("a panel failed", exc_info=True, panel=panel.title)
            table = PanelTable(note=f"It cannot be shown: {error}")
        more = len(table.rows) - MOST_ROWS
        if more > 0:
            table = PanelTable(table.columns, table.rows[:MOST_ROWS], f"{table.note} And {more:,} more.".strip())
        return panel.title, table
