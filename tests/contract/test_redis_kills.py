"""Real processes on a real server, killed at any moment: one row for each page, no site asked too early."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis_worker
from pace import patience
from redis_worker import DELAY_S, PAGES, url_of
from server_kills import kill_written

from weft.config import PolitenessSection
from weft.errors import ServerAway
from weft.frontier.contract import CrawlLimits, FrontierStats
from weft.frontier.redis.connection import connect
from weft.frontier.redis.redis_frontier import RedisFrontier
from weft.records import Found
from weft.supervise.redis_server import RedisServer

SLOTS = ("pod0-fetcher0", "pod0-fetcher1", "pod0-parser0", "pod0-parser1")
LIMIT_S = 90.0
KILLS = 12 if os.environ.get("WEFT_TEST_CHAOS") else 4


class Processes:
    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder = url, folder
        self.incarnations = dict.fromkeys(SLOTS, 0)
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, slot: str) -> None:
        self.incarnations[slot] += 1
        command = [redis_worker.__file__, self.url, str(self.folder), slot, str(self.incarnations[slot])]
        self.running[slot] = subprocess.Popen([sys.executable, *command])

    def kill(self, slot: str) -> None:
        self.running[slot].kill()
        self.running[slot].wait()

    def stop(self) -> None:
        (self.folder / "stop").touch()
        for process in self.running.values():
            try:
                process.wait(patience(20))
            finally:
                process.kill()


def test_kills_of_processes_and_server_lose_and_double_nothing(
    tmp_path: Path, shared_server: Callable[[str], RedisServer]
) -> None:
    server = shared_server("redis killed")
    client: Any = connect(server.url)
    client.flushall()
    section = PolitenessSection(delay_s=DELAY_S, places=1, lease_s=5.0)
    watcher = RedisFrontier(connect(server.url), tmp_path / "pod", section, slot="pod0-orchestrator")
    crawl = watcher.crawls.open_crawl("test", CrawlLimits())
    watcher.queue.admit(crawl, [Found(url_of(0), 0)])
    processes = Processes(server.url, tmp_path)
    for slot in SLOTS:
        processes.start(slot)
    rng = random.Random(5)
    try:
        stats = _run(processes, server, watcher, rng)
    finally:
        processes.stop()
    rows = [line.split() for path in tmp_path.glob("*.rows") for line in path.read_text().splitlines()]
    assert sorted(int(url.rpartition("/")[2]) for _, _, url in rows) == list(range(PAGES)), "one row for each page"
    assert (stats.admitted, stats.finished, stats.pages) == (PAGES, PAGES, PAGES)
    assert _shortest_wait(tmp_path / "arrivals") >= DELAY_S - 2e-6


def _run(processes: Processes, server: RedisServer, watcher: RedisFrontier, rng: random.Random) -> FrontierStats:
    """Kills somebody every now and then, as long as there is something to lose."""
    until, kills, last = time.monotonic() + patience(LIMIT_S), 0, 0
    while True:
        time.sleep(0.05)
        try:
            stats = watcher.status.stats()
        except ServerAway:
            continue
        if stats.finished == stats.admitted == PAGES:
            return stats
        assert time.monotonic() < until, stats
        if stats.finished - last >= PAGES // 14 and kills < KILLS:
            kills, last = kills + 1, stats.finished
            if kills % 4 == 0:
                kill_written(server)
                server.start()
            else:
                slot = rng.choice(SLOTS)
                processes.kill(slot)
                watcher.processes.release_owner(f"{slot}#{processes.incarnations[slot]}")
                processes.start(slot)


def _shortest_wait(arrivals: Path) -> float:
    """Between the end of a request and the start of the next one at the same site."""
    times: dict[str, list[tuple[float, float]]] = {}
    for line in arrivals.read_text().splitlines():
        key, began, ended, _ = line.split()
        times.setdefault(key, []).append((float(began), float(ended)))
    return min(
        after[0] - before[1]
        for requests in times.values()
        for before, after in zip(sorted(requests), sorted(requests)[1:], strict=False)
    )
