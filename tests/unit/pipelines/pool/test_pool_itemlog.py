"""A log for each item: names, lines, flushes, limits, and what a dead worker leaves."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.pipelines.pool.worker import item_log, slot
from weft.pipelines.pool.worker.capture import PrintStream
from weft.pipelines.pool.worker.item_log import DeadWorkersLog, ItemLog, LogHandler, entry, log_path, safe_name
from weft.pipelines.pool.worker.slot import SharedSlot

LINE = re.compile(r"\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\] \[([A-Z]+)\] \[(\w+)\] (.*)")


class Place:
    """An item log in a directory, with raw output that comes on request."""

    def __init__(self, directory: Path, *, is_shared: bool = False) -> None:
        self.fd = slot.create(None)
        self.slot = SharedSlot(self.fd)
        self.output = b""
        self.dropped = 0
        self.log = ItemLog(self.slot, str(directory), 77, self._collect, is_shared=is_shared)
        self.directory = directory

    def _collect(self) -> tuple[bytes, int]:
        output, self.output = self.output, b""
        dropped, self.dropped = self.dropped, 0
        return output, dropped

    def lines(self, item_id: str = "a") -> list[str]:
        return Path(log_path(str(self.directory), item_id, 77)).read_text().splitlines()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    os.close(made.fd)


@given(st.lists(st.text(max_size=400), unique=True, max_size=30))
def test_names_are_files_in_this_directory_and_differ(ids: list[str]) -> None:
    names = [safe_name(item_id) for item_id in ids]
    assert len(set(names)) == len(ids)
    for name in names:
        file = f"{name}.worker-4194304.log"
        assert len(file.encode()) <= 255
        assert Path("x", file).name == file
        assert name not in ("", ".", "..")


@pytest.mark.parametrize(
    "item_id", ["../../etc/passwd", ".", "..", "nul\0", "x" * 300, "", "-rf", ".hidden", "é", "\ud800"]
)
def test_strange_ids_are_made_safe(item_id: str) -> None:
    name = safe_name(item_id)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*~[0-9a-f]{12}", name)


@pytest.mark.parametrize("item_id", ["repo-17", "a.b_c", 42, "x" * 100])
def test_plain_ids_stay_as_they_are(item_id: str | int) -> None:
    assert safe_name(item_id) == str(item_id)


def test_line_looks_as_promised() -> None:
    line = entry("INFO", "clone", "Starting clone stage", {"url": "https://x/a.git", "branch": "master"}).decode()
    assert LINE.fullmatch(line.rstrip("\n"))
    assert line.endswith('[INFO] [clone] Starting clone stage {"url":"https://x/a.git","branch":"master"}\n')


@given(st.text(), st.text(max_size=20), st.dictionaries(st.text(), st.text() | st.integers() | st.none()))
def test_an_entry_is_one_line_whatever_is_in_it(message: str, phase: str, data: dict[str, object]) -> None:
    line = entry("INFO", phase, message, data)
    assert line.endswith(b"\n")
    assert len(line.decode().splitlines()) == 1


def test_data_that_json_has_no_words_for_is_shown_anyway() -> None:
    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    assert "object at" in entry("INFO", "p", "m", {"thing": object()}).decode()
    assert "\\\\ud800" in entry("INFO", "p", "m", {"half": "\ud800"}).decode()
    assert "cannot be shown" in entry("INFO", "p", "m", {"rude": Rude()}).decode()


def test_entries_wait_until_there_are_a_hundred(place: Place) -> None:
    place.log.begin("a")
    for number in range(item_log.FLUSH_ENTRIES - 1):
        place.log.info("line", number=number)
    assert place.lines() == []
    place.log.info("the hundredth")
    assert len(place.lines()) == 100


def test_an_error_is_in_the_file_at_once_with_all_before_it(place: Place) -> None:
    place.log.begin("a")
    place.log("one")
    place.log.error("bad", code=7)
    one, bad = place.lines()
    assert one.endswith("[INFO] [process] one")
    assert bad.endswith('[ERROR] [process] bad {"code":7}')


def test_the_end_line_is_the_last_and_has_the_time(place: Place) -> None:
    place.log.begin("a")
    place.log.debug("detail")
    place.log.end("ok", 12.4)
    detail, end = place.lines()
    assert "[DEBUG]" in detail
    match = LINE.fullmatch(end)
    assert match is not None
    assert match.group(2) == "end"
    assert json.loads(match.group(3).partition(" ")[2]) == {"processingTimeMs": 12}


def test_output_of_subprocesses_comes_before_the_entry_that_follows_it(place: Place) -> None:
    place.log.begin("a")
    place.output = b"Cloning...\nbad bytes \xff\n"
    place.log.info("cloned")
    place.output = b"late"
    place.log.end("ok", 1)
    assert [line.split("] ", 3)[3] for line in place.lines()][:4] == ["Cloning...", r"bad bytes \xff", "cloned", "late"]


def test_standard_logging_lands_in_the_log(place: Place) -> None:
    logger = logging.getLogger("some.library")
    handler = LogHandler(place.log)
    logger.addHandler(handler)
    try:
        place.log.begin("a")
        logger.warning("careful with %s", "this")
        try:
            raise ValueError("inside")
        except ValueError:
            logger.exception("it failed")
    finally:
        logger.removeHandler(handler)
    warning, error = place.lines()
    assert warning.endswith('[WARNING] [process] careful with this {"logger":"some.library"}')
    assert "ValueError: inside" in error
    assert "[ERROR]" in error


def test_prints_become_lines_and_an_unfinished_one_is_kept(place: Place) -> None:
    stream = PrintStream(place.log, 1)
    place.log.begin("a")
    print("a", "b", file=stream)
    print("no newline", end="", file=stream)
    print(" yet\nnext", file=stream)
    stream.write("rest")
    stream.finish()
    place.log.end("ok", 1)
    assert [line.split("] ", 3)[3] for line in place.lines()][:4] == ["a b", "no newline yet", "next", "rest"]
    assert (stream.fileno(), stream.writable(), stream.encoding) == (1, True, "utf-8")


def test_output_beyond_the_limit_is_dropped_and_that_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_log, "CAP_BYTES", 5_000)
    place.log.begin("a")
    for _ in range(1000):
        place.log.printed("x" * 50)
    place.log.error("errors are never dropped")
    place.dropped = 123
    place.log.end("ok", 1)
    lines = place.lines()
    assert sum("xxx" in line for line in lines) < 100
    assert sum("Output limit reached" in line for line in lines) == 1
    assert lines[-3].endswith("errors are never dropped")
    assert lines[-2].endswith('{"droppedBytes":' + lines[-2].rpartition(":")[2])
    assert int(lines[-2].rpartition(":")[2].rstrip("}")) > 123


def test_an_enormous_entry_goes_past_the_buffer(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(item_log, "_MAX_MESSAGE_CHARS", 1_000_000)
    place.log.begin("a")
    place.log.info("small")
    place.log.info("y" * 200_000)
    place.log.info("after")
    place.log.end("ok", 1)
    assert [len(line) > 200_000 for line in place.lines()] == [False, True, False, False]


def test_log_of_a_dead_worker_is_completed_without_loss_or_doubling(place: Place) -> None:
    place.log.begin("a")
    place.log.error("flushed")
    place.log.info("waiting 1")
    place.log.info("waiting 2")
    last = entry("ERROR", "clone", "killed by SIGKILL") + entry("INFO", "end", "crashed", {"processingTimeMs": 5})
    dead = DeadWorkersLog(str(place.directory), 77, place.slot)
    assert dead.close_item("a", "crashed", b"raw\n\0\0", "clone", last) == log_path(str(place.directory), "a", 77)
    texts = [line.split("] ", 2)[2] for line in place.lines()]
    assert texts == [
        "[process] flushed",
        "[process] waiting 1",
        "[process] waiting 2",
        "[clone] raw",
        "[clone] killed by SIGKILL",
        '[end] crashed {"processingTimeMs":5}',
    ]


def sections(directory: Path) -> dict[str, list[str]]:
    """What the index says of each item: its status, and the texts of its lines in the worker's log."""
    log = (directory / "worker-77.log").read_bytes()
    lines = [json.loads(line) for line in (directory / "worker-77.index").read_text().splitlines()]
    found = {}
    for line in lines:
        section = log[line["offset"] : line["offset"] + line["bytes"]].decode().splitlines()
        found[line["item"]] = [line["status"], *(text.split("] ", 2)[2] for text in section)]
    assert sum(line["bytes"] for line in lines) == len(log)
    return found


def test_items_of_a_worker_share_a_log_with_an_index_and_failed_ones_have_their_own(tmp_path: Path) -> None:
    place = Place(tmp_path, is_shared=True)
    for item_id in ("a", "b", "c"):
        place.log.begin(item_id)
        place.log.info(f"of {item_id}")
        place.log.end("failed" if item_id == "b" else "ok", 1.0, is_good=item_id != "b")
    assert place.log.path == str(tmp_path / "worker-77.log")
    place.log.begin("d")
    place.log.info("waiting")
    last = entry("INFO", "end", "crashed")
    DeadWorkersLog(str(tmp_path), 77, place.slot).close_item("d", "crashed", b"raw", "clone", last)
    found = sections(tmp_path)
    assert list(found) == ["a", "b", "c", "d"]
    assert found["c"] == ["ok", '[begin] Item {"item":"c"}', "[process] of c", '[end] ok {"processingTimeMs":1}']
    assert found["d"] == ["crashed", '[begin] Item {"item":"d"}', "[process] waiting", "[clone] raw", "[end] crashed"]
    for item_id in ("b", "d"):
        assert [line.split("] ", 2)[2] for line in place.lines(item_id)] == found[item_id][1:]
    assert len(list(tmp_path.iterdir())) == 4
    os.close(place.fd)


def test_a_dead_worker_that_held_no_item_has_a_complete_log(tmp_path: Path) -> None:
    place = Place(tmp_path, is_shared=True)
    place.log.begin("a")
    place.log.end("ok", 1.0)
    assert (tmp_path / "worker-77.log").read_bytes() == b""
    DeadWorkersLog(str(tmp_path), 77, place.slot).complete()
    assert sections(tmp_path)["a"][-1] == '[end] ok {"processingTimeMs":1}'
    os.close(place.fd)


def test_without_an_item_nothing_is_written_and_nothing_breaks(place: Place) -> None:
    place.log.info("nobody")
    assert not place.log.printed("nobody")
    place.log.end("ok", 1)
    place.log.flush()
    assert list(place.directory.iterdir()) == []


def test_a_directory_that_cannot_be_written_costs_the_log_and_not_the_item(tmp_path: Path) -> None:
    place = Place(tmp_path / "missing")
    place.log.begin("a")
    place.log.error("lost")
    place.log.end("ok", 1)
    assert place.log.path is None


def test_a_full_disk_costs_lines_and_not_the_item(place: Place) -> None:
    Path(log_path(str(place.directory), "a", 77)).symlink_to("/dev/full")
    place.log.begin("a")
    place.log.error("lost")
    place.log.end("ok", 1)


def test_forked_child_leaves_the_log_alone(place: Place) -> None:
    place.log.begin("a")
    place.log.forget()
    place.log.info("from the child")
    assert place.lines() == []


def test_stdout_is_untouched_by_all_this() -> None:
    assert not isinstance(sys.stdout, PrintStream)
