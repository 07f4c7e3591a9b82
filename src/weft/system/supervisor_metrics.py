"""The supervisor's own metrics: its process, and the proxies that it tests. Saved beside those of the engine and the
workers, whose `/metrics` serves them together."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from weft.fetch.proxies.counts import ProxyCounts
from weft.telemetry import Metrics, Slot

SAVE_S = 10.0


class Figures:
    """Of one supervisor; `turn` is called now and then."""

    def __init__(self, folder: Path) -> None:
        """`folder`: the engine's, which makes it: nothing is saved before it is there."""
        self._folder = folder
        self._metrics: Metrics | None = None
        self._next_s = 0.0
        self._refreshes = 0

    def turn(self, proxies: ProxyCounts | None) -> None:
        """Saves them now and then, and when proxies were tested."""
        refreshes = 0 if proxies is None else proxies.refreshes.total()
        if (time.monotonic() < self._next_s and refreshes == self._refreshes) or not self._folder.is_dir():
            return
        self._next_s, self._refreshes = time.monotonic() + SAVE_S, refreshes
        with suppress(OSError):  # on a full disk the old figures must do
            if self._metrics is None:
                self._metrics = Metrics(self._folder, Slot(0, "supervisor"))
            if proxies is not None:
                proxies.copy_to(self._metrics)
            self._metrics.save()
