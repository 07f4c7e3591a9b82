"""2,000 pages through three workers: 20 are killed, 3 stopped for a while; the brain is killed 5 times; the broker is
emptied, silent, full; the sites hang twice."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_crawls import crawl_while_all_parts_fail

from weft.supervise.redis_server import RedisServer

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("WEFT_TEST_CHAOS"),
        reason="takes minutes: WEFT_TEST_CHAOS=1 runs it (tests/integration has the short version)",
    ),
    pytest.mark.timeout(1800),
]


def test_workers_brain_and_broker_fail_and_nothing_is_lost(
    tmp_path: Path, start_server: Callable[..., RedisServer]
) -> None:
    failures = ["hand"] * 20 + ["brain"] * 5 + ["stopped"] * 3 + ["sites"] * 2 + ["flush", "silent", "full"]
    random.Random(7).shuffle(failures)
    verdict, hands = crawl_while_all_parts_fail(
        tmp_path, start_server("valkey"), {"hosts": 60, "pages": 2000, "seed": 11}, hands=3, failures=failures,
        timeout_s=900,
    )  # fmt: skip
    assert verdict.ok, verdict
    print(verdict, hands)
