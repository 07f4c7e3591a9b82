"""Damaged files of a run: what is whole is read, what is not is reported, nothing that makes no sense is believed."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from weft.errors import BadInput, WeftError
from weft.pipelines.pool.durability.history import EarlierResults
from weft.pipelines.pool.durability.journal import ResultJournal
from weft.pipelines.pool.durability.runs import RunDirectory
from weft.pipelines.pool.record import Result, ResultRecord, Status
from weft.pipelines.pool.target import CallableTarget
from weft.pipelines.pool.worker import slot as slots
from weft.pipelines.pool.worker.item_log import ItemLog
from weft.pipelines.pool.worker.slot import (
    ACTIVE,
    COMMIT,
    FRAME_START_NS,
    READ,
    START_NS,
    SharedSlot,
    SlotReader,
    SlotWriter,
)


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What the pool logs, whatever has set up logging in this process before."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("weft.pipelines").addHandler(handler)
    yield said
    logging.getLogger("weft.pipelines").removeHandler(handler)


def record(item_id: str | int, value: object = None) -> ResultRecord:
    return ResultRecord(0, item_id, 0, 1, 1500, value)


def write(path: Path, *blocks: list[ResultRecord]) -> list[int]:
    """A journal of these blocks; where each begins, and where the last ends."""
    journal = ResultJournal(path)
    list(journal.read())
    for records in blocks:
        journal.append(4242, msgspec.msgpack.encode(records))
    journal.close()
    journal = ResultJournal(path)
    places = [block.at for block in journal.read()]
    journal.close()
    return [*places, path.stat().st_size]


def ids(path: Path) -> list[str | int]:
    journal = ResultJournal(path)
    try:
        return [record.item_id for block in journal.read() for record in block.records]
    finally:
        journal.close()


class TestJournal:
    def test_a_damaged_block_costs_itself_only_and_is_reported(self, tmp_path: Path, told: list[str]) -> None:
        path = tmp_path / "j"
        places = write(path, [record("a")], [record("b", "x" * 50)], [record("c"), record("d")])
        whole = path.read_bytes()
        for at in [n for n in range(places[1], places[2]) if n - places[1] not in (8, 9, 10, 11)]:  # all but the pid
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            told.clear()
            assert ids(path) == ["a", "c", "d"], at
            assert f"{places[2] - places[1]} bytes at {places[1]} are damaged" in "".join(told)
            assert path.stat().st_size == len(whole), "nothing is cut out of the middle"

    def test_several_damaged_blocks_side_by_side(self, tmp_path: Path) -> None:
        path = tmp_path / "j"
        places = write(path, *[[record(n, "v" * n)] for n in range(6)])
        data = bytearray(path.read_bytes())
        for number in (1, 2, 4):
            data[places[number] : places[number] + 12] = b"\xff" * 12
        path.write_bytes(data)
        assert ids(path) == [0, 3, 5]

    def test_what_is_appended_after_damage_is_found(self, tmp_path: Path) -> None:
        path = tmp_path / "j"
        places = write(path, [record("a")], [record("b")])
        with path.open("r+b") as file:
            file.seek(places[0] + 14)
            file.write(b"\xff\xff")
        write(path, [record("c")])
        assert ids(path) == ["b", "c"]

    def test_damage_is_reported_once_however_often_it_is_read(self, tmp_path: Path, told: list[str]) -> None:
        path = tmp_path / "j"
        write(path, [record("a")], [record("b")])
        with path.open("r+b") as file:
            file.seek(20)
            file.write(b"\xff\xff")
        journal = ResultJournal(path)
        assert [len(list(journal.read())) for _ in range(3)] == [1, 1, 1]
        journal.close()
        assert len(told) == 1

    def test_a_torn_end_is_reported_and_a_whole_journal_is_not(self, tmp_path: Path, told: list[str]) -> None:
        path = tmp_path / "j"
        write(path, [record("a")], [record("b")])
        assert ids(path) == ["a", "b"]
        assert told == []
        os.truncate(path, path.stat().st_size - 3)
        size = path.stat().st_size
        assert ids(path) == ["a"]
        assert f"its last {size - path.stat().st_size} bytes were torn and were cut off" in "".join(told)

    def test_a_length_beyond_the_file_is_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "j"
        write(path, [record("a")])
        with path.open("ab") as file:
            file.write(b"\xff\xff\xff\x7f" + b"\0" * 20)
        assert ids(path) == ["a"]

    def test_zeros_behind_the_last_block_are_no_blocks(self, tmp_path: Path) -> None:
        path = tmp_path / "j"
        end = write(path, [record("a")])[-1]
        os.truncate(path, end + 4096)
        assert ids(path) == ["a"]
        assert path.stat().st_size == end

    @pytest.mark.parametrize("size", range(8))
    def test_a_journal_torn_in_its_first_word_begins_anew(self, tmp_path: Path, size: int) -> None:
        path = tmp_path / "j"
        write(path, [record("a")])
        os.truncate(path, size)
        journal = ResultJournal(path)
        assert (journal.new, journal.empty, list(journal.read())) == (True, True, [])
        journal.append(1, msgspec.msgpack.encode([record("b")]))
        journal.close()
        assert ids(path) == ["b"]

    def test_new_and_empty(self, tmp_path: Path) -> None:
        path = tmp_path / "j"
        told = []
        for _ in range(2):
            journal = ResultJournal(path)
            told.append((journal.new, journal.empty))
            list(journal.read())
            journal.append(1, msgspec.msgpack.encode([record("b")]))
            journal.close()
        assert told == [(True, True), (False, False)]

    def test_a_full_disk_at_the_first_word_is_reported(self, mount_disk: Callable[[str], Path]) -> None:
        disk = mount_disk("4k")
        (disk / "filler").write_bytes(b"x" * 4096)
        with pytest.raises(WeftError, match="j cannot be written: No space left"):
            ResultJournal(disk / "j")


class TestHistory:
    @pytest.fixture
    def directory(self, tmp_path: Path) -> RunDirectory:
        made = RunDirectory(tmp_path / "run")
        made.hold()
        made.release()
        return made

    def slot(self, directory: RunDirectory, *banks: list[ResultRecord]) -> Path:
        path = directory.slots / "1-1.slot"
        fd = slots.create(str(path))
        writer = SlotWriter(fd, lambda: None)
        for number, records in enumerate(banks):
            if number:
                writer._leave_bank()
            for each in records:
                writer.put(msgspec.msgpack.encode(each))
        writer.close()
        os.close(fd)
        return path

    def replayed(self, directory: RunDirectory) -> list[str | int]:
        journal = ResultJournal(directory.journal)
        try:
            return [result.item_id for result in EarlierResults(directory, journal).replay()]
        finally:
            journal.close()

    def test_a_slot_that_was_cut_gives_what_it_still_has(self, directory: RunDirectory, told: list[str]) -> None:
        path = self.slot(directory, [record("a"), record("b")], [record("c")])
        os.truncate(path, slots._BANKS_OFFSET + slots.BANK_BYTES)  # the second bank has gone
        assert self.replayed(directory) == ["a", "b"]
        assert "done again" in "".join(told)
        assert not path.exists()

    def test_an_empty_or_half_made_slot_is_nothing_to_talk_about(
        self, directory: RunDirectory, told: list[str]
    ) -> None:
        (directory.slots / "1-1.slot").touch()
        (directory.slots / "1-2.slot").write_bytes(b"\0" * 5000)
        assert self.replayed(directory) == []
        assert told == []

    @pytest.mark.parametrize("word", [ACTIVE, COMMIT, READ])
    @pytest.mark.parametrize("bit", range(0, 64, 3))
    def test_any_flipped_bit_in_the_words_is_noticed_or_harmless(
        self, directory: RunDirectory, told: list[str], word: int, bit: int
    ) -> None:
        path = self.slot(directory, [record("a", "x" * 60), record("b", "x" * 60)])
        with path.open("r+b") as file:
            slot = SharedSlot(file.fileno())
            slot.words[word] ^= 1 << bit
            slot.close()
        assert self.replayed(directory) == ["a", "b"] or "done again" in "".join(told)

    def test_a_new_run_is_refused_where_a_damaged_journal_lies(self, directory: RunDirectory) -> None:
        write(directory.journal, [record("a")])
        os.truncate(directory.journal, directory.journal.stat().st_size - 1)
        size = directory.journal.stat().st_size
        journal = ResultJournal(directory.journal)
        with pytest.raises(BadInput, match="resume it"):
            EarlierResults(directory, journal).refuse_if_any()
        journal.close()
        assert directory.journal.stat().st_size == size


class TestSlot:
    def test_every_word_has_its_own_place(self) -> None:
        words = [slots.READY, slots.CURRENT, slots.START_NS, slots.FRAMES, slots.FRAME_START_NS, slots.ACTIVE]
        words += [slots.COMMIT, slots.COMMIT + 1, slots.LOG, slots.LIMIT, slots.READ, slots.CUT]
        assert len(set(words)) == len(words)
        assert max(words) * 8 < slots._STAGE_AT

    def test_a_slot_without_room_leaves_no_file(self, mount_disk: Callable[[str], Path]) -> None:
        disk = mount_disk("64k")
        with pytest.raises(OSError, match="No space left"):
            slots.create(str(disk / "a.slot"))
        assert list(disk.iterdir()) == []

    def test_a_bank_that_the_worker_cannot_be_at_is_refused(self) -> None:
        for active in (2, 3, slots._SEQ_MASK, slots._SEQ_MASK + 1, 1 << 63, slots.NO_LIMIT):
            fd = slots.create(None)
            writer, reader = SlotWriter(fd, lambda: None), SlotReader(fd)
            writer.put(b"\x01")
            writer.words[ACTIVE] = active
            with pytest.raises(ValueError, match="is corrupt"):
                reader.take()
            for each in (writer, reader):
                each.close()
            os.close(fd)

    @pytest.mark.parametrize("commit", [5, (1 << 27) | (64 << 20) + 1, 1 << 47, ((1 << 20) - 1) << 27])
    def test_a_commit_word_that_cannot_be_is_refused(self, commit: int) -> None:
        """Bytes without a record, more bytes than a bank has, more records than can be counted."""
        fd = slots.create(None)
        reader = SlotReader(fd)
        reader.words[COMMIT] = commit
        with pytest.raises(ValueError, match="commit word is corrupt"):
            reader.take()
        reader.close()
        os.close(fd)

    def test_a_commit_word_that_goes_back_is_refused(self) -> None:
        fd = slots.create(None)
        writer, reader = SlotWriter(fd, lambda: None), SlotReader(fd)
        for _ in range(3):
            writer.put(b"\xa3abc")
        reader.take()
        writer.words[COMMIT] = 4 << 27 | 5  # a record more, and less bytes
        with pytest.raises(ValueError, match="commit word is corrupt"):
            reader.take()
        for each in (writer, reader):
            each.close()
        os.close(fd)

    def test_the_clocks_stand_still_while_the_parent_is_behind(self) -> None:
        fd = slots.create(None)
        reader = SlotReader(fd)

        def bell() -> None:
            assert writer.words[START_NS] == 0
            time.sleep(0.05)
            reader.take()
            reader.release()

        writer = SlotWriter(fd, bell)
        began = time.monotonic_ns()
        writer.words[FRAME_START_NS], writer.words[START_NS] = 1000, 2000
        record = msgspec.msgpack.encode(b"x" * 100_000)
        for _ in range(3):  # one fills a bank: the third must wait for the first
            writer.put(record)
        assert 1000 + 50_000_000 <= writer.words[FRAME_START_NS] <= 1000 + time.monotonic_ns() - began
        for each in (writer, reader):
            each.close()
        os.close(fd)

    def test_settled_looks_at_the_bank_that_is_filled(self) -> None:
        fd = slots.create(None)
        writer, reader = SlotWriter(fd, lambda: None), SlotReader(fd)
        writer.put(b"\x01")
        reader.take()
        reader.release()
        writer._leave_bank()
        told = [reader.settled()]
        reader.take()
        reader.release()
        told += [reader.settled(), reader.settled()]
        writer.put(b"\x02")
        told += [reader.settled(), reader.settled()]
        assert told == [False, False, False, False, True]
        for each in (writer, reader):
            each.close()
        os.close(fd)

    def test_the_banks_numbers_begin_again_after_the_last(self) -> None:
        fd = slots.create(None)
        reader = SharedSlot(fd)
        last = slots._SEQ_MASK
        reader.words[READ] = last << slots._SEQ_SHIFT
        reader.words[ACTIVE] = last
        writer, reading = SlotWriter(fd, lambda: None), SlotReader(fd)
        writer._sequence, writer._bank_at = last, slots._BANKS_OFFSET + slots.BANK_BYTES
        writer.put(b"\x01")
        writer._leave_bank()
        writer.put(b"\x02")
        assert [msgspec.msgpack.decode(chunk.data) for chunk in reading.take()] == [[1], [2]]
        for each in (reader, writer, reading):
            each.close()
        os.close(fd)


def test_a_log_whose_last_line_was_torn_goes_on_in_a_new_one(tmp_path: Path) -> None:
    fd = slots.create(None)
    slot = SharedSlot(fd)
    log = ItemLog(slot, str(tmp_path), 7, lambda: (b"", 0))
    for torn in (False, True):
        log.begin("a")
        log.info("said")
        log.end("ok", 1.0)
        path = Path(str(log.path))
        if not torn:
            os.truncate(path, path.stat().st_size - 5)
    lines = path.read_text().splitlines()
    assert [line.split("] ")[2][1:] for line in lines] == ["process", "end", "log", "process", "end"]
    assert "torn" in lines[2]
    slot.close()
    os.close(fd)


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xfe", b'{"item_id": "\xff"}', b"[" * 5000])
def test_a_damaged_quarantined_item_is_reported(tmp_path: Path, damage: bytes) -> None:
    directory = RunDirectory(tmp_path / "run")
    directory.hold()
    directory.quarantine_item(CallableTarget("m", "f"), Result("a", Status.CRASHED), b"\xc1")
    with pytest.raises(BadInput, match="cannot be read"):
        directory.quarantined("a")
    (directory.quarantine / "a.json").write_bytes(damage)
    with pytest.raises(BadInput, match="cannot be read"):
        directory.quarantined("a")
    directory.release()
