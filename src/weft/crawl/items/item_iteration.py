"""`for item in weft.run(Quotes)` and `async for item in weft.arun(Quotes)`: a spider as a Python iterator of its
items.

The crawl runs as `weft run` does, in processes of its own; items are read back as they are committed. Leaving the loop
stops the crawl.
"""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Unpack

import msgspec

from weft.crawl.items.processed import reader_of
from weft.crawl.items.reading import position_path, read_position, write_position
from weft.crawl.keywords import Settings
from weft.crawl.page_iteration import StoredPagesSignal, given_settings, prepared_for, run_beside
from weft.engine.user_code.sources import import_name_of
from weft.errors import BadConfig, BadInput, NothingStored

WRITE_EVERY_S = 1.0
PROGRAM_READER = "program"  # the reader that is a Python program


def run(
    spider: Any = None,
    *,
    data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    config: str | os.PathLike[str] | None = None,
    **settings: Unpack[Settings],
) -> Iterator[dict[str, Any]]:
    """Runs a spider and yields its items as they are committed.

    `spider` is a class derived from `weft.Spider` that is defined in a module, or `FILE.py[:CLASS]`. Settings are keys
    of the configuration, or the names of their flags, as for `weft.crawl`; without a `data_dir` the crawl uses a
    temporary folder, which is deleted at the end. With `resume=True` no spider is needed, and only items that no
    earlier call has yielded are yielded.
    """
    given = given_settings(settings, data_dir)
    if spider is not None:
        if "spider" in given:
            raise BadConfig(["the spider is given twice"])
        given["spider"] = spider if isinstance(spider, str) else import_name_of(spider)
    elif not (given.get("resume") or given.get("scrapy")):
        raise BadConfig(["there is nothing to run: give a spider, or `resume=True` with a `data_dir`"])
    return _iterate_items(given, None if config is None else os.fspath(config))


async def arun(
    spider: Any = None,
    *,
    data_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    config: str | os.PathLike[str] | None = None,
    **settings: Unpack[Settings],
) -> AsyncIterator[dict[str, Any]]:
    """The asyncio version: `async for item in weft.arun(Quotes)`."""
    items = run(spider, data_dir=data_dir, config=config, **settings)
    try:
        while (item := await asyncio.to_thread(next, items, None)) is not None:
            yield item
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            await asyncio.to_thread(close)


def _iterate_items(given: dict[str, Any], config_file: str | None) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        prepared = prepared_for(stack, [], given, config_file)
        dirs: list[Path] = prepared.folder.data_dirs
        kept = KeptReader(dirs, PROGRAM_READER, from_start=not prepared.loaded.config.run.resume)
        stack.callback(kept.reader.close)
        stack.callback(kept.write_position)
        news = StoredPagesSignal()
        finish = run_beside(stack, prepared, news)
        while True:
            ended = news.has_ended
            yield from kept.new_items()
            if ended:
                break
            news.wait()
        finish()
        status = prepared.orchestrator.status()
        if status.state == "failed":
            raise BadInput(status.note)
        if (outcome := prepared.outcome()).is_nothing:
            warnings.warn("\n".join(outcome.message_lines()), NothingStored, stacklevel=3)


class KeptReader:
    """A reader whose position is stored in the crawl's folder."""

    def __init__(self, data_dirs: Sequence[Path], name: str, *, from_start: bool = False) -> None:
        """`from_start`: ignores a stored position."""
        self._path = position_path(data_dirs, name)
        self.reader = reader_of(data_dirs, None if from_start else read_position(self._path))
        self._write_at = time.monotonic() + WRITE_EVERY_S

    def new_items(self) -> Iterator[dict[str, Any]]:
        """Yields the new items, decoded."""
        for item in self.reader.new_items():
            yield msgspec.json.decode(item)
            if time.monotonic() >= self._write_at:
                self.write_position()

    def write_position(self) -> None:
        """Stores the position."""
        self._write_at = time.monotonic() + WRITE_EVERY_S
        write_position(self._path, self.reader.position)
