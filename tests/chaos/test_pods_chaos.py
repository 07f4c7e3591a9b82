"""Pods on Redis at the size that issue 6 asks for: 4 pods of 2 fetchers and a parser, 400 hosts, 60 kills. Minutes."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, Kill, check_corpus, is_gone, judged_with_kills, kill_fetcher, until
from flights import slots_of

from weft.supervise import process
from weft.testing.web import synthetic_web

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("WEFT_TEST_CHAOS"),
        reason="takes minutes: WEFT_TEST_CHAOS=1 runs it (tests/integration has the short version)",
    ),
    pytest.mark.timeout(1800),
]
WORLD: dict[str, Any] = {"hosts": 400, "pages": 6000, "seed": 3, "profile": "messy"}
DELAY_S = 0.3
KILLS = int(os.environ.get("WEFT_TEST_CHAOS_KILLS", "60"))
LEASE = ("--lease-seconds", 20, "--total-timeout", 10, "--connect-timeout", 3, "--read-timeout", 5)
PODS = [word for _ in range(4) for word in ("--pods", "managed")]


def _are_gone(pids: list[int]) -> bool:
    return all(map(is_gone, pids))


def _has_children(pid: int, many: int) -> bool:
    return len(process.children(pid)) >= many


def test_sixty_kills_of_every_role_change_nothing(tmp_path: Path) -> None:
    chance = random.Random(6)
    with synthetic_web(**WORLD) as web:
        crawler = Crawler(
            web.seeds, tmp_path, *PODS, "--fetchers-per-pod", 2, "--parsers-per-pod", 1, *LEASE, delay_s=DELAY_S
        )
        kills: list[Kill] = []
        running = crawler.start()
        try:
            crawler.pages_at_least(20, 120)
            while len(kills) < KILLS:
                time.sleep(chance.uniform(0.2, 2.0))
                assert running.poll() is None, f"it ended after {len(kills)} kills: {crawler.said}"
                children = process.children(running.pid)
                if len(kills) % 15 == 14:
                    kills.append(kill_fetcher(running.pid))
                    running.wait()
                    until(partial(_are_gone, children), 15, "the end of all")
                    running = crawler.start(resume=True)
                    until(partial(_has_children, running.pid, 16), 60, "all processes")
                elif children:
                    victim = chance.choice(children)
                    if len(kills) % 15 == 7:
                        before, slots = time.monotonic(), slots_of(crawler.data_dir, victim)
                        process.kill(victim, signal.SIGSTOP)  # past its lease: what it held is somebody else's
                        time.sleep(25)
                        process.kill(victim, signal.SIGCONT)
                        kills.append(Kill(before, time.monotonic(), slots))
                    else:
                        kills.append(kill_fetcher(victim, crawler.data_dir))
            assert running.wait(900) == 0, crawler.said
        finally:
            running.kill()
            running.wait()
        verdict, killed = judged_with_kills(web, crawler, kills)
        assert verdict.ok, verdict
        rows = check_corpus(crawler)
        print(f"{verdict}; {killed}; {len(rows)} rows")
