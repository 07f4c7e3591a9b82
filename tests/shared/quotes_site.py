"""A small site of quotes on loopback, as spiders' tutorials have them: pages with a next link, authors, a login with a
CSRF token, a search that is sent with POST, an API of JSON. It keeps a log of what it was asked for."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

AUTHORS = ("Ada Lovelace", "Alan Turing", "Grace Hopper", "Edsger Dijkstra", "Barbara Liskov")
PER_PAGE = 4
USER, PASSWORD = "ada", "s3cret-pass"


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    body: str
    headers: dict[str, str]
    port: int


class QuotesSite:
    """The site; `url` is its origin with a slash."""

    def __init__(self, pages: int = 5, host: str = "127.0.0.1") -> None:
        self.pages = pages
        self.asked: list[Asked] = []
        self.lock = threading.Lock()
        self.answers: dict[str, Any] = {}  # path -> (status, headers, body), or a function of the request
        self.sessions: set[str] = set()
        self.tokens: set[str] = set()
        self.server = _Server((host, 0), _Handler)
        self.server.site = self
        self.url = f"http://{host}:{self.server.server_address[1]}/"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stops serving."""
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def paths(self, method: str = "") -> list[str]:
        """What was asked for, robots.txt and sitemap left out."""
        with self.lock:
            left_out = ("/robots.txt", "/sitemap.xml")
            return [one.path for one in self.asked if one.path not in left_out and method in ("", one.method)]

    def quotes(self) -> list[dict[str, Any]]:
        """All quotes, as a spider that reads every page has them."""
        return [quote(n) for n in range(self.pages * PER_PAGE)]


def quote(n: int) -> dict[str, Any]:
    """One quote."""
    return {"text": f"Quote {n} — “said”", "author": AUTHORS[n % len(AUTHORS)], "tags": [f"tag{n % 3}", "all"]}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    site: QuotesSite


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self._answer("")

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

    do_PUT = do_POST

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, body: str) -> None:
        site = self.server.site
        asked = Asked(self.command, self.path, body, dict(self.headers), self.server.server_address[1])
        with site.lock:
            site.asked.append(asked)
        status, headers, answer = self._made(asked)
        data = answer.encode() if isinstance(answer, str) else answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _made(self, asked: Asked) -> tuple[int, dict[str, str], str | bytes]:
        site, split = self.server.site, urlsplit(asked.path)
        own = site.answers.get(split.path)
        if own is not None:
            made: tuple[int, dict[str, str], str | bytes] = own(asked) if callable(own) else own
            return made
        name, _, rest = split.path.strip("/").partition("/")
        if split.path == "/robots.txt":
            return 404, {}, ""
        if name in ("", "page"):
            return _html(_list_page(int(rest or 1), site.pages))
        if name == "author":
            return _html(_author_page(rest))
        if name == "search":
            return self._search(asked)
        if name == "login":
            return self._login(asked)
        if name == "private":
            return self._private(asked, rest)
        if name == "api":
            number = int(rest)
            data = {"quotes": [quote(n) for n in _numbers(number)], "next": number + 1 if number < site.pages else None}
            return 200, {"Content-Type": "application/json"}, json.dumps(data)
        return 404, {"Content-Type": "text/html"}, "<h1>not found</h1>"

    def _search(self, asked: Asked) -> tuple[int, dict[str, str], str | bytes]:
        if asked.method == "GET":
            return _html(
                "<form id=search method=post action=/search><input type=hidden name=token value=t1>"
                "<input name=author><select name=order><option value=up selected>up<option value=down>down</select>"
                "<input type=submit name=go value=Go></form>"
            )
        fields = {name: values[0] for name, values in parse_qs(asked.body).items()}
        if fields.get("token") != "t1":
            return 403, {}, "no token"
        found = [one for one in self.server.site.quotes() if one["author"] == fields.get("author")]
        return _html("".join(_quote_html(one) for one in found) + f"<p id=order>{fields.get('order')}</p>")

    def _login(self, asked: Asked) -> tuple[int, dict[str, str], str | bytes]:
        site = self.server.site
        if asked.method == "GET":
            with site.lock:
                token = f"csrf-{len(site.tokens)}"
                site.tokens.add(token)
            return _html(
                f"<form id=login method=post action=/login><input type=hidden name=csrf value={token}>"
                "<input name=user><input type=password name=password><button>in</button></form>"
            )
        fields = {name: values[0] for name, values in parse_qs(asked.body).items()}
        if fields.get("csrf") not in site.tokens or (fields.get("user"), fields.get("password")) != (USER, PASSWORD):
            return _html(
                "<p class=error>wrong</p><form id=login method=post><input type=password name=password></form>"
            )
        with site.lock:
            session = f"session-{len(site.sessions)}-secret"
            site.sessions.add(session)
        return 302, {"Location": "/private/1", "Set-Cookie": f"sid={session}; Path=/; HttpOnly"}, ""

    def _private(self, asked: Asked, rest: str) -> tuple[int, dict[str, str], str | bytes]:
        session = asked.headers.get("Cookie", "").partition("sid=")[2].partition(";")[0]
        if session not in self.server.site.sessions:
            return _html("<form id=login action=/login method=post><input type=password name=password></form>")
        number = int(rest or 1)
        more = f"<a class=next href=/private/{number + 1}>next</a>" if number < self.server.site.pages else ""
        return _html(f"<a class=logout href=/logout>out</a><p class=secret>Secret {number}</p>{more}")


def _html(body: str) -> tuple[int, dict[str, str], str]:
    return 200, {"Content-Type": "text/html; charset=utf-8"}, f"<!doctype html><html><title>Quotes</title>{body}</html>"


def _numbers(page: int) -> range:
    return range((page - 1) * PER_PAGE, page * PER_PAGE)


def _quote_html(one: dict[str, Any]) -> str:
    tags = "".join(f"<a class=tag href=/tag/{tag}>{tag}</a>" for tag in one["tags"])
    link = f"/author/{one['author'].replace(' ', '-')}"
    return (
        f"<div class=quote><span class=text>{one['text']}</span><small class=author>{one['author']}</small> "
        f"<a href={link}>(about)</a><div>{tags}</div></div>"
    )


def _list_page(number: int, pages: int) -> str:
    more = f"<ul><li class=next><a href=/page/{number + 1}>Next</a></li></ul>" if number < pages else ""
    return "".join(_quote_html(quote(n)) for n in _numbers(number)) + more


def _author_page(name: str) -> str:
    return f"<h3>{name.replace('-', ' ')}</h3><span class=born>{1800 + len(name)}</span><pre>  line 1\n  line 2</pre>"


@contextmanager
def quotes_site(pages: int = 5, host: str = "127.0.0.1") -> Iterator[QuotesSite]:
    """The site, while the block runs."""
    site = QuotesSite(pages, host)
    try:
        yield site
    finally:
        site.close()
