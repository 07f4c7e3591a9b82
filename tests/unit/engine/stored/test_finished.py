"""What the frontier has finished and no row tells is found, unless it is queued or stored again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from weft.engine.stored.finished import FrontierJournals
from weft.frontier.durability.journal import FrontierJournal
from weft.frontier.durability.recovery import FinishedItems


def journal(path: Path, lines: Iterable[str], done: Iterable[int], acknowledged: int = 5) -> Path:
    made = FrontierJournal(path)
    for line in lines:  # a commit each, as in a crawl
        made.add_admitted_lines(1, f"{line}\n".encode(), 1)
        made.commit()
    made.done[1] += done
    made.put_meta("acknowledged", acknowledged)
    made.close()
    return path


def line(item: int, url: str, depth: int = 1, letter: str = "p", about: str = "") -> str:
    return f"{item} {depth} {item - 1} 2 0 1 {letter} {url}{' ' + about if about else ''}"


def missing(frontiers: FrontierJournals, rows: Iterable[int]) -> list[int]:
    there = set(rows)

    def known(items: Sequence[int]) -> set[int]:
        return there & set(items)

    return [row.item for row in frontiers.missing_rows(known)]


def test_what_is_done_and_has_no_row_is_missing(tmp_path: Path) -> None:
    lines = [
        line(1, "http://a/"),
        line(2, "http://b/"),
        line(3, "http://c/"),
        line(4, "http://s/sitemap.xml", letter="s"),
    ]
    frontiers = FrontierJournals([journal(tmp_path / "f.db", lines, [1, 2, 4])])
    assert missing(frontiers, [1]) == [2]  # the third is queued, and a sitemap has no row
    assert missing(frontiers, [1, 2]) == []
    assert [frontiers.is_done(item) for item in (1, 2, 3, 4, 5)] == [True, True, False, True, False]
    assert frontiers.acknowledged == 5
    frontiers.close()


@pytest.mark.parametrize(
    ("done", "rows", "lost"), [([1], [], []), ([1, 9], [9], []), ([1, 9], [], [9]), ([1], [9], [])]
)
def test_a_url_that_was_queued_again_is_missing_only_if_that_visit_is(
    tmp_path: Path, done: list[int], rows: list[int], lost: list[int]
) -> None:
    lines = [line(1, "http://a/"), line(5, "http://b/"), line(9, "http://a/")]
    frontiers = FrontierJournals([journal(tmp_path / "f.db", lines, done)])
    assert missing(frontiers, rows) == lost
    frontiers.close()


def test_a_missing_row_has_what_its_item_was_admitted_with(tmp_path: Path) -> None:
    lines = [line(7, "http://a/x", depth=4, about="http://from/"), line(7, "http://a/x", depth=2)]
    frontiers = FrontierJournals([journal(tmp_path / "f.db", lines, [7])])
    (row,) = frontiers.missing_rows(lambda _items: set())
    assert (row.item, row.url, row.final_url, row.depth, row.parent, row.hops, row.crawl) == (
        7, "http://a/x", "http://a/x", 2, 6, 2, 1,
    )  # fmt: skip
    assert (row.status, row.warc_file) == (0, "")
    frontiers.close()


def test_several_pods_are_taken_together(tmp_path: Path) -> None:
    far = 1 << 48
    paths = [
        journal(tmp_path / "one.db", [line(1, "http://a/")], [1], acknowledged=3),
        journal(tmp_path / "two.db", [line(far, "http://b/")], [far], acknowledged=8),
    ]
    frontiers = FrontierJournals.open(paths)
    assert frontiers is not None and frontiers.acknowledged == 8
    assert missing(frontiers, []) == [1, far]
    frontiers.close()


def test_a_frontier_that_is_new_or_damaged_is_not_asked(tmp_path: Path) -> None:
    assert FrontierJournals.open([]) is None
    assert FrontierJournals.open([journal(tmp_path / "new.db", [line(1, "http://a/")], [], acknowledged=0)]) is None
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"no database" * 1000)
    assert FrontierJournals.open([damaged]) is None


def test_finished_reads_the_journal_once_and_when_it_must(tmp_path: Path) -> None:
    made = FrontierJournal(journal(tmp_path / "f.db", [line(1, "http://a/")], [1, 70_000]))
    finished = FinishedItems(made)
    assert finished._items is None
    assert 1 in finished and 70_000 in finished and 2 not in finished
    made.close()
    assert 1 in finished
