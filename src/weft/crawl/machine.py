"""The crawls that run on this machine, of this user: found by the locks that their processes hold, and asked by nobody.

A crawl's process has the file `lock` of its data dir open for as long as it runs (folder.py), and writes beside it how
it stands. So /proc knows all of them, however they were started; there is no list that could be out of date.
"""

from __future__ import annotations

import os
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.engine.loop.progress import CrawlStatus, read_status
from weft.records import PanelTable
from weft.supervise.process import pids

MOST = 200
_COLUMNS = ("Data dir", "State", "Pages", "Queued", "Pages a second", "Process")


class MachineCrawls:
    """A panel of the dashboard: see jobs/dashboard/panels.py."""

    title = "Crawls on this machine"

    def table(self) -> PanelTable:
        """What runs now."""
        rows = [_row(home, status, pid) for home, (status, pid) in sorted(running_crawls().items())]
        return PanelTable(_COLUMNS, tuple(rows[:MOST]), "" if rows else "No `weft crawl` runs here now.")


def running_crawls() -> dict[Path, tuple[CrawlStatus, int]]:
    """The home of each crawl that runs, how it stands, and the process that holds it."""
    found: dict[Path, tuple[CrawlStatus, int]] = {}
    for pid in pids():
        for home in _held_by(pid):
            folder = CrawlFolder([home])
            if home not in found and folder.exists() and (status := read_status(folder.status)) is not None:
                found[home] = (status, pid)
    return found


def _held_by(pid: int) -> list[Path]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 (names alone, no objects)
    except OSError:  # another user's, or gone
        return []
    found = []
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.endswith("/lock"):
            found.append(Path(target).parent)
    return found


def _row(home: Path, status: CrawlStatus, pid: int) -> tuple[str, ...]:
    rate = f"{status.rate:,.1f}" if status.state == "running" else ""
    return (str(home), status.state, f"{status.pages:,}", f"{status.queued:,}", rate, str(pid))
