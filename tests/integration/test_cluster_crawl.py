"""Crawls through workers: the whole way of a page, and what kills cost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cluster_crawls import crawl_while_hands_and_brain_are_killed

from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]
WORLD = {"hosts": 16, "pages": 40, "seed": 11, "stocked": 1}


def test_kills_of_a_hand_and_of_the_brain_lose_nothing_and_are_not_rude(
    tmp_path: Path, start_server: StartServer
) -> None:
    url = start_server("valkey").url
    verdict, hands = crawl_while_hands_and_brain_are_killed(
        tmp_path, url, dict(WORLD), hands=2, hand_kills=1, brain_kills=1, timeout_s=120
    )
    assert verdict.ok, verdict
    assert len(hands) == 3
