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

from weft.engine.handle import Ending, Engine
from weft.engine.model import Blocked, BrowserStatus, CrawlEvent, CrawlSnapshot, Seeded
from weft.engine.stored.stored_page import CrawledPage
from weft.errors import WeftError

if TYPE_CHECKING:
    from weft.store.export.job import ExportResult

T = TypeVar("T")
_END = object()


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
        return await asyncio.to_thread(self._opened().open, name, seeds, **settings)

    async def seed(self, name: str, urls: str | Sequence[str]) -> Seeded:
        """Adds URLs to a crawl."""
        return await asyncio.to_thread(self._opened().seed, name, urls)

    async def close_seeds(self, name: str) -> CrawlSnapshot:
        """Announces that no more seeds come."""
        return await asyncio.to_thread(self._opened().close_seeds, name)

    async def edit(self, name: str, **changes: Any) -> CrawlSnapshot:
        """Changes the settings of a running crawl."""
        return await asyncio.to_thread(self._opened().edit, name, **changes)

    async def pause(self, name: str) -> CrawlSnapshot:
        """Pauses a crawl: it requests nothing until `resume`."""
        return await asyncio.to_thread(self._opened().pause, name)

    async def resume(self, name: str) -> CrawlSnapshot:
        """Continues a paused crawl."""
        return await asyncio.to_thread(self._opened().resume, name)

    async def cancel(self, name: str) -> CrawlSnapshot:
        """Ends a crawl now."""
        return await asyncio.to_thread(self._opened().cancel, name)

    async def forget(self, name: str) -> None:
        """Deletes everything of a crawl."""
        await asyncio.to_thread(self._opened().forget, name)

    async def standing(self, name: str) -> CrawlSnapshot:
        """A snapshot of one crawl."""
        return await asyncio.to_thread(self._opened().standing, name)

    async def standings(self) -> list[CrawlSnapshot]:
        """Snapshots of all crawls."""
        return await asyncio.to_thread(self._opened().standings)

    async def blocked(self) -> list[Blocked]:
        """The sites whose breakers are open, and until when."""
        return await asyncio.to_thread(self._opened().blocked)

    async def browsers(self) -> BrowserStatus:
        """The state of the browsers that render pages, and why none can now."""
        return await asyncio.to_thread(self._opened().browsers)

    async def wait(self, name: str, timeout: float | None = None) -> CrawlSnapshot:
        """Returns when a crawl has ended."""
        ends = Ending()
        return await _alone(lambda: self._opened().wait(name, timeout, ends=ends), ends)

    async def export(self, name: str, format: str, out: str | Path | BinaryIO, **order: Any) -> ExportResult:  # noqa: A002
        """Writes a crawl's pages."""
        return await _alone(lambda: self._opened().export(name, format, out, **order), Ending())

    def events(
        self, name: str | None = None, after: int = 0, *, follow: bool = True, progress: bool = False
    ) -> AsyncIterator[CrawlEvent]:
        """The events of one crawl, or of all, after a cursor."""
        ends = Ending()
        found = self._opened().events(name, after, follow=follow, progress=progress, ends=ends)
        return _each(found, ends)

    def pages(self, name: str, after: int = 0, *, follow: bool = True) -> AsyncIterator[CrawledPage]:
        """A crawl's stored pages."""
        ends = Ending()
        return _each(self._opened().pages(name, after, follow=follow, ends=ends), ends)

    def _opened(self) -> Engine:
        if self._engine is None:
            raise WeftError("the engine is not open: use `async with weft.AsyncEngine(...) as engine`")
        return self._engine


async def _alone(work: Callable[[], T], ends: Ending) -> T:
    """Runs a call on a thread of its own: a long wait must not occupy a thread that other calls need."""
    with ThreadPoolExecutor(1) as thread:
        try:
            return await asyncio.get_running_loop().run_in_executor(thread, work)
        finally:
            ends.end()  # a cancelled task leaves no thread behind that waits


async def _each(found: Iterator[T], ends: Ending) -> AsyncIterator[T]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:
        try:
            while (one := await loop.run_in_executor(thread, next, found, _END)) is not _END:
                yield one  # type: ignore[misc]
        finally:
            ends.end()
            thread.submit(found.close)  # type: ignore[attr-defined]
