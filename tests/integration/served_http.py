"""A real `weft serve` for tests: started, killed part by part, started again in the same folder."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from crawling import WEFT, environment, until
from pace import patience

from weft.client import Weft
from weft.supervise import process


class Service:
    """One folder, and the service that runs in it."""

    def __init__(self, folder: Path, *flags: object) -> None:
        self.folder = folder
        self._flags = [str(flag) for flag in flags]
        self.port = 0
        self.start()

    def start(self) -> None:
        """Starts it; after a kill at the same port."""
        command = [
            *WEFT, "serve", "--json", "--data-dir", str(self.folder), "--port", str(self.port), "--allow-private",
            "--job-delay-seconds", "0", *self._flags,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment()
        )
        assert self.process.stdout is not None
        said = b""
        while b"}" not in said:
            piece = self.process.stdout.readline()
            assert piece, f"weft serve has ended: {self.process.wait()}"
            said += piece
        self.url: str = json.loads(said)["url"]
        self.port = int(self.url.rpartition(":")[2])

    @property
    def client(self) -> Weft:
        """A client of it."""
        return Weft(self.url)

    def kill(self, part: str = "serve") -> None:
        """SIGKILL: to the engine, to a worker, or to the supervisor, whose children end with it."""
        pid = self.process.pid if part == "serve" else self.part(part)
        children = _descendants(self.process.pid) if part == "serve" else [pid]
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if part == "serve":
            self.process.wait()
        until(lambda: all(map(process.has_ended, children)), what="the end")

    def part(self, word: str) -> int:
        """The pid of a part: `engine` or `worker`."""
        module = {"engine": "weft.engine.process.host", "worker": "weft.jobs.processes.worker"}[word]
        return int(until(lambda: next((pid for pid in _descendants(self.process.pid) if module in _command(pid)), 0)))

    def stop(self) -> int:
        """Ends it in good order; the exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait()

    def ask(
        self, method: str, path: str, body: bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """One plain HTTP request, with just these headers besides its length."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=patience(60))
        try:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.putrequest(method, path, skip_host="Host" in sent, skip_accept_encoding=True)
            for name, value in sent.items():
                connection.putheader(name, value)
            if body is not None:
                connection.putheader("Content-Length", str(len(body)))
            connection.endheaders()
            with suppress(BrokenPipeError, ConnectionResetError):  # it may refuse what it has not read
                connection.send(body or b"")
            found = connection.getresponse()
            return found.status, {name.lower(): value for name, value in found.getheaders()}, found.read()
        finally:
            connection.close()

    def submit_raw(self, order: dict[str, Any], **headers: str) -> tuple[int, dict[str, str], bytes]:
        """One submit, as curl would send it."""
        sent = {"Content_Type": "application/json"} | headers
        return self.ask("POST", "/scraping/async-scrape", json.dumps(order).encode(), **sent)

    def open_stream(self, task_id: str) -> socket.socket:
        """A stream of events that nobody reads."""
        stream = socket.create_connection(("127.0.0.1", self.port), timeout=patience(60))
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        request = f"GET /scraping/tasks/{task_id}/events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
        stream.sendall(request.encode())
        return stream

    def memory_bytes(self) -> int:
        """Of all its processes, shared pages counted once (PSS)."""
        pids = [self.process.pid, *_descendants(self.process.pid)]
        found = [re.search(r"^Pss:\s+(\d+)", _text(f"/proc/{pid}/smaps_rollup"), re.MULTILINE) for pid in pids]
        return sum(int(one[1]) * 1024 for one in found if one)


@contextmanager
def service_in(folder: Path, *flags: object) -> Iterator[Service]:
    """A service, until the end of the block."""
    service = Service(folder, *flags)
    try:
        yield service
    finally:
        service.stop()


def _descendants(pid: int) -> list[int]:
    # The kernel lists children by the thread that started them.
    tasks = Path(f"/proc/{pid}/task")
    threads = [path.name for path in tasks.iterdir()] if tasks.exists() else []
    found = [int(one) for thread in threads for one in _text(f"{tasks}/{thread}/children").split()]
    direct = list(dict.fromkeys(found))
    return [*direct, *(one for child in direct for one in _descendants(child))]


def _command(pid: int) -> str:
    return _text(f"/proc/{pid}/cmdline").replace("\0", " ")


def _text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
