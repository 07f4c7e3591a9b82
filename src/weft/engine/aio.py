"""`async with weft.AsyncEngine("data") as engine:` the same for asyncio: verbs with `await`, events with `async for`.

Each waiting call has a thread of its own; the engine itself is another process, so none of them is ever busy for long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from weft.engine.handle import Engine, ReadingEnd
from weft.engine.model import Blocked, BrowserStatus, CrawlEvent, CrawlSnapshot, Seeded
from weft.engine.stored.stored_page import CrawledPage
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.store.export.job import ExportResult

T = TypeVar("T")
_END_OF_ITEMS = object()


class AsyncEngine:
    """See `weft.Engine`: the same verbs, with the same arguments."""

    def __init__(self, data_dir: str | os.PathLike[str], **settings: Any) -> None:
        self._data_dir = data_dir
        self._settings = settings
        self._engine: Engine | None = None

    async def __aenter__(self) -> AsyncEngine:
        self._engine = await asyncio.to_thread(Engine, self._data_dir, **self._settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the handle; an engine that it started ends, and its crawls keep their state."""
        if self._engine is not None:
            await asyncio.to_thread(self._engine.close)

    async def open(self, name: str, seeds: str | Sequence[str] = (), **settings: Any) -> CrawlSnapshot:
        """Opens a crawl."""
        return await asyncio.to_thread(self._open_engine().open, name, seeds, **settings)

    async def seed(self, name: str, urls: str | Sequence[str]) -> Seeded:
        """Adds URLs to a crawl."""
        return await asyncio.to_thread(self._open_engine().seed, name, urls)

    async def close_seeds(self, name: str) -> CrawlSnapshot:
        """Announces that no more seeds come."""
        return await asyncio.to_thread(self._open_engine().close_seeds, name)

    async def edit(self, name: str, **changes: Any) -> CrawlSnapshot:
        """Changes the settings of a running crawl."""
        return await asyncio.to_thread(self._open_engine().edit, name, **changes)

    async def pause(self, name: str) -> CrawlSnapshot:
        """Pauses a crawl: it requests nothing until `resume`."""
        return await asyncio.to_thread(self._open_engine().pause, name)

    async def resume(self, name: str) -> CrawlSnapshot:
        """Continues a paused crawl."""
        return await asyncio.to_thread(self._open_engine().resume, name)

    async def cancel(self, name: str) -> CrawlSnapshot:
        """Ends a crawl now."""
        return await asyncio.to_thread(self._open_engine().cancel, name)

    async def forget(self, name: str) -> None:
        """Deletes everything of a crawl."""
        await asyncio.to_thread(self._open_engine().forget, name)

    async def standing(self, name: str) -> CrawlSnapshot:
        """A snapshot of one crawl."""
        return await asyncio.to_thread(self._open_engine().standing, name)

    async def standings(self) -> list[CrawlSnapshot]:
        """Snapshots of all crawls."""
        return await asyncio.to_thread(self._open_engine().standings)

    async def blocked(self) -> list[Blocked]:
        """The sites whose breakers are open, and until when."""
        return await asyncio.to_thread(self._open_engine().blocked)

    async def browsers(self) -> BrowserStatus:
        """The state of the browsers that render pages, and why none can now."""
        return await asyncio.to_thread(self._open_engine().browsers)

    async def wait(self, name: str, timeout: float | None = None) -> CrawlSnapshot:
        """Returns when a crawl has ended."""
        ends = ReadingEnd()
        return await _call_in_own_thread(lambda: self._open_engine().wait(name, timeout, ends=ends), ends)

    async def export(self, name: str, format: str, out: str | Path | BinaryIO, **order: Any) -> ExportResult:  # noqa: A002
        """Writes a crawl's pages."""
        return await _call_in_own_thread(lambda: self._open_engine().export(name, format, out, **order), ReadingEnd())

    def events(
        self, name: str | None = None, after: int = 0, *, follow: bool = True, progress: bool = False
    ) -> AsyncIterator[CrawlEvent]:
        """The events of one crawl, or of all, after a cursor."""
        ends = ReadingEnd()
        found = self._open_engine().events(name, after, follow=follow, progress=progress, ends=ends)
        return _iterate_in_thread(found, ends)

    def pages(self, name: str, after: int = 0, *, follow: bool = True) -> AsyncIterator[CrawledPage]:
        """A crawl's stored pages."""
        ends = ReadingEnd()
        return _iterate_in_thread(self._open_engine().pages(name, after, follow=follow, ends=ends), ends)

    def _open_engine(self) -> Engine:
        if self._engine is None:
            raise WeftError("the engine is not open: use `async with weft.AsyncEngine(...) as engine`")
        return self._engine


async def _call_in_own_thread(work: Callable[[], T], ends: ReadingEnd) -> T:
    """Runs a call on a thread of its own: a long wait must not occupy a thread that other calls need."""
    with ThreadPoolExecutor(1) as thread:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        finally:
            ends.end_reading()  # a cancelled task leaves no thread behind that waits


async def _iterate_in_thread(found: Iterator[T], ends: ReadingEnd) -> AsyncIterator[T]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:
        try:
            while (one := await loop.run_in_executor(thread, next, found, _END_OF_ITEMS)) is not _END_OF_ITEMS:
                yield one  # type: ignore[misc]
        finally:
            ends.end_reading()
            thread.submit(found.close)  # type: ignore[attr-defined]
