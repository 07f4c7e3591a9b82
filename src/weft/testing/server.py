"""Serves a World over HTTP/1.1 on loopback, and writes the arrival log.

One process, one asyncio loop, one Protocol object (`connection.py`) per connection, a bounded cache of ready answers.
Listens on loopback addresses only: one socket per host, or a single one when hosts are names.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource as rlimit
import signal
import socket
import sys
import zlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

if __name__ == "__main__":
    gc.disable()  # imports leave no garbage; searching for it would take a tenth of the start-up time

import msgspec

from weft.errors import BadInput, Busy, WeftError
from weft.testing import tls
from weft.testing.arrivals import FLUSH_S, ArrivalLog
from weft.testing.connection import WebConnection, WebReply
from weft.testing.content import pages
from weft.testing.content.resources import Resource
from weft.testing.content.sites import WorldSpec
from weft.testing.world import World

BACKLOG = 512


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How a world is served."""

    arrivals: str | None = None
    latency_s: float = 0.0
    gzip: bool = False
    cache_bytes: int = 256 << 20
    duration_s: float | None = None
    until_eof: bool = False


class SyntheticServer:
    """The state that all connections share: the world, the cache, the number of attempts for each URL, the log."""

    def __init__(self, world: World, options: ServeOptions, port: int) -> None:
        self.world = world
        self.options = options
        self.port = port
        self.scheme = "https" if world.spec.tls else "http"
        self.log = ArrivalLog(Path(options.arrivals) if options.arrivals else None)
        self.attempts: dict[tuple[str, str], int] = {}
        self.open: dict[str, set[WebConnection]] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.connections = 0
        self.faults = {site.address: site.hostile for site in world.sites if (site.hostile or "").startswith("tls-")}
        self._cache: OrderedDict[tuple[str, str, bool], WebReply] = OrderedDict()
        self._cached_bytes = 0

    def cached(self, host: str, path: str, packed: bool) -> WebReply | None:
        answer = self._cache.get((host, path, packed))
        if answer is not None:
            self._cache.move_to_end((host, path, packed))
        return answer

    def remember(self, host: str, path: str, packed: bool, answer: WebReply) -> None:
        self._cache[host, path, packed] = answer
        self._cached_bytes += len(answer.data)
        while self._cached_bytes > self.options.cache_bytes:
            _, old = self._cache.popitem(last=False)
            self._cached_bytes -= len(old.data)

    def answer(self, resource: Resource, packed: bool) -> WebReply:
        """The regular answer of a resource, without its faults."""
        body = pages.render(resource, self.world.texts)
        fields = pages.headers_of(resource)
        if packed and len(body) > 256:
            body = zlib.compress(body, 1, 31)
            fields.append(("Content-Encoding", "gzip"))
            fields.append(("Vary", "Accept-Encoding"))
        head = pages.head(resource.status, None if resource.status == 204 else len(body), fields)
        has_etag = resource.status == 200 and bool(resource.key)
        etag = pages.etag(resource) if has_etag else ""
        return WebReply(head + body, len(head), resource.status, resource.kind, etag, resource.modified)

    def count_attempt(self, host: str, path: str) -> int:
        """Counts a request for a URL; returns how many there were before."""
        before = self.attempts.get((host, path), 0)
        self.attempts[host, path] = before + 1
        return before


# -- listening ------------------------------------------------------------------------------------------------------


def raise_file_limit(needed: int) -> None:
    """Raises the limit of open files of this process; refuses a web that would exceed it."""
    soft, hard = rlimit.getrlimit(rlimit.RLIMIT_NOFILE)
    if soft < hard:
        rlimit.setrlimit(rlimit.RLIMIT_NOFILE, (hard, hard))
    if needed + 256 > hard:
        raise BadInput(
            f"{needed} hosts need {needed + 256} open files, but the limit is {hard}: "
            "raise it (ulimit -Hn), take fewer --hosts, or use --names, which needs one address for all"
        )


def listen(addresses: list[str], port: int) -> tuple[list[socket.socket], int]:
    """Sockets that listen on the same port of every address; port 0 finds one that is free on all of them."""
    raise_file_limit(len(addresses))
    for attempt in range(20 if port == 0 else 1):
        sockets: list[socket.socket] = []
        chosen = port
        try:
            for address in addresses:
                one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
                sockets.append(one)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                one.bind((address, chosen))
                chosen = chosen or one.getsockname()[1]
                one.listen(BACKLOG)
                one.setblocking(False)
            return sockets, chosen
        except OSError as error:
            for one in sockets:
                one.close()
            if port or attempt == 19:
                raise Busy(
                    f"port {chosen} is in use on {address} ({error.strerror}): "
                    "stop what listens there, or choose another with --port (0 finds a free one)"
                ) from error
    raise AssertionError("unreachable")


def prepare(spec: WorldSpec, options: ServeOptions) -> tuple[SyntheticServer, list[socket.socket]]:
    """Binds the sockets, then makes the world: its URLs carry the port."""
    raise_file_limit(1 if spec.names else spec.hosts)
    addresses = list(dict.fromkeys(site.address for site in World(spec).sites))
    sockets, port = listen(addresses, spec.port)
    return SyntheticServer(World(replace(spec, port=port)), options, port), sockets


def run(server: SyntheticServer, sockets: list[socket.socket], ready: Callable[[], None]) -> None:
    """Serves until SIGTERM or SIGINT; returns normally then."""
    asyncio.run(serve(server, sockets, ready))


async def _listener(server: SyntheticServer, sock: socket.socket) -> asyncio.Server:
    loop = asyncio.get_running_loop()
    if not server.world.spec.tls:
        return await loop.create_server(lambda: WebConnection(server), sock=sock, backlog=BACKLOG)
    fault = server.faults.get(sock.getsockname()[0])
    if fault == "tls-stall":
        return await loop.create_server(tls.Stall, sock=sock, backlog=BACKLOG)
    context = tls.server_context(fault)
    return await loop.create_server(lambda: WebConnection(server), sock=sock, ssl=context, backlog=BACKLOG)


async def serve(server: SyntheticServer, sockets: list[socket.socket], ready: Callable[[], None]) -> None:
    """Serves until SIGTERM, SIGINT, the end of the duration, or the end of stdin when asked for."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    listeners = [await _listener(server, one) for one in sockets]
    options = server.options
    if options.duration_s is not None:
        loop.call_later(options.duration_s, stop.set)
    if options.until_eof:
        loop.add_reader(0, _answer_stdin, server, stop)
    ready()
    try:
        while not stop.is_set():
            server.log.flush()
            try:
                await asyncio.wait_for(stop.wait(), FLUSH_S)
            except TimeoutError:
                pass
    finally:
        for one in listeners:
            one.close()
        for connection in [one for group in server.open.values() for one in group]:
            connection.give_up()
        for task in list(server.tasks):
            task.cancel()
        server.log.close()


def _answer_stdin(server: SyntheticServer, stop: asyncio.Event) -> None:
    """Handles standard input: for each byte the log is flushed and a byte sent back; at the end of the pipe the server
    stops."""
    asked = os.read(0, 1024)
    if not asked:
        stop.set()
        return
    server.log.flush()
    os.write(1, b"\n" * len(asked))


def main() -> None:
    """The entry point of a server process: reads its spec and options as JSON, prints its port, serves."""
    gc.freeze()
    gc.enable()
    spec, options = msgspec.json.decode(sys.argv[1], type=tuple[WorldSpec, ServeOptions])
    try:
        server, sockets = prepare(spec, options)
    except WeftError as error:
        print(msgspec.json.encode({"error": str(error)}).decode(), flush=True)
        sys.exit(error.exit_code)
    run(server, sockets, lambda: print(msgspec.json.encode({"port": server.port}).decode(), flush=True))
    gc.freeze()  # at exit the interpreter would search everything for cycles, several times


if __name__ == "__main__":
    main()
