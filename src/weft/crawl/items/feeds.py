"""The files that a spider itself wants its items in (FEEDS of a Scrapy spider)."""

from __future__ import annotations

import time
from pathlib import Path

from weft.crawl.folder import CrawlFolder
from weft.crawl.items.writing import ItemOutput, SeveralOutputs, open_output
from weft.engine.user_code.calls import FeedSpec
from weft.errors import BadInput


def open_feeds(folder: CrawlFolder, *, is_resumed: bool) -> ItemOutput | None:
    """The outputs that a crawl's spider names; None where it names none."""
    description = folder.spider()
    if description is None or not description.feeds:
        return None
    started = time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(folder.identity().created_at))
    feeds = [(feed, Path(feed.path.replace("%(time)s", started)).resolve()) for feed in description.feeds]
    return SeveralOutputs([_open_feed(folder, feed, path, is_resumed=is_resumed) for feed, path in feeds])


def _open_feed(folder: CrawlFolder, feed: FeedSpec, path: Path, *, is_resumed: bool) -> ItemOutput:
    overwrite = bool(feed.overwrite) and not is_resumed
    if path.exists() and feed.format != "jsonl" and not (overwrite or is_resumed):
        raise BadInput(f"FEEDS: {path} is there already: give it the option 'overwrite': True, or move it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(f"FEEDS: {path.parent} cannot be made: {error.strerror}") from None
    return open_output(
        folder.data_dirs, str(path), overwrite=overwrite, append=feed.format == "jsonl" and not overwrite,
        format_=feed.format, fields=feed.fields,
    )  # fmt: skip
