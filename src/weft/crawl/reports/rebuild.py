"""`weft rebuild`: a crawl's indexes and texts made again from its WARC files, so that it can be read and gone on with.

The frontier is not touched: it holds what is queued. It learns from the rebuilt rows what is done, since their batches
are later than all that it has acknowledged. What it has finished and no record tells any more is queued again. One that
is damaged is made anew by `rebuild_frontier`, of the seeds and of what the stored pages lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.crawl.yielded import note_rebuild
from weft.engine.finished import Frontiers
from weft.engine.page_reader import PageReader
from weft.engine.parsers import CRASH, TIMEOUT, Parsers, as_many_as_cores
from weft.errors import BadInput
from weft.frontier.durability.renew import renew
from weft.store.contract import StoredPage
from weft.store.rebuild import Rebuild, Rebuilt
from weft.store.text import FOLDER
from weft.telemetry import Slot


def rebuild(
    data_dirs: Sequence[str | Path], *, text: bool = False, watch: Callable[[int, int], None] = lambda _done, _all: None
) -> Rebuilt:
    """Rebuilds a crawl that is not running; texts too where it keeps them, or `text` asks for them."""
    folder = CrawlFolder(data_dirs)
    identity = folder.go_on()
    folder.hold()
    try:
        frontiers = Frontiers.open(_journals(folder))
        try:
            with Parsers(as_many_as_cores()) as parsers:
                job = Rebuild(
                    folder.data_dirs, identity.crawl_id, watch=watch,
                    text_of=TextReader(parsers) if text or _keeps_text(folder) else None,
                    after_batch=frontiers.acknowledged if frontiers else 0,
                    is_done=frontiers.is_done if frontiers else None,
                    missing=frontiers.missing if frontiers else None,
                    slots=[Slot(pod, "fetcher").name for pod in folder.here] if frontiers else [],
                )  # fmt: skip
                note_rebuild(folder.data_dirs)
                return job.run()
        finally:
            if frontiers:
                frontiers.close()
    finally:
        folder.let_go()


def rebuild_frontier(data_dirs: Sequence[str | Path]) -> list[Path]:
    """Has the next resume make the frontier of what is stored; gives the damaged ones, which are put aside."""
    folder = CrawlFolder(data_dirs)
    folder.go_on()
    folder.settings()
    folder.check_streams()
    if folder.on_redis:
        raise BadInput(f"{folder.home}: the crawl's frontier is on Redis, and cannot be made of what is stored here")
    folder.hold()
    try:
        made = []
        for pod, home in enumerate(folder.frontiers()):
            if renew(home, [other for other in range(folder.pods) if other != pod]):
                made.append(home / "frontier.db")
        return made
    finally:
        folder.let_go()


class TextReader:
    """Has texts extracted by parser children, as the crawl keeps them."""

    def __init__(self, parsers: Parsers) -> None:
        self._read = PageReader(parsers)

    def __call__(self, stored: StoredPage) -> Callable[[], str | None]:
        """None for what holds no text, and for a page of which the crawl knows that it kills whoever parses it."""
        if stored.row.error in (CRASH, TIMEOUT):
            return lambda: None
        reading = self._read(stored, ("text",))

        def text() -> str | None:
            page = reading()
            return page.text if page is not None and page.mime is not None else None

        return text


def _keeps_text(folder: CrawlFolder) -> bool:
    kept = folder.settings().get("store") or ()
    return "text" in kept or any((path / FOLDER).is_dir() for path in folder.data_dirs)


def _journals(folder: CrawlFolder) -> list[Path]:
    """Those of embedded pods; what pods on Redis know is on their servers."""
    return [path for home in folder.frontiers() if (path := home / "frontier.db").exists()]
