"""A site whose page `/held?NAME` is answered when `/frees?NAME` was asked for: what is appended to a batch in time.

`/moved` leads to `/moved/twice`, and that to `/moved/there`.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from pace import patience


@contextmanager
def holding_site() -> Iterator[str]:
    """Its address."""
    freed: defaultdict[str, threading.Event] = defaultdict(threading.Event)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path, _, name = self.path.partition("?")
            if path == "/frees":
                freed[name].set()
            elif path == "/held":
                freed[name].wait(patience(20))
            body = b"" if path == "/robots.txt" else b"<title>a page</title><p>some text</p>"
            to = {"/moved": "/moved/twice", "/moved/twice": "/moved/there"}.get(path)
            self.send_response(302 if to else 200)
            if to:
                self.send_header("Location", to)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
