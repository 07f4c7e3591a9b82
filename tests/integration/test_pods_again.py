"""Later runs of a crawl of several pods: what failed is tried again, and what is known is visited again, in its pod."""

from __future__ import annotations

import json
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, weft
from ports import free_port
from test_recrawl import has_changed

from weft.testing.judge import judge
from weft.testing.web import synthetic_web

DELAY_S = 0.02
WORLD: dict[str, Any] = {"hosts": 6, "pages": 30, "seed": 5, "stocked": 0}
EMBEDDED = ("--num-pods", 2)
ON_REDIS = ("--pods", "managed", "--pods", "managed", "--fetchers-per-pod", 1, "--parsers-per-pod", 1)


def embedded(folder: Path) -> None:
    tried_and_visited_again(folder, EMBEDDED)


def on_redis(folder: Path) -> None:
    tried_and_visited_again(folder, ON_REDIS)


@pytest.mark.parametrize("scenario", [on_redis, embedded])
def test_failures_are_tried_again_and_known_pages_visited_again(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()


def tried_and_visited_again(folder: Path, pods: tuple[object, ...]) -> None:
    port = free_port()
    with synthetic_web(**WORLD, port=port) as web:
        seeds = web.seeds
    crawler = Crawler(seeds, folder, *pods, "--max-retries", 0, "--breaker-reset-seconds", 0.1, delay_s=DELAY_S)
    assert crawler.run() == 4, crawler.said
    assert crawler.pages() == [], "nobody is there yet"
    with synthetic_web(**WORLD, port=port) as web:
        assert crawler.run("--retry-failed", resume=True) == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S)
        assert verdict.ok, verdict
        pages = sorted(row.url for row in crawler.pages())
        assert {int(row.item) >> 48 for row in crawler.pages()} == {0, 1}
    with synthetic_web(**WORLD, port=port, edition=1, changed=0.4) as web:
        assert crawler.run("--recrawl", resume=True) == 0, crawler.said
        web.stop()
        verdict = judge(web.arrivals(), web.expect(), DELAY_S, complete=False)
        assert (verdict.delay, verdict.overlap) == ([], []), verdict
        expected = sorted(url for url in web.expect().must if has_changed(web.world, url))
    told = json.loads(weft("stats", crawler.data_dir, "--changes", "--json").stdout)
    assert expected
    assert sorted(told["changed"]) == expected
    assert (told["new"], told["gone"], told["moved"], told["failed"]) == ([], [], [], 0)
    assert told["unchanged"] == len(pages) - len(expected)
