"""A webhook's receiver for tests: it answers as it is told to, and remembers what has come."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from pace import patience

HANG, REDIRECT, FLOOD = -1, -2, -3


@dataclass(frozen=True)
class Received:
    """One request."""

    headers: dict[str, str]  # names in lower case
    raw: bytes
    answered: int

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]


class Receiver:
    """`answers` are given one after the other, the last one for ever: a status, or HANG, REDIRECT, FLOOD."""

    def __init__(self, *answers: int, port: int = 0) -> None:
        self.answers = list(answers or (200,))
        self.received: list[Received] = []
        self.is_over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"]))
                answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.received.append(Received(headers, raw, answer))
                with suppress(OSError):
                    outer._answer(self, answer)

            def do_GET(self) -> None:
                outer.received.append(Received({}, b"", 0))

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.port: int = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}/hook"

    def _answer(self, request: BaseHTTPRequestHandler, answer: int) -> None:
        if answer == HANG:
            self.is_over.wait(patience(60))
            return
        request.send_response({REDIRECT: 307, FLOOD: 200}.get(answer, answer))
        if answer == REDIRECT:
            request.send_header("Location", self.url + "/elsewhere")
        request.send_header("Content-Length", str(1 << 30) if answer == FLOOD else "0")
        request.end_headers()
        if answer == FLOOD:
            while not self.is_over.is_set():
                request.wfile.write(b"x" * 65536)

    @property
    def taken(self) -> list[Received]:
        """What was answered with 2xx."""
        return [one for one in self.received if 200 <= one.answered < 300]

    def until(self, count: int) -> list[Received]:
        """All that have come, when there are so many."""
        limit = time.monotonic() + patience(10)
        while len(self.received) < count:
            assert time.monotonic() < limit, [(one.answered, one.raw[:100]) for one in self.received]
            time.sleep(0.01)
        return self.received

    def close(self) -> None:
        self.is_over.set()
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def receiver(*answers: int, port: int = 0) -> Iterator[Receiver]:
    made = Receiver(*answers, port=port)
    try:
        yield made
    finally:
        made.close()
