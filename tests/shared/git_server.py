"""Serves git repositories over HTTP on loopback, and misbehaves where it is asked to.

    /smart/NAME.git   git's own http-backend              /dumb/NAME.git    plain files
    /moved/NAME.git   redirects to /smart/NAME.git        /away/…           redirects to a metadata service
    /login/…          401                                 /broken/…         500
    /loop/…           redirects to itself, counting up    /page/…           an HTML page

`requests` has the paths that were asked for.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit


class GitServer(ThreadingHTTPServer):
    """The server of one folder of repositories."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder = folder
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.requests: list[str] = []


@contextmanager
def git_server(folder: Path) -> Iterator[GitServer]:
    """A server, until the end of the block."""
    server = GitServer(folder)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: GitServer

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        way, _, rest = self.path.lstrip("/").partition("/")
        if way == "smart":
            self._backend(rest)
        elif way == "dumb":
            self._file(rest)
        elif way == "moved":
            self._answer(301, location=f"{self.server.url}/smart/{rest}")
        elif way == "away":
            self._answer(302, location=f"http://169.254.169.254/{rest}")
        elif way == "loop":
            self._answer(
                302, location=f"{self.server.url}/loop/{len(self.server.requests)}/info/refs?service=git-upload-pack"
            )
        elif way == "page":
            self._answer(200, b"<p>hello</p>")
        else:
            self._answer({"login": 401, "broken": 500}.get(way, 404))

    do_POST = do_GET

    def _file(self, rest: str) -> None:
        path = self.server.folder / urlsplit(rest).path
        if path.is_file():
            self._answer(200, path.read_bytes(), "text/plain")
        else:
            self._answer(404)

    def _backend(self, rest: str) -> None:
        """Calls git http-backend as a CGI program."""
        parts = urlsplit(rest)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "PATH_INFO": "/" + parts.path,
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "CONTENT_LENGTH": str(len(body)),
        }
        done = subprocess.run(["git", "http-backend"], env=environment, input=body, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self._answer(int(fields.pop("Status", "200")[:3]), content, fields.get("Content-Type", "text/plain"))

    def _answer(self, status: int, body: bytes = b"", kind: str = "text/html", location: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if location:
            self.send_header("Location", location)
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="x"')
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
