"""Assembles the engine's two halves: both in one process, or each in its own with a spool between them."""

from __future__ import annotations

import os
from collections.abc import Callable

from weft.config import Config
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.fetcher.results import ResultHandler
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.discovered_links import DiscoveredLinks
from weft.engine.loop.parser.handoff import Handoff
from weft.engine.loop.parser.parsing import Parsing
from weft.engine.loop.parser.suspects import Suspects
from weft.engine.loop.round import Round
from weft.engine.loop.rows import RowMaker
from weft.engine.parsing.parsers import ChildCode, Parsers
from weft.engine.user_code.sources import MAKER, PRELOADED, SCRAPY_MAKER
from weft.frontier.contract import Frontier
from weft.store.pages import PageStore


def handler_that_parses(
    frontier: Frontier,
    store: PageStore,
    crawls: dict[int, RunningCrawl],
    suspects: Suspects,
    metrics: EngineMetrics,
    parsers: Parsers,
    *,
    sends_all: bool,
) -> ResultHandler:
    """A handler that reads results in this process; pages are parsed here or by parser children (see `Parsing`)."""
    round_, parsing = parser_half(frontier, store, crawls, suspects, metrics, parsers, sends_all=sends_all)
    return ResultHandler(round_, RowMaker(store, round_), parsing.handle, crawls, metrics, parsing=parsing)


def handler_that_hands_over(
    frontier: Frontier, store: PageStore, crawls: dict[int, RunningCrawl], metrics: EngineMetrics, handoff: Handoff
) -> ResultHandler:
    """A handler that passes pages to parser processes."""
    round_ = Round(frontier, store, crawls, None, handoff)
    return ResultHandler(round_, RowMaker(store, round_), handoff.add_answers, crawls, metrics)


def parser_half(
    frontier: Frontier,
    store: PageStore,
    crawls: dict[int, RunningCrawl],
    suspects: Suspects,
    metrics: EngineMetrics,
    parsers: Parsers,
    *,
    sends_all: bool,
) -> tuple[Round, Parsing]:
    """The parser's half alone."""
    discovered_links = DiscoveredLinks(frontier, store)
    round_ = Round(frontier, store, crawls, discovered_links)
    rows = RowMaker(store, round_)
    parsing = Parsing(
        round_,
        rows,
        discovered_links,
        suspects,
        metrics,
        keeps_text=store.keeps_text,
        parsers=parsers,
        sends_all=sends_all,
    )
    return round_, parsing


def make_parsers(config: Config, loading: Callable[[], bytes] | None = None) -> tuple[Parsers, bool]:
    """The parser children, which start when they are needed, and whether the configuration sends them all pages.

    `loading`: what a child needs to load the user's code, if the crawl has some.
    """
    if loading is not None:
        section = config.spider
        spare = 1 if section.scrapy else (len(os.sched_getaffinity(0)) - 1) // config.pods.num_pods
        modules = PRELOADED[SCRAPY_MAKER if section.scrapy else MAKER]
        code = ChildCode(loading, section.callback_s, section.callback_memory_mb, bool(section.scrapy), modules)
        return Parsers(section.spider_workers or max(1, spare), code=code), True
    children = config.fetch.parser_children
    return Parsers(max(1, children)), children > 0
