"""`weft serve` as a user starts it: one command, several processes, each of which may die; bad input; a clean stop."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawling import until
from pace import patience
from served_jobs import WEFT, Served, served

from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=3, pages=40, profile="calm", seed=5) as web:
        yield web


def kill_one(service: Served, module: str, count: int) -> None:
    """Returns when it has its successor."""
    killed: int = until(lambda: service.children(module), what=module)[0]
    os.kill(killed, signal.SIGKILL)

    def is_replaced() -> bool:
        found = service.children(module)
        return len(found) == count and killed not in found

    until(is_replaced, what=f"{count} of {module}")


def test_a_killed_worker_engine_or_supervisor_costs_no_page(web: SyntheticWeb, tmp_path: Path) -> None:
    order = {"url": f"http://127.1.0.1:{web.port}/", "max_depth": 9, "scope": "host", "max_concurrent_articles": 3}
    with served(tmp_path, "--workers", "2", "--job-delay-seconds", "0.05") as service:
        task = service.call("/scraping/async-scrape", order)["task_id"]
        for module, count in (("weft.jobs.processes.worker", 2), ("weft.engine.process.host", 1)):
            kill_one(service, module, count)
            service.until(task, "PENDING", "RUNNING", "COMPLETED", "PARTIAL")
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
            (
                ["--port", "0", "--data-dir", str(tmp_path / "one")],
                "another `weft up` or `weft serve` is running there",
            ),
            (["--host", "0.0.0.0", "--data-dir", str(tmp_path / "three")], "API keys"),
            (["--workers", "0"], "--workers"),
            (["--max-pages", "3"], "no such option '--max-pages'"),
        ):
            done = subprocess.run([*WEFT, "serve", *flags], capture_output=True, text=True, timeout=patience(20))
            assert done.returncode == 2, done.stderr
            assert said in done.stderr and "Traceback" not in done.stderr


def test_at_all_addresses_it_names_one_that_opens(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("a-key-for-this-test-0123456789\n")
    keys.chmod(0o600)
    with served(tmp_path / "data", "--host", "0.0.0.0", "--api-keys-file", str(keys)) as service:
        assert service.url.startswith("http://127.0.0.1:")
        with urllib.request.urlopen(f"{service.url}/healthz") as answer:
            assert answer.status == 200
