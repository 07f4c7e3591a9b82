"""Real proxies on loopback (tinyproxy, microsocks) and bad ones, and a site that sees through whom it is asked.

Each real proxy asks from an address of its own (127.0.0.N), by which the site's log tells them apart.
"""

from __future__ import annotations

import shutil
import socket
import socketserver
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Self

from pace import patience
from ports import free_port


class Asked(NamedTuple):
    """A request that the site got."""

    source: str
    host: str
    path: str
    at: float


class EchoSite:
    """Shows each request as its page; `/page/N` links on to the next, up to `pages`. Some sources are blocked."""

    def __init__(
        self, addresses: tuple[str, ...] = ("127.0.0.1",), pages: int = 0, certificate: Path | None = None
    ) -> None:
        """`certificate`: it is served over TLS."""
        self.asked: list[Asked] = []
        self.arrivals: list[float] = []  # of all requests, also those for robots.txt
        self._scheme = "http" if certificate is None else "https"
        self.blocked: set[str] = set()
        self.pages = pages
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                source = self.client_address[0]
                site.arrivals.append(time.monotonic())
                if self.path not in ("/robots.txt", "/sitemap.xml"):
                    site.asked.append(Asked(source, self.headers["Host"], self.path, time.monotonic()))
                status, body = site.answer(source, self.path, str(self.headers))
                self.send_response(status)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.port = free_port()
        self._servers = [_Server((address, self.port), Handler) for address in addresses]
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            for server in self._servers:
                server.socket = context.wrap_socket(server.socket, server_side=True)

    def answer(self, source: str, path: str, headers: str) -> tuple[int, bytes]:
        """What it says to a request."""
        if path in ("/robots.txt", "/sitemap.xml"):
            return 404, b"none"
        if source in self.blocked:
            return 403, b"blocked"
        number = int(path.rpartition("/")[2]) if path.startswith("/page/") else -1
        link = f"<a href='/page/{number + 1}'>next</a>" if 0 <= number < self.pages - 1 else ""
        return 200, f"<title>{path}</title><pre>{source}\n{headers}</pre>{link}".encode()

    @property
    def url(self) -> str:
        """Its first page."""
        return f"{self._scheme}://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    request_queue_size = 256


class Running(NamedTuple):
    """A proxy that runs."""

    port: int
    log: Path

    def requests(self) -> list[str]:
        """The lines of its own log that tell of a request."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [line for line in text.splitlines() if "Request (file" in line or "connected to" in line]

    def times(self, path: str) -> list[datetime]:
        """When it was asked for what has this in its URL, by its own log."""
        lines = [line.split() for line in self.requests() if path in line]
        return [datetime.strptime(" ".join(words[1:4]), "%b %d %H:%M:%S.%f") for words in lines]


class Proxies:
    """Starts them in a folder, and ends those that it has started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def tinyproxy(
        self, source: str = "127.0.0.3", login: str = "", *, tells: bool = False, tunnels: bool = True
    ) -> Running:
        """An HTTP proxy. `login`: "user password", letters and digits alone; `tells`: it tells the site who asks;
        `tunnels`: not to the ports that tests use, without."""
        port, log = self._place("tinyproxy")
        config = log.with_suffix(".conf")
        lines = [f"Port {port}", "Listen 127.0.0.1", f"Bind {source}", f'LogFile "{log}"', "LogLevel Connect"]
        lines += ["MaxClients 200", "Timeout 60", *([f"BasicAuth {login}"] if login else [])]
        lines += ["XTinyproxy Yes"] if tells else []
        lines += [] if tunnels else ["ConnectPort 1"]
        config.write_text("\n".join(lines) + "\n")
        return self._start(["tinyproxy", "-d", "-c", str(config)], port, log, log.with_suffix(".out"))

    def microsocks(self, source: str = "127.0.0.4", user: str = "", password: str = "") -> Running:
        """A SOCKS5 proxy."""
        port, log = self._place("microsocks")
        login = ["-u", user, "-P", password] if user else []
        return self._start(["microsocks", "-i", "127.0.0.1", "-p", str(port), "-b", source, *login], port, log, log)

    def tls_front(self, behind: Running, certificate: Path) -> int:
        """The port of an HTTPS proxy: TLS, and the real one behind it. One plain request for each connection."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)

        def behave(connection: socket.socket) -> None:
            with (
                context.wrap_socket(connection, server_side=True) as asked,
                socket.create_connection(("127.0.0.1", behind.port)) as proxy,
            ):
                proxy.sendall(asked.recv(65536))
                while data := proxy.recv(65536):
                    asked.sendall(data)

        return self.listening(behave)

    def listening(self, behave: Callable[[socket.socket], None]) -> int:
        """A port where each connection is treated so."""

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                try:
                    behave(self.request)
                except OSError:
                    pass

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads, request_queue_size = True, 1024

        server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        self._stack.callback(server.server_close)
        self._stack.callback(server.shutdown)
        port: int = server.server_address[1]
        return port

    def _place(self, name: str) -> tuple[int, Path]:
        self._count += 1
        return free_port(), self._folder / f"{name}-{self._count}.log"

    def _start(self, command: list[str], port: int, log: Path, output: Path) -> Running:
        program = shutil.which(command[0])
        assert program is not None
        with output.open("wb") as out:
            process = subprocess.Popen([program, *command[1:]], stdout=out, stderr=out)

        def end() -> None:
            process.kill()
            process.wait()

        self._stack.callback(end)
        _await(port, process)
        return Running(port, log)


def hangs(connection: socket.socket) -> None:
    """Takes a connection and says nothing."""
    while connection.recv(65536):
        pass


def hijacks(connection: socket.socket) -> None:
    """Answers everything with a page of its own."""
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nBuy this!")


def speaks_socks4(connection: socket.socket) -> None:
    """SOCKS4 and 4a, which no packaged proxy speaks: connects, answers, and passes bytes on."""
    head = connection.recv(8, socket.MSG_WAITALL)
    port, address = int.from_bytes(head[2:4], "big"), socket.inet_ntoa(head[4:8])
    _until_zero(connection)
    host = _until_zero(connection).decode() if address.startswith("0.0.0.") and address != "0.0.0.0" else address
    with socket.create_connection((host, port), source_address=("127.0.0.6", 0)) as site:
        connection.sendall(b"\0\x5a" + bytes(6))
        back = threading.Thread(target=_pass_on, args=(site, connection), daemon=True)
        back.start()
        _pass_on(connection, site)


def _until_zero(connection: socket.socket) -> bytes:
    found = b""
    while (one := connection.recv(1)) not in (b"", b"\0"):
        found += one
    return found


def _pass_on(source: socket.socket, to: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            to.sendall(data)
        to.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def _await(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + patience(5)
    while True:
        with socket.socket() as one:
            if not one.connect_ex(("127.0.0.1", port)):
                return
        assert process.poll() is None, "the proxy has ended"
        assert time.monotonic() < until, "the proxy does not listen"
        time.sleep(0.01)
