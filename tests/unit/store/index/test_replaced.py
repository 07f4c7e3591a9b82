"""The counters of rows that do not stand for their URL say what a count of all rows says, whatever came in between."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from counting import check_counts, counted

from weft.store.corpus import Corpus
from weft.store.index import index_writer as index_module
from weft.store.index import replaced, runs, schema
from weft.store.index.index_writer import FileState, SlotIndex
from weft.store.index.keys import LAST_KEYED
from weft.store.index.query import IndexReader
from weft.store.index.replaced import count_by_late_rows
from weft.store.repair import rebuild as rebuild_module
from weft.store.repair.rebuild import Rebuild

FACTS = {"crawl_id": "c", "data_dirs": 1, "data_dir": 0}
NAME = "1/weft-c-pod0-fetcher0-00000.warc.gz"
ENDS = [
    (200, ""),
    (200, ""),
    (200, "truncated"),
    (200, "noindex"),
    (304, ""),
    (301, ""),
    (404, ""),
    (503, ""),
    (0, "dns"),
]


def values(item: int, number: int, crawl: int, seed: int, hops: int = 0) -> tuple[Any, ...]:
    """A visit of the URL of that number."""
    status, error = random.Random(seed * 100_003 + item).choice(ENDS)
    url = f"http://h{number % 7}.test/{number}"
    file = 1 if status and error != "noindex" else None
    rest = (
        schema.url_hash(url), crawl, url, None, status, 1e9 + item, "text/html" if status else "", "utf-8", "en", "",
        number % 3, 0, "sha1:A" if file else "", 10 + item, error, hops, file, item * 100, 100, 0, None, None,
    )  # fmt: skip
    return (item, *rest, schema.checksum((item, *rest)))


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "FOLD_ROWS", 20)
    monkeypatch.setattr(runs, "ENTRIES_PER_STEP", 64)
    monkeypatch.setattr(runs, "RUNS_PER_MERGE", 3)


def made(folder: Path, slot: str = "pod0-fetcher0") -> SlotIndex:
    index = SlotIndex(schema.index_path(folder, slot), FACTS)
    if not index.files():
        index.register(NAME.replace("pod0-fetcher0", slot))
    return index


def commit(index: SlotIndex, batch: int, rows: list[tuple[Any, ...]]) -> None:
    index.commit(batch, batch, rows, [])
    index.sync()


def first_visits(index: SlotIndex, count: int, crawl: int = 1, seed: int = 1, base: int = 0) -> int:
    """One of each URL, of all that a crawl has found."""
    for start in range(1, count + 1, 9):
        numbers = range(start, min(start + 9, count + 1))
        commit(index, base + start, [values(base + number, number, crawl, seed) for number in numbers])
    return base + count


def visits_again(index: SlotIndex, last: int, count: int, crawl: int = 1, seed: int = 2) -> int:
    """Some URLs again, some for the third time, and new ones between them; each batch is looked at."""
    index.may_come_again(crawl, last)
    draw = random.Random(seed)
    for _ in range(count // 8):
        rows = [values(last + n, draw.randrange(1, count + count // 4), crawl, seed) for n in range(1, 9)]
        last += 8
        commit(index, last, rows)
    return last


def test_a_crawl_that_asks_each_url_once_has_nothing_to_count(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as index:
        first_visits(index, 200)
        with closing(IndexReader(index.path)) as reader:
            assert (reader.replaced().kinds, reader.replaced(top=9).hosts) == ({}, {})
        check_counts([tmp_path])


def test_what_new_rows_replace_is_found_without_reading_the_rows_before_them(tmp_path: Path) -> None:
    assert steps_to_read_late(tmp_path / "large", 2000) < 2 * steps_to_read_late(tmp_path / "small", 200) + 5


def steps_to_read_late(folder: Path, count: int) -> int:
    """In hundreds of instructions of SQLite."""
    folder.mkdir()
    steps = [0]

    def step() -> int:
        steps[0] += 1
        return 0

    with closing(made(folder)) as index:
        first_visits(index, count)
        path = index.path
    with closing(sqlite3.connect(path)) as db:
        db.set_progress_handler(step, 100)
        assert count_by_late_rows(db, path).kinds == {}
    return steps[0]


@pytest.mark.parametrize("seed", range(4))
def test_after_each_batch_of_a_recrawl_the_counters_are_those_of_a_full_count(tmp_path: Path, seed: int) -> None:
    with closing(made(tmp_path)) as index, closing(Corpus([tmp_path])) as corpus:
        last = first_visits(index, 90, seed=seed)
        for round_ in range(3):
            last = visits_again(index, last, 90, seed=10 * round_ + seed + 3)
            check_counts([tmp_path])
        assert corpus.current().urls == counted([tmp_path])["urls"] < corpus.stats(0).rows
        index.sync(last=True)
        check_counts([tmp_path])
        assert not list(zip(index.verify(), [], strict=False))


def test_redirects_that_lead_back_to_a_url_are_counted_without_a_note(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as index:
        last = first_visits(index, 60)
        for number in range(5, 60, 3):
            last += 1
            commit(index, last, [values(last, number, 1, seed=2, hops=1)])
            check_counts([tmp_path])


def test_each_crawl_counts_for_itself_and_is_forgotten_alone(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as index:
        last = 0
        for crawl in (1, 2, 3):
            last = first_visits(index, 60, crawl, crawl, last)
        for crawl in (1, 3):
            last = visits_again(index, last, 60, crawl, crawl + 5)
        for crawl in (0, 1, 2, 3):
            check_counts([tmp_path], crawl)
        while not index.forget([1], 50):
            pass
        for crawl in (0, 1, 2, 3):
            check_counts([tmp_path], crawl)
        visits_again(index, last, 40, 2, 9)
        check_counts([tmp_path])


def test_rows_that_are_lost_give_their_place_back(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as index:
        last = visits_again(index, first_visits(index, 60), 60)
        rows = [row for row in index.rows_in(1) if row.item % 3 == 0]
        index.move_to_lost(rows, FileState(1, NAME, 0, 0))
        check_counts([tmp_path])
        visits_again(index, last, 60, seed=6)
        check_counts([tmp_path])


def test_several_slots_of_a_pod_have_visits_of_the_same_urls(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as one, closing(made(tmp_path, "pod0-fetcher1")) as other:
        last = first_visits(one, 40)
        commit(other, 99, [values(last + 1, 7, 1, seed=5, hops=1), values(last + 2, 99, 1, seed=5)])
        check_counts([tmp_path])
        one.may_come_again(1, last + 2)  # by the one that queues them, which is not the one that stores them
        for item, number in enumerate((3, 4, 5, 99, 7), last + 3):
            commit(other, 100 + item, [values(item, number, 1, seed=6)])
        check_counts([tmp_path])


@pytest.mark.parametrize("after", [3, 9, 17, 26])
def test_a_kill_at_any_moment_leaves_counters_that_are_right(tmp_path: Path, after: int) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            index = made(tmp_path)
            last = first_visits(index, 60)
            index.may_come_again(1, last)
            for batch in range(1000):
                rows = [values(last + n, (batch * 5 + n) % 80, 1, seed=3) for n in range(1, 9)]
                last += 8
                index.commit(last, last, rows, [])
                os.write(write, b".")
                index.sync()
        finally:
            os._exit(1)
    os.close(write)
    for _ in range(after):
        assert os.read(read, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(read)
    with closing(made(tmp_path)) as index:
        check_counts([tmp_path])
        visits_again(index, 100_000, 60)
        index.sync(last=True)
        check_counts([tmp_path])


def test_a_rebuilt_index_counts_again_and_knows_what_was_noted(tmp_path: Path) -> None:
    with closing(made(tmp_path)) as index:
        last = visits_again(index, first_visits(index, 60), 60)
        index.sync(last=True)
    Rebuild([tmp_path], "c", missing=lambda known: []).run()
    check_counts([tmp_path])
    with closing(SlotIndex(schema.index_path(tmp_path, "pod0-fetcher0"), FACTS)) as index:
        commit(index, 10_000, [values(last + n, n, 1, seed=8) for n in range(1, 30)])
        check_counts([tmp_path])


def test_rows_get_their_keys_while_an_index_is_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is looked up among those that have no keys yet: if none had any before the end, the cost would grow with
    the square of the rows."""
    monkeypatch.setattr(rebuild_module, "BATCH_ROWS", 10)
    monkeypatch.setattr(rebuild_module, "FOLD_ROWS", 20)
    with closing(made(tmp_path)) as index:
        first_visits(index, 600)
        index.sync(last=True)
    without_keys, read_new = list[int](), replaced.read_new_rows

    def counting(db: sqlite3.Connection, path: Path) -> Any:
        without_keys.append(db.execute(f"SELECT count(*) FROM pages WHERE seq > {LAST_KEYED}").fetchone()[0])
        return read_new(db, path)

    monkeypatch.setattr(replaced, "read_new_rows", counting)
    Rebuild([tmp_path], "c", missing=lambda known: []).run()
    assert sum(without_keys) > 100 and max(without_keys) <= 30
    check_counts([tmp_path])
