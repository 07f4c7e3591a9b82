"""Ctrl-C, SIGTERM and kill -9: what a person may do to a crawl that runs, and nothing is lost by any of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, Kill, check_corpus, fetcher_of, is_gone, judged_with_kills, until
from pace import patience

from weft.testing.web import SyntheticWeb, synthetic_web

DELAY_S = 0.02


@pytest.fixture
def web() -> Iterator[SyntheticWeb]:
    """Slow enough that there is always something in flight."""
    with synthetic_web(hosts=20, pages=100, seed=1, latency_s=0.05) as web:
        yield web


@pytest.mark.parametrize(("number", "to_all"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_one_signal_drains_and_a_resume_repeats_nothing(
    web: SyntheticWeb, tmp_path: Path, number: signal.Signals, to_all: bool
) -> None:
    """SIGINT as a terminal sends it, to the whole group; SIGTERM as `kill` does, to one process."""
    crawler = Crawler(web.seeds, tmp_path, "--max-depth", 1, delay_s=DELAY_S)
    with crawler.running(group=True) as running:
        crawler.pages_at_least(10)
        (os.killpg if to_all else os.kill)(running.pid, number)
        assert running.wait(patience(15)) == 130
    assert "stopping: requests in flight are finished first" in crawler.said
    assert "Interrupted" in crawler.said and "Traceback" not in crawler.said
    assert f"weft crawl --resume --data-dir {crawler.data_dir}" in crawler.said.splitlines()[-1]
    assert crawler.status()["state"] == "interrupted" and crawler.status()["queued"] > 0
    assert crawler.run(resume=True) == 0, crawler.said
    verdict = web.judge(delay_s=DELAY_S, max_depth=1)
    assert verdict.ok, verdict
    check_corpus(crawler)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3])
def test_ctrl_c_while_the_fetcher_starts_is_no_traceback(web: SyntheticWeb, tmp_path: Path, after_s: float) -> None:
    crawler = Crawler(web.seeds, tmp_path, delay_s=DELAY_S)
    with crawler.running(group=True) as running:
        fetcher_of(running)
        time.sleep(after_s)
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(patience(15)) == 130
    assert "Traceback" not in crawler.said
    assert crawler.run("--max-pages", 5, resume=True) == 3, crawler.said


def twice_stops_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    with synthetic_web(hosts=20, pages=100, seed=1, latency_s=1.5) as slow:
        crawler = Crawler(slow.seeds, tmp_path, delay_s=DELAY_S)
        with crawler.running() as running:
            crawler.pages_at_least(3)
            fetcher = fetcher_of(running)
            running.send_signal(signal.SIGINT)
            until(lambda: "stopping" in crawler.said, 5, "the answer to the first Ctrl-C")
            before = time.monotonic()
            running.send_signal(signal.SIGINT)
            assert running.wait(patience(10)) == 130
        kill = Kill(before, time.monotonic())
        assert is_gone(fetcher)
        assert "--resume" in crawler.said.splitlines()[-1]
        assert crawler.run("--max-pages", 12, resume=True) == 3, crawler.said
        verdict, _ = judged_with_kills(slow, crawler, [kill], complete=False)
        assert any(arrival.aborted for arrival in slow.arrivals()), "it has waited for what was in flight"
        assert verdict.ok, verdict
        check_corpus(crawler)


def test_the_fetcher_ends_with_the_orchestrator(tmp_path: Path) -> None:
    """It does not go on alone: most of the web is left when it is gone."""
    with synthetic_web(hosts=20, pages=2000, seed=1, latency_s=0.05) as web:
        crawler = Crawler(web.seeds, tmp_path, delay_s=DELAY_S)
        with crawler.running() as running:
            crawler.pages_at_least(10)
            fetcher = fetcher_of(running)
            running.kill()
            until(lambda: is_gone(fetcher), 5, "the end of the fetcher")
        web.stop()
        assert len(web.arrivals()) < 1000


def a_fetcher_that_dies_at_once_ends_the_crawl_with_its_reason(tmp_path: Path) -> None:
    with synthetic_web(hosts=4, pages=20) as web:
        crawler = Crawler(web.seeds, tmp_path, delay_s=DELAY_S)
        assert crawler.run(WEFT_TEST_CRASH_AT="claimed") == 1
        assert "the fetcher died 6 times in a row (killed by SIGKILL)" in crawler.said
        assert "Traceback" not in crawler.said
        assert crawler.run("--max-pages", 5, resume=True) == 3, crawler.said


@pytest.mark.parametrize(
    "scenario",
    [twice_stops_at_once_and_nothing_is_lost, a_fetcher_that_dies_at_once_ends_the_crawl_with_its_reason],
)
def test_stopped_hard(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()
