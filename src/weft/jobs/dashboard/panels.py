"""Panels: what other rooms show on the page of the service. They are handed in, and known by this protocol alone.

`weft serve` names them as `module:name`, because a worker is a process of its own; what stands there is called without
arguments and gives a panel. A panel looks in a thread, at most every FRESH_S for all who look on; one that fails is
shown as a panel that says why.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol

from weft.records import PanelTable
from weft.telemetry import Log

FRESH_S = 2.0
ANSWER_S = 5.0
MOST_ROWS = 200
LONG = 24  # characters of a cell that is wrapped where there is no room
_NUMBER = re.compile(r"[0-9][0-9,.]*(?:%| ms)?")
log = Log("weft.jobs.dashboard")


class Panel(Protocol):
    """One table on the page of the service."""

    title: str

    def table(self) -> PanelTable:
        """What it shows now; bounded in time and size."""


def load_panels(names: Sequence[str]) -> tuple[Panel, ...]:
    """The panels of these names."""
    found: list[Panel] = []
    for name in names:
        module, _, maker = name.partition(":")
        found.append(getattr(import_module(module), maker)())
    return tuple(found)


def column_kinds(table: PanelTable) -> tuple[str, ...]:
    """How each column is set: `n` for numbers, which stand right, `long` for texts, which are wrapped."""

    def kind(cells: Sequence[str]) -> str:
        there = [cell for cell in cells if cell]
        if there and all(_NUMBER.fullmatch(cell) for cell in there):
            return "n"
        return "long" if any(len(cell) > LONG for cell in there) else ""

    return tuple(kind([row[place] for row in table.rows]) for place in range(len(table.columns)))


class Panels:
    """All of them, looked at together."""

    def __init__(self, panels: Sequence[Panel]) -> None:
        self._panels = panels
        self._looking = asyncio.Lock()
        self._known: list[tuple[str, PanelTable]] = []
        self._known_at = float("-inf")

    async def table(self) -> list[tuple[str, PanelTable]]:
        """Title and content of each."""
        async with self._looking:
            if time.monotonic() - self._known_at > FRESH_S:
                self._known = list(await asyncio.gather(*map(self._one, self._panels)))
                self._known_at = time.monotonic()
            return self._known

    @staticmethod
    async def _one(panel: Panel) -> tuple[str, PanelTable]:
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await asyncio.to_thread(panel.table)
        except TimeoutError:
            found = PanelTable(note=f"No answer in {ANSWER_S:g} s.")
        except Exception as error:  # another room's mistake must not take the page with it
            log.error("a panel failed", exc_info=True, panel=panel.title)
            found = PanelTable(note=f"It cannot be shown: {error}")
        more = len(found.rows) - MOST_ROWS
        if more > 0:
            found = PanelTable(found.columns, found.rows[:MOST_ROWS], f"{found.note} And {more:,} more.".strip())
        return panel.title, found
