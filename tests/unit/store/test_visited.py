"""What is given with the URLs of a crawl of an engine: kept at once, by crawl, until the crawl is forgotten."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.records import PastVisit
from weft.store.pages import PageStore

VISITS = [PastVisit(f"http://a.test/{number}", f"d{number}", float(number), '"e"', "") for number in range(30)]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[PageStore]:
    made = PageStore.open([tmp_path], crawl_id="c")
    yield made
    made.close()


def test_visits_are_there_before_any_commit_and_again_after_a_kill(tmp_path: Path, store: PageStore) -> None:
    store.keep_visited(1, VISITS)
    wanted = [VISITS[3].url, "http://a.test/unknown", VISITS[7].url]
    assert store.visited(1, wanted) == {VISITS[3].url: VISITS[3], VISITS[7].url: VISITS[7]}
    assert store.visited(2, wanted) == {}, "another crawl's"
    store.abandon()
    again = PageStore.open([tmp_path], crawl_id="c")
    assert again.visited(1, wanted[:1]) == {VISITS[3].url: VISITS[3]}
    again.keep_visited(1, [PastVisit(VISITS[3].url, "other", 9.0)])
    assert again.visited(1, wanted)[VISITS[3].url].digest == "other", "what is given again replaces it"
    again.close()


def test_a_damaged_visit_is_none(tmp_path: Path, store: PageStore) -> None:
    store.keep_visited(1, VISITS[:2])
    with sqlite3.connect(next(tmp_path.glob("index-*.db"))) as db:
        db.execute("UPDATE visited SET record = x'c1'")
    assert store.visited(1, [VISITS[0].url]) == {}


def test_a_crawl_that_is_forgotten_leaves_no_visits_and_takes_no_others(store: PageStore) -> None:
    store.keep_visited(1, VISITS)
    store.keep_visited(2, VISITS[:1])
    pieces = 1
    while not store.forget_crawls([1], at_most=10):
        pieces += 1
    assert pieces > 3, "in pieces, so that nobody waits for all of it"
    assert store.visited(1, [one.url for one in VISITS]) == {}
    assert store.visited(2, [VISITS[0].url]) == {VISITS[0].url: VISITS[0]}
