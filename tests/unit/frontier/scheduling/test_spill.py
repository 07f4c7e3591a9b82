"""The spilling queue where it changes: between its two ends in memory and its pieces on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.errors import Damaged
from weft.frontier.durability import blobs as blobs_module
from weft.frontier.durability.blobs import BlobStore
from weft.frontier.scheduling import spill
from weft.frontier.scheduling.spill import SpillQueue, pieces_of


class QueueIn(SpillQueue):
    def __init__(self, store: BlobStore) -> None:
        super().__init__()
        self._store = store

    @property
    def blobs(self) -> BlobStore:
        return self._store

    def pieces(self) -> list[int]:
        return list(pieces_of(self.state()))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BlobStore]:
    """Every piece is in the file, of forty bytes: five texts of seven and their newlines."""
    monkeypatch.setattr(spill, "PIECE_BYTES", 40)
    monkeypatch.setattr(blobs_module, "_BUFFER_BYTES", 1)
    made = BlobStore(tmp_path / "queues.db")
    yield made
    made.close()


def filled(store: BlobStore, count: int) -> tuple[QueueIn, list[str]]:
    queue, texts = QueueIn(store), [f"text{number:03d}" for number in range(count)]
    for text in texts:
        queue.push(text)
    return queue, texts


def drained(queue: SpillQueue) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


@pytest.mark.parametrize("count", range(0, 45))
def test_texts_come_out_as_they_went_in_whatever_their_number(store: BlobStore, count: int) -> None:
    queue, texts = filled(store, count)
    assert (len(queue), list(queue.texts())) == (count, texts)
    assert drained(queue) == texts
    assert (len(queue), queue.pieces()) == (0, [])


def test_memory_holds_two_ends_and_the_disk_the_rest(store: BlobStore) -> None:
    queue, _ = filled(store, 9)
    assert queue.pieces() == [], "five texts at the head, four at the tail"
    queue.push("text009")
    assert len(queue.pieces()) == 1
    for number in range(10, 14):
        queue.push(f"text{number:03d}")
    assert len(queue.pieces()) == 1
    queue.push("text014")
    assert len(queue.pieces()) == 2


@pytest.mark.parametrize("taken", [0, 3, 5, 7, 12, 20])
def test_texts_go_on_being_added_while_others_are_taken(store: BlobStore, taken: int) -> None:
    queue, texts = filled(store, 21)
    assert [queue.pop() for _ in range(taken)] == texts[:taken]
    assert list(queue.texts()) == texts[taken:]
    more = [f"more{number}" for number in range(30)]
    for text in more:
        queue.push(text)
    assert list(queue.texts()) == texts[taken:] + more
    assert drained(queue) == texts[taken:] + more


@pytest.mark.parametrize("taken", [0, 3, 7, 12, 20, 60])
def test_a_queue_comes_back_from_what_it_was_written_down_as(store: BlobStore, taken: int) -> None:
    queue, texts = filled(store, 70)
    for _ in range(taken):
        queue.pop()
    again = QueueIn(store)
    again.restore(queue.state())
    again.push("behind them")
    assert list(again.texts()) == [*texts[taken:], "behind them"] == drained(again)


def test_what_is_longer_than_a_piece_is_cut_into_pieces_that_end_with_a_line(store: BlobStore) -> None:
    queue = QueueIn(store)
    texts = [f"{'x' * (number % 90)}-{number}-ü" for number in range(60)]
    queue.push("first of all, and longer than a piece is")
    queue.push_all("".join(f"{text}\n" for text in texts).encode(), len(texts))
    pieces = [store.get(number) for number in queue.pieces()]
    assert all(piece.endswith(b"\n") and (len(piece) <= 60 or piece.count(b"\n") == 1) for piece in pieces)
    assert drained(queue)[1:] == texts


def test_a_cleared_queue_is_empty_and_its_pieces_are_deleted(store: BlobStore) -> None:
    queue, _ = filled(store, 30)
    numbers = queue.pieces()
    queue.clear()
    assert (len(queue), list(queue.texts())) == (0, [])
    queue.push("again")
    assert drained(queue) == ["again"]
    store.delete_some()
    for number in numbers:
        with pytest.raises(Damaged):
            store.get(number)


def test_what_was_taken_does_not_stay_in_memory(tmp_path: Path) -> None:
    store = BlobStore(tmp_path / "queues.db")
    queue = QueueIn(store)
    for number in range(2000):
        queue.push(f"text-{number:04d}")
        if number >= 10:
            assert queue.pop() == f"text-{number - 10:04d}"
    assert queue.held_bytes < 10_000
    store.close()


@pytest.mark.parametrize("count", [11, 12, 13])
def test_an_empty_text_is_a_text_like_others(store: BlobStore, count: int) -> None:
    queue = QueueIn(store)
    texts = [f"text{number:03d}" for number in range(count)] + [""] * 40 + ["\x0b\x85 ", "end"]
    for text in texts:
        queue.push(text)
    assert list(queue.texts()) == texts
    assert drained(queue) == texts


def test_a_thousand_pieces_take_a_few_bytes_each(store: BlobStore) -> None:
    queue, texts = filled(store, 8000)
    assert len(queue.state()[2]) < 8 * 1700 and queue.held_bytes <= 100
    assert drained(queue) == texts


def test_what_a_queue_takes_of_memory_is_what_it_holds_of_its_two_ends(store: BlobStore) -> None:
    queue, _ = filled(store, 2)
    assert queue.held_bytes == 16
    queue, _ = filled(store, 12)
    assert queue.held_bytes == 40 + 16
    assert QueueIn(store).held_bytes == 0
