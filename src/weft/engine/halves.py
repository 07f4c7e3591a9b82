"""Puts the engine's two halves together: both in one process, or each in its own with a spool between them."""

from __future__ import annotations

from weft.config import FetchSection, PolitenessSection
from weft.engine.crawls import RunningCrawl
from weft.engine.leads import Leads
from weft.engine.metrics import EngineMetrics
from weft.engine.parsing import Parsing
from weft.engine.results import Results
from weft.engine.robots import RobotsBook
from weft.engine.round import Round
from weft.engine.rows import Rows
from weft.engine.suspects import Suspects
from weft.frontier.contract import Frontier
from weft.store.pages import PageStore


def fused(
    frontier: Frontier,
    store: PageStore,
    crawls: dict[int, RunningCrawl],
    book: RobotsBook,
    suspects: Suspects,
    politeness: PolitenessSection,
    fetch: FetchSection,
    metrics: EngineMetrics,
) -> Results:
    """Results that are read where they end."""
    leads = Leads(frontier, store, fetch, book.agent)
    round_ = Round(frontier, store, crawls, leads)
    rows = Rows(store, round_)
    parsing = Parsing(round_, rows, leads, suspects, fetch, book.agent, metrics, keeps_text=store.keeps_text)
    return Results(round_, rows, parsing.take, crawls, book, politeness, metrics)
