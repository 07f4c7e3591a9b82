"""What the scrape service answers under load, each figure alone: submits, statuses, streams, a long queue, cancels.

    python benchmarks/service.py [NAME ...] [--seconds 10]

Names: idle, submit, status, streams, queue, cancel. `weft serve` runs as it does for everybody, with its store on the
disk; the load generator (harness/http_load.py) is a part of this process, on the same cores, and on the same event loop
as the service: what thousands of readers cost must not be measured as the service's.
"""

from __future__ import annotations

import argparse
import asyncio
import http.server
import json
import multiprocessing
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from harness import http_load, results
from harness.http_load import at_rate, percentiles, request

from weft.client import Weft

SUBMITS_PER_S, STATUSES_PER_S, STREAMS, WAITING, RUNNING = 200, 1000, 2000, 10_000, 200


class Site(http.server.BaseHTTPRequestHandler):
    """Articles that take a while, each with links to all of its section."""

    protocol_version = "HTTP/1.1"
    article_s = 0.1

    def do_GET(self) -> None:
        found = re.fullmatch(r"/(\d+)/(\d+)", self.path)
        time.sleep(self.article_s if found else 0)
        links = "".join(f'<a href="/{found[1]}/{number}">x</a>' for number in range(150)) if found else ""
        body = f"<title>{self.path}</title>{links}".encode()
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class SiteServer(http.server.ThreadingHTTPServer):
    """Says nothing about clients that go: cancelled tasks do."""

    def handle_error(self, *_: object) -> None:
        pass


def _site(said: Connection, article_s: float) -> None:
    Site.article_s = article_s
    server = SiteServer(("127.0.0.1", 0), Site)
    said.send(server.server_port)
    server.serve_forever()


@contextmanager
def slow_site(article_s: float = 0.1) -> Iterator[str]:
    """A site in a process of its own: it must not share the load generator's."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_site, args=(there, article_s), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.kill()


@contextmanager
def served(*flags: object) -> Iterator[tuple[Weft, int, int]]:
    """A service, a client of it, its port and its pid."""
    with tempfile.TemporaryDirectory(dir=".") as folder:
        command = [
            sys.executable,
            "-m",
            "weft",
            "serve",
            "--json",
            "--port",
            "0",
            "--allow-private",
            "--data-dir",
            folder,
        ]
        command += [*([] if "--job-delay-seconds" in flags else ["--job-delay-seconds", "0"]), *map(str, flags)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            said = b""
            while b"}" not in said:
                said += process.stdout.readline() or sys.exit("weft serve has ended")  # type: ignore[operator]
            url = json.loads(said)["url"]
            try:
                yield Weft(url), int(url.rpartition(":")[2]), process.pid
            finally:
                process.terminate()


def order(site: str, number: int, **more: Any) -> bytes:
    """The body of a submit."""
    return json.dumps({"url": f"{site}/{number}/0", "max_depth": 1, **more}).encode()


async def idle(_: float) -> dict[str, Any]:
    """Memory of all processes, a while after the start."""
    with served() as (_client, _port, pid):
        await asyncio.sleep(5)
        return {"idle_mb": round(sum(map(pss_mb, [pid, *children(pid)])), 1)}


async def submit(seconds: float) -> dict[str, Any]:
    """Submits at a rate, each durable before its answer."""
    with slow_site() as site, served("--max-concurrent-tasks", 1) as (client, port, _):
        made, statuses, bodies = await at_rate(
            port, SUBMITS_PER_S, seconds, lambda n: request(port, "POST", "/scraping/async-scrape", order(site, n))
        )
        known = {task.task_id for task in client.tasks()}
        lost = sum(json.loads(body)["task_id"] not in known for body in bodies)
        return {"submit_ms": percentiles(made), "submit_statuses": statuses, "submits_lost": lost}


async def status(seconds: float) -> dict[str, Any]:
    """Statuses of running tasks at a rate."""
    with slow_site() as site, served() as (client, port, _):
        ids = [client.submit(f"{site}/{n}/0", max_depth=1, max_concurrent_articles=1).task_id for n in range(5)]
        await asyncio.sleep(1)
        found, statuses, _bodies = await at_rate(
            port, STATUSES_PER_S, seconds, lambda n: request(port, "GET", f"/scraping/tasks/{ids[n % 5]}/status")
        )
        return {"status_ms": percentiles(found), "status_statuses": statuses}


async def streams(_: float) -> dict[str, Any]:
    """Many clients of one running task's events: how late each numbered event is, counted from its fetch."""
    with slow_site(0.0) as site, served("--job-delay-seconds", 0.1) as (client, port, _):
        task_id = client.submit(f"{site}/1/0", max_depth=1, max_concurrent_articles=1).task_id
        loop, readers = asyncio.get_running_loop(), []
        for _number in range(STREAMS):
            _transport, reader = await loop.create_connection(
                lambda: http_load.Stream(port, task_id), "127.0.0.1", port
            )
            readers.append(reader)
        await asyncio.gather(*(reader.ended for reader in readers))
        stored = [
            event.number for event in await asyncio.to_thread(lambda: list(client.events(task_id))) if event.number
        ]
        first = len(readers[-1].numbers) // 3  # what came while the last ones connected was there before they were
        lags = [lag for reader in readers for lag in reader.lags_ms[-first:]]
        wrong = sum(reader.numbers != stored for reader in readers)
        return {
            "stream_lag_ms": percentiles(lags),
            "streams": STREAMS,
            "stream_events": len(stored),
            "streams_wrong": wrong,
        }


async def queue(_: float) -> dict[str, Any]:
    """Many running and waiting tasks: what a status takes then, and that one more is refused."""
    flags = ("--max-concurrent-tasks", RUNNING, "--max-pending-tasks", WAITING)
    with slow_site() as site, served(*flags) as (client, port, _):
        total = RUNNING + WAITING
        _, statuses, _bodies = await at_rate(
            port, 280, total / 280,
            lambda n: request(port, "POST", "/scraping/async-scrape", order(site, n, max_concurrent_articles=1)),
        )  # fmt: skip
        refused = http_load.Connection(port)
        while (answer := await refused.ask(request(port, "POST", "/scraping/async-scrape", order(site, 1))))[0] == 202:
            pass
        ids = [task.task_id for _, task in zip(range(500), client.tasks(), strict=False)]
        found, _, _bodies = await at_rate(
            port, 200, 5, lambda n: request(port, "GET", f"/scraping/tasks/{ids[n % 500]}/status")
        )
        health = client.health()
        return {
            "queue_submit_statuses": statuses, "queue_refused_with": answer[0], "queue_status_ms": percentiles(found),
            "queue_running": health["slots"] - health["available_slots"], "queue_waiting": health["queued"],
        }  # fmt: skip


async def cancel(_: float) -> dict[str, Any]:
    """From a cancel to the task's terminal state, and nothing in flight."""
    with slow_site() as site, served() as (client, _port, _pid):
        found = []
        for number in range(20):
            task_id = client.submit(f"{site}/{number}/0", max_depth=1).task_id
            while client.status(task_id).progress.completed < 3:
                await asyncio.sleep(0.02)
            began = time.perf_counter()
            client.cancel(task_id)
            while not (now := client.status(task_id)).has_ended or now.progress.in_flight:
                await asyncio.sleep(0.01)
            found.append((time.perf_counter() - began) * 1000)
        return {"cancel_ms": percentiles(found)}


def children(pid: int) -> list[int]:
    """All processes that a process has started, and theirs."""
    lists = [path / "children" for path in Path(f"/proc/{pid}/task").iterdir()]
    direct = [int(one) for path in lists for one in path.read_text().split()]
    return [*direct, *(one for child in direct for one in children(child))]


def pss_mb(pid: int) -> float:
    """Memory of a process, with its share of what it shares."""
    return int(re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)[1]) / 1024  # type: ignore[index]


FIGURES: dict[str, Callable[[float], Awaitable[dict[str, Any]]]] = {
    "idle": idle, "submit": submit, "status": status, "streams": streams, "queue": queue, "cancel": cancel,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("names", nargs="*", metavar="NAME", choices=[[], *FIGURES])
    parser.add_argument("--seconds", type=float, default=10.0)
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.chdir(results.ROOT)
    record = results.section("service")
    for name in args.names or FIGURES:
        found = uvloop.run(FIGURES[name](args.seconds))
        print(f"{name}: {json.dumps(found)}", flush=True)
        record = {**results.section("service"), **found}
        results.keep("service", record)


if __name__ == "__main__":
    main()
