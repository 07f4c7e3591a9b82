"""A site behind a login: a form with a token, sessions that can end, and a log of all that it was asked.

`LoginSite(...)` says what goes wrong. Members' pages are `/`, `/p/1` ... ; to others they show the login's form, or
redirect to it (`redirects`). What is asked is in `log` in its order, with the time, the cookies and the body.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple, Self
from urllib.parse import parse_qs

USER, PASSWORD = "anna@example.com", "the-pass-word-of-anna"
FORM = """<title>Log in</title><form id=login method=post action=/login>
<input type=hidden name=csrf value="{token}"><input name=user><input type=password name=password>
<button name=go value=1>Log in</button></form>"""


class Asked(NamedTuple):
    """A request."""

    at: float
    method: str
    path: str
    cookie: str
    body: str


class LoginSite:
    """One server on loopback."""

    def __init__(
        self,
        pages: int = 6,
        *,
        form: str = FORM,
        session_pages: int = 10**9,
        redirects: bool = False,
        robots: str = "",
        second_step: bool = False,
        rejects: bool = False,
        on_login: Callable[[], None] = lambda: None,
    ) -> None:
        """`session_pages`: after so many pages a session is forgotten. `rejects`: no session is ever good.
        `on_login` is called before a form is answered."""
        self.log: list[Asked] = []
        self.sessions: list[str] = []  # all that were given out
        self.tokens: set[str] = set()
        self.pages, self.form, self.session_pages = pages, form, session_pages
        self.redirects, self.robots, self.second_step = redirects, robots, second_step
        self.rejects, self.on_login = rejects, on_login
        self.served = 0  # pages of the newest session
        self.lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.site = self

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, path: str = "/") -> str:
        """A URL of the site."""
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def login(self, **more: str) -> dict[str, object]:
        """The setting `login` for it."""
        fields = {"user": "${env:SITE_USER}", "password": "${env:SITE_PASSWORD}"}
        return {"url": self.url("/login"), "fields": fields, "success": "a.logout", "logged_out": "form#login", **more}

    def asked(self, method: str, path: str) -> list[Asked]:
        """The requests of one kind."""
        return [one for one in self.log if one.method == method and one.path.partition("?")[0] == path]

    def is_known(self, cookie: str) -> bool:
        """Whether a request is of a session that counts."""
        if self.rejects or not self.sessions or f"sid={self.sessions[-1]}" not in cookie:
            return False
        self.served += 1
        return self.served <= self.session_pages


class _Server(ThreadingHTTPServer):
    daemon_threads, request_queue_size = True, 128
    site: LoginSite


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer("")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode())

    def _answer(self, body: str) -> None:
        site, path, cookie = self.server.site, self.path.partition("?")[0], self.headers.get("Cookie", "")
        with site.lock:
            site.log.append(Asked(time.monotonic(), self.command, self.path, cookie, body))
        if path == "/robots.txt":
            self._send(200 if site.robots else 404, site.robots, kind="text/plain")
        elif path == "/login" and self.command == "POST":
            site.on_login()
            self._log_in(cookie, body)
        elif path == "/login":
            self._show_form()
        elif path == "/home" and site.second_step:
            self._send(200, "<form method=post><input name=otp autocomplete=one-time-code></form>")
        elif path.startswith("/open"):
            self._send(200, f"<title>{path}</title>open")
        else:
            with site.lock:
                known = site.is_known(cookie)
            if known:
                self._show_page(path)
            elif site.redirects:
                self._send(302, "", ("Location", f"/login?next={path}"))
            else:
                self._show_form()

    def _show_form(self) -> None:
        token = secrets.token_hex(8)
        self.server.site.tokens.add(token)
        self._send(200, self.server.site.form.format(token=token), ("Set-Cookie", f"csrf={token}; Path=/; HttpOnly"))

    def _log_in(self, cookie: str, body: str) -> None:
        site, sent = self.server.site, parse_qs(body)
        token = sent.get("csrf", [""])[0]
        if token not in site.tokens or f"csrf={token}" not in cookie or not self.headers.get("Referer"):
            self._send(403, "<title>bad token</title>")
        elif (sent.get("user"), sent.get("password")) != ([USER], [PASSWORD]):
            self._show_form()
        else:
            with site.lock:
                site.sessions.append(secrets.token_hex(16))
                site.served = -1  # the page that the login leads to
            self._send(303, "", ("Location", "/home"), ("Set-Cookie", f"sid={site.sessions[-1]}; Path=/; HttpOnly"))

    def _show_page(self, path: str) -> None:
        site = self.server.site
        links = "".join(f"<a href=/p/{number}>{number}</a>" for number in range(1, site.pages))
        body = f"<title>{path}</title><a class=logout href=/out rel=nofollow>out</a><h1>{path}</h1>{links}"
        self._send(200, body, ("Set-Cookie", f"sid={site.sessions[-1]}; Path=/; HttpOnly"))

    def _send(self, status: int, body: str, *fields: tuple[str, str], kind: str = "text/html") -> None:
        self.send_response(status)
        for name, value in [("Content-Type", kind), ("Content-Length", str(len(body))), *fields]:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        """The site has a log of its own."""
