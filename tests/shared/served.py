"""A scrape service in memory behind the real HTTP server, in a thread: `with served(service) as server: server.url`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from pace import patience
from scripted_service import ScriptedService

from weft.jobs.api.http_app import create_app
from weft.jobs.api.server import listen, server_of
from weft.jobs.api.settings import ApiSettings
from weft.jobs.dashboard.panels import Panel

T = TypeVar("T")


class Server:
    """The server, as a test sees it."""

    def __init__(
        self, service: ScriptedService, folder: Path, port: int, panels: Sequence[Panel] = (), **settings: Any
    ) -> None:
        self.service = service
        self._app = create_app(service, ApiSettings(data_dir=folder, **settings), panels)
        self._socket = listen("127.0.0.1", port)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._server = server_of(self._app)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), daemon=True)
        self._thread.start()
        assert self._ready.wait(patience(10))

    def do(self, work: Callable[[], T]) -> T:
        """Calls something in the server's own loop."""

        async def call() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(patience(10))

    def stop(self) -> None:
        """Ends it, as a signal would."""
        self._server.should_exit = True
        self._thread.join(patience(20))
        assert not self._thread.is_alive()

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self._server.serve(sockets=[self._socket]))
        while not self._server.started:
            await asyncio.sleep(0.005)
        self._ready.set()
        await serving


@contextmanager
def served(service: ScriptedService, folder: Path, port: int = 0, **settings: Any) -> Iterator[Server]:
    """A server, until the end of the block."""
    server = Server(service, folder, port, **settings)
    try:
        yield server
    finally:
        server.stop()
