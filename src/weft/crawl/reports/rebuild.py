"""`weft rebuild`: rebuilds the indexes and texts of any folder, and the frontier of a `weft crawl` folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.crawl.items.rebuilt import note_items_rebuild
from weft.crawl.yielded import note_rebuild
from weft.engine.stored.rebuild import rebuild_engine, rebuild_index
from weft.errors import BadInput
from weft.frontier.durability.renew import renew_frontier
from weft.store.repair.rebuild import RebuildReport
from weft.telemetry import Slot


def rebuild(
    data_dirs: Sequence[str | Path], *, text: bool = False, watch: Callable[[int, int], None] = lambda _done, _all: None
) -> RebuildReport:
    """Rebuilds the indexes of a folder in which no process runs; also its texts, if it stores them or `text` is set."""
    folder = CrawlFolder(data_dirs)
    if folder.exists() and not folder.is_of_one_crawl():
        return rebuild_engine(folder.home, text=text, watch=watch)
    folder.open_existing()
    folder.lock_folder()
    try:
        note_rebuild(folder.data_dirs)
        note_items_rebuild(folder.data_dirs)
        slots = [Slot(pod, "fetcher").name for pod in folder.pods_here]
        return rebuild_index(folder, slots, text=text or "text" in (folder.settings().get("store") or ()), watch=watch)
    finally:
        folder.release()


def rebuild_frontier(data_dirs: Sequence[str | Path]) -> list[Path]:
    """Makes the next resume create the frontier from stored pages; returns the damaged files, which are renamed."""
    folder = CrawlFolder(data_dirs)
    folder.open_existing()
    folder.settings()
    folder.check_streams()
    if folder.on_redis:
        raise BadInput(f"{folder.home}: the crawl's frontier is on Redis, and cannot be rebuilt from the pages here")
    folder.lock_folder()
    try:
        made = []
        for pod, home in enumerate(folder.pod_folders()):
            if renew_frontier(home, [other for other in range(folder.pods) if other != pod]):
                made.append(home / "frontier.db")
        return made
    finally:
        folder.release()
