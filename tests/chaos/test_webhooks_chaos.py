"""Webhooks while their receiver is down for an hour and the server's processes are killed: workers, the engine, and the
supervisor with all of them. Each event arrives at least once, with one id and one body, and first in its order.

The hour passes by a clock that is put forward in every process. Two kills always; ten before and ten after the receiver
is back on demand.
"""

from __future__ import annotations

import json
import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from crawling import until
from pace import patience
from ports import free_port
from receiver import Received, receiver
from served_http import Service, service_in
from shifted_clock import ShiftedClock

from weft.testing.web import synthetic_web

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
KILLS = 10 if FULL else 1  # while the receiver is down, and again when it is back
TASKS, PAGES = (6, 40) if FULL else (3, 15)
PARTS = ("serve", "worker", "engine")
HOUR_S = 3600.0


def test_every_event_arrives_in_order_whatever_was_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ShiftedClock(tmp_path / "clock", monkeypatch)
    port = free_port()
    with (
        synthetic_web(hosts=TASKS, pages=TASKS * PAGES, profile="calm", seed=4) as web,
        service_in(tmp_path / "service", "--workers", "2", "--job-delay-seconds", "0.01") as service,
    ):
        tasks = [_submit(service, f"http://127.1.0.{number + 1}:{web.port}/", port) for number in range(TASKS)]
        for number in range(KILLS):
            time.sleep(0.3)
            _kill(service, PARTS[number % 3])
            clock.forward(HOUR_S / KILLS)
        ends = {task: _ended(service, task) for task in tasks}
        until(lambda: all(_hook(service, task)["failed_attempts"] for task in tasks), what="attempts that fail")
        with receiver(503, 503, 200, port=port) as to:
            _deliver(service, clock, tasks)
            for task in tasks:
                _check(service, task, ends[task], [one for one in to.taken if one.body["task_id"] == task])
            before = len(to.received)
            _call(service, "POST", f"/scraping/tasks/{tasks[0]}/webhook/replay", {"numbers": [0]})
            until(lambda: len(to.received) > before, what="a replay")
            assert to.received[before].raw == next(one.raw for one in to.received if one.id == f"{tasks[0]}-0")


def _deliver(service: Service, clock: ShiftedClock, tasks: list[str]) -> None:
    """Lets time pass, and kills, until everything was delivered.

    No more time passes than attempts wait for: on a slow machine a task would be old enough to be deleted.
    """
    kills, limit = 0, time.monotonic() + patience(60)
    while (waiting := [hook for task in tasks if (hook := _hook(service, task))["state"] != "done"]) or kills < KILLS:
        assert time.monotonic() < limit, waiting
        attempts = [datetime.fromisoformat(at).timestamp() for hook in waiting if (at := hook["next_attempt_at"])]
        clock.forward(max(0.0, max(attempts, default=0.0) - time.time() - clock.ahead_s))
        time.sleep(0.2)
        if kills < KILLS:
            _kill(service, PARTS[kills % 3])
            kills += 1


def _check(service: Service, task: str, end: Any, received: list[Received]) -> None:
    pages, cursor = list[int](), ""
    while True:
        found = _call(service, "GET", f"/scraping/tasks/{task}/results?limit=100{cursor}")
        pages += [one["number"] for one in found["results"]]
        if found["next_cursor"] is None:
            break
        cursor = f"&cursor={found['next_cursor']}"
    assert len(pages) == end["progress"]["completed"] > 3
    first = dict.fromkeys(one.body["number"] for one in received)  # in the order of their first arrivals
    assert list(first) == [0, *pages, end["last_event"]]
    for number in first:
        same = [one for one in received if one.body["number"] == number]
        assert {one.id for one in same} == {f"{task}-{number}"} and len({one.raw for one in same}) == 1
    log = _call(service, "GET", f"/scraping/tasks/{task}/webhook/deliveries?limit=1000")["deliveries"]
    assert [one["number"] for one in log] == list(first) and all(one["delivered_at"] for one in log)


def _submit(service: Service, url: str, port: int) -> str:
    order = {
        "url": url, "max_depth": 9, "scope": "host", "timeout_minutes": 120, "max_pages": PAGES,
        "webhook": f"http://127.0.0.1:{port}/hook",
    }  # fmt: skip
    return str(_call(service, "POST", "/scraping/async-scrape", order)["task_id"])


def _hook(service: Service, task: str) -> Any:
    return _call(service, "GET", f"/scraping/tasks/{task}/webhook")


def _ended(service: Service, task: str) -> Any:
    def look() -> Any:
        found = _call(service, "GET", f"/scraping/tasks/{task}/status")
        return found if found["status"] in ("COMPLETED", "PARTIAL") else None

    return until(look, what="the end of a task")


def _kill(service: Service, part: str) -> None:
    service.kill(part)
    if part == "serve":
        service.start()


def _call(service: Service, method: str, path: str, body: Any = None) -> Any:
    """An answer's JSON; asked again while a part is away."""

    def ask() -> Any:
        try:
            sent = None if body is None else json.dumps(body).encode()
            status, _, found = service.ask(method, path, sent, Content_Type="application/json")
        except OSError:
            return None
        return json.loads(found) if status in (200, 202) else None

    return until(ask, what=path)
