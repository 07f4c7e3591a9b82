"""`weft serve` as a user starts it: one command, several processes, each of which may die; bad input; a clean stop."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pace import patience

from weft.testing.web import SyntheticWeb, synthetic_web

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
                    raise
            except OSError:
                if time.monotonic() > limit:
                    raise
            time.sleep(0.05)

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

    def until(self, task: str, *states: str) -> Any:
        limit = time.monotonic() + patience(30)
        while True:
            status = self.call(f"/scraping/tasks/{task}/status")
            progress = status["progress"]
            parts = ("completed", "gone", "failed", "refused", "queued", "in_flight")
            assert progress["discovered"] == sum(progress[part] for part in parts)
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
        line = process.stderr.readline()
        found = re.search(r"listens at (http://\S+)", line)
        assert found is not None, line + process.stderr.read()
        yield Served(process, found[1])
    finally:
        if process.poll() is None:
            process.terminate()
        assert process.wait(patience(10)) in (0, -signal.SIGKILL)
        process.stderr.close()


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=3, pages=40, profile="calm", seed=5) as web:
        yield web


def test_a_killed_worker_engine_or_supervisor_costs_no_page(web: SyntheticWeb, tmp_path: Path) -> None:
    order = {"url": f"http://127.1.0.1:{web.port}/", "max_depth": 9, "scope": "host", "max_concurrent_articles": 3}
    with served(tmp_path, "--workers", "2", "--job-delay-seconds", "0.05") as service:
        task = service.call("/scraping/async-scrape", order)["task_id"]
        for module in ("weft.jobs.worker", "weft.engine.host"):
            for pid in service.children(module)[:1]:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.5)
            service.until(task, "PENDING", "RUNNING", "COMPLETED", "PARTIAL")
        assert len(service.children("weft.jobs.worker")) == 2 and len(service.children("weft.engine.host")) == 1
        os.kill(service.process.pid, signal.SIGKILL)
        service.process.wait()
    with served(tmp_path, "--job-delay-seconds", "0") as service:  # as soon as the other's processes have gone
        done = service.until(task, "COMPLETED", "PARTIAL")
        found = service.call(f"/scraping/tasks/{task}/results?limit=500")["results"]
        assert len(found) == len({one["url"] for one in found}) == done["progress"]["completed"] > 10
        assert service.call("/healthz")["status"] == "ok"
        began = time.monotonic()
        service.process.terminate()
        assert service.process.wait(patience(10)) == 0
        assert time.monotonic() - began < patience(5)


def test_what_is_in_the_way_of_a_start_is_told(tmp_path: Path) -> None:
    with served(tmp_path / "one") as service:
        port = service.url.rpartition(":")[2]
        for flags, said in (
            (["--port", port, "--data-dir", str(tmp_path / "two")], f"port {port}"),
            (["--port", "0", "--data-dir", str(tmp_path / "one")], "another `weft serve` is running there"),
            (["--host", "0.0.0.0", "--data-dir", str(tmp_path / "three")], "API keys"),
            (["--workers", "0"], "--workers"),
            (["--max-pages", "3"], "no such option '--max-pages'"),
        ):
            done = subprocess.run([*WEFT, "serve", *flags], capture_output=True, text=True, timeout=patience(20))
            assert done.returncode == 2, done.stderr
            assert said in done.stderr and "Traceback" not in done.stderr
