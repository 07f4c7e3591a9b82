"""The request log as it is written and read: over several files, several slots and several boots."""

from __future__ import annotations

import gc
import resource
from pathlib import Path

import pytest
from request_lines import with_sums

from weft.errors import DiskFull
from weft.frontier.requests import LogOpening, RequestEnd, RequestLog, RequestStart, read_events, writing


def told(folder: Path) -> list[tuple[str, int]]:
    return [
        ("start", event.item) if isinstance(event, RequestStart) else (event.status, event.item)
        for event in read_events(folder)
        if isinstance(event, RequestStart | RequestEnd)
    ]


def test_what_is_logged_is_read_as_it_was(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "log", 5.0)
    log.log_start(7, 10.25, "a.test", 2.5, 3, "https://a.test/x?y=1")
    log.log_end(7, 11.5, "200")
    log.log_start(-1, 12.0, "b", 0.0, 1, "http://b/robots.txt")
    log.flush()
    opening, start, end, robots = read_events(tmp_path / "log")
    assert opening == LogOpening(True)
    assert isinstance(start, RequestStart)
    assert (start.item, start.at, start.key, start.delay_s, start.slots, start.url, start.slot) == (
        7, 10.25, "a.test", 2.5, 3, "https://a.test/x?y=1", "",
    )  # fmt: skip
    assert end == RequestEnd(7, 11.5, "200")
    assert isinstance(robots, RequestStart) and (robots.item, robots.delay_s) == (-1, 0.0)
    log.close()


def test_nothing_is_written_before_it_is_flushed_and_all_is_when_it_is_closed(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "log", 5.0)
    assert [type(event) for event in read_events(tmp_path / "log")] == [LogOpening], "a kill cannot undo it"
    log.log_start(1, 10.0, "a", 1.0, 1, "http://a/")
    assert told(tmp_path / "log") == []
    log.flush()
    assert told(tmp_path / "log") == [("start", 1)]
    log.log_end(1, 11.0, "200")
    gc.collect()  # what others have left is closed before, not meanwhile
    before = len(list(Path("/proc/self/fd").iterdir()))
    log.close()
    assert told(tmp_path / "log") == [("start", 1), ("200", 1)]
    assert len(list(Path("/proc/self/fd").iterdir())) == before - 1


def test_a_long_log_goes_on_in_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEGMENT_BYTES", 400)
    folder = tmp_path / "log"
    gc.collect()  # what others have left is closed before, not meanwhile
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    expected = []
    for life in range(3):
        log = RequestLog(folder, life * 1000.0)
        for item in range(20):
            log.log_start(item, life * 1000.0 + item, "a", 1.0, 1, f"http://a/{life}/{item}")
            log.flush()
            expected.append(f"http://a/{life}/{item}")
        log.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before, "files that are full are closed"
    files = sorted({path.stem: path for path in folder.glob("requests-*")}.items())  # some are packed
    assert [name for name, _ in files] == [f"requests-{number:05d}" for number in range(len(files))]
    assert len(files) > 5
    assert all(400 <= path.stat().st_size < 600 for _, path in files[:-1] if path.suffix == ".log")
    assert [event.url for event in read_events(folder) if isinstance(event, RequestStart)] == expected
    assert sum(isinstance(event, LogOpening) for event in read_events(folder)) == 3


def test_the_logs_of_several_slots_are_read_as_one_by_their_times(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    one, two = RequestLog(folder / "one", 0.0), RequestLog(folder / "two", 1.0)
    for item in range(1, 9):
        log = (one, two)[item % 2]
        log.log_start(item, 10.0 * item, "a", 1.0, 1, f"http://a/{item}")
        log.log_end(item, 10.0 * item + 15.0, "200")
    for log in (one, two):
        log.close()
    events = [event for event in read_events(folder) if not isinstance(event, LogOpening)]
    assert [event.at for event in events] == sorted(event.at for event in events)
    assert len(events) == 16
    assert {(event.item % 2, event.slot) for event in events if isinstance(event, RequestStart)} == {
        (0, "one"),
        (1, "two"),
    }
    openings = [event for event in read_events(folder) if isinstance(event, LogOpening)]
    assert [(event.new_boot, event.slot) for event in openings] == [(True, "one"), (False, "two")]


def test_an_opening_has_its_place_among_the_others_requests(tmp_path: Path) -> None:
    line = "S\t{0}\t{1}.000000\t{1}.000000\ta\t1\t1\thttp://a/{0}\n"
    logs = {
        "one": "B\tboot\t1.000000\t1.000\n" + line.format(1, 10) + "B\tboot\t100.000000\t100.000\n",
        "two": "B\tboot\t2.000000\t2.000\n" + line.format(2, 50) + line.format(3, 150),
    }
    for slot, text in logs.items():
        (tmp_path / "log" / slot).mkdir(parents=True)
        (tmp_path / "log" / slot / "requests-00000.log").write_bytes(with_sums(text))
    events = list(read_events(tmp_path / "log"))
    told_ = [
        event.item if isinstance(event, RequestStart) else "opened"
        for event in events
        if not isinstance(event, RequestEnd)
    ]
    assert told_ == ["opened", "opened", 1, 2, "opened", 3]


def test_what_a_full_disk_cuts_is_taken_back_and_written_later(tmp_path: Path) -> None:
    log = RequestLog(tmp_path / "log", 5.0)
    path = tmp_path / "log" / "requests-00000.log"
    whole = path.stat().st_size
    for item in range(3):
        log.log_start(item, 10.0, "a", 1.0, 1, f"http://a/{item}")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (whole + 50, hard))  # room for half a line
    try:
        with pytest.raises((DiskFull, OSError)):
            log.flush()
        log.try_flush()
        size = path.stat().st_size
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert size == whole, "no half line"
    log.flush()
    assert told(tmp_path / "log") == [("start", 0), ("start", 1), ("start", 2)]
    log.close()


def test_boots_come_in_the_order_in_which_they_were(tmp_path: Path) -> None:
    """Each has a clock of its own; which was first is told by the time of the day."""
    line = "S\t{0}\t{1}.000000\t{2}.000000\ta\t1\t1\thttp://a/{0}\n"
    for slot, items in (("one", (1, 2)), ("two", (3, 4))):
        folder = tmp_path / "log" / slot
        folder.mkdir(parents=True)
        (folder / "requests-00000.log").write_bytes(
            with_sums(
                f"B\tzz-first\t{500 + items[0]}.000000\t1000.000\n"
                + line.format(items[0], 600 + items[0], 1100)
                + f"B\taa-second\t{items[0]}.000000\t2000.000\n"
                + line.format(items[1], 20 + items[1], 2020)
            )
        )
    events = list(read_events(tmp_path / "log"))
    assert [event.item for event in events if isinstance(event, RequestStart)] == [1, 3, 2, 4]
    assert [event.new_boot for event in events if isinstance(event, LogOpening)] == [True, False, True, False]


def test_a_boot_that_one_slot_alone_has_seen_comes_before_a_later_one_of_another(tmp_path: Path) -> None:
    for slot, boot, wall in (("one", "later", 2000), ("two", "earlier", 1000)):
        folder = tmp_path / "log" / slot
        folder.mkdir(parents=True)
        (folder / "requests-00000.log").write_bytes(
            with_sums(
                f"B\t{boot}\t10.000000\t{wall}.000\nS\t{wall}\t20.000000\t{wall + 10}.000000\ta\t1\t1\thttp://a/\n"
            )
        )
    assert told(tmp_path / "log") == [("start", 1000), ("start", 2000)]


def test_what_stands_before_the_first_opening_of_a_log_is_of_the_first_boot(tmp_path: Path) -> None:
    """The line that told the boot was lost."""
    line = "S\t{0}\t{0}.000000\t{0}.000000\ta\t1\t1\thttp://a/{0}\n"
    logs = {
        "one": line.format(10) + line.format(30),
        "two": "B\tboot\t1.000000\t1.000\n" + line.format(20) + line.format(40),
    }
    for slot, text in logs.items():
        (tmp_path / "log" / slot).mkdir(parents=True)
        (tmp_path / "log" / slot / "requests-00000.log").write_bytes(with_sums(text))
    assert told(tmp_path / "log") == [("start", item) for item in (10, 20, 30, 40)]


def test_a_file_of_another_name_is_none_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "requests-copy.log").write_bytes(b"")
    log = RequestLog(tmp_path, 1.0)
    assert log.position[0] == "requests-00000.log"
    log.close()
