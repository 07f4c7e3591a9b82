"""`weft rebuild`: a crawl's indexes and texts made again from its WARC files, so that it can be read and gone on with.

The frontier is not touched: it holds what is queued. It learns from the rebuilt rows what is done, since their batches
are later than all that it has acknowledged. One that is damaged is made anew by `rebuild_frontier`, of the seeds and of
what the stored pages lead to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from weft.crawl.export import reader
from weft.crawl.folder import CrawlFolder
from weft.errors import BadInput
from weft.frontier.journal import Journal
from weft.frontier.recovery import Bitmap
from weft.frontier.renew import renew
from weft.store.contract import StoredPage
from weft.store.rebuild import Rebuild, Rebuilt
from weft.store.text import FOLDER

PARSE_CRASH = "parse_crash"
_LOW = (1 << 48) - 1


def rebuild(
    data_dirs: Sequence[str | Path], *, text: bool = False, watch: Callable[[int, int], None] = lambda _done, _all: None
) -> Rebuilt:
    """Rebuilds a crawl that is not running; texts too where it keeps them, or `text` asks for them."""
    folder = CrawlFolder(data_dirs)
    identity = folder.go_on()
    folder.hold()
    try:
        text_of = text_of_page if text or _keeps_text(folder) else None
        after_batch, done = _known(folder)
        job = Rebuild(
            folder.data_dirs, identity.crawl_id, after_batch=after_batch, text_of=text_of, is_done=done, watch=watch
        )
        return job.run()
    finally:
        folder.let_go()


def rebuild_frontier(data_dirs: Sequence[str | Path]) -> list[Path]:
    """Has the next resume make the frontier of what is stored; gives the damaged ones, which are put aside."""
    folder = CrawlFolder(data_dirs)
    folder.go_on()
    folder.settings()
    folder.seeds()
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


def text_of_page(stored: StoredPage) -> str | None:
    """A page's text, as the crawl keeps it; None for what holds none, and for a page that kills who parses it."""
    if stored.row.error == PARSE_CRASH:
        return None
    page = reader(stored)
    return page.text if page is not None and page.mime is not None else None


def _keeps_text(folder: CrawlFolder) -> bool:
    kept = folder.settings().get("store") or ()
    return "text" in kept or any((path / FOLDER).is_dir() for path in folder.data_dirs)


def _known(folder: CrawlFolder) -> tuple[int, Callable[[int], bool]]:
    """The last batch that the frontier knows to be safe, and which items it knows to be done."""
    paths = [path for home in folder.frontiers() if (path := home / "frontier.db").exists()]
    if not paths:
        return 0, lambda _item: True
    done, acknowledged = Bitmap(), 0
    for path in paths:
        journal = Journal(path)
        try:
            for numbers in journal.done_since(0):
                done.add(numbers)
            acknowledged = max(acknowledged, int(journal.meta("acknowledged") or 0))
        finally:
            journal.close()
    return acknowledged, done.__contains__
