"""A web of many hosts behind one server, which logs every request that it gets with all of its headers.

The server takes plain HTTP and TLS on the same port, so that one origin has an upgrade and a downgrade; it is also an
HTTP proxy (the whole URL, and CONNECT), which answers for every host itself. `seed.test` and `tls.test` belong to the
user. Every other origin is foreign, is reached from them by one route each, and asks for a login.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple, Self

from pace import patience

CERTIFICATE = Path(__file__).parents[1] / "unit" / "fetch" / "certs" / "good.pem"
COOKIE, TOKEN, PASSWORD = "sid=user-cookie", "Bearer user-token", "user-password"
_LOGIN = "Basic bWU6dXNlci1wYXNzd29yZA=="  # me:user-password
SECRETS = ("user-cookie", "user-token", "user-key", PASSWORD, _LOGIN.partition(" ")[2])
HEADERS = {"Cookie": COOKIE, "Authorization": TOKEN, "X-Key": "user-key", "Accept-Language": "de"}
LOGINS = {"seed.test": f"me:{PASSWORD}", "tls.test": f"me:{PASSWORD}"}


class Received(NamedTuple):
    """A request in the log."""

    origin: str
    path: str
    headers: str

    @property
    def secrets(self) -> set[str]:
        """The credentials in it."""
        return {secret for secret in SECRETS if secret in self.headers or secret in self.path}


class CredentialWeb:
    """Two ports of one server; see the module."""

    def __init__(self) -> None:
        self.log: list[Received] = []
        self._failed: set[str] = set()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        self._servers = [_Server(self, context) for _ in range(2)]
        self.port, self.other_port = (server.server_port for server in self._servers)

    def __enter__(self) -> Self:
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def url(self, host: str, path: str = "/", scheme: str = "http") -> str:
        """A URL of one of its hosts."""
        return f"{scheme}://{host}:{self.port}{path}"

    @property
    def seeds(self) -> list[str]:
        """What the user crawls."""
        moved = [self.url("seed.test", path) for path in ("/", "/moved", "/locked", "/secure")]
        return [*moved, self.url("tls.test", "/", "https")]

    @property
    def own(self) -> set[str]:
        """The origins that may have the credentials."""
        seed = self.url("seed.test", "")
        return {seed, "https" + seed.removeprefix("http"), self.url("tls.test", "", "https")}

    def foreign(self) -> dict[str, str]:
        """By route: an origin that must not have them."""
        return {
            "seed redirect": self.url("redirect.test", ""),
            "link": self.url("link.test", ""),
            "robots.txt": self.url("robots.test", ""),
            "sitemap": self.url("sitemap.test", ""),
            "sitemap entry": self.url("entry.test", ""),
            "subdomain": self.url("www.seed.test", ""),
            "port": f"http://seed.test:{self.other_port}",
            "scheme": self.url("tls.test", ""),
            "retry": self.url("retry.test", ""),
            "meta refresh": self.url("refresh.test", ""),
            "canonical": self.url("canonical.test", ""),
        }

    def leaks(self) -> list[Received]:
        """Requests with a credential that went to any other origin; a proxy's own requests are such, too."""
        return [one for one in self.log if one.origin not in self.own and one.secrets]

    def reached(self) -> set[str]:
        """The origins that were asked for a page."""
        return {one.origin for one in self.log if one.path not in ("/robots.txt", "/sitemap.xml")}

    def sent_to(self, origin: str) -> set[str]:
        """The credentials that an origin has got."""
        return {secret for one in self.log if one.origin == origin for secret in one.secrets}

    def answer(self, origin: str, path: str, login: str) -> tuple[int, list[tuple[str, str]], str]:
        """Status, headers and body for a request."""
        host = origin.partition("://")[2].partition(":")[0]
        if path == "/robots.txt":
            if host == "seed.test" and origin == self.url("seed.test", ""):
                return 302, [("Location", self.url("robots.test", "/robots.txt"))], ""
            if host == "robots.test":
                return 200, [], f"User-agent: *\nAllow: /\nSitemap: {self.url('sitemap.test', '/all.xml')}\n"
            return 404, [], ""
        if host == "sitemap.test" and path == "/all.xml":
            entry = self.url("entry.test")
            return 200, [("Content-Type", "text/xml")], f"<urlset><url><loc>{entry}</loc></url></urlset>"
        if path == "/sitemap.xml":
            return 404, [], ""
        if origin in self.own:
            return self._own_page(path, login)
        if host == "retry.test" and origin not in self._failed:
            self._failed.add(origin)
            return 503, [], ""
        return 401, [("WWW-Authenticate", 'Basic realm="x"')], ""

    def _own_page(self, path: str, login: str) -> tuple[int, list[tuple[str, str]], str]:
        if path == "/moved":
            return 302, [("Location", self.url("redirect.test", "/landing"))], ""
        if path == "/secure":
            return 302, [("Location", self.url("seed.test", "/upgraded", "https"))], ""
        if path == "/locked" and not login.startswith("Basic"):
            return 401, [("WWW-Authenticate", 'Basic realm="x"')], ""
        leaving = ("link", "port", "scheme", "subdomain", "retry")
        links = "".join(f"<a href='{self.foreign()[route]}/page'>{route}</a>" for route in leaving)
        head = (
            f"<meta http-equiv=refresh content='0; url={self.url('refresh.test')}'>"
            f"<link rel=canonical href='{self.url('canonical.test')}'>"
        )
        cookie = [("Set-Cookie", "theirs=1; Path=/")]
        return 200, cookie, f"<html><head><title>{path}</title>{head if path == '/upgraded' else ''}</head>{links}"


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128

    def __init__(self, web: CredentialWeb, context: ssl.SSLContext) -> None:
        self.web, self.context = web, context
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def setup(self) -> None:
        self.scheme = "http"
        self._take_tls()
        super().setup()

    def _take_tls(self) -> None:
        self.request.settimeout(patience(10))
        try:
            if self.request.recv(1, socket.MSG_PEEK) == b"\x16":
                self.scheme = "https"
                self.request = self.server.context.wrap_socket(self.request, server_side=True)
        except OSError:
            pass

    def do_CONNECT(self) -> None:
        self.server.web.log.append(Received(f"CONNECT {self.path}", self.path, str(self.headers)))
        self.send_response_only(200)
        self.end_headers()
        self.wfile.flush()
        self._take_tls()
        super().setup()

    def do_GET(self) -> None:
        web, path = self.server.web, self.path
        origin = f"{self.scheme}://{self.headers['Host']}"
        if path.startswith("http://"):  # as a proxy is asked
            origin, _, path = path.partition("//")[2].partition("/")
            origin, path = f"http://{origin}", f"/{path}"
        web.log.append(Received(origin, path, str(self.headers)))
        status, fields, body = web.answer(origin, path, self.headers.get("Authorization", ""))
        self.send_response(status)
        for name, value in [*fields, ("Content-Length", str(len(body)))]:
            self.send_header(name, value)
        if not any(name == "Content-Type" for name, _ in fields):
            self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """The web has a log of its own."""


def credential_web() -> Iterator[CredentialWeb]:
    """For a fixture."""
    with CredentialWeb() as web:
        yield web
