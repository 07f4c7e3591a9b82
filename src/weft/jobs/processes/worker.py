"""A worker process of `weft serve` that answers requests; one of the workers also runs the tasks.

Its spec arrives on standard input as a length and msgpack. The pipe stays open: it closes when the supervisor ends. The
listening socket is inherited, so a worker that crashes loses its own connections and no others.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

if __name__ == "__main__":
    gc.disable()  # imports leave no garbage; searching for it would take a tenth of the start-up time

import msgspec

from weft import __version__
from weft.config import ServiceConfig
from weft.errors import Missing, WeftError
from weft.frames import framed, read_frame
from weft.jobs.crawls import proxies_of
from weft.jobs.embedded import EmbeddedJobService
from weft.jobs.layout import ENGINE
from weft.supervise.process import set_name
from weft.telemetry import Log, Slot, log_to_file

HEARTBEAT_S = 1.0
log = Log("weft.jobs.processes.worker")


class WorkerSpec(msgspec.Struct, frozen=True):
    """The configuration that the supervisor passes to a worker."""

    config: ServiceConfig
    index: int
    socket: int  # the descriptor of the listening socket
    heartbeat: str  # a file that is touched while the worker is alive
    panels: tuple[str, ...] = ()  # dashboard panels of other products, as `module:name`

    def framed(self) -> bytes:
        """The bytes for the pipe: a length and msgpack."""
        return framed(msgspec.msgpack.encode(self))


async def serve(spec: WorkerSpec, has_gone: Callable[[Callable[[], None]], None]) -> None:
    """Answers until it is asked to end; `has_gone` is called with the function that ends it when the supervisor is
    gone."""
    from weft.jobs.api.http_app import create_app
    from weft.jobs.api.server import server_of
    from weft.jobs.api.settings import ApiSettings, listed_keys_of
    from weft.jobs.dashboard.panels import load_panels
    from weft.jobs.proxies_panel import ProxiesPanel
    from weft.jobs.sites.panel import SitesPanel
    from weft.jobs.sites.registry import SiteRegistry

    config = spec.config
    service = EmbeddedJobService(config)
    data_dir = Path(config.server.data_dir)
    settings = ApiSettings(
        data_dir=data_dir, host=config.server.host, workers=config.server.workers, index=spec.index,
        allow_private=config.fetch.allow_private, max_articles=config.jobs.max_articles,
        retention_s=config.jobs.retention_hours * 3600, has_proxies=bool(proxies_of(config)),
        logins=tuple(sorted(config.logins.logins)),
        listed_keys=listed_keys_of(config.server), log_dir=Path(config.log.log_dir),
        metrics_dir=data_dir / ENGINE / "metrics",
    )  # fmt: skip
    sites = SitesPanel(SiteRegistry(data_dir, store=service.store))
    proxies = (ProxiesPanel(config),) if settings.has_proxies else ()
    server = server_of(create_app(service, settings, (sites, *proxies, *load_panels(spec.panels, config))))
    gc.freeze()
    gc.enable()

    def end() -> None:
        server.should_exit = True

    has_gone(end)
    await service.start()
    beating = asyncio.create_task(_send_heartbeat(Path(spec.heartbeat)))
    try:
        await server.serve(sockets=[socket.socket(fileno=spec.socket)])
    finally:
        beating.cancel()
        await service.close()


async def _send_heartbeat(heartbeat: Path) -> None:
    """Touches the heartbeat file from the event loop, so that a blocked loop sends none."""
    while True:
        with suppress(OSError):  # a full disk must not end the worker
            heartbeat.touch()
        await asyncio.sleep(HEARTBEAT_S)


def main() -> int:
    """Answers requests until it is asked to stop; returns the exit code. Errors at the start are one line on stderr."""
    pipe = sys.stdin.fileno()
    try:
        spec = msgspec.msgpack.decode(read_frame(pipe), type=WorkerSpec)
    except EOFError:
        return 1
    set_name(f"api{spec.index}")
    os.umask(0o077)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal is handled by the supervisor
    try:
        log_to_file(
            Path(spec.config.log.log_dir), Slot(spec.index, "api"), spec.config.log.log_level,
            name=log_name(spec.index), shown_as=spec.config.log.log_format,
        )  # fmt: skip
        log.always("process started", pid=os.getpid(), worker=spec.index, weft=__version__)
        _run_worker(spec, pipe)
    except WeftError as error:
        log.error("stopped", error=error)
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code
    finally:
        gc.freeze()  # at exit the interpreter would search everything for cycles, several times
    return 0


def log_name(index: int) -> str:
    """The name of a worker's log file in the folder of the log files."""
    return f"api{index or ''}.log"


def _run_worker(spec: WorkerSpec, pipe: int) -> None:
    try:
        import uvloop
    except ImportError:
        raise Missing.of_extra("the HTTP server", "serve") from None

    async def work() -> None:
        loop = asyncio.get_running_loop()

        def gone(end: Callable[[], None]) -> None:
            loop.remove_reader(pipe)  # the closed pipe would be readable again and again
            end()

        await serve(spec, lambda end: loop.add_reader(pipe, gone, end))

    uvloop.run(work())


if __name__ == "__main__":
    sys.exit(main())
