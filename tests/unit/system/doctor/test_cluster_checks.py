"""What the doctor finds about a cluster's broker and key."""

from __future__ import annotations

from pathlib import Path

import pytest
from ports import free_port

from weft.cluster.key import make_key
from weft.config import load_service
from weft.supervise.redis_server import RedisServer
from weft.system.doctor import cluster_checks
from weft.system.doctor.finding import CheckState, Finding


def found(folder: Path, **settings: object) -> dict[str, Finding]:
    flags = {"data_dir": str(folder), "port": 0, **settings}
    config = load_service(environment={}, flags=flags)
    return {finding.name: finding for finding in cluster_checks.broker(config)}


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    make_key(tmp_path / "cluster.key")
    return str(tmp_path / "cluster.key")


def test_without_a_broker_there_is_nothing_to_say(tmp_path: Path) -> None:
    assert found(tmp_path) == {}


def test_a_broker_is_reached_and_its_settings_are_judged(tmp_path: Path, key_file: str) -> None:
    server = RedisServer(tmp_path / "redis")
    server.start()
    try:
        good = found(tmp_path, broker=server.url, cluster_key_file=key_file)
        assert {one.verdict for one in good.values()} == {CheckState.OK} and set(good) == {"broker", "cluster key"}
        assert found(tmp_path, broker=server.url)["cluster key"].verdict is CheckState.PROBLEM
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("settings", "verdict", "message"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, CheckState.PROBLEM, "would evict tasks"),
        ({"appendonly": "no"}, CheckState.WARNING, "appendonly yes"),
    ],
)
def test_a_broker_that_may_lose_tasks_is_named(
    tmp_path: Path, key_file: str, settings: dict[str, str], verdict: CheckState, message: str
) -> None:
    server = RedisServer(tmp_path / "redis", settings=settings)
    server.start()
    try:
        finding = found(tmp_path, broker=server.url, cluster_key_file=key_file)["broker"]
        assert finding.verdict is verdict and message in f"{finding.found} {finding.advice}"
    finally:
        server.stop()


def test_a_broker_that_is_away_is_a_problem_unless_one_is_started_there(tmp_path: Path, key_file: str) -> None:
    away = f"redis://127.0.0.1:{free_port()}"
    finding = found(tmp_path, broker=away, cluster_key_file=key_file)["broker"]
    assert finding.verdict is CheckState.PROBLEM and "no server is running there" in finding.found
    started = found(tmp_path, broker=away, cluster_key_file=key_file, cluster=True)["broker"]
    assert started.verdict is CheckState.OK and "weft up --cluster" in started.found
