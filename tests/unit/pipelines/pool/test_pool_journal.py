"""The journal: what was written comes back, and a torn or broken end is cut off wherever it was torn."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import BadInput, WeftError
from weft.pipelines.pool.durability.history import EarlierResults
from weft.pipelines.pool.durability.journal import Block, ResultJournal
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.record import Code, Death, Result, ResultRecord, to_result
from weft.pipelines.pool.worker import slot as slots
from weft.pipelines.pool.worker.slot import SlotWriter


def record(item_id: str | int, value: object = None) -> ResultRecord:
    return ResultRecord(0, item_id, 0, 1, 1500, value)


def written(path: Path, *blocks: list[ResultRecord]) -> ResultJournal:
    journal = ResultJournal(path)
    assert list(journal.read()) == []
    for number, records in enumerate(blocks):
        journal.append(100 + number, msgspec.msgpack.encode(records))
        journal.flush()
    return journal


def blocks_of(path: Path) -> list[Block]:
    journal = ResultJournal(path)
    try:
        return list(journal.read())
    finally:
        journal.close()


def test_blocks_come_back_as_they_were(tmp_path: Path) -> None:
    written(tmp_path / "j", [record("a", {"x": [1, b"2"]}), record(7)], [record("b")]).close()
    first, second = blocks_of(tmp_path / "j")
    assert (first.pid, second.pid) == (100, 101)
    assert first.records == [record("a", {"x": [1, b"2"]}), record(7)]


def test_journal_torn_at_any_byte_keeps_its_whole_blocks(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, [record("a")], [record("b"), record("c")]).close()
    whole = path.read_bytes()
    ends = [block.at for block in blocks_of(path)] + [len(whole)]
    for size in range(8, len(whole)):
        path.write_bytes(whole[:size])
        found = blocks_of(path)
        assert len(found) == sum(end <= size for end in ends[1:])
        assert path.stat().st_size == ends[len(found)]


def test_any_flipped_byte_ends_the_journal_there(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, [record("a")], [record("b")]).close()
    whole = path.read_bytes()
    second = blocks_of(path)[1].at
    for at in list(range(second, second + 8)) + list(range(second + 12, len(whole))):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        assert [block.records[0].item_id for block in blocks_of(path)] == ["a"]


def test_appending_goes_on_after_a_cut(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, [record("a")], [record("b")]).close()
    os.truncate(path, path.stat().st_size - 1)
    journal = ResultJournal(path)
    list(journal.read())
    journal.append(1, msgspec.msgpack.encode([record("c")]))
    journal.close()
    assert [block.records[0].item_id for block in blocks_of(path)] == ["a", "c"]


def test_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("something else entirely")
    with pytest.raises(BadInput, match="not a journal"):
        ResultJournal(tmp_path / "j")


def test_a_journal_that_cannot_be_opened_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Is a directory"):
        ResultJournal(tmp_path)


def test_full_disk_is_reported_with_what_is_safe(tmp_path: Path) -> None:
    journal = written(tmp_path / "j", [record("a")])
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, journal._fd)
    os.close(full)
    journal.append(1, b"\x90")
    with pytest.raises(WeftError, match="No space left on device; what is done is safe"):
        journal.flush()


@settings(max_examples=30)
@given(
    st.sampled_from((0, 1, 2, 3, 4)),
    st.none() | st.text(),
    st.floats(0, 1e6),
    st.none() | st.builds(Death, st.none() | st.integers(0, 255), st.none() | st.text(), st.floats(0, 1e6)),
)
def test_a_result_is_the_same_after_the_journal(
    status: Code, error: str | None, ms: float, death: Death | None
) -> None:
    from weft.pipelines.pool.engine.delivery import _record

    result = to_result(ResultRecord(3, "x", status, 2, round(ms * 1000), [1], "clone", error, "tb", "log", death), 55)
    copy = msgspec.msgpack.decode(msgspec.msgpack.encode(_record(result)), type=ResultRecord)
    assert to_result(copy, 55) == result


class TestHistory:
    def place(self, tmp_path: Path) -> RunDirectory:
        directory = RunDirectory(tmp_path / "run")
        directory.hold()
        return directory

    def replay(self, directory: RunDirectory) -> list[Result]:
        journal = ResultJournal(directory.journal)
        try:
            return list(EarlierResults(directory, journal).replay())
        finally:
            journal.close()

    def test_results_left_in_slots_are_rescued_once(self, tmp_path: Path) -> None:
        directory = self.place(tmp_path)
        written(directory.journal, [record("a")]).close()
        (directory.slots / "4242-1.output").touch()
        path = directory.slots / "4242-1.slot"
        fd = slots.create(str(path))
        writer = SlotWriter(fd, lambda: None)
        for item in (record("a"), ResultRecord(1, "b", 100, 1, 0), record("b", "new"), record("c")):
            writer.put(msgspec.msgpack.encode(item))
        os.close(fd)
        found = self.replay(directory)
        assert [(result.item_id, result.value) for result in found] == [("a", None), ("b", "new"), ("c", None)]
        assert not path.exists()
        assert [result.item_id for result in self.replay(directory)] == ["a", "b", "c"]

    def test_half_made_or_wild_slots_are_cleared_away(self, tmp_path: Path) -> None:
        directory = self.place(tmp_path)
        written(directory.journal).close()
        (directory.slots / "1-1.slot").write_bytes(b"half")
        fd = slots.create(str(directory.slots / "1-2.slot"))
        SlotWriter(fd, lambda: None).put(b"\xc1\xc1")
        os.close(fd)
        assert self.replay(directory) == []
        assert list(directory.slots.iterdir()) == []

    def test_index_finds_every_result(self, tmp_path: Path) -> None:
        directory = self.place(tmp_path)
        journal = written(directory.journal, [record("a", 1), record(5, 2)], [record("b", 3)])
        history = EarlierResults(directory, journal)
        history.index()
        assert [getattr(history.find(key), "value", None) for key in ("a", "5", "b", "no")] == [1, 2, 3, None]
        journal.close()
