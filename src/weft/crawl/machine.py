"""Finds the crawls of this user that run on this machine, by the locks that their processes hold.

A crawl's process keeps the file `lock` of its data dir open while it runs (folder.py), and writes its status beside it.
So /proc lists all crawls, however they were started; there is no registry that could be out of date.
"""

from __future__ import annotations

import os
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.engine.loop.progress import CrawlStatus, read_status
from weft.records import PanelTable
from weft.supervise.process import pids

MOST_CRAWLS = 200
_COLUMNS = ("Data dir", "State", "Pages", "Queued", "Pages a second", "Process")


class MachineCrawls:
    """A panel of the dashboard (see jobs/dashboard/panels.py)."""

    title = "Crawls on this machine"

    def __init__(self, _config: object = None) -> None:
        """The settings of a service do not matter."""

    def table(self) -> PanelTable:
        """The crawls that run now."""
        rows = [_row(home, status, pid) for home, (status, pid) in sorted(running_crawls().items())]
        return PanelTable(_COLUMNS, tuple(rows[:MOST_CRAWLS]), "" if rows else "No `weft crawl` runs here now.")


def running_crawls() -> dict[Path, tuple[CrawlStatus, int]]:
    """The home of each running crawl, its status, and the id of the process that holds it."""
    crawls: dict[Path, tuple[CrawlStatus, int]] = {}
    for pid in pids():
        for home in _folders_held_by(pid):
            folder = CrawlFolder([home])
            if home not in crawls and folder.exists() and (status := read_status(folder.status)) is not None:
                crawls[home] = (status, pid)
    return crawls


def _folders_held_by(pid: int) -> list[Path]:
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)  # noqa: PTH208 (names alone, no objects)
    except OSError:  # a process of another user, or one that has ended
        return []
    homes = []
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")  # noqa: PTH115
        except OSError:
            continue
        if target.endswith("/lock"):
            homes.append(Path(target).parent)
    return homes


def _row(home: Path, status: CrawlStatus, pid: int) -> tuple[str, ...]:
    rate = f"{status.rate:,.1f}" if status.state == "running" else ""
    return (str(home), status.state, f"{status.pages:,}", f"{status.queued:,}", rate, str(pid))
