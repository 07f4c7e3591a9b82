"""A package registry on loopback: npm's protocol under /npm, PyPI's simple index under /pypi; and one that fails."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ANSWERS: dict[str, object] = {
    "/npm/left": {"dist-tags": {"latest": "1.3.0"}, "versions": {"1.0.0": {}, "1.3.0": {}, "2.0.0-rc.1": {}}},
    "/npm/@scope%2Fpart": {"versions": {"0.1.0": {}, "0.2.0-beta": {}}},
    "/npm/odd": {"dist-tags": [], "versions": 7},
    "/npm/list": ["no", "object"],
    "/npm/moment": {"dist-tags": {"latest": "2.30.1"}, "versions": {"2.29.0": {}, "2.30.1": {}}},
    "/npm/left-pad": {"dist-tags": {"latest": "1.3.0"}, "versions": {"1.1.0": {}, "1.1.3": {}, "1.3.0": {}}},
    "/pypi/flask/": {"versions": ["2.0", "3.0rc1", "2.1"]},
    "/pypi/requests/": {"versions": ["2.29.0", "2.31.0", "2.32.3"]},
    "/pypi/old/": {
        "files": [{"filename": "old-1.0.tar.gz"}, {"filename": "old-1.2-py3-none-any.whl"}, {"filename": "x.exe"}, 7]
    },
}


class RegistryServer(ThreadingHTTPServer):
    """The registry; `asked` has the path and the Accept header of each request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.asked: list[tuple[str, str]] = []


@contextmanager
def registry_server() -> Iterator[RegistryServer]:
    """A registry, until the end of the block."""
    server = RegistryServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: RegistryServer

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Accept"]))
        body = b"no json" if "rubbish" in self.path else json.dumps(ANSWERS.get(self.path)).encode()
        self.send_response(500 if "broken" in self.path else 200 if body != b"null" else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
