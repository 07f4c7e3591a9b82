"""The scrape service while its processes are killed: workers, the runner's holder among them, and the engine.

Every answer that a poller sees keeps the sum; streams resume by number without gap or repeat; no page is in the results
twice; every task is terminal 5 s after its deadline at the latest. A few tasks and kills always; 20 and 30 on demand.
Every other task is on a site without an end, and has a deadline amid the kills.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pace import patience
from served_jobs import TERMINAL, Served, served

from weft.jobs.model import Task, TaskSpec, new_task_id
from weft.jobs.store.sqlite import SqliteJobStore
from weft.testing.web import synthetic_web

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
TASKS, KILLS = (20, 30) if FULL else (4, 3)
PAUSE_S = (0.3, 2.2) if FULL else (0.4, 1.0)
DEADLINES_S = (4.0, 36.0) if FULL else (patience(0.4), patience(0.7))
LATE_S = 5.0 if FULL else patience(5.0)  # the promise is for a machine that does nothing else
PARTS = ("weft.jobs.processes.worker", "weft.engine.process.host")


class Endless(BaseHTTPRequestHandler):
    """A site in which every page leads to two more."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        number = self.path.strip("/")
        time.sleep(0.1)
        links = "".join(f'<a href="/{2 * int(number) + more}">x</a>' for more in (1, 2)) if number.isdigit() else ""
        self.send_response(200 if links else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(links)))
        self.end_headers()
        self.wfile.write(links.encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def endless_site() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # an engine that is killed hangs up
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


class Killer(threading.Thread):
    """Kills a worker or the engine at random moments, so often."""

    def __init__(self, service: Served) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._chance = random.Random(7)
        self.killed: list[str] = []

    def run(self) -> None:
        while len(self.killed) < KILLS:
            time.sleep(self._chance.uniform(*PAUSE_S))
            part = PARTS[len(self.killed) % 2]
            if pids := self._service.children(part):
                os.kill(self._chance.choice(pids), signal.SIGKILL)
                self.killed.append(part)


class Watch:
    """Follows one task to its end, by polling and by its stream."""

    def __init__(self, service: Served, task: str) -> None:
        self.task = task
        self.end: Any = None
        self.ended_at = 0.0  # as the poller saw it
        self.wrong: Exception | None = None
        self.stream: list[tuple[int, dict[str, Any]]] = []
        self.over = threading.Event()
        self._service = service
        following = threading.Thread(target=service.stream, args=(task, self.stream, self.over.is_set), daemon=True)
        self._threads = [threading.Thread(target=self._poll, daemon=True), following]
        for thread in self._threads:
            thread.start()

    def join(self, timeout_s: float) -> None:
        limit = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))
        self.over.set()
        if self.wrong is not None:
            raise self.wrong
        assert not any(thread.is_alive() for thread in self._threads), "it has not ended, or its stream has not"

    def _poll(self) -> None:
        try:
            while not self.over.is_set():
                status = self._service.status(self.task)
                if status["status"] in TERMINAL:
                    self.end, self.ended_at = status, time.time()
                    return
                time.sleep(0.05)
        except Exception as error:
            self.wrong = error


def test_tasks_end_right_whatever_is_killed(tmp_path: Path) -> None:
    flags = ("--workers", "2", "--job-delay-seconds", "0.05", "--max-concurrent-tasks", str(TASKS))
    with (
        synthetic_web(hosts=8, pages=160, profile="calm", seed=11) as web,
        endless_site() as endless,
        served(tmp_path, *flags) as service,
    ):
        watches = []
        for number in range(TASKS):
            if number % 2:
                watches.append(Watch(service, _submit_with_deadline(tmp_path, endless, number)))
                continue
            url = f"http://127.1.0.{number % 8 + 1}:{web.port}/"
            order = {"url": url, "max_depth": 9, "scope": "host", "max_pages": 40, "retry_attempts": 1}
            watches.append(Watch(service, service.call("/scraping/async-scrape", order)["task_id"]))
        killer = Killer(service)
        killer.start()
        killer.join(patience(KILLS * PAUSE_S[1] + 30))
        for watch in watches:
            watch.join(patience(30))
        assert len(killer.killed) == KILLS
        if FULL:
            _tell(watches)
        for number, watch in enumerate(watches):
            has_deadline = number % 2
            assert watch.end["status"] in (("PARTIAL",) if has_deadline else ("COMPLETED", "PARTIAL")), watch.end
            assert (watch.end["finish_reason"] == "deadline") == has_deadline, watch.end
            late_s = watch.ended_at - datetime.fromisoformat(watch.end["deadline_at"]).timestamp()
            assert late_s <= LATE_S, watch.end
            _check(service, watch)


def _submit_with_deadline(data_dir: Path, url: str, number: int) -> str:
    """Put into the store as the API does: over HTTP five minutes are the least."""
    first, last = DEADLINES_S
    spec = TaskSpec(max_depth=1000, scope="host", retry_attempts=1, timeout_s=first + (last - first) * number / TASKS)
    task = Task(id=new_task_id(), owner="", url=url + "0", url_count=1, spec=spec, created_at=time.time())
    store = SqliteJobStore(data_dir / "jobs.db")
    try:
        store.submit(task, [task.url])
    finally:
        store.close()
    return task.id


def _check(service: Served, watch: Watch) -> None:
    found, cursor = list[Any](), ""
    while True:
        some = service.call(f"/scraping/tasks/{watch.task}/results?limit=25{cursor}")
        found += some["results"]
        if some["next_cursor"] is None:
            break
        cursor = f"&cursor={some['next_cursor']}"
    urls = [one["url"] for one in found]
    assert len(urls) == len(set(urls)) == watch.end["progress"]["completed"]
    numbers = [number for number, _ in watch.stream]
    assert numbers == sorted(set(numbers)), "an event came twice, or out of order"
    assert [event["url"] for _, event in watch.stream if event["kind"] == "page"] == urls, "a stream has a gap"


def _tell(watches: list[Watch]) -> None:
    late = [watch.ended_at - datetime.fromisoformat(watch.end["deadline_at"]).timestamp() for watch in watches[1::2]]
    print("ended so many seconds after their deadlines:", *(f"{one:.2f}" for one in sorted(late)))
