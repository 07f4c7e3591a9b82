"""Redis, worker and scheduler of `weft up --cluster` are killed with -9, and the broker's connections are cut silently,
while proxies are tested over them: everything comes back, no chunk is lost, and none counts twice. A scheduler that is
killed again and again has each tick run once.

A few kills always, 20 on demand; only then the time is looked at.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from celery_parts import CeleryPart, SilentProxy
from crawling import until
from hands import wait_until
from pace import patience
from ports import free_port
from proxying import EchoSite
from supervised import System

from weft.cluster.dispatch import Cluster
from weft.cluster.key import ClusterKey
from weft.cluster.supervised.ticks import Ticks
from weft.supervise import process
from weft.supervise.redis_server import RedisServer

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
KILLS, RESTARTS = (20, 10) if FULL else (3, 3)
BACK_S, NAMED_S, HEALED_S = 10.0, 30.0, 60.0
VICTIMS = ("celery_worker", "redis", "celery_beat")
ENTRIES, CHUNK = 400, 10


@pytest.fixture(scope="module")
def site() -> Iterator[EchoSite]:
    with EchoSite() as running:
        yield running


class Refreshes:
    """Refreshes of a list, one after the other, over the workers of a system."""

    def __init__(self, system: System, site: EchoSite, folder: Path, *broker: str) -> None:
        self._system = system
        port = free_port()
        listed = folder / "list.txt"
        listed.write_text("\n".join(f"127.1.{n // 250}.{n % 250 + 1}:{port}" for n in range(ENTRIES)))
        self._command = [
            sys.executable, "-m", "weft", "proxies", "refresh", "--json", "--engine", "auto", "--data-dir",
            str(system.folder), "--proxies", str(listed), "--proxy-test-url", site.url, "--allow-private",
            "--min-proxies", "0", *broker, "--chunk-seconds", "3", "--progress-poll-seconds", "1",
            "--proxy-chunk", str(CHUNK),
        ]  # fmt: skip
        self.count = 0

    def begin(self) -> subprocess.Popen[str]:
        return subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def check(self, running: subprocess.Popen[str]) -> None:
        """Each of its entries was tested, and each of its chunks counted once."""
        out, err = running.communicate(timeout=patience(120))
        assert running.returncode == 0, err
        done: dict[str, Any] = json.loads(out)
        progress = {key.rpartition(":")[2]: value for key, value in done["progress"].items()}
        assert done["tested"] == ENTRIES and sum(done["failures"].values()) == ENTRIES
        assert progress["completed_chunks"] == progress["total_chunks"] == ENTRIES // CHUNK, progress
        assert progress["status"] == "COMPLETE"
        self.count += 1


def healthy(system: System) -> dict[str, dict[str, Any]]:
    limit = time.monotonic() + patience(60)
    while True:
        rows = system.status()
        if all(row["healthy"] for row in rows.values()):
            return rows
        assert time.monotonic() < limit, rows
        time.sleep(0.05)


def test_what_is_killed_comes_back_and_no_chunk_is_lost(tmp_path: Path, site: EchoSite) -> None:
    system, chance = System(tmp_path / "service", "--cluster", "--celery-concurrency", "2"), random.Random(85)
    slowest_s = 0.0
    system.up()
    refreshes = Refreshes(system, site, tmp_path)
    try:
        for number in range(KILLS):
            name = VICTIMS[number % len(VICTIMS)]
            before = healthy(system)[name]["pid"]
            running = refreshes.begin()
            time.sleep(chance.uniform(0.5, 1.5))
            os.kill(before, signal.SIGKILL)
            began = time.monotonic()
            until(lambda pid=before: process.has_ended(pid), what=f"the end of {name}")  # type: ignore[misc]
            while healthy(system)[name]["pid"] == before:
                time.sleep(0.05)
            slowest_s = max(slowest_s, time.monotonic() - began)
            refreshes.check(running)
    finally:
        system.down()
    assert system.processes() == [] and refreshes.count == KILLS
    if FULL:
        print(f"{KILLS} kills, the slowest was back after {slowest_s:.1f} s")
        assert slowest_s < BACK_S


def test_connections_that_fall_silent_are_named_and_replaced(tmp_path: Path, site: EchoSite) -> None:
    """Neither side hears of the cut: what was popped from a queue for a dead connection is sent again."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    proxy = SilentProxy(str(server.socket))
    system = System(tmp_path / "service", "--cluster", "--broker", proxy.url, "--celery-concurrency", "2")
    system.up()
    try:
        assert system.status()["redis"]["state"] == "external"
        refreshes = Refreshes(system, site, tmp_path, "--broker", server.url)
        running = refreshes.begin()
        time.sleep(0.7)
        began = time.monotonic()
        assert proxy.cut() > 0
        limit = began + patience(NAMED_S)
        while all(row["healthy"] for row in system.status().values()):
            assert time.monotonic() < limit, "no service has noticed"
            time.sleep(0.05)
        named_s = time.monotonic() - began
        rows = healthy(system)
        healed_s = time.monotonic() - began
        refreshes.check(running)
        assert rows["redis"]["restarts"] == 0 and server.running
    finally:
        system.down()
        proxy.close()
        assert server.running, "a server that Weft has not started was stopped"
        server.stop()
    if FULL:
        print(f"named after {named_s:.1f} s, healed after {healed_s:.1f} s")
        assert named_s < NAMED_S and healed_s < HEALED_S


def test_no_tick_runs_twice_however_often_the_scheduler_is_killed(tmp_path: Path) -> None:
    key, chance = ClusterKey(bytes(range(1, 33))), random.Random(7)
    server = RedisServer(tmp_path / "redis")
    server.start()
    cluster = Cluster(server.url, key)
    broker = cluster.broker
    ticks = Ticks(broker)
    worker = CeleryPart.worker(tmp_path, server.url, key, concurrency=1).wait_ready()
    schedulers = [CeleryPart.scheduler(tmp_path / f"scheduler{n}", server.url, key) for n in range(2)]
    first = time.time()
    for number in range(RESTARTS):
        seen = ticks.counts("heartbeat")[0]
        wait_until(lambda seen=seen: ticks.counts("heartbeat")[0] > seen, "no tick")  # type: ignore[misc]
        time.sleep(chance.uniform(0, 0.5))
        schedulers[number % 2].kill_and_start()
    for part in schedulers:
        part.stop()
    before = ticks.counts("heartbeat")
    again = {"token": "again", "tick": before[2], "entry": "heartbeat", "every": 1}
    cluster.start([cluster.signature("heartbeat", again, 60.0)])
    wait_until(lambda: ticks.counts("heartbeat")[1] > before[1], "a tick that has run was not refused")
    worker.stop()
    ran, _, last = ticks.counts("heartbeat")
    claims = {int(name.rpartition(b":")[2]) for name in broker.client.scan_iter(broker.key("tick:heartbeat:*"))}
    assert len(claims) == ran >= RESTARTS and max(claims) == last
    assert ran <= time.time() - first + 2, "one at most for each second"
    cluster.close()
    server.stop()
