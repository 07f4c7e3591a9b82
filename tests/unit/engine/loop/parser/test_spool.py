"""The spool between fetchers and parsers: what is read is what was written, and what was read goes away."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from weft.bodies import FileBody, chunks_of
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.parser.handoff import Handoff
from weft.engine.loop.parser.pressure import Pressure
from weft.engine.loop.parser.spool import (
    SegmentSweeper,
    SpooledAnswer,
    SpoolReader,
    SpoolWriter,
    UnreadableEntry,
    spool_answer,
)
from weft.errors import DiskFull, ServerAway
from weft.frontier.contract import HandedTransfer, TransferEnd
from weft.records import FetchResult, Lease, Purpose


def entry(n: int, size: int = 1000) -> SpooledAnswer:
    body = bytes([n % 256]) * size
    result = FetchResult("http://a/", 200, b"HTTP/1.1 200 OK\r\n\r\n", body, None, "", 5.0, 5.5, "127.0.0.1", b"GET /")
    return spool_answer(result, 1_700_000_000.0 + n)


class Frontier:
    """Knows which items wait for a parser."""

    def __init__(self, *waiting: int) -> None:
        self.waiting = set(waiting)
        self.asked = 0

    def awaited(self, items: Sequence[int]) -> list[bool]:
        self.asked += 1
        return [item in self.waiting for item in items]


def test_entries_come_back_as_they_were(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(tmp_path, "fetcher0", segment_bytes=5000), SpoolReader(tmp_path)
    references = []
    for n in range(20):
        references.append(writer.add(n, entry(n)))
        writer.flush()
        writer.note_references()
    assert len(list(tmp_path.iterdir())) == 4, "five entries fill a segment"
    for n, reference in enumerate(references):
        read = reader.read(reference, n)
        assert read == entry(n)
        result = read.result("http://a/")
        assert (result.body, result.ended - result.started) == (bytes([n]) * 1000, 0.5)
    reader.close()
    writer.close()


def large_entry(folder: Path, body: bytes) -> tuple[SpooledAnswer, FileBody]:
    path = folder.with_name("large")
    path.write_bytes(body)
    large = FileBody(os.open(path, os.O_RDONLY), 0, len(body))
    result = FetchResult("http://a/", 200, b"HTTP/1.1 200 OK\r\n\r\n", large, None, "", 5.0, 5.5, "127.0.0.1", b"GET /")
    return spool_answer(result, 1_700_000_000.0), large


def test_a_large_body_is_copied_and_read_from_the_segment(tmp_path: Path) -> None:
    folder, body = tmp_path / "spool", os.urandom(1_000_000)
    writer, reader = SpoolWriter(folder, "fetcher0"), SpoolReader(folder)
    references = [writer.add(1, entry(1)), writer.add(2, *large_entry(folder, body)), writer.add(3, entry(3))]
    writer.flush()
    read = reader.read(references[1], 2)
    large = reader.read_large_body(references[1], read)
    assert read.body == b"" and large is not None
    assert b"".join(chunks_of(read.result("http://a/", large).body)) == body
    assert reader.read(references[2], 3) == entry(3) and reader.read_large_body(references[0], entry(1)) is None
    frontier = Frontier(2)
    writer.close()
    sweeper = SegmentSweeper(folder, frontier.awaited)
    assert sweeper.sweep() == 0
    frontier.waiting.clear()
    assert sweeper.sweep() == 1
    assert b"".join(large.chunks()) == body, "whoever has it keeps it"
    reader.close()


def test_a_large_body_that_is_torn_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    writer, reader = SpoolWriter(folder, "fetcher0"), SpoolReader(folder)
    reference = writer.add(2, *large_entry(folder, b"x" * 100_000))
    writer.flush()
    segment = next(folder.iterdir())
    whole = segment.read_bytes()
    for broken in (whole[:-1], whole[:-9] + b"y" + whole[-8:]):
        segment.write_bytes(broken)
        with pytest.raises(UnreadableEntry):
            reader.read_large_body(reference, reader.read(reference, 2))
    writer.close()
    reader.close()


def test_a_torn_a_foreign_and_a_missing_entry_are_told(tmp_path: Path) -> None:
    writer, reader = SpoolWriter(tmp_path, "fetcher0"), SpoolReader(tmp_path)
    reference = writer.add(7, entry(7))
    writer.flush()
    with pytest.raises(UnreadableEntry):
        reader.read(reference, 8)
    segment = next(tmp_path.iterdir())
    whole = segment.read_bytes()
    for broken in (whole[:-1], whole[:10], b"", whole[:500] + b"\0" * 8 + whole[508:]):
        segment.write_bytes(broken)
        with pytest.raises(UnreadableEntry):
            reader.read(reference, 7)
    segment.write_bytes(whole)
    assert reader.read(reference, 7) == entry(7)
    for nonsense in (b"", b"gone.spool 0 20", b"../../etc/passwd 0 20", b"a b c", b"\xff"):
        with pytest.raises(UnreadableEntry):
            reader.read(nonsense, 7)


def test_a_full_disk_loses_nothing_that_was_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = SpoolWriter(tmp_path, "fetcher0"), SpoolReader(tmp_path)
    first = writer.add(1, entry(1))
    writer.flush()
    second = writer.add(2, entry(2))

    def half(fd: int, data: bytes) -> int:
        monkeypatch.undo()
        return os.write(fd, data[:100])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(DiskFull):
        writer.flush()
    writer.flush()
    assert [reader.read(first, 1), reader.read(second, 2)] == [entry(1), entry(2)]


def test_a_segment_goes_when_nobody_writes_it_and_nobody_waits_for_it(tmp_path: Path) -> None:
    frontier = Frontier(2, 6)
    sweeper = SegmentSweeper(tmp_path, frontier.awaited)
    writer = SpoolWriter(tmp_path, "fetcher0", segment_bytes=2500)
    for n in range(9):
        writer.add(n, entry(n))
        writer.flush()
        writer.note_references()
    assert sweeper.sweep() == 1, "items 3 to 5 are read; 0 to 2 and 6 to 8 are not, and the last is being written"
    frontier.waiting.clear()
    assert sweeper.sweep() == 1
    assert len(list(tmp_path.iterdir())) == 1
    writer.close()
    assert sweeper.sweep() == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_fetcher_left_is_swept_too(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path, "fetcher0")
    writer.add(1, entry(1))
    writer.flush()
    writer.add(2, entry(2))
    os.close(writer._fd)  # as the kernel does
    segment = next(tmp_path.iterdir())
    segment.write_bytes(segment.read_bytes() + b"\1\2\3")
    assert SegmentSweeper(tmp_path, Frontier(1).awaited).sweep() == 0
    assert SegmentSweeper(tmp_path, Frontier().awaited).sweep() == 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_segment_that_is_swept_before_it_is_locked_gets_no_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Another process sweeps between the opening of a new segment and its lock: the file is empty, and unlocked."""
    lock, swept = fcntl.flock, list[int]()

    def late(fd: int, operation: int) -> None:
        if len(swept) < times:
            monkeypatch.setattr(fcntl, "flock", lock)
            swept.append(SegmentSweeper(tmp_path, Frontier().awaited).sweep())
            monkeypatch.setattr(fcntl, "flock", late)
        lock(fd, operation)

    writer, reader = SpoolWriter(tmp_path, "fetcher0"), SpoolReader(tmp_path)
    monkeypatch.setattr(fcntl, "flock", late)
    reference = writer.add(1, entry(1))
    monkeypatch.undo()
    writer.flush()
    assert swept == [1] * times, "the sweeper has deleted the new file each time"
    assert reader.read(reference, 1) == entry(1)
    assert SegmentSweeper(tmp_path, Frontier().awaited).sweep() == 0, "it is locked"
    writer.close()
    reader.close()


class Queue:
    """A parse queue on a server that is away for its first call."""

    def __init__(self) -> None:
        self.handed: list[HandedTransfer] = []
        self.is_away = True

    def fetched(self, handed: Iterable[HandedTransfer]) -> list[bool]:
        if self.is_away:
            self.is_away = False
            raise ServerAway("it does not answer")
        some = list(handed)
        self.handed += some
        return [True] * len(some)


def test_a_full_segment_stays_until_the_frontier_has_its_references(tmp_path: Path) -> None:
    """The server is away while a segment fills up, and a parser reaches it again before this fetcher does: none of the
    entries is awaited yet."""
    queue, writer = Queue(), SpoolWriter(tmp_path, "fetcher0", segment_bytes=1500)
    handoff = Handoff(cast(Any, queue), writer, Pressure(lambda: 0, 10, 10))
    handoff.add_answers([answer(1), answer(2)])
    with pytest.raises(ServerAway):
        handoff.flush()
    handoff.add_answers([answer(3)])
    assert SegmentSweeper(tmp_path, Frontier().awaited).sweep() == 0
    handoff.flush()
    reader = SpoolReader(tmp_path)
    for n, one in enumerate(queue.handed, 1):
        assert reader.read(one.reference, n).body == bytes([n]) * 1000
    handoff.add_answers([answer(4)])
    handoff.flush()
    assert SegmentSweeper(tmp_path, Frontier(4).awaited).sweep() == 1, "the next segment has begun"
    reader.close()
    writer.close()


def answer(n: int) -> EndedTransfer:
    lease = Lease(n, 1, f"http://a/{n}", "a", 0, 0, 0, Purpose.PAGE, "", 0, 0, "fetcher0#1", 1, 60.0, 1.0)
    head, body = b"HTTP/1.1 200 OK\r\n\r\n", bytes([n]) * 1000
    result = FetchResult(lease.url, 200, head, body, None, "", 5.0, 5.5, "127.0.0.1", b"GET /")
    made = EndedTransfer(cast(Any, None), lease, result, 1_700_000_000.0)
    made.ended = TransferEnd(lease, 5.5)
    return made
