"""A web of scripted sites on loopback, and real crawls of it by the command line.

A Plan is one `weft crawl`: its settings, and the sites that it starts from, written down beside the tests that look
at them. `crawled` serves all sites of some plans from one thread and runs the plans side by side; what came of them is
told by the arrivals at the server (`Site.asked`) and by what was stored (`Site.row`, `Site.body`). A site is a host
name; all names lead to this machine. In whatever a site sends, `:PORT` stands for the server's port.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import yaml
from pace import patience

from weft.engine.stored.stored_page import read_page
from weft.records import Row
from weft.store.contract import StoredPage
from weft.store.pages import PageStore
from weft.testing.tls import CA_FILE, CERTS

SIDE_BY_SIDE = 6  # they wait more than they work
RUN_S = 90.0
USUAL: dict[str, Any] = {
    "scope": "any",
    "politeness_delay_seconds": 0.02,
    "retry_backoff_seconds": 0.05,
    "max_retries": 1,
    "robots_patience_seconds": 0,
    "breaker_failures": 50,
    "resolve": {"*": "127.0.0.1"},
    "allow_private": True,
    "prometheus_port": 0,
}
NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
STALL = "stall"  # in place of a certificate: a handshake that never ends
DEFAULT_PORT_ADDRESS = f"127.80.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"  # one that nobody else is using


@dataclass(frozen=True)
class Ask:
    """One request as it arrived."""

    at: float
    connection: int
    head: bytes

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode("latin-1")

    @property
    def host(self) -> str:
        """As it was sent, without the port."""
        return (self.header("host") or "").partition(":")[0]

    def header(self, name: str) -> str | None:
        for line in self.head.decode("latin-1").split("\r\n")[1:]:
            key, _, value = line.partition(": ")
            if key.lower() == name.lower():
                return value
        return None


class Visit:
    """A request and the means to answer it byte by byte."""

    def __init__(self, ask: Ask, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ask = ask
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def wait_for_the_end(self) -> None:
        """Says nothing more until the client closes."""
        while await self.reader.read(65536):
            pass

    def close(self) -> None:
        self.writer.close()

    def reset(self) -> None:
        """Ends the connection with RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


@dataclass(frozen=True)
class Page:
    """An answer whose Content-Length is right once `:PORT` is a number."""

    body: bytes
    headers: tuple[str, ...] = ()
    status: str = "200 OK"

    def sent(self, port: int) -> bytes:
        body = _with_port(self.body, port)
        lines = [f"HTTP/1.1 {self.status}", f"Content-Length: {len(body)}", *self.headers, "", ""]
        return _with_port("\r\n".join(lines).encode(), port) + body


# Bytes are sent as they are; a function makes the answer to a request, a coroutine function sends it itself.
Reply = bytes | Page | Callable[[Ask], bytes | Page] | Callable[[Visit], Awaitable[None]]


def page(body: str | bytes, *headers: str, status: str = "200 OK") -> Page:
    """A well-formed answer; HTML in UTF-8 unless the headers name another type."""
    if not any(header.lower().startswith("content-type") for header in headers):
        headers = ("Content-Type: text/html; charset=utf-8", *headers)
    return Page(body.encode() if isinstance(body, str) else body, headers, status)


def linking(*hrefs: str, head: str = "", body: str = "") -> Page:
    """A page of links, the references written as they are."""
    anchors = "\n".join(f'<a href="{href}">{number}</a>' for number, href in enumerate(hrefs))
    text = f"<p>{words(repr(hrefs))}</p>{body}{anchors}"
    return page(f"<!doctype html><html><head><title>Links</title>{head}</head><body>{text}</body></html>")


_SYLLABLES = [first + vowel + last for first in "bdfklmnprst" for vowel in "aeiou" for last in ("", "l", "n", "st")]
_WORDS = [first + second for first in _SYLLABLES for second in _SYLLABLES]


def words(about: str, count: int = 60) -> str:
    """A text of its own for each page: many that read the same look like a trap."""
    return " ".join(random.Random(about).choices(_WORDS, k=count))


def redirect(to: str, status: str = "302 Found", *headers: str) -> Page:
    """A redirect without a body."""
    return Page(b"", (f"Location: {to}", *headers), status)


def robots(*lines: str, delay_s: float | None = None) -> Page:
    """A robots.txt."""
    if delay_s is not None:
        lines = ("User-agent: *", f"Crawl-delay: {delay_s:g}", *lines)
    return page("\n".join(lines), "Content-Type: text/plain")


class Site:
    """One host: what it answers, what it was asked, and what was stored of it."""

    def __init__(self, plan: Plan, host: str, tls: str | None = None) -> None:
        self.plan = plan
        self.host = host
        self.tls = tls
        self.arrivals: list[Ask] = []
        self._replies: dict[str, list[Reply]] = {}

    def on(self, target: str, *replies: Reply) -> Self:
        """What a path, a whole target or all else (`*`) gives: the replies in turn, the last one from then on."""
        self._replies[target] = list(replies)
        return self

    def pages(self, *paths: str) -> Self:
        """Plain pages without links."""
        for path in paths:
            self.on(path, page(f"<title>{path}</title><p>{words(self.host + path)}"))
        return self

    def reply(self, target: str) -> Reply:
        """The next answer to a target."""
        known = self._replies
        replies = known.get(target) or known.get(target.partition("?")[0]) or known.get("*") or [NOT_FOUND]
        return replies.pop(0) if len(replies) > 1 else replies[0]

    def url(self, path: str) -> str:
        """The canonical URL of a path."""
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.plan.web.port(self.tls)}{path}"

    def asked(self) -> list[str]:
        """The targets of all requests in order of arrival, but for robots.txt and the usual sitemap."""
        self.plan.wait()
        return self.asked_so_far()

    def asked_so_far(self) -> list[str]:
        """The same while the crawl runs."""
        return [ask.target for ask in self.arrivals if ask.target not in ("/robots.txt", "/sitemap.xml")]

    def asks(self, target: str) -> list[Ask]:
        """The requests for a target."""
        self.plan.wait()
        return [ask for ask in self.arrivals if ask.target == target]

    def rows(self, path: str) -> list[Row]:
        """Every row of a URL, oldest first."""
        url = self.url(path)
        return [row for row in self.plan.rows if row.url == url]

    def row(self, path: str) -> Row:
        """A URL's only row."""
        (row,) = self.rows(path)
        return row

    def stored(self, path: str) -> StoredPage:
        """What was kept of a URL's only row."""
        return self.plan.read(self.row(path))

    def kept(self, path: str) -> bytes:
        """The body that the store has for a URL, whatever became of later visits."""
        self.plan.wait()
        with closing(_Reading(self.plan.data_dir)) as reading:
            stored = reading.store.latest_page(self.url(path))
        found = read_page(stored) if stored is not None else None
        assert found is not None
        return found.body

    def body(self, path: str) -> bytes:
        """The stored body, its codings undone."""
        found = read_page(self.stored(path))
        assert found is not None
        return found.body


class Plan:
    """One crawl: its settings and its sites. `drive` runs it, where it is not simply run to its end."""

    def __init__(
        self,
        name: str,
        *,
        exit_code: int = 0,
        drive: Callable[[Plan], None] | None = None,
        **settings: Any,
    ) -> None:
        self.name = name
        self.sites: dict[str, Site] = {}
        self._seeds: list[tuple[Site, str]] = []
        self._settings = settings
        self._exit_code = exit_code
        self._drive = drive or Plan.run
        self._future: Future[None] | None = None
        self.web: Web
        self.folder: Path
        self.said = ""
        self.took_s = 0.0

    def site(self, host: str, *seeds: str, tls: str | None = None) -> Site:
        """Adds a site; without seeds it is there to be linked to."""
        site = self.sites[host] = Site(self, host, tls)
        self._seeds += [(site, seed) for seed in seeds]
        return site

    @property
    def data_dir(self) -> Path:
        return self.folder / "data"

    def begin(self, web: Web, folder: Path, pool: ThreadPoolExecutor) -> None:
        """Has the crawl run as soon as there is a free place."""
        self.web, self.folder = web, folder
        self._future = pool.submit(self._drive, self)

    def wait(self) -> None:
        """Until the crawl is over; raises what went wrong with it."""
        assert self._future is not None
        self._future.result(patience(RUN_S))

    def start(self, *flags: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Starts `weft crawl` for the plan."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config, seeds, said = self.folder / "weft.yaml", self.folder / "seeds.txt", self.folder / "said.txt"
        settings = {**USUAL, **self._settings, **settings}
        settings["resolve"] = {**USUAL["resolve"], **settings["resolve"]}
        text = json.dumps(settings).replace(":PORT", f":{self.web.port()}")
        config.write_text(yaml.safe_dump(json.loads(text)))
        seeds.write_text("".join(f"{site.url(path)}\n" for site, path in self._seeds))
        begin = () if "--resume" in flags else ("--seed-file", str(seeds))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("WEFT_")}
        with said.open("ab") as out:
            return subprocess.Popen(
                [sys.executable, "-m", "weft", "crawl", "--config", str(config), "--data-dir", str(self.data_dir),
                 "--quiet", *begin, *flags],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=kept | {"SSL_CERT_FILE": str(CA_FILE)},
            )  # fmt: skip

    def run(self, *flags: str, exit_code: int | None = None, **settings: Any) -> None:
        """A crawl to its end, which must be the one that is expected."""
        began = time.monotonic()
        process = self.start(*flags, **settings)
        try:
            code = process.wait(patience(RUN_S))
        finally:
            process.kill()
            process.wait()
        self.took_s = time.monotonic() - began
        wanted = self._exit_code if exit_code is None else exit_code
        assert code == wanted, (self.name, code, (self.folder / "said.txt").read_text(errors="replace"))

    @cached_property
    def rows(self) -> list[Row]:
        """All rows of the finished crawl."""
        self.wait()
        with closing(_Reading(self.data_dir)) as reading:
            return list(reading.store.rows())

    def read(self, row: Row) -> StoredPage:
        """What was kept of a row."""
        with closing(_Reading(self.data_dir)) as reading:
            return reading.store.read_page(row)

    @cached_property
    def status(self) -> dict[str, Any]:
        """The finished crawl's own account."""
        self.wait()
        status: dict[str, Any] = json.loads((self.data_dir / "status.json").read_bytes())
        return status


class _Reading:
    def __init__(self, data_dir: Path) -> None:
        self.store = PageStore.open([data_dir], read_only=True)

    def close(self) -> None:
        self.store.abandon()


class Web:
    """Serves the sites of some plans: plain HTTP on one port, and one port for each certificate."""

    def __init__(self, sites: dict[str, Site]) -> None:
        self._sites = sites
        self._ports: dict[str | None, int] = {}
        self.connections = 0
        self.stalled = 0  # handshakes that were begun with the one who never answers
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="scripted web", daemon=True)
        self.has_default_port = False

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(patience(10))
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(patience(5))

    def port(self, tls: str | None = None) -> int:
        return self._ports[tls]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        servers = [self._listen(certificate) for certificate in {None, *(site.tls for site in self._sites.values())}]
        servers += self._listen_on_the_default_port()
        self._ready.set()
        self._loop.run_forever()
        for server in servers:
            server.close()
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def _listen(self, certificate: str | None) -> asyncio.Server:
        context, serve = None, self._serve
        if certificate == STALL:
            serve = self._stall
        elif certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(CERTS / f"{certificate}.pem")
        server = self._loop.run_until_complete(
            asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, backlog=1024, limit=1 << 20)
        )
        self._ports[certificate] = server.sockets[0].getsockname()[1]
        return server

    def _listen_on_the_default_port(self) -> list[asyncio.Server]:
        """Where this process may: there `http://host/` and `http://host:80/` can be told apart by who arrives."""
        try:
            server = self._loop.run_until_complete(asyncio.start_server(self._serve, DEFAULT_PORT_ADDRESS, 80))
        except OSError:
            return []
        self.has_default_port = True
        return [server]

    async def _stall(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stalled += 1
        try:
            while await reader.read(65536):
                pass
        except (OSError, asyncio.CancelledError):
            pass
        writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                await self._answer(Visit(Ask(time.monotonic(), number, head), reader, writer))
        except (asyncio.IncompleteReadError, asyncio.CancelledError, OSError):
            pass
        finally:
            writer.close()

    async def _answer(self, visit: Visit) -> None:
        site = self._sites.get(visit.ask.host)
        reply: Reply = NOT_FOUND
        if site is not None:
            site.arrivals.append(visit.ask)
            reply = site.reply(visit.ask.target)
        if inspect.iscoroutinefunction(reply):
            await reply(visit)
            return
        made: Any = reply(visit.ask) if callable(reply) else reply  # type: ignore[arg-type]
        port = self._ports[None]
        await visit.send(made.sent(port) if isinstance(made, Page) else _with_port(made, port))
        if (visit.ask.header("connection") or "").lower() == "close":
            visit.close()


def until(happened: Callable[[], bool], timeout_s: float = 10.0) -> None:
    """Waits for what another thread is about to do."""
    limit = time.monotonic() + patience(timeout_s)
    while not happened():
        assert time.monotonic() < limit, "it did not happen"
        time.sleep(0.01)


def _with_port(data: bytes, port: int) -> bytes:
    return data.replace(b":PORT", b":%d" % port)


@contextmanager
def crawled(folder: Path, *plans: Plan) -> Iterator[Web]:
    """Serves the plans' sites and crawls them side by side; a test waits for the crawl that it looks into."""
    sites = {host: site for plan in plans for host, site in plan.sites.items()}
    assert len(sites) == sum(len(plan.sites) for plan in plans), "a host belongs to one plan"
    with Web(sites) as web, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for plan in plans:
            plan.begin(web, folder / plan.name, pool)
        yield web
