"""One kill -9 at every named step between two durable writes, and the crawl ends as if there had been none.

The fetcher kills itself at the step; the orchestrator starts another, which finishes the work.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, Kill, check_corpus, judged_with_kills

from weft.engine.loop.steps import STEPS
from weft.testing.web import synthetic_web

HOSTS, PAGES, DELAY_S = 12, 60, 0.02
# Some are reached once or twice in so short a crawl; at the others there is work on hand by the ninth time.
# WEFT_TEST_CHAOS=1 kills at the first times as well.
RARE = ("warc-registered", "warc-opened", "after-sync", "after-acknowledge")
CRASHES = [(step, 1 if step in RARE else 9) for step in STEPS]
if os.environ.get("WEFT_TEST_CHAOS"):
    CRASHES += [(step, times) for step in STEPS if step not in RARE for times in (1, 2, 3, 20)]


def crawl_with_a_crash(folder: Path, step: str, times: int) -> None:
    with synthetic_web(hosts=HOSTS, pages=PAGES, profile="calm", seed=times) as web:
        crawler = Crawler(web.seeds, folder, delay_s=DELAY_S)
        marker = folder / "crashed"
        assert crawler.run(WEFT_TEST_CRASH_AT=f"{step}:{times}@{marker}") == 0, crawler.said
        assert marker.exists(), "the step was not reached"
        log = (crawler.data_dir / "logs" / "pod_0" / "orchestrator.log").read_text()
        assert log.count("the fetcher died") == 1
        died = marker.stat().st_mtime - time.time() + time.monotonic()
        verdict, _ = judged_with_kills(web, crawler, [Kill(died, died)])
        assert verdict.ok, verdict
        rows = check_corpus(crawler)
        assert crawler.status()["pages"] == sum(bool(row.warc_file) and 200 <= row.status < 300 for row in rows)


SCENARIOS = {f"{step}, time {times}": partial(crawl_with_a_crash, step=step, times=times) for step, times in CRASHES}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_a_kill_there_costs_repeated_work_alone(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()
