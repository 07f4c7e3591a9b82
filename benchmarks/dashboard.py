"""What the dashboard costs: a page view with 10,000 tasks, and 50 open pages beside a crawl at full speed.

    python benchmarks/dashboard.py [NAME ...] [--seconds 3]

Names: views, viewers. `weft serve` runs as it does for everybody. `views`: CPU of the worker for a page view, and the
first paint in Chromium where there is one. `viewers`: CPU of all processes of the service for each page of a crawl, in
stretches with and without 50 viewers in turn, so that both are of the same crawl.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import results
from harness.measure import cores
from harness.web import make_half_new
from harness.web import served as web_served

from weft.client import Weft
from weft.jobs.model import JobProgress, Task, TaskSpec, new_task_id
from weft.jobs.store.contract import TaskFinish
from weft.jobs.store.sqlite import SqliteJobStore
from weft.scraping import FinishReason, TaskState

TASKS, VIEWERS, ROUNDS = 10_000, 50, 5
PORT = 8480
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def served(folder: str, *flags: object) -> Iterator[tuple[str, int]]:
    """A service in a folder: its address and its pid."""
    command = [sys.executable, "-m", "weft", "serve", "--json", "--port", "0", "--allow-private", "--data-dir", folder]
    with subprocess.Popen([*command, *map(str, flags)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        said = b""
        while b"}" not in said:
            said += process.stdout.readline() or sys.exit("weft serve has ended")  # type: ignore[operator]
        try:
            yield json.loads(said)["url"], process.pid
        finally:
            process.terminate()


async def views(_: float) -> dict[str, Any]:
    """Pages of a service with many tasks: CPU of the worker a view, and the browser's first paint."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        fill(Path(folder) / "jobs.db")
        with served(folder) as (url, pid):
            worker = part(pid, "weft.jobs.processes.worker")
            port = int(url.rpartition(":")[2])
            ids = [task.task_id for _, task in zip(range(200), Weft(url).tasks(), strict=False)]
            paths: dict[str, Callable[[int], str]] = {
                "list": lambda n: f"/?cursor={TASKS - 50 * n - n // 180}",
                "state": lambda n: f"/?state=failed&cursor={TASKS - 50 * n - 1}",
                "search": lambda n: f"/?q=not-there-{n}",
                "task": lambda n: f"/tasks/{ids[n]}",
                "service": lambda n: f"/service?n={n}",
            }
            found: dict[str, Any] = {}
            for name, path in paths.items():
                found[f"dashboard_{name}_cpu_ms"] = view_ms(port, worker, path, 30)
            get(port, "/")
            found["dashboard_page_bytes"] = len(get(port, "/", gzip=True))
            found |= first_paint(url)
            found["dashboard_cpu_ms"] = max(value for name, value in found.items() if name.endswith("_cpu_ms"))
            return found


def fill(path: Path) -> None:
    """Tasks that have ended, as a day of use leaves them."""
    store = SqliteJobStore(path)

    def one(number: int) -> None:
        url = f"https://host{number % 500}.example.com/section/{number}?page={number % 7}"
        task = Task(
            id=new_task_id(), owner="", url=url, url_count=1, spec=TaskSpec(formats=("markdown", "metadata")),
            created_at=time.time() - TASKS + number,
        )  # fmt: skip
        store.submit(task, [url])
        progress = JobProgress(completed=100 + number % 900, failed=number % 5, refused=number % 3, queued=number % 11)
        finish = TaskFinish(reason=FinishReason.CANCELLED, progress=progress, errors_by_class={"http_5xx": number % 5})
        state = TaskState.CANCELLED if number % 2 else TaskState.FAILED
        store.move(task.id, state, expect={TaskState.PENDING}, at=time.time(), finish=finish)

    with ThreadPoolExecutor(64) as pool:
        list(pool.map(one, range(TASKS)))
    store.close()


def view_ms(port: int, worker: int, path: Callable[[int], str], times: int) -> float:
    """CPU of the worker for a view, less what it does meanwhile by itself."""
    for number in range(5):
        get(port, path(number + times))
    began, before = time.perf_counter(), cpu_s([worker])
    for number in range(times):
        get(port, path(number))
    spent, took = cpu_s([worker]) - before, time.perf_counter() - began
    before = cpu_s([worker])
    time.sleep(took)
    return round((spent - (cpu_s([worker]) - before)) / times * 1000, 2)


def first_paint(url: str) -> dict[str, float]:
    """From the navigation to the first text, in Chromium; nothing where there is none."""
    program = shutil.which("chromium")
    if program is None:
        print("no chromium on PATH: the first paint is not measured", file=sys.stderr)
        return {}
    script = Path(__file__).with_name("harness") / "first_paint.py"
    done = subprocess.run([sys.executable, script, program, url], capture_output=True, text=True, check=True)
    return {"dashboard_first_paint_ms": float(done.stdout)}


async def viewers(seconds: float) -> dict[str, Any]:
    """A crawl as fast as it goes, with and without viewers in turn: CPU a page of both, and their ratio."""
    files = results.ROOT / ".bench" / f"half-new-{PORT}"
    web = make_half_new(files, 1000, PORT)["large"]
    with (
        tempfile.TemporaryDirectory(dir=".") as folder,
        web_served(files, "half-new", PORT, cores()[1]),
        served(folder, "--job-delay-seconds", 0) as (url, pid),
    ):
        client, port = Weft(url), int(url.rpartition(":")[2])
        task = client.submit(
            web.seed(PORT), max_depth=1000, scope="any", max_concurrent_articles=100, formats=["metadata"]
        ).task_id
        await asyncio.sleep(4)
        alone, watched = [], []
        for _round in range(ROUNDS):
            alone.append(await page_ms(client, task, pid, seconds))
            async with looking(port, task):
                watched.append(await page_ms(client, task, pid, seconds))
        assert client.status(task).status == "RUNNING", "the web was too small"
        client.cancel(task)
    pairs = [with_them[0] / without[0] for without, with_them in zip(alone, watched, strict=True)]
    return {
        "viewers": VIEWERS, "viewers_ratio": round(statistics.median(pairs), 3),
        "viewers_page_ms": [round(one[0], 3) for one in watched], "alone_page_ms": [round(one[0], 3) for one in alone],
        "viewers_pages_per_s": round(statistics.median(one[1] for one in watched)),
        "alone_pages_per_s": round(statistics.median(one[1] for one in alone)),
    }  # fmt: skip


async def page_ms(client: Weft, task: str, pid: int, seconds: float) -> tuple[float, float]:
    """CPU of the service's processes for a page, and pages a second, over a while."""
    await asyncio.sleep(0.5)
    pids = [pid, *children(pid)]
    first, before, began = client.status(task).progress.completed, cpu_s(pids), time.perf_counter()
    await asyncio.sleep(seconds)
    pages, spent = client.status(task).progress.completed - first, cpu_s(pids) - before
    return spent / max(1, pages) * 1000, pages / (time.perf_counter() - began)


class looking:
    """Viewers, half of them at the list and half at the task: each reads its stream and takes all that comes."""

    def __init__(self, port: int, task: str) -> None:
        self._port = port
        self._paths = ["/live", f"/tasks/{task}/live"] * (VIEWERS // 2)
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> None:
        self._tasks = [asyncio.create_task(self._look(path)) for path in self._paths]
        await asyncio.sleep(1)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _look(self, path: str) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n\r\n".encode())
        try:
            while await reader.read(65536):
                pass
        finally:
            writer.close()


def get(port: int, path: str, *, gzip: bool = False) -> bytes:
    """One page view, on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"} if gzip else {})
    found = connection.getresponse()
    body = found.read()
    connection.close()
    assert found.status == 200, (path, found.status, body[:300])
    return body


def cpu_s(pids: list[int]) -> float:
    """User and system time of processes, with that of their children that have ended."""
    total = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def children(pid: int) -> list[int]:
    """All processes that a process has started, and theirs."""
    lists = [path / "children" for path in Path(f"/proc/{pid}/task").iterdir()]
    direct = [int(one) for path in lists for one in path.read_text().split()]
    return [*direct, *(one for child in direct for one in children(child))]


def part(pid: int, module: str) -> int:
    """The process of a service that runs a module."""
    return next(one for one in children(pid) if module in Path(f"/proc/{one}/cmdline").read_text())


FIGURES: dict[str, Callable[[float], Awaitable[dict[str, Any]]]] = {"views": views, "viewers": viewers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *FIGURES])
    parser.add_argument("--seconds", type=float, default=3.0)
    args = parser.parse_args()
    os.chdir(results.ROOT)
    for name in args.names or FIGURES:
        found = asyncio.run(FIGURES[name](args.seconds))
        print(f"{name}: {json.dumps(found)}", flush=True)
        results.keep("dashboard", {**results.section("dashboard"), **found})


if __name__ == "__main__":
    main()
