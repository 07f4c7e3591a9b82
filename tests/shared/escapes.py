"""Pages that request what was not permitted, in every way that a page has, and the servers that would see it.

`leaky_page` tries each way against each server; a path that begins with `/leak` must arrive nowhere. Every server
answers `/allowed...`, so that its host is one that a permitted request explains.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

CERTIFICATE = Path(__file__).parents[1] / "unit" / "fetch" / "certs" / "good.pem"
OWN, OTHER = "127.1.0.2", "127.1.0.8"
END = "<p id=end>the end</p>"
# For each target T: elements, CSS, and scripts of the page, of its frames and of its workers.
_MARKUP = """
<link rel=stylesheet href=T/leak-style>
<link rel=preload as=script href=T/leak-preload>
<link rel=prefetch href=T/leak-prefetch>
<link rel=modulepreload href=T/leak-modulepreload>
<link rel=prerender href=T/leak-prerender>
<link rel=preconnect href=T>
<link rel=dns-prefetch href=T>
<link rel=icon href=T/leak-icon>
<link rel=manifest href=T/leak-manifest>
<link rel=preload as=fetch crossorigin href=T/leak-preload-fetch>
<link rel=preload as=image imagesrcset="T/leak-srcset 1x">
<style>@import url(T/leak-import); body { background: url(T/leak-background) }
@font-face { font-family: x; src: url(T/leak-font) } p { font-family: x }</style>
<img src=T/leak-img><script src=T/leak-script></script><script type=module src=T/leak-module></script>
<iframe src=T/leak-iframe></iframe><object data=T/leak-object></object><embed src=T/leak-embed>
<video src=T/leak-video poster=T/leak-poster></video><audio src=T/leak-audio autoplay></audio>
<input type=image src=T/leak-input>
<svg><image href=T/leak-svg /><use href=T/leak-use#x /></svg>
<iframe srcdoc="<img src=T/leak-srcdoc>"></iframe>
<iframe src="data:text/html,<img src=T/leak-data>"></iframe>
<iframe src="javascript:'<img src=T/leak-javascript>'"></iframe>
<iframe srcdoc="<meta http-equiv=refresh content='0;url=T/leak-frame-refresh'>"></iframe>
<script type=speculationrules>{"prefetch":
 [{"source": "list", "urls": ["T/leak-speculated"], "eagerness": "immediate"}],
 "prerender": [{"source": "list", "urls": ["T/leak-prerendered"], "eagerness": "immediate"}]}</script>
<a id=ping href="javascript:void 0" ping=T/leak-ping>x</a>
<form id=form action=T/leak-form method=post target=framed><input name=a value=b></form>
<iframe name=framed></iframe>
"""
_SCRIPT = """
const tried = (work) => { try { const done = work(); if (done && done.catch) done.catch(() => {}) } catch {} };
const everywhere = (T, where) => {
  tried(() => fetch(T + "/leak-fetch-" + where));
  tried(() => fetch(T + "/leak-keepalive-" + where, {method: "POST", body: "x", keepalive: true}));
  tried(() => fetch(T + "/leak-nocors-" + where, {method: "POST", mode: "no-cors", body: "x"}));
  tried(() => fetch(T + "/leak-preflight-" + where, {method: "PUT", headers: {"X-A": "b"}}));
  tried(() => { const one = new XMLHttpRequest(); one.open("GET", T + "/leak-xhr-" + where); one.send() });
  tried(() => new EventSource(T + "/leak-events-" + where));
  tried(() => new WebSocket(T.replace("http", "ws") + "/leak-socket-" + where));
  tried(() => new WebTransport(T.replace("http:", "https:") + "/leak-transport-" + where));
  tried(() => import(T + "/leak-dynamic-" + where));
};
"""
_WORKER = (
    _SCRIPT
    + """
for (const T of TARGETS) { everywhere(T, "WHERE"); tried(() => importScripts(T + "/leak-importscripts-WHERE")) }
if ("WHERE" === "worker") tried(() => new Worker(URL.createObjectURL(new Blob([NESTED]))));
"""
)
_PAGE_SCRIPT = (
    _SCRIPT
    + """
const quiet = document.createElement("iframe"); document.documentElement.append(quiet);
const bare = quiet.contentWindow;
for (const T of TARGETS) {
  everywhere(T, "page");
  tried(() => navigator.sendBeacon(T + "/leak-beacon", "x"));
  tried(() => fetchLater(T + "/leak-later"));
  tried(() => new bare.WebSocket(T.replace("http", "ws") + "/leak-bare-socket"));
  tried(() => bare.fetch(T + "/leak-bare-fetch"));
  tried(() => new Worker(T + "/leak-worker"));
  tried(() => new Worker("data:text/javascript," + encodeURIComponent("fetch('" + T + "/leak-data-worker')")));
  tried(() => new SharedWorker(T + "/leak-shared"));
  tried(() => new bare.SharedWorker("data:text/javascript,fetch('" + T + "/leak-shared-data')"));
  tried(() => window.open(T + "/leak-window"));
  tried(() => new AudioContext().audioWorklet.addModule(T + "/leak-worklet"));
  tried(() => CSS.paintWorklet.addModule(T + "/leak-paint"));
  tried(() => { const page = bare.RTCPeerConnection && new bare.RTCPeerConnection({iceServers: [
    {urls: "turn:" + T.split("//")[1] + "?transport=tcp", username: "a", credential: "b"}]});
    page && (page.createDataChannel("x"), page.createOffer().then(offer => page.setLocalDescription(offer))) });
  addEventListener("pagehide", () => navigator.sendBeacon(T + "/leak-pagehide", "x"));
}
tried(() => Object.getOwnPropertyDescriptor(Navigator.prototype, "serviceWorker").get.call(navigator)
  .register("/leak-service"));
tried(() => bare.navigator.serviceWorker.register("/leak-bare-service"));
tried(() => new Worker(URL.createObjectURL(new Blob([WORKER]))));
tried(() => document.getElementById("ping").click());
tried(() => document.getElementById("form").submit());
"""
)


class Request(NamedTuple):
    """One that has arrived."""

    host: str
    method: str
    path: str
    headers: dict[str, str]


class Listeners:
    """Two hosts over HTTP, one over TLS, and ports that no page may reach."""

    def __init__(self, ports: dict[str, int]) -> None:
        self.arrived: list[Request] = []
        self.canary_calls = 0
        self.endless_bytes = 0  # sent of a gigabyte
        self.redirects: dict[str, str] = {}
        self.own = f"http://{OWN}:{ports['http']}"
        self.other = f"http://{OTHER}:{ports['http']}"
        self.secure = f"https://{OWN}:{ports['https']}"
        self.canary = f"http://127.0.0.1:{ports['canary']}"

    @property
    def targets(self) -> list[str]:
        """What the page tries to reach."""
        return [self.own, self.other, self.secure, self.canary]

    def paths(self, start: str) -> list[str]:
        """Paths that begin so, of all servers."""
        return [f"{one.method} {one.host}{one.path}" for one in self.arrived if one.path.startswith(start)]

    def leaky_page(self) -> str:
        """A page that tries everything."""
        targets = repr(self.targets)
        nested = _WORKER.replace("WHERE", "nested").replace("NESTED", '""').replace("TARGETS", targets)
        worker = _WORKER.replace("WHERE", "worker").replace("NESTED", _quoted(nested)).replace("TARGETS", targets)
        script = _PAGE_SCRIPT.replace("WORKER", _quoted(worker)).replace("TARGETS", targets)
        allowed = "".join(f"<script src={target}/allowed></script>" for target in self.targets[:3])
        markup = "".join(_MARKUP.replace("T/", f"{target}/").replace("=T>", f"={target}>") for target in self.targets)
        return f"<!doctype html><title>leaky</title>{allowed}{markup}<script>{script}</script>{END}"

    def leaving_frame(self) -> str:
        """A frame that requests things when it is taken out of its page."""
        tried = "".join(
            f"""navigator.sendBeacon('{target}/leak-frame-beacon');
            fetch('{target}/leak-frame-fetch', {{keepalive: true}});
            fetch(new Request('{target}/leak-frame-request', {{keepalive: true, method: 'POST', body: 'x'}}));
            if (globalThis.fetchLater) fetchLater('{target}/leak-frame-later');"""
            for target in self.targets
        )
        return f"<script>addEventListener('pagehide', () => {{ {tried} }})</script>"


def _quoted(script: str) -> str:
    return json.dumps(script).replace("</", "<\\/")


@contextmanager
def listeners() -> Iterator[Listeners]:
    """All of them, while it runs."""
    canary = socket.create_server(("127.0.0.1", 0))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(canary.getsockname())
    made: list[Listeners] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            seen = made[0]
            host = (self.headers["Host"] or "").partition(":")[0]
            seen.arrived.append(Request(host, self.command, self.path, dict(self.headers)))
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            if self.path == "/allowed-endless":
                self._endless(seen)
                return
            to = seen.redirects.get(self.path, "")
            status = 401 if self.path.startswith("/login") else 407 if self.path.startswith("/proxy") else 200
            self.send_response(307 if to else status)
            if to:
                self.send_header("Location", to)
            self.send_header("WWW-Authenticate" if status == 401 else "Proxy-Authenticate", 'Basic realm="x"')
            self.send_header("Access-Control-Allow-Origin", "*")
            body = seen.leaving_frame().encode() if self.path == "/allowed-frame" else b"1;"
            self.send_header("Content-Type", "text/html" if len(body) > 2 else "text/javascript")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _endless(self, seen: Listeners) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 30))
            self.end_headers()
            self.close_connection = True
            for _ in range(1 << 14):
                self.wfile.write(bytes(1 << 16))
                seen.endless_bytes += 1 << 16

        do_POST = do_PUT = do_OPTIONS = do_HEAD = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    first = _Quiet((OWN, 0), Handler)
    servers = [first, _Quiet((OTHER, first.server_port), Handler), _Quiet((OWN, 0), Handler)]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    servers[2].socket = context.wrap_socket(servers[2].socket, server_side=True, do_handshake_on_connect=False)
    ports = {"http": first.server_port, "https": servers[2].server_port, "canary": canary.getsockname()[1]}
    made.append(Listeners(ports))

    def listen() -> None:
        while True:
            try:
                canary.accept()[0].close()
            except OSError:
                return
            made[0].canary_calls += 1

    def hear() -> None:
        while datagrams.recvfrom(2048)[0]:
            made[0].canary_calls += 1

    threads = [threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True) for one in servers]
    for thread in (*threads, *(threading.Thread(target=one, daemon=True) for one in (listen, hear))):
        thread.start()
    try:
        yield made[0]
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
        canary.close()
        datagrams.sendto(b"", datagrams.getsockname())  # ends `hear`


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        pass  # a browser that goes is none
