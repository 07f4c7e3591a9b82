"""The scrape service while its processes are killed: workers, the runner's holder among them, and the engine.

Every answer that a poller sees keeps the sum; streams resume by number without gap or repeat; no page is in the results
twice; every task is terminal 5 s after its deadline at the latest. A few tasks and kills always; 20 and 30 on demand.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

from pace import patience
from served_jobs import TERMINAL, Served, served

from weft.testing.web import synthetic_web

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
TASKS, KILLS = (20, 30) if FULL else (4, 3)
PAUSE_S = (0.5, 3.0) if FULL else (0.3, 0.8)
PARTS = ("weft.jobs.worker", "weft.engine.host")


class Killer(threading.Thread):
    """Kills a worker or the engine at random moments, so often."""

    def __init__(self, service: Served) -> None:
        super().__init__(daemon=True)
        self._service = service
        self._chance = random.Random(7)
        self.killed: list[str] = []

    def run(self) -> None:
        for number in range(KILLS):
            time.sleep(self._chance.uniform(*PAUSE_S))
            part = PARTS[number % 2]
            if pids := self._service.children(part):
                os.kill(self._chance.choice(pids), signal.SIGKILL)
                self.killed.append(part)


def test_tasks_end_right_whatever_is_killed(tmp_path: Path) -> None:
    flags = ("--workers", "2", "--job-delay-seconds", "0.05", "--max-concurrent-tasks", str(TASKS))
    with synthetic_web(hosts=8, pages=160, profile="calm", seed=11) as web, served(tmp_path, *flags) as service:
        tasks = []
        for number in range(TASKS):
            url = f"http://127.1.0.{number % 8 + 1}:{web.port}/"
            order = {"url": url, "max_depth": 9, "scope": "host", "max_pages": 40, "retry_attempts": 1}
            tasks.append(service.call("/scraping/async-scrape", order)["task_id"])
        over = threading.Event()
        streams: dict[str, list[tuple[int, dict[str, Any]]]] = {task: [] for task in tasks}
        readers = [
            threading.Thread(target=service.stream, args=(task, streams[task], over.is_set), daemon=True)
            for task in tasks
        ]
        killer = Killer(service)
        for thread in (killer, *readers):
            thread.start()
        try:
            ends = {task: service.until(task, *TERMINAL) for task in tasks}  # checks the sum in every answer
            killer.join(patience(60))
            for reader in readers:
                reader.join(patience(10))
                assert not reader.is_alive(), "a stream has not ended"
        finally:
            over.set()
        assert len(killer.killed) == KILLS
        for task, end in ends.items():
            _check(service, task, end, streams[task])


def _check(service: Served, task: str, end: Any, stream: list[tuple[int, dict[str, Any]]]) -> None:
    assert end["status"] in ("COMPLETED", "PARTIAL"), end
    found, cursor = list[Any](), ""
    while True:
        some = service.call(f"/scraping/tasks/{task}/results?limit=25{cursor}")
        found += some["results"]
        if some["next_cursor"] is None:
            break
        cursor = f"&cursor={some['next_cursor']}"
    urls = [one["url"] for one in found]
    assert len(urls) == len(set(urls)) == end["progress"]["completed"]
    numbers = [number for number, _ in stream]
    assert numbers == sorted(set(numbers)), "an event came twice, or out of order"
    assert [event["url"] for _, event in stream if event["kind"] == "page"] == urls, "a stream has a gap"
