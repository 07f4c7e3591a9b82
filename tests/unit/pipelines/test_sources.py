"""Where items come from, and what becomes of them before a worker sees one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.errors import BadInput, WeftError
from weft.pipelines.feed import EarlierItems, ItemFeed, PendingItem
from weft.pipelines.pool.engine.task import BadItem, Pause
from weft.pipelines.pool.record import Result, Status
from weft.pipelines.sources import open_source
from weft.pipelines.spec.definition import ItemsSpec


def opened(path: Path, text: str) -> list[Any]:
    path.write_text(text)
    return list(open_source(ItemsSpec(file=str(path))).items)


def test_files_of_every_kind_give_the_same_items(tmp_path: Path) -> None:
    expected = [{"id": "a", "n": "1"}, {"id": "b", "n": "2"}]
    assert opened(tmp_path / "i.jsonl", '{"id":"a","n":"1"}\n\n{"id":"b","n":"2"}') == expected
    assert opened(tmp_path / "i.json", '[{"id":"a","n":"1"},{"id":"b","n":"2"}]') == expected
    assert opened(tmp_path / "i.csv", "\ufeffid,n\na,1\nb,2\n") == expected


def test_what_is_wrong_with_one_item_is_that_items_and_the_rest_goes_on(tmp_path: Path) -> None:
    broken, good = opened(tmp_path / "i.jsonl", '{"id":\n{"id":"b"}')
    assert isinstance(broken, BadItem) and good == {"id": "b"}
    broken, good = opened(tmp_path / "i.csv", "id,n\na,1,2\nb,2\n")
    assert isinstance(broken, BadItem) and good == {"id": "b", "n": "2"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("i.json", "{}", "must be a JSON list"),
        ("i.json", "[", "must be a JSON list"),
        ("i.csv", "name\na\n", "has no column `id`"),
        ("i.csv", "", "has no column `id`"),
        ("i.txt", "", "must be .jsonl, .json or .csv"),
    ],
)
def test_a_file_that_can_give_no_items_is_one_clear_error(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        opened(tmp_path / name, text)
    with pytest.raises(BadInput, match="there is no such file"):
        open_source(ItemsSpec(file=str(tmp_path / "none.jsonl")))


def test_a_table_that_breaks_off_says_where(tmp_path: Path) -> None:
    with pytest.raises(WeftError, match="cannot be read after line"):
        opened(tmp_path / "i.csv", 'id\na\n"b')


class Written:
    """A writer that keeps what it is given."""

    def __init__(self, next_: int = 0) -> None:
        self.next = next_
        self.got: list[tuple[int, Any]] = []

    def add(self, pending: PendingItem, result: Result) -> None:
        self.got.append((pending.position, result.item_id))


def result(name: str) -> Result:
    return Result(name, Status.OK)


ITEMS = [{"id": name, "url": f"u-{name}"} for name in "abcdef"]


def test_every_item_has_its_place_and_bad_ones_have_theirs() -> None:
    feed = ItemFeed(iter([ITEMS[0], {"no": 1}, "text", ITEMS[0], ITEMS[1]]), ["url"], EarlierItems(), Written())
    first, no_id, text, again, second = feed
    assert first == {"id": "a", "n": 0, "item": ITEMS[0]}
    assert second["n"] == 4
    assert [one.error for one in (no_id, text)] == [
        "the item has no id",
        "an item must be a mapping with an id, this is str",
    ]
    assert again.error == "there was an item with this id before"
    assert feed.pending["a"] == PendingItem(0, "a", {"url": "u-a"})
    assert feed.pending[again.name].item_id == "a"
    assert feed.position == 5


@pytest.mark.parametrize("name", ["pages.jsonl", "pages.json"])
def test_an_export_is_a_file_of_items_which_are_known_by_their_urls(tmp_path: Path, name: str) -> None:
    rows = ['{"url": "https://a.test/", "status": 200}', '{"id": "x", "url": "https://a.test/b"}']
    first, own = opened(tmp_path / name, "\n".join(rows) if name.endswith("l") else f"[{', '.join(rows)}]")
    assert first == {"id": "https://a.test/", "url": "https://a.test/", "status": 200}
    assert own == {"id": "x", "url": "https://a.test/b"}


def test_a_table_of_an_export_is_known_by_its_urls_too(tmp_path: Path) -> None:
    (tmp_path / "pages.csv").write_text("url,status\nhttps://a.test/,200\n")
    (item,) = open_source(ItemsSpec(file=str(tmp_path / "pages.csv"))).items
    assert item == {"id": "https://a.test/", "url": "https://a.test/", "status": "200"}


def test_an_id_that_cannot_be_written_is_replaced_by_the_items_place() -> None:
    feed = ItemFeed(iter([{"id": "\ud83d"}, {"id": 1 << 64}, {"id": "é"}, {"id": -1}]), [], EarlierItems(), Written())
    half, large, accented, negative = feed
    assert [half.error, large.error] == [
        "the id '\\ud83d' is no text: half a character",
        "the id 18446744073709551616 has more than 64 bits",
    ]
    assert [feed.pending[one.name].item_id for one in (half, large)] == ["#0", "#1"]
    assert (accented["id"], negative["id"]) == ("é", -1)


def test_what_an_earlier_try_has_ended_is_written_and_not_given_again() -> None:
    known, writer = EarlierItems(2, ["a", "b"]), Written(2)
    known.by_position[3] = result("d")
    known.by_id["e"] = result("e")
    feed = ItemFeed(iter(ITEMS), [], known, writer, resumed=True)
    assert [one["id"] for one in feed] == ["c", "f"]
    assert writer.got == [(3, "d"), (4, "e")]


def test_an_id_of_a_finished_range_that_comes_again_is_refused_in_a_resumed_run_too() -> None:
    (again,) = ItemFeed(iter([ITEMS[0], ITEMS[0]]), [], EarlierItems(1, ["a"]), Written(1), resumed=True)
    assert again.error == "there was an item with this id before"


def test_a_source_that_has_changed_cannot_be_resumed() -> None:
    known = EarlierItems()
    known.by_position[0] = result("z")
    with pytest.raises(BadInput, match="the source has changed since the run began: item 1 was 'z' and is 'a' now"):
        next(ItemFeed(iter(ITEMS), [], known, Written(), resumed=True))


def test_no_more_is_given_than_the_output_can_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.pipelines.feed._MAX_AHEAD", 2)
    writer = Written()
    feed = ItemFeed(iter(ITEMS), [], EarlierItems(), writer)
    assert [next(feed) is Pause.LATER for _ in range(5)] == [False, False, False, True, True]
    writer.next = 3
    assert next(feed)["id"] == "d"


def test_only_chosen_items_are_given_and_those_not_found_are_left() -> None:
    only = {"b", "e", "nobody"}
    feed = ItemFeed(iter(ITEMS), [], EarlierItems(), Written(), only=only)
    assert [(one["id"], one["n"]) for one in feed] == [("b", 0), ("e", 1)]
    assert only == {"nobody"}
