"""`weft serve` in processes of its own, for tests: started, called over HTTP, its parts found and killed."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pace import patience

TERMINAL = ("COMPLETED", "PARTIAL", "FAILED", "CANCELLED")
WEFT = [sys.executable, "-m", "weft"]


class Served:
    """A service in processes of its own."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url

    def call(self, path: str, body: object = None, method: str | None = None) -> Any:
        """An answer's JSON; a worker that dies under a request is asked again, as a client does."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        limit = time.monotonic() + patience(10)
        while True:
            try:
                with urllib.request.urlopen(request, timeout=patience(5)) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code != 503 or time.monotonic() > limit:
                    error.add_note(error.read().decode(errors="replace"))
                    raise
            except OSError:
                if time.monotonic() > limit:
                    raise
            time.sleep(0.05)

    def stream(self, task: str, seen: list[tuple[int, dict[str, Any]]], over: Callable[[], bool]) -> None:
        """Follows a task to its end, and goes on behind the last number where the connection was lost."""
        while not over():
            request = urllib.request.Request(f"{self.url}/scraping/tasks/{task}/events")
            if seen:
                request.add_header("Last-Event-ID", str(seen[-1][0]))
            try:
                with urllib.request.urlopen(request, timeout=patience(10)) as answer:
                    if self._read(answer, seen):
                        return
            except (OSError, http.client.HTTPException):
                pass  # a worker was killed, or none is there
            time.sleep(0.05)

    @staticmethod
    def _read(lines: Iterable[bytes], seen: list[tuple[int, dict[str, Any]]]) -> bool:
        number, data, kind = "", "", ""
        for raw in lines:
            name, _, value = raw.decode().rstrip("\r\n").partition(": ")
            if name == "id":
                number = value
            elif name == "event":
                kind = value
            elif name == "data":
                data = value
            elif not name and data:
                if number:
                    seen.append((int(number), {"kind": kind, **json.loads(data)}))
                if kind == "state" and json.loads(data)["status" if "status" in data else "state"] in TERMINAL:
                    return True
                number = data = kind = ""
        return False

    def children(self, module: str) -> list[int]:
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                    command = (entry / "cmdline").read_bytes().decode()
                except OSError:
                    continue
                if parent == self.process.pid and module in command:
                    found.append(int(entry.name))
        return found

    def status(self, task: str) -> Any:
        """How a task stands; the sum holds in every answer."""
        status = self.call(f"/scraping/tasks/{task}/status")
        progress = status["progress"]
        parts = ("completed", "gone", "failed", "refused", "queued", "in_flight")
        assert progress["discovered"] == sum(progress[part] for part in parts), status
        return status

    def until(self, task: str, *states: str) -> Any:
        limit = time.monotonic() + patience(30)
        while True:
            status = self.status(task)
            if status["status"] in states:
                return status
            assert time.monotonic() < limit, status
            time.sleep(0.05)


@contextmanager
def served(data_dir: Path, *flags: str) -> Iterator[Served]:
    arguments = ["serve", "--port", "0", "--data-dir", str(data_dir), "--allow-private", *flags]
    process = subprocess.Popen([*WEFT, *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = []
        for line in process.stderr:
            said.append(line)
            # A worker that was slow to start may have been replaced, and told of, before.
            if found := re.search(r"listens on (http://\S+)", line):
                break
        else:
            raise AssertionError("".join(said))
        yield Served(process, found[1])
    finally:
        if process.poll() is None:
            process.terminate()
        assert process.wait(patience(10)) in (0, -signal.SIGKILL)
        process.stderr.close()
