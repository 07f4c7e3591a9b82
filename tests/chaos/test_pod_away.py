"""One pod's Redis is away for half a minute: the other pods keep their rate, and what they found for it arrives later.

The rate is that of sites which had work before, meanwhile and after: how much is left does not matter. The delay bounds
it, not the machine.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, Kill, judged_with_kills, until
from flights import Flight, read_flights
from pace import patience
from server_kills import kill_written

from weft import urls
from weft.testing.web import synthetic_web

pytestmark = [
    pytest.mark.skipif(not os.environ.get("WEFT_TEST_CHAOS"), reason="takes minutes: WEFT_TEST_CHAOS=1 runs it"),
    pytest.mark.timeout(600),
]
WORLD: dict[str, Any] = {"hosts": 80, "pages": 9000, "seed": 3, "profile": "calm"}
DELAY_S = 0.5
PODS, AWAY = 3, 1
WARM_UP_S, BEFORE_S, AWAY_S, AFTER_S = 25.0, 15.0, 30.0, 3.0
ALLOWED = 0.10


@pytest.mark.parametrize(("parsers", "how"), [(1, "killed"), (0, "stopped")])
def test_the_others_keep_their_rate(tmp_path: Path, start_server: Any, parsers: int, how: str) -> None:
    servers = [start_server() for _ in range(PODS)]
    pods = [word for server in servers for word in ("--pods", server.url)]
    with synthetic_web(**WORLD) as web:
        crawler = Crawler(
            web.seeds, tmp_path, *pods, "--fetchers-per-pod", 1, "--parsers-per-pod", parsers, delay_s=DELAY_S
        )
        with crawler.running() as running:
            crawler.pages_at_least(20, 60)
            time.sleep(WARM_UP_S + BEFORE_S)
            gone = time.monotonic()
            _take_away(servers[AWAY], how)
            time.sleep(AWAY_S)
            waiting = _in_outboxes(crawler)
            back = time.monotonic()
            _bring_back(servers[AWAY], how)
            until(lambda: not _in_outboxes(crawler, waiting), 30, "the arrival of what had waited")
            time.sleep(AFTER_S)
            running.terminate()
            assert running.wait(patience(60)) in (0, 3, 130), crawler.said
        flights = read_flights(crawler.data_dir / "frontier")
        rates = _rates(flights, gone, back)
        print(f"\n{how}: {rates}, {sum(map(len, waiting.values()))} batches waited")
        assert any(waiting.values())
        assert any(flight.start > back for flight in flights if flight.slot.startswith(f"pod{AWAY}-"))
        assert not any(gone + 1 < flight.start < back for flight in flights if flight.slot.startswith(f"pod{AWAY}-"))
        verdict, _ = judged_with_kills(web, crawler, [Kill(gone, back, (f"pod{AWAY}-",))], complete=False)
        assert verdict.ok, verdict
        for pod, (before, meanwhile) in rates.items():
            assert meanwhile / before >= 1 - ALLOWED, (pod, rates)


def _take_away(server: Any, how: str) -> None:
    kill_written(server) if how == "killed" else os.kill(server.pid, signal.SIGSTOP)


def _bring_back(server: Any, how: str) -> None:
    server.start() if how == "killed" else os.kill(server.pid, signal.SIGCONT)


def _in_outboxes(crawler: Crawler, among: dict[str, set[int]] | None = None) -> dict[str, set[int]]:
    """By slot, the numbers of batches that the other pods keep for the one that is away: all of them, or of these."""
    kept = {}
    for path in (crawler.data_dir / "frontier").glob("pod_*/outbox/*.db"):
        with closing(sqlite3.connect(path)) as box:
            numbers = {number for (number,) in box.execute("SELECT number FROM waiting WHERE pod = ?", (AWAY,))}
        if numbers := numbers if among is None else numbers & among.get(path.stem, set()):
            kept[path.stem] = numbers
    return kept


def _rates(flights: list[Flight], gone: float, back: float) -> dict[int, tuple[float, float]]:
    """Requests a second of each other pod, before and meanwhile, at the sites that had work all the time."""
    first, last = gone - BEFORE_S, back + AFTER_S / 2
    starts: dict[str, list[float]] = {}
    for flight in flights:
        starts.setdefault(urls.host_of(flight.url), []).append(flight.start)
    before: Counter[int] = Counter()
    meanwhile: Counter[int] = Counter()
    for host, times in starts.items():
        pod = urls.pod_of(urls.domain(host), PODS)
        if pod != AWAY and min(times) < first and max(times) > last:
            before[pod] += sum(first <= at < gone for at in times)
            meanwhile[pod] += sum(gone <= at < back for at in times)
    return {pod: (before[pod] / BEFORE_S, meanwhile[pod] / (back - gone)) for pod in sorted(before)}
