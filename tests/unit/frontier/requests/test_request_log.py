"""The request log after a power cut, or with a flipped bit: the rest is read, and nobody is asked early."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from request_lines import with_sums

from weft.config import PolitenessSection
from weft.frontier.contract import CrawlLimits, TransferEnd
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.frontier.requests import (
    LogOpening,
    RequestEnd,
    RequestLog,
    RequestStart,
    UnreadableLines,
    boot_id,
    last_requests,
    missing_bytes,
    read_events,
)
from weft.records import Found

KEYS = ("a.test", "b.test", "c.test")
NOW = 500.0


def written(folder: Path) -> Path:
    """Three sites, each asked once for two seconds."""
    log = RequestLog(folder, 100.0)
    for number, key in enumerate(KEYS, 1):
        log.log_start(number, 100.0 + number, key, 5.0, 1, f"http://{key}/page")
        log.log_end(number, 102.0 + number, "200")
    log.close()
    return folder / "requests-00000.log"


def test_what_was_logged_is_read(tmp_path: Path) -> None:
    written(tmp_path)
    recent = last_requests(tmp_path, 0.0, NOW)
    assert recent.ended == {"a.test": 103.0, "b.test": 104.0, "c.test": 105.0}
    assert (recent.unreadable, recent.unsure_at) == (0, None)
    assert [type(event) for event in read_events(tmp_path)] == [LogOpening, *[RequestStart, RequestEnd] * 3]


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_torn_log_is_opened_and_goes_on(tmp_path: Path, cut: int, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    is_torn = not whole[:-cut].endswith(b"\n")
    with caplog.at_level(logging.WARNING, "weft"):
        log = RequestLog(tmp_path, 200.0)
    assert [record.getMessage() for record in caplog.records] == (
        ["a torn line at the end of the request log is passed over"] if is_torn else []
    )
    torn = whole[:-cut].rpartition(b"\n")[2]
    assert [record.fields["bytes"] for record in caplog.records] == ([len(torn)] if is_torn else [])  # type: ignore[attr-defined]
    log.log_start(4, 201.0, "d.test", 5.0, 1, "http://d.test/")
    log.close()
    gaps = UnreadableLines(files=[])
    events = list(read_events(tmp_path, gaps))
    assert (gaps.lines, len(gaps.files)) == (int(is_torn), int(is_torn))
    assert isinstance(events[-1], RequestStart) and events[-1].key == "d.test", "the line that follows is whole"
    recent = last_requests(tmp_path, 0.0, NOW)
    # Whoever opened the log at 200 did not know whose line was torn: a full delay counts from then.
    assert (recent.unreadable, recent.unsure_at) == (int(is_torn), 200.0 if is_torn else None)


def test_zeros_that_a_power_cut_left_are_one_line(tmp_path: Path) -> None:
    path = written(tmp_path)
    with path.open("ab") as file:
        file.write(bytes(5000))
    RequestLog(tmp_path, 200.0).close()
    gaps = UnreadableLines(files=[])
    assert isinstance(list(read_events(tmp_path, gaps))[-1], LogOpening)
    assert (gaps.lines, gaps.files) == (1, [str(path)])


@pytest.mark.parametrize(
    "line",
    [
        b"S\t4\t106.0\t1.0\ta.test\t5\t1\n",  # a field is missing
        b"S\t4\t106.0\t1.0\ta.test\t5\t1\thttp://a.test/\tmore\n",
        b"S\tx\t106.0\t1.0\ta.test\t5\t1\thttp://a.test/\n",
        b"S\t4\t10g.0\t1.0\ta.test\t5\t1\thttp://a.test/\n",
        b"S\t4\t106.0\t1.0\tq.test\t5\t1\thttp://a.test/\n",  # the key is not the URL's
        b"S\t4\t106.0\t1.0\ta.test\t5\t0\thttp://a.test/\n",
        b"S\t4\t106.0\tnan\ta.test\t5\t1\thttp://a.test/\n",
        b"S\t4\t106.0\t1.0\ta.test\tinf\t1\thttp://a.test/\n",
        b"S\t4\t106.0\t1.0\ta.test\t5\t1\thttp:\n",
        b"S\t4\t106.0\t1.0\t\t5\t1\thttp://a.test/\n",
        b"E\t1\t-3\t200\n",
        b"E\t1\t106.0\n",
        b"E\t1\t106.0\t20\x000\n",
        b"B\tboot\t106.0\n",
        b"Q\t1\t106.0\t200\n",
        b"\xff\xfe\n",
        b"\n",
    ],
)
def test_a_line_that_was_not_written_so_is_passed_over_and_makes_all_wait(tmp_path: Path, line: bytes) -> None:
    path = written(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], line, *lines[3:]]))
    gaps = UnreadableLines(files=[])
    assert len(list(read_events(tmp_path, gaps))) == 7
    assert gaps.lines == 1
    recent = last_requests(tmp_path, 0.0, NOW)
    assert (recent.unreadable, recent.unsure_at) == (1, NOW)


@pytest.mark.parametrize(
    ("at", "is_one"),
    [(99.0, False), (101.9, False), (101.9995, True), (102.0, True), (500.0, True), (500.0005, True), (500.1, False)],
)
def test_an_end_before_its_start_or_in_the_future_is_no_end(tmp_path: Path, at: float, is_one: bool) -> None:
    log = RequestLog(tmp_path, 100.0)
    log.log_start(2, 102.0, "b.test", 5.0, 1, "http://b.test/page")
    log.log_end(2, at, "200")
    log.close()
    recent = last_requests(tmp_path, 0.0, NOW)
    assert recent.ended == {"b.test": at if is_one else None}
    assert (recent.unreadable, recent.unsure_at) == ((0, None) if is_one else (1, NOW))


def test_a_site_that_is_asked_several_things_at_once_has_ended_with_the_last(tmp_path: Path) -> None:
    log = RequestLog(tmp_path, 100.0)
    for item in (1, 2):
        log.log_start(item, 101.0, "a.test", 5.0, 2, f"http://a.test/{item}")
    for item, ended in ((2, None), (1, 104.0)):
        log.log_end(item, 105.0 - item, "200")
        log.flush()
        assert last_requests(tmp_path, 0.0, NOW).ended == {"a.test": ended}
    log.close()


@pytest.mark.parametrize("size", [1, 2])
def test_a_log_that_is_torn_in_its_first_line_goes_on_behind_it(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "requests-00000.log").write_bytes(b"B\t"[:size])
    with caplog.at_level(logging.WARNING, "weft"):
        RequestLog(tmp_path, 200.0).close()
    assert [record.fields["bytes"] for record in caplog.records] == [size]  # type: ignore[attr-defined]
    gaps = UnreadableLines(files=[])
    assert ([type(event) for event in read_events(tmp_path, gaps)], gaps.lines) == ([LogOpening], 1)


def test_one_flipped_bit_anywhere_never_breaks_the_reading(tmp_path: Path) -> None:
    path = written(tmp_path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        recent, gaps = last_requests(tmp_path, 0.0, NOW), UnreadableLines(files=[])
        list(read_events(tmp_path, gaps))
        # It is seen wherever it is, a digit of a time included, and then every site waits.
        assert (recent.unsure_at, gaps.lines > 0) == (NOW, True), (at, whole[at - 9 : at + 9])


def test_damage_in_an_earlier_boot_is_over(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_bytes(with_sums("B\tanother-boot\t1.0\t1.0") + b"junk\n")
    RequestLog(tmp_path, 7.0).close()
    assert last_requests(tmp_path, 0.0, NOW).unsure_at == 7.0, "it may have been this boot's: nobody knows"
    path.write_bytes(b"junk\n" + with_sums(f"B\t{boot_id()}\t1.0\t1.0"))
    assert last_requests(tmp_path, 0.0, NOW).unsure_at == 1.0
    path.write_bytes(b"junk\n" + with_sums(f"B\tother\t1.0\t1.0\nB\t{boot_id()}\t1.0\t1.0"))
    assert last_requests(tmp_path, 0.0, NOW).unsure_at is None


def test_an_end_whose_start_is_lost_is_not_that_of_a_request_before_the_last_opening(tmp_path: Path) -> None:
    """A page that was in flight when its process was killed is asked for again under its number."""
    for opened_at in (100.0, 200.0):
        log = RequestLog(tmp_path, opened_at)
        log.log_start(1, opened_at + 1, "a.test", 5.0, 1, "http://a.test/page")
        if opened_at == 200.0:
            log.log_end(1, 203.0, "200")
        log.close()
    assert last_requests(tmp_path, 0.0, NOW).ended == {"a.test": 203.0}, "what the killed one asked is not waited for"
    path = tmp_path / "requests-00000.log"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line.replace(b"a.test", b"b.test") if b"\t201.0" in line else line for line in lines))
    recent = last_requests(tmp_path, 0.0, NOW)
    assert (recent.ended, recent.unreadable, recent.unsure_at) == ({"a.test": None}, 1, NOW)


def test_older_files_are_read_where_the_newest_tells_no_time(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / "requests-00001.log").write_bytes(b"\0\0\0\n")
    recent = last_requests(tmp_path, 101.0, NOW)
    assert set(recent.ended) == set(KEYS) and recent.unsure_at == NOW
    (tmp_path / "requests-copy.log").write_bytes(b"")  # not one of ours
    assert set(last_requests(tmp_path, 101.0, NOW).ended) == set(KEYS)


def test_older_files_are_not_read_where_the_newest_goes_back_far_enough(tmp_path: Path) -> None:
    written(tmp_path)
    with (tmp_path / "requests-00000.log").open("ab") as file:
        file.write(b"damaged\n")
    late = "S\t70\t400.0\t1.0\tlate\t1\t1\thttp://late/\nE\t70\t401.0\t200"
    (tmp_path / "requests-00001.log").write_bytes(with_sums(late))
    for not_before, files in ((400.0, 1), (399.0, 2)):
        recent = last_requests(tmp_path, not_before, 500.0)
        assert (recent.ended["late"], recent.unreadable, len(recent.ended) > 1) == (401.0, files - 1, files == 2)


def test_a_log_that_is_shorter_than_it_was_is_known(tmp_path: Path) -> None:
    path = written(tmp_path)
    size = path.stat().st_size
    assert missing_bytes(tmp_path, None) == missing_bytes(tmp_path, (path.name, size)) == 0
    path.write_bytes(path.read_bytes()[:100])
    assert missing_bytes(tmp_path, (path.name, size)) == size - 100
    path.unlink()
    assert missing_bytes(tmp_path, (path.name, size)) == size


@pytest.mark.parametrize("damage", ["torn", "flipped", "short", "gone", "none"])
def test_a_site_is_not_asked_early_after_damage_to_the_log(tmp_path: Path, damage: str) -> None:
    """A delay of 30 s, a request that ended 20 s ago: due in 10 s if the log tells that, in 30 s if nobody knows."""
    clock = [1000.0]
    section = PolitenessSection(delay_s=30.0, places=1)

    def opened() -> EmbeddedFrontier:
        frontier = EmbeddedFrontier(tmp_path, section, clock=lambda: clock[0], wall=lambda: 1e9 + clock[0])
        frontier.crawls.open_crawl("crawl", CrawlLimits())
        frontier.recovery.recover()
        return frontier

    frontier = opened()
    frontier.queue.admit(1, [Found(f"http://a.test/{n}", 0) for n in range(3)])
    (lease,) = frontier.leases.claim("me", 5)
    frontier.leases.cool([TransferEnd(lease, clock[0], ok=True)])
    frontier.close()
    path = tmp_path / "requests" / "requests-00000.log"
    data = path.read_bytes()
    if damage == "torn":
        path.write_bytes(data[:-7])
    elif damage == "flipped":
        path.write_bytes(data.replace(b"\ta.test\t", b"\tq.test\t"))
    elif damage == "short":
        path.write_bytes(data.splitlines(keepends=True)[0])
    elif damage == "gone":
        path.unlink()
    clock[0] += 20.0
    frontier = opened()
    due = frontier.leases.next_due()
    frontier.close()
    assert due == pytest.approx(1030.0 if damage == "none" else 1050.0, abs=0.5)


def test_what_a_hand_has_is_waited_for_also_behind_an_end_that_is_unknown(tmp_path: Path) -> None:
    for began, hand, lasts_s in ((10.0, "", 0.0), (20.0, "hand", 60.0)):  # each in a process that is killed
        log = RequestLog(tmp_path, began)
        log.log_start(int(began), began, "a.test", 1.0, 1, "http://a.test/", hand=hand, lasts_s=lasts_s)
        log.flush()
        log.close()
    assert last_requests(tmp_path, 0.0, 30.0).ended == {"a.test": 80.0}
    assert last_requests(tmp_path, 0.0, 90.0).ended == {"a.test": None}, "the other one may have ended only now"
