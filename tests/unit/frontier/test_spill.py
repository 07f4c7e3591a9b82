"""The spilling queue where it changes: between its two pieces in memory and its file, as it is dumped and loaded."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from weft.frontier.scheduling import spill
from weft.frontier.scheduling.spill import SpillQueue, spill_name


class QueueAt(SpillQueue):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def file(self) -> Path:
        return self._path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> int:
    """Pieces of forty bytes: five texts of seven and their newlines."""
    monkeypatch.setattr(spill, "PIECE", 40)
    return 40


def filled(path: Path, count: int) -> tuple[QueueAt, list[str]]:
    queue, texts = QueueAt(path), [f"text{number:03d}" for number in range(count)]
    for text in texts:
        queue.push(text)
    return queue, texts


def drained(queue: SpillQueue) -> list[str]:
    return [queue.pop() for _ in range(len(queue))]


@pytest.mark.parametrize("count", range(0, 45))
def test_texts_come_out_as_they_went_in_whatever_their_number(tmp_path: Path, small: int, count: int) -> None:
    queue, texts = filled(tmp_path / "deep" / "q", count)
    assert (len(queue), list(queue.texts()), b"".join(queue.dump())) == (
        count, texts, "".join(f"{text}\n" for text in texts).encode(),
    )  # fmt: skip
    assert drained(queue) == texts
    assert (len(queue), (tmp_path / "deep" / "q").exists()) == (0, False)


def test_memory_holds_two_pieces_and_the_file_the_rest(tmp_path: Path, small: int) -> None:
    path = tmp_path / "q"
    queue, _ = filled(path, 9)
    assert not path.exists(), "five texts at the head, four at the tail"
    queue.push("text009")
    assert path.stat().st_size == 40
    for number in range(10, 14):
        queue.push(f"text{number:03d}")
    assert path.stat().st_size == 40
    queue.push("text014")
    assert path.stat().st_size == 80


@pytest.mark.parametrize("taken", [0, 3, 5, 7, 12, 20])
def test_texts_go_on_being_added_while_others_are_taken(tmp_path: Path, small: int, taken: int) -> None:
    path = tmp_path / "q"
    queue, texts = filled(path, 21)
    assert [queue.pop() for _ in range(taken)] == texts[:taken]
    assert list(queue.texts()) == texts[taken:]
    assert b"".join(queue.dump()).decode().split() == texts[taken:]
    more = [f"more{number}" for number in range(30)]
    for text in more:
        queue.push(text)
    assert list(queue.texts()) == texts[taken:] + more
    assert drained(queue) == texts[taken:] + more
    assert not path.exists()


def test_a_queue_that_was_used_up_starts_a_new_file(tmp_path: Path, small: int) -> None:
    path = tmp_path / "q"
    for _ in range(3):
        queue, texts = filled(path, 30)
        assert drained(queue) == texts
    queue, texts = filled(path, 30)
    stale = QueueAt(path)  # what a killed process left is no part of the next one's queue
    for text in texts[:12]:
        stale.push(text)
    assert drained(stale) == texts[:12]


def test_a_line_across_the_end_of_a_piece_is_read_whole(tmp_path: Path, small: int) -> None:
    queue = QueueAt(tmp_path / "q")
    texts = [f"{'x' * (number % 23)}-{number}-ü" for number in range(60)]
    for text in texts:
        queue.push(text)
    assert drained(queue) == texts


@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_what_was_dumped_is_loaded_behind_what_is_there(tmp_path: Path, small: int, pieces: int) -> None:
    path = tmp_path / "q"
    queue = QueueAt(path)
    expected: list[str] = []
    for number in range(pieces):
        lines = [f"{number}-{at}" for at in range(4)]
        queue.load("".join(f"{line}\n" for line in lines).encode(), len(lines))
        queue.push(f"pushed-{number}")
        expected += [*lines, f"pushed-{number}"]
    assert (len(queue), list(queue.texts())) == (len(expected), expected)
    assert drained(queue) == expected


def test_a_piece_that_just_fits_is_loaded_into_memory(tmp_path: Path, small: int) -> None:
    path = tmp_path / "q"
    queue = QueueAt(path)
    queue.load(b"x" * 39 + b"\n", 1)
    assert not path.exists()
    queue.load(b"y\n", 1)
    assert path.exists()
    assert drained(queue) == ["x" * 39, "y"]


def test_a_cleared_queue_is_empty_and_its_file_gone(tmp_path: Path, small: int) -> None:
    path = tmp_path / "q"
    queue, _ = filled(path, 30)
    queue.clear()
    assert (len(queue), list(queue.texts()), path.exists()) == (0, [], False)
    queue.push("again")
    assert drained(queue) == ["again"]


def test_what_was_taken_does_not_stay_in_memory(tmp_path: Path) -> None:
    queue = QueueAt(tmp_path / "q")
    for number in range(2000):
        queue.push(f"text-{number:04d}")
        if number >= 10:
            assert queue.pop() == f"text-{number - 10:04d}"
    assert len(queue._head) < 10_000


def test_queues_of_different_sites_and_depths_lie_in_different_files() -> None:
    names = {spill_name(key, depth) for key in ("a", "b", "a/../b") for depth in range(3)}
    assert len(names) == 9
    assert all(name.count("/") == 1 and ".." not in name for name in names)


@pytest.mark.parametrize("count", [11, 12, 13])
def test_an_empty_text_is_a_text_like_others(tmp_path: Path, small: int, count: int) -> None:
    queue = QueueAt(tmp_path / "q")
    texts = [f"text{number:03d}" for number in range(count)] + [""] * 40 + ["end"]
    for text in texts:
        queue.push(text)
    assert list(queue.texts()) == texts
    assert drained(queue) == texts


def test_a_queue_as_it_was_is_read_without_what_was_added_to_its_file_since(
    tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a checkpoint is written: by a process that has the queues as they were."""
    monkeypatch.setattr(spill, "_DUMPED", 64)
    queue, texts = filled(tmp_path / "q", 42)
    before = copy.deepcopy(queue)
    for number in range(50):
        queue.push(f"more{number}")
    pieces = list(before.dump())
    assert b"".join(pieces).decode().split() == list(before.texts()) == texts
    assert max(map(len, pieces)) <= 64, "however long it is, memory holds little of it"
    assert drained(queue) == texts + [f"more{number}" for number in range(50)]


def test_only_a_piece_of_the_file_is_read_at_a_time(tmp_path: Path, small: int) -> None:
    queue, texts = filled(tmp_path / "q", 200)
    for text in texts:
        assert queue.pop() == text
        assert len(queue._head) <= small + 8


def test_a_file_that_is_begun_again_while_another_process_reads_it_is_not_deleted_after_that(
    tmp_path: Path, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, _ = filled(tmp_path / "q", 40)
    monkeypatch.setattr(SpillQueue, "unused", set())
    drained(queue)
    assert SpillQueue.unused == {tmp_path / "q"} and (tmp_path / "q").exists()
    for number in range(40):
        queue.push(f"again{number:03d}")
    assert SpillQueue.unused == set()
    assert drained(queue) == [f"again{number:03d}" for number in range(40)]


def test_what_a_queue_takes_of_memory_is_what_it_holds_of_its_two_ends(tmp_path: Path, small: int) -> None:
    queue, _ = filled(tmp_path / "q", 2)
    assert queue.held_bytes == 16
    queue, _ = filled(tmp_path / "q", 12)
    assert (queue.held_bytes, (tmp_path / "q").stat().st_size) == (small + 16, small)
    assert QueueAt(tmp_path / "none").held_bytes == 0
