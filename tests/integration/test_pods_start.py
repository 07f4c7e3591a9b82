"""What a crawl of several pods says when it starts, and what its settings make of its pods."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from crawling import weft

from weft import urls
from weft.crawl.pods.distribution import SeedShares
from weft.frontier.redis.connection import connect
from weft.supervise.redis_server import RedisServer, socket_path

NOBODY = [f"http://127.{n % 7}.0.{1 + n // 7}:9/" for n in range(30)]  # nothing listens there: each fails at once
QUICK = ("--allow-private", "--delay", 0, "--scope", "host", "--max-retries", 0, "--prometheus-port", 0)


def test_seeds_and_domains_are_counted_for_each_pod() -> None:
    seeds = [f"http://{host}.example{n % 5}.com/{n}" for host in ("a", "b") for n in range(50)]
    shares = SeedShares.of([*seeds, *seeds], 4)
    expected = Counter(urls.pod_of(f"example{n % 5}.com", 4) for n in range(50) for _ in "ab")
    assert shares.seeds == tuple(expected[pod] for pod in range(4))
    assert shares.domains == tuple(expected[pod] // 20 for pod in range(4))
    told = SeedShares((6, 0, 2, 0), (3, 0, 1, 0)).text()
    assert told.splitlines() == [
        "8 seeds of 4 domains over 4 pods",
        "  seeds a pod: min 0, max 6, mean 2.0, imbalance 3.00",
        "  domains a pod: min 0, max 3, mean 1.0, imbalance 3.00",
        "  seeds/domains: pod 0 6/3, pod 1 0/0, pod 2 2/1, pod 3 0/0",
    ]


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a crawl of three embedded pods says, and its folder."""
    folder = tmp_path_factory.mktemp("pods") / "data"
    arguments = [*NOBODY, *QUICK, "--data-dir", folder, "--num-pods", 3]
    ended = weft("crawl", *arguments, WEFT_DEBUG_POD_ASSIGNMENT="1", timeout_s=120)
    assert ended.returncode == 4, ended.stderr
    return ended.stderr, folder


def test_the_seeds_over_the_pods_are_reported_and_logged(embedded: tuple[str, Path]) -> None:
    said, folder = embedded
    shares = SeedShares.of(NOBODY, 3)
    assert f"weft: {shares.text()}\n" in said
    log = (folder / "logs" / "pod_0" / "orchestrator.log").read_text()
    assert "seeds over the pods" in log and str(shares.seeds) in log and str(shares.domains) in log


def test_the_debug_mode_says_that_it_is_on(embedded: tuple[str, Path]) -> None:
    output, folder = embedded
    assert "weft: WEFT_DEBUG_POD_ASSIGNMENT is on: every URL that a pod receives is checked" in output
    assert "WEFT_DEBUG_POD_ASSIGNMENT" in (folder / "logs" / "pod_0" / "orchestrator.log").read_text()


def test_a_quiet_crawl_of_one_pod_says_nothing_of_it(tmp_path: Path) -> None:
    ended = weft("crawl", NOBODY[0], *QUICK, "--data-dir", tmp_path / "data", "-q")
    assert ended.returncode == 4 and "pod" not in ended.stderr
    assert ended.stderr.startswith("weft: Nothing was stored:\n  1 URL: nothing accepts a connection there"), "an error"
    ended = weft("crawl", NOBODY[0], *QUICK, "--data-dir", tmp_path / "other", WEFT_DEBUG_POD_ASSIGNMENT="true")
    assert "is on: with one pod there is nothing to check" in ended.stderr and "seeds over" not in ended.stderr


@pytest.mark.timeout(300)
def test_the_first_pods_of_a_list_and_a_bloom_filter_of_their_share(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    few = ("--fetchers-per-pod", 1, "--parsers-per-pod", 0, "--data-dir", folder)
    ended = weft(
        "crawl", *NOBODY, *QUICK, *few, "--pods", "managed,managed", "--pods", "managed", "--num-pods", 2,
        "--bloom-filter-capacity", 1000, timeout_s=200,
    )  # fmt: skip
    assert ended.returncode == 4, ended.stderr
    assert "seen_filter is bloom: about 0.10% of the URLs" in ended.stderr
    assert json.loads((folder / "engine.json").read_bytes())["pods"] == 2
    assert len(json.loads((folder / "crawls/crawl/config.json").read_bytes())["values"]["pods"]) == 2
    assert re.search(r"over 2 pods", ended.stderr)
    server = RedisServer(folder / "frontier" / "pod_1" / "redis")
    server.start()
    try:
        client: Any = connect(f"unix://{socket_path(folder / 'frontier' / 'pod_1' / 'redis')}")
        shape = client.hget("c:1", "bloom")
        # 500 URLs at one in a thousand: 14.4 bits each; or the server's own filter, which tells its capacity.
        own = shape == b"server"
        bits = 14.4 * client.execute_command("BF.INFO", "b:1")[1] if own else int(shape.partition(b":")[0])
        assert 7100 < bits < 7300
        info = client.hgetall("pod:info")
        assert {b"pod_id", b"redis_url", b"initialized_at", b"crawl", b"pods", b"node", b"weft"} == set(info)
        assert (info[b"pod_id"], info[b"pods"]) == (b"1", b"2")
        client.close()
    finally:
        server.stop()
    for more, says in (
        (["--seen-filter", "exact"], "bloom_filter_capacity: seen_filter is exact"),
        (["--bloom-filter-capacity", 2000], "is bloom (1,000 URLs, error rate 0.001), and is fixed for a crawl"),
        (["--num-pods", 1], "the crawl has 2 pods, 1 was asked for"),
        (["--num-pods", 3], "is 3, but pods lists 2"),
    ):
        ended = weft("crawl", "--resume", "--data-dir", folder, *more)
        assert ended.returncode == 2 and says in ended.stderr, ended.stderr
