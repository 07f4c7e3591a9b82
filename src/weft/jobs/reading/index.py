"""Reads the engine's index in threads of their own, so that a slow read blocks no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import TypeVar

from weft.engine.stored.reader import EngineReader
from weft.errors import BadInput
from weft.jobs.errors import EngineAway

_T = TypeVar("_T")


def open_reader(engine_dir: Path) -> EngineReader:
    """A reader of what the engine has stored; raises EngineAway before its first start."""
    try:
        return EngineReader(engine_dir)
    except BadInput as error:
        raise EngineAway(str(error)) from None


class IndexReaders:
    """Some threads, each with a reader of its own, which is opened when it is first needed."""

    def __init__(self, engine_dir: Path, name: str, threads: int = 1) -> None:
        self._engine_dir = engine_dir
        self._threads = ThreadPoolExecutor(threads, name)
        self._local = local()

    @property
    def reader(self) -> EngineReader:
        """The calling thread's reader; raises EngineAway before the engine's first start."""
        if not hasattr(self._local, "reader"):
            self._local.reader = open_reader(self._engine_dir)
        reader: EngineReader = self._local.reader
        return reader

    async def run(self, read: Callable[[], _T]) -> _T:
        """Calls a function on one of the threads, where `reader` is that thread's."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, read)

    def close(self, *, wait: bool = True) -> None:
        """Ends the threads."""
        self._threads.shutdown(wait=wait)
