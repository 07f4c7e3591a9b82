"""A place that one process takes into the scope is in the scope of all, also for links that they met before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from weft import config as settings
from weft.crawl.pods.redis_process import shared_periodic_tasks
from weft.crawl.processes.process_spec import ProcessSpec
from weft.engine.admission.rules import AdmissionRules
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.progress import CrawlProgress
from weft.frontier.contract import CrawlLimits
from weft.frontier.redis.connection import RedisSettings, connect
from weft.frontier.redis.redis_frontier import RoutedRedisFrontier
from weft.records import Lease, Purpose, Reason
from weft.supervise.redis_server import RedisServer

SEED, PAGE = "https://one.example/", "https://one.example/page"
LINKED, LED_TO = "https://two.example/linked", "https://two.example/"
NEW = "https://two.example/new"
DB = 7


@pytest.fixture
def start(tmp_path: Path, shared_server: Callable[[str], RedisServer]) -> Iterator[Any]:
    server, opened = shared_server("redis"), []
    connect(server.url, RedisSettings(db=DB)).flushdb()
    config = settings.load(environment={}, flags={"scope": "domain", "data_dirs": [str(tmp_path)]}).config

    def start_process(index: int) -> tuple[RoutedRedisFrontier, RunningCrawl, ProcessSpec]:
        order = ProcessSpec(config, "crawl", os.getpid(), "run", index=index, servers=(server.url,))
        frontier = RoutedRedisFrontier(
            connect(server.url, RedisSettings(db=DB)), tmp_path, config.politeness, slot=order.slot.name,
            others={}, outbox=tmp_path / f"{order.slot.name}.db",
        )  # fmt: skip
        opened.append(frontier)
        number = frontier.crawls.open_crawl("crawl", CrawlLimits())
        rules = AdmissionRules(config.scope, [SEED], this_year=2026)
        progress = CrawlProgress(tmp_path / f"status-{index}.json", os.getpid())
        return (
            frontier,
            RunningCrawl(number, rules, config.scope, config.fetch, frontier, progress, politeness=config.politeness),
            order,
        )

    yield start_process
    for frontier in opened:
        frontier.close()


def page(url: str, item: int) -> Lease:
    return Lease(item, 1, url, "", 1, 0, 0, Purpose.PAGE, "", 0, 0, "", 0, 0.0, 0.0)


def let_in(crawl: RunningCrawl, lease: Lease, hrefs: list[str]) -> list[str]:
    """What becomes of a page's links, by the way that the parser takes."""
    assert crawl.recent_links is not None
    fresh = crawl.recent_links.select_unseen_links(lease.url, hrefs)
    return [url for links in crawl.admit_links(fresh, lease) for url in links.urls]


def test_a_link_that_was_refused_is_let_in_once_its_place_joined_the_scope_elsewhere(start: Any) -> None:
    (finder, _, _), (frontier, crawl, order) = start(0), start(1)
    hear, *_ = shared_periodic_tasks(order, frontier, crawl, None)
    assert let_in(crawl, page(PAGE, 1), [LINKED]) == []
    assert crawl.progress.refused[Reason.SCOPE] == 1
    hear(0.0)
    assert let_in(crawl, page(SEED, 2), [LINKED]) == [], "nothing has changed"

    finder.notes.scope_extended(crawl.number, LED_TO)
    hear(10.0)
    assert let_in(crawl, page(SEED, 3), [LINKED, NEW]) == [LINKED, NEW]
