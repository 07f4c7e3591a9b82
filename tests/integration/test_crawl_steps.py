"""A kill -9 at every named step between two durable writes, and the crawl ends as if there had been none.

The fetcher kills itself at the step; the orchestrator starts another, which goes on: to the next such step, or to the
end. WEFT_TEST_CHAOS=1 has a crawl for each step alone, and kills at the first times as well.
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
RARE = ("warc-registered", "warc-opened", "after-sync", "after-acknowledge")
CRASHES = [(step, 1 if step in RARE else 9) for step in STEPS]
TOGETHER = 3  # deaths in one crawl, far from each other in the path of a page
GROUPS = [CRASHES[first :: len(CRASHES) // TOGETHER] for first in range(len(CRASHES) // TOGETHER)]
if os.environ.get("WEFT_TEST_CHAOS"):
    GROUPS += [[crash] for crash in CRASHES]
    GROUPS += [[(step, times)] for step in STEPS if step not in RARE for times in (1, 2, 3, 20)]


def crawl_with_crashes(folder: Path, crashes: list[tuple[str, int]]) -> None:
    with synthetic_web(hosts=HOSTS, pages=PAGES, profile="calm", stocked=1, seed=crashes[0][1]) as web:
        crawler = Crawler(web.seeds, folder, delay_s=DELAY_S)
        markers = {f"{step}:{times}": folder / f"crashed-{step}" for step, times in crashes}
        where = ",".join(f"{crash}@{marker}" for crash, marker in markers.items())
        assert crawler.run(WEFT_TEST_CRASH_AT=where) == 0, crawler.said
        assert [crash for crash, marker in markers.items() if not marker.exists()] == [], "steps were not reached"
        log = (crawler.data_dir / "logs" / "pod_0" / "orchestrator.log").read_text()
        assert log.count("the fetcher died") == len(crashes)
        verdict, _ = judged_with_kills(web, crawler, [killed_at(marker) for marker in markers.values()])
        assert verdict.ok, verdict
        rows = check_corpus(crawler)
        assert crawler.status()["pages"] == sum(bool(row.warc_file) and 200 <= row.status < 300 for row in rows)


def killed_at(marker: Path) -> Kill:
    died = marker.stat().st_mtime - time.time() + time.monotonic()
    return Kill(died, died)


SCENARIOS = {
    ", ".join(f"{step} {times}" for step, times in group): partial(crawl_with_crashes, crashes=group)
    for group in GROUPS
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_kills_there_cost_repeated_work_alone(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()
