"""A whole crawl of the messy web by the command line, alone and under kill -9, judged by the server's own log.

Three crawls run side by side: they wait more than they work. tests/chaos has the full size.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from crawling import (
    Crawler,
    Kill,
    check_corpus,
    check_refusals,
    crawl_with_kills,
    fetcher_of,
    is_gone,
    judged_with_kills,
    until,
)

from weft.supervise import process
from weft.testing.web import synthetic_web

DELAY_S, KILLS = 0.1, 6
# Seeds whose slowest host (one that answers 429, and is asked once a second from then on) has few pages.
LARGE: dict[str, Any] = {"hosts": 40, "pages": 600, "seed": 12, "profile": "messy"}
SMALL: dict[str, Any] = {"hosts": 22, "pages": 130, "seed": 44, "profile": "messy"}
OTHER: dict[str, Any] = {"hosts": 22, "pages": 130, "seed": 53, "profile": "messy"}


def crawl_undisturbed(folder: Path) -> str:
    """Fetched set, politeness and reasons, all as the oracle says."""
    with synthetic_web(**LARGE) as web:
        crawler = Crawler(web.seeds, folder, delay_s=DELAY_S)
        assert crawler.run() == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S)
        assert verdict.ok, verdict
        assert verdict.missing == verdict.robots == verdict.delay == []
        refusals = check_refusals(crawler, web.expect(), check_corpus(crawler))
        assert {"robots", "robots-unreachable", "extension", "length", "redirects"} <= set(refusals)
        assert "Finished" in crawler.said and f"weft stats {crawler.data_dir}" in crawler.said.splitlines()[-1]
    return str(verdict)


def crawl_while_all_is_killed(folder: Path) -> str:
    with synthetic_web(**SMALL) as web:
        crawler = Crawler(web.seeds, folder, delay_s=DELAY_S)
        kills = crawl_with_kills(crawler, KILLS, seed=5, least_s=0.8, most_s=3.0)
        verdict, figures = judged_with_kills(web, DELAY_S, kills)
        assert verdict.ok, verdict
        check_corpus(crawler)
    return figures


def crawl_while_fetchers_are_killed(folder: Path) -> str:
    """The orchestrator starts another each time, by itself."""
    with synthetic_web(**OTHER) as web:
        crawler = Crawler(web.seeds, folder, delay_s=DELAY_S)
        kills = []
        with crawler.running() as running:
            for pages in (0, 20, 100, 180):
                crawler.pages_at_least(pages)
                kills.append(kill_fetcher(fetcher_of(running)))
                until(lambda: process.children(running.pid), 10, "another fetcher")
            assert running.wait(100) == 0, crawler.said
        verdict, figures = judged_with_kills(web, DELAY_S, kills)
        assert verdict.ok, verdict
        check_corpus(crawler)
    return figures


def kill_fetcher(pid: int) -> Kill:
    before = time.monotonic()
    process.kill(pid)
    until(lambda: is_gone(pid), 5, "the end of the fetcher")
    return Kill(before, time.monotonic())


SCENARIOS = (crawl_undisturbed, crawl_while_all_is_killed, crawl_while_fetchers_are_killed)


@pytest.fixture(scope="module")
def crawls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[str]]]:
    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        yield {
            scenario.__name__: pool.submit(scenario, tmp_path_factory.mktemp(scenario.__name__))
            for scenario in SCENARIOS
        }


@pytest.mark.parametrize("name", [scenario.__name__ for scenario in SCENARIOS])
def test_fetched_set_rows_and_politeness_are_right(crawls: dict[str, Future[str]], name: str) -> None:
    print(crawls[name].result())
