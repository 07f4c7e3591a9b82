"""`weft stats --config FILE`: all pods of a crawl, on whichever node, asked at their servers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import redis
from crawling import weft_here
from ports import free_port

from weft.supervise.redis_server import RedisServer

QUEUED = (10, 100, 10)


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return tmp_path / "crawl.yaml"


def test_pods_are_counted_the_hot_one_and_one_that_is_away_are_named(tmp_path: Path, settings: Path) -> None:
    server, away = RedisServer(tmp_path / "redis"), f"redis://127.0.0.1:{free_port()}"
    server.start()
    try:
        for pod, queued in enumerate(QUEUED):
            with redis.Redis(unix_socket_path=str(server.socket), db=pod) as client:
                client.hset("n", mapping={"queued": queued, "sites": 2})
        urls = [*(f"{server.url}?db={pod}" for pod in range(len(QUEUED))), away]
        settings.write_text("only_pods: '0'\npods:\n" + "".join(f"  - redis_url: {url}\n" for url in urls))
        done = weft_here("stats", "--config", settings, "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert (report["queued"], report["pods"]["of"], report["pods"]["answering"]) == (120, 4, 3)
        assert report["pods"]["hot"] == [1] and report["pods"]["imbalance"] == 2.5
        assert [pod["queued"] for pod in report["pods"]["each"][:3]] == list(QUEUED)
        assert "no server is running there" in report["pods"]["each"][3]["error"]
        text = weft_here("stats", "--config", settings).stdout
        assert "3 of 4 answer" in text
        assert [line.split()[0] for line in text.splitlines() if line.endswith("  hot")] == ["1"]
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("text", "flags", "message"),
    [
        ("num_pods: 2\n", (), "not on Redis"),
        ("pods: [{managed: true}]\n", (), "managed"),
        ("num_pods: 2\n", ("DIR",), "leave out DIR"),
        ("num_bods: 2\n", (), "num_bods"),
    ],
)
def test_settings_without_servers_are_refused(settings: Path, text: str, flags: tuple[str, ...], message: str) -> None:
    settings.write_text(text)
    done = weft_here("stats", *flags, "--config", settings)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    done = weft_here("stats")
    assert done.returncode == 2 and "--config" in done.stderr
