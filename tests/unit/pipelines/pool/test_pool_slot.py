"""The shared memory between a worker and its parent: whole records or none, each once, whenever either side dies."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.pipelines.pool.worker import slot as slots
from weft.pipelines.pool.worker.slot import ACTIVE, COMMIT, LOG, Chunk, LogBuffer, SharedSlot, SlotReader, SlotWriter


@pytest.fixture
def fd() -> Iterator[int]:
    number = slots.create(None)
    yield number
    os.close(number)


def no_bell() -> None:
    raise AssertionError("the writer should not have to wait")


def records(chunks: list[Chunk]) -> list[object]:
    for chunk in chunks:
        assert len(msgspec.msgpack.decode(chunk.data)) == chunk.records
    return [record for chunk in chunks for record in msgspec.msgpack.decode(chunk.data)]


def test_records_come_out_once_and_in_order(fd: int) -> None:
    writer, reader = SlotWriter(fd, no_bell), SlotReader(fd)
    assert reader.take() == []
    for number in range(3):
        writer.put(msgspec.msgpack.encode(number))
    assert records(reader.take()) == [0, 1, 2]
    assert reader.take() == []
    writer.put(msgspec.msgpack.encode(3))
    assert records(reader.take()) == [3]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.sampled_from([0, 10, 5_000, 70_000, 140_000, 3_000_000]), st.booleans()), max_size=40))
def test_any_sizes_and_any_reading_rhythm(steps: list[tuple[int, bool]]) -> None:
    fd = slots.create(None)
    seen: list[object] = []

    def read() -> None:
        seen.extend(records(reader.take()))
        reader.release()

    writer, reader = SlotWriter(fd, read), SlotReader(fd)
    written = []
    for number, (size, reading) in enumerate(steps):
        record = [number, b"x" * size]
        written.append(record)
        writer.put(msgspec.msgpack.encode(record))
        if reading:
            read()
    read()
    assert seen == written
    os.close(fd)


def test_what_was_read_and_not_released_is_there_for_the_next_reader(tmp_path: Path) -> None:
    fd = slots.create(str(tmp_path / "a.slot"))
    writer, reader = SlotWriter(fd, no_bell), SlotReader(fd)
    writer.put(b"\x01")
    reader.take()
    reader.release()
    writer.put(b"\x02")
    reader.take()  # and then the parent is killed
    writer.put(b"\x03")
    assert records(SlotReader(fd).take()) == [2, 3]
    os.close(fd)


def test_emptied_means_taken_and_released(fd: int) -> None:
    writer, reader = SlotWriter(fd, no_bell), SlotReader(fd)
    told = [reader.emptied]
    for step in (lambda: writer.put(b"\x01"), reader.take, reader.release):
        step()
        told.append(reader.emptied)
    assert told == [True, False, False, True]


def test_large_records_give_their_memory_back(fd: int) -> None:
    reader: SlotReader

    def read() -> None:
        reader.take()
        reader.release()

    writer, reader = SlotWriter(fd, read), SlotReader(fd)
    for _ in range(6):
        writer.put(msgspec.msgpack.encode(b"x" * 20_000_000))
        read()
    writer.put(b"\x01")
    read()
    assert os.fstat(fd).st_blocks * 512 < 45_000_000


def test_settled_means_unchanged_since_the_last_look(fd: int) -> None:
    writer, reader = SlotWriter(fd, no_bell), SlotReader(fd)
    assert not reader.settled()
    writer.put(b"\x01")
    assert not reader.settled()
    assert reader.settled()
    writer.put(b"\x02")
    assert not reader.settled()
    reader.take()
    assert not reader.settled()
    assert not reader.settled()


def test_nonsense_in_the_commit_word_is_refused(fd: int) -> None:
    reader = SlotReader(fd)
    reader.words[COMMIT] = (1 << 64) - 1
    with pytest.raises(ValueError, match="is corrupt"):
        reader.take()


def test_killed_writer_leaves_a_prefix_of_whole_records() -> None:
    """SIGKILL at a random moment, many times: the reader finds records 0..n, each whole."""
    for seed in range(25):
        fd = slots.create(None)
        pid = os.fork()
        if pid == 0:
            _write_for_ever(fd, seed)
        time.sleep(random.Random(seed).uniform(0.001, 0.01))
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        reader = SlotReader(fd)
        found = records(reader.take())
        assert [record[0] for record in found] == list(range(len(found)))  # type: ignore[index]
        assert all(record[1] == b"z" * record[2] for record in found)  # type: ignore[index]
        reader.close()
        os.close(fd)


def _write_for_ever(fd: int, seed: int) -> None:
    reader = SlotReader(fd)
    chance = random.Random(seed)
    writer = SlotWriter(fd, lambda: None)
    for number in range(10_000_000):
        size = chance.choice([1, 50, 3000])
        if number % 30 == 0 and writer.words[ACTIVE]:
            os._exit(0)  # two banks are full and no one empties them
        writer.put(msgspec.msgpack.encode([number, b"z" * size, size]))
    reader.close()


def test_stage_is_a_short_text(fd: int) -> None:
    slot = SharedSlot(fd)
    assert slot.stage is None
    slot.stage = "clone"
    assert slot.stage == "clone"
    slot.stage = "é" * 100
    assert slot.stage is not None
    assert slot.stage.startswith("é" * 31)
    slot.stage = None
    assert slot.stage is None


def test_log_buffer_knows_what_the_file_lacks_at_every_moment_of_a_flush(fd: int) -> None:
    slot = SharedSlot(fd)
    buffer = LogBuffer(slot)
    slot.words[LOG] = 1000 << 20  # a file that had 1000 bytes already
    assert buffer.add(b"one\n")
    assert buffer.add(b"two\n")
    assert buffer.missing(1000) == b"one\ntwo\n"
    assert buffer.missing(1004) == b"two\n"  # killed in the middle of the write
    assert buffer.missing(1008) == b""  # killed after the write, before it was noted
    buffer.flushed(8)
    assert buffer.missing(1008) == b""
    assert buffer.add(b"three\n")
    assert buffer.missing(1008) == b"three\n"


def test_log_buffer_refuses_what_does_not_fit(fd: int) -> None:
    buffer = LogBuffer(SharedSlot(fd))
    assert buffer.add(b"x" * slots.LOG_BYTES)
    assert not buffer.add(b"x")
