"""Closed files of a request log: packed and deleted beside the crawl, whole after a kill at every step of it."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lost_writes import LostWrites
from pace import patience

from weft.frontier.requests import (
    LogOpening,
    RequestEnd,
    RequestLog,
    RequestStart,
    Retention,
    last_requests,
    missing_bytes,
    read_events,
    read_site,
    segments,
    upkeep,
    writing,
)
from weft.frontier.requests.partitions import log_files
from weft.frontier.requests.segments import DeletedRequests, deleted_from, record_deleted, segments_of
from weft.frontier.requests.upkeep import LogUpkeep

HOSTS = 7
REQUESTS = 120


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "SEGMENT_BYTES", 2000)
    monkeypatch.setattr(upkeep, "PAUSE_SHARE", 0.0)
    monkeypatch.setattr(upkeep, "KEPT_AT_LEAST_S", -1e9)


def fill(folder: Path, first: int = 0, retention: Retention = upkeep.KEEP_ALL) -> RequestLog:
    log = RequestLog(folder, 1000.0 * (first + 1), retention=retention)
    for number in range(first, first + REQUESTS):
        at = 1000.0 * (first + 1) + number - first
        log.log_start(number + 1, at, f"h{number % HOSTS}", 0.5, 1, f"http://h{number % HOSTS}/{number}")
        log.log_end(number + 1, at + 0.5, "200")
        log.flush()
    return log


def plain_log(folder: Path) -> int:
    """Closed files that no thread has packed; the number of the one that is open."""

    class Idle(LogUpkeep):
        def note_closed_before(self, serial: int) -> None:
            self._serial = serial

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "LogUpkeep", Idle)
        fill(folder).close()
    return segments_of(folder)[-1].serial


def requests(folder: Path) -> list[tuple[Any, ...]]:
    return sorted(
        (one.item, one.at, one.key if isinstance(one, RequestStart) else one.status)
        for one in read_events(folder)
        if isinstance(one, RequestStart | RequestEnd)
    )


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + patience(30)
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.005)


def is_packed(folder: Path) -> bool:
    *closed, _ = segments_of(folder)
    return all(segment.plain is None for segment in closed) and not list(folder.glob("*.tmp"))


def test_full_files_are_packed_beside_the_crawl_and_nothing_of_them_is_lost(tmp_path: Path) -> None:
    log = fill(tmp_path)
    until(lambda: is_packed(tmp_path))
    assert len(segments_of(tmp_path)) > 3
    found = requests(tmp_path)
    assert [item for item, _, what in found if what != "200"] == list(range(1, REQUESTS + 1))
    assert len(found) == 2 * REQUESTS
    log.close()
    assert requests(tmp_path) == found
    assert sum(isinstance(one, LogOpening) for one in read_events(tmp_path)) == 1


def test_a_log_that_is_packed_while_it_is_read_is_read_whole(tmp_path: Path) -> None:
    plain_log(tmp_path)
    whole = requests(tmp_path)
    reading, some = read_events(tmp_path), read_site(tmp_path, "h3")
    seen, of_one = [next(reading)], [next(some)]
    log = RequestLog(tmp_path, 5000.0)
    until(lambda: is_packed(tmp_path))
    seen += reading
    assert len([one for one in seen if isinstance(one, RequestStart | RequestEnd)]) == len(whole)
    assert len([one for one in [*of_one, *some] if isinstance(one, RequestStart)]) == len(range(3, REQUESTS, HOSTS))
    log.close()


def test_a_site_keeps_its_key_whatever_the_host_is_called(tmp_path: Path) -> None:
    asked = [
        ("site.test", "http://www.site.test:8080/a"), ("www.site.test", "https://www.site.test/b"),
        ("10.0.0.1", "https://www.site.test/c"), ("10.0.0.1", "http://10.0.0.1:81/d"), ("[::1]", "http://[::1]:82/e"),
        ("[::1]", "http://[::1]/f"), ("test", "http://site.test/g"), ("site.test", "http://sub.sub.site.test/h"),
    ]  # fmt: skip
    log = RequestLog(tmp_path, 1000.0)
    for number in range(10 * len(asked)):
        log.log_start(number + 1, 1001.0 + number, asked[number % len(asked)][0], 1.0, 1, asked[number % len(asked)][1])
        log.flush()
    until(lambda: is_packed(tmp_path))
    log.close()
    starts = [one for one in read_events(tmp_path) if isinstance(one, RequestStart)]
    assert sorted((one.item, one.key, one.url) for one in starts) == [
        (number + 1, *asked[number % len(asked)]) for number in range(10 * len(asked))
    ]


def test_a_start_reads_packed_files_back_as_far_as_it_needs(tmp_path: Path) -> None:
    log = fill(tmp_path)
    until(lambda: is_packed(tmp_path))
    place = log.position
    log.close()
    recent = last_requests(tmp_path, 1000.0, 5000.0)
    last = {f"h{number % HOSTS}": 1000.5 + number for number in range(REQUESTS)}
    assert (recent.ended, recent.unreadable, recent.unsure_at) == (last, 0, None)
    few = last_requests(tmp_path, 1000.0 + REQUESTS - HOSTS - 1, 5000.0)
    assert few.ended == last
    assert missing_bytes(tmp_path, place) == 0
    first = segments_of(tmp_path)[0]
    assert missing_bytes(tmp_path, (f"{first.path.stem}.log", 2000)) == 0
    data = bytearray(first.path.read_bytes())
    for at in range(0, len(data), 8):
        data[at] ^= 1
    first.path.write_bytes(data)
    assert last_requests(tmp_path, 1000.0, 5000.0).unsure_at == 5000.0, "what it hides may be recent"
    assert missing_bytes(tmp_path, (f"{first.path.stem}.log", 2000)) == 2000


@pytest.mark.parametrize("seed", range(6))
def test_a_start_knows_who_must_wait_without_reading_what_is_over(tmp_path: Path, seed: int) -> None:
    """Beside a start that reads all: sites with delays of their own, requests in flight for long, and processes."""
    chance, now, item, flying = random.Random(seed), 1000.0, 0, list[int]()
    delays = {f"h{number}": 900.0 if number == 3 else 1.0 for number in range(12)}
    for _ in range(3):
        log = RequestLog(tmp_path, now)
        for _ in range(60):
            now += chance.random()
            item += 1
            host = chance.choice(list(delays)[: 11 if now > 1040.0 else 12])
            number = item if chance.random() < 0.9 else -item
            log.log_start(number, now, host, delays[host], 1, f"http://{host}/{item}")
            flying.append(number)
            while flying and chance.random() < 0.6:
                log.log_end(flying.pop(chance.randrange(len(flying))), now + 0.001, "200")
            log.flush()
        until(lambda: is_packed(tmp_path))
        log.close()
        flying = [] if chance.random() < 0.5 else flying  # ends that come after the next opening are nobody's
    for later in (0.01, 0.5, 3.0, 30.0, 800.0, 2000.0):
        whole = last_requests(tmp_path, 0.0, now + later)
        some = last_requests(tmp_path, 0.0, now + later, longest_delay_s=1.0)
        assert (some.unreadable, some.unsure_at) == (whole.unreadable, whole.unsure_at) == (0, None)
        for host, ended in whole.ended.items():
            if ended is not None and ended + delays[host] > now + later:
                assert some.ended[host] == ended, (host, later)
            elif ended is None and later < 30.0:
                assert some.ended.get(host, 0.0) is None or delays[host] < later
    assert len(some.ended) < len(whole.ended)


def kill_at(folder: Path, serial: int, retention: Retention, name: str, number: int, *, is_after: bool) -> bool:
    """Has a process of its own pack and delete, which dies at some call; returns whether it came to its end."""
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    try:
        calls = 0

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*args: Any, **more: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == number and not is_after:
                    os.kill(os.getpid(), signal.SIGKILL)
                value = real(*args, **more)
                if calls == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return value

            return call

        owner: Any = {"write_packed": segments, "record_deleted": upkeep, "fsync": os}.get(name, Path)
        setattr(owner, name, dying(getattr(owner, name)))
        engine_process = LogUpkeep(folder, retention)
        engine_process._serial = serial
        engine_process._delete_leftovers()
        engine_process._pack_all()
        engine_process._delete_old()
        os._exit(0)
    except BaseException:
        os._exit(9)


@pytest.mark.parametrize("name", ["write_packed", "fsync", "replace", "unlink", "record_deleted"])
@pytest.mark.parametrize("is_after", [False, True])
def test_a_kill_at_any_step_loses_nothing(tmp_path: Path, name: str, is_after: bool) -> None:
    folder = tmp_path / "log"
    serial, limit = plain_log(folder), Retention(bytes=3000)
    whole = requests(folder)
    for number in range(1, 200):
        is_over = kill_at(folder, serial, limit, name, number, is_after=is_after)
        rest, deleted = requests(folder), deleted_from(folder)
        starts = [one for one in rest if one[2] != "200"]
        assert len(starts) + deleted.requests == REQUESTS
        assert rest == whole[-len(rest) :], "the oldest files, and whole ones"
        files = log_files(folder, tmp_path / f"scratch-{number}")[""]
        assert not [file for file in files if file.why]
        if is_over:
            break
    assert is_over and deleted.requests and not list(folder.glob("*.tmp"))
    assert sum(path.stat().st_size for path in folder.glob("requests-*")) < 8000
    assert not [path for path in folder.glob("requests-*") if segments.segment_serial(path) <= deleted.through]


def test_a_power_cut_at_any_step_of_packing_and_deleting_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "log"
    serial = plain_log(folder)
    whole = requests(folder)

    def check(left: Path) -> None:
        rest, deleted = requests(left), deleted_from(left)
        assert rest == whole[-len(rest) :], "the oldest files, and whole ones"
        assert len([one for one in rest if one[2] != "200"]) + deleted.requests == REQUESTS
        assert not [file for file in log_files(left, left / "scratch")[""] if file.why]

    disk = LostWrites(folder, tmp_path / "left", check)
    with monkeypatch.context() as patch:
        disk.watch(patch)
        engine_process = LogUpkeep(folder, Retention(bytes=3000))
        engine_process._serial = serial
        engine_process._delete_leftovers()
        engine_process._pack_all()
        engine_process._delete_old()
    assert disk.cuts > 20 and deleted_from(folder).requests and is_packed(folder)


def test_a_power_cut_at_any_step_takes_only_what_was_not_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are logged, files become full and are packed meanwhile; what `sync` has returned for stays."""
    folder, synced = tmp_path / "log", list[int]()

    def check(left: Path) -> None:
        there = {item for item, _, status in requests(left) if status == "200"}
        assert set(synced) <= there
        log = RequestLog(left, 9e6)
        log.close()

    class Idle(LogUpkeep):
        def note_closed_before(self, serial: int) -> None:
            self._serial = serial

    folder.mkdir()
    disk = LostWrites(folder, tmp_path / "left", check)
    with monkeypatch.context() as patch:
        patch.setattr(writing, "LogUpkeep", Idle)
        disk.watch(patch)
        log = RequestLog(folder, 1000.0)
        for number in range(1, 61):
            log.log_start(number, 1000.0 + number, f"h{number % HOSTS}", 0.5, 1, f"http://h{number % HOSTS}/{number}")
            log.log_end(number, 1000.5 + number, "200")
            log.flush()
            if number % 7 == 0:
                log.sync()
                synced += range(number - 6, number + 1)
            if number % 20 == 0:
                log._upkeep._pack_all()
        log.close()
    assert disk.cuts > 20 and len(segments_of(folder)) > 2 and segments_of(folder)[0].packed


@pytest.mark.parametrize("name", ["write_packed", "record_deleted"])
def test_a_full_disk_leaves_the_log_as_it_is(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    owner: Any = segments if name == "write_packed" else upkeep

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    plain_log(tmp_path)
    whole = requests(tmp_path)
    with monkeypatch.context() as patch, caplog.at_level("WARNING", "weft"):
        patch.setattr(owner, name, full)
        log = RequestLog(tmp_path, 5000.0, retention=Retention(bytes=1))
        until(lambda: any("was not packed" in record.getMessage() for record in caplog.records))
        log.close()
    assert requests(tmp_path) == whole and not list(tmp_path.glob("*.tmp"))
    log = RequestLog(tmp_path, 6000.0)
    until(lambda: is_packed(tmp_path))
    log.close()
    assert requests(tmp_path) == whole


def test_a_packed_file_that_is_damaged_while_the_lines_are_still_there_is_made_again(tmp_path: Path) -> None:
    plain_log(tmp_path)
    whole = requests(tmp_path)
    first = segments_of(tmp_path)[0]
    assert first.plain is not None
    lines = first.plain.read_bytes()
    log = RequestLog(tmp_path, 5000.0)
    until(lambda: is_packed(tmp_path))
    log.close()
    packed = first.plain.with_suffix(".packed")
    packed.write_bytes(packed.read_bytes()[:200])
    first.plain.write_bytes(lines)
    log = RequestLog(tmp_path, 6000.0)
    until(lambda: is_packed(tmp_path))
    log.close()
    assert requests(tmp_path) == whole


def test_a_damaged_file_is_kept_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    plain_log(tmp_path)
    second = segments_of(tmp_path)[1].plain
    assert second is not None
    data = second.read_bytes()
    second.write_bytes(data[:300] + b"\0" * 8 + data[308:])
    damaged = second.read_bytes()
    whole = requests(tmp_path)
    with caplog.at_level("WARNING", "weft"):
        log = RequestLog(tmp_path, 5000.0)
        until(lambda: all(one.plain in (None, second) for one in segments_of(tmp_path)[:-1]))
        log.close()
    assert second.read_bytes() == damaged
    assert requests(tmp_path) == whole


def test_old_files_are_deleted_by_days_and_by_bytes_and_the_newest_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in (("days", Retention(days=1e-9)), ("bytes", Retention(bytes=1))):
        folder = tmp_path / name
        log = fill(folder, retention=limit)
        until(lambda: len(segments_of(folder)) == 2 and is_packed(folder))  # noqa: B023 (called here)
        log.close()
        assert log.deleted_until == deleted_from(folder).until > 1e9
        again = RequestLog(folder, 9000.0)
        assert segments.segment_serial(folder / again.position[0]) > deleted_from(folder).through
        again.close()
    monkeypatch.setattr(upkeep, "KEPT_AT_LEAST_S", 3600.0)
    folder = tmp_path / "young"
    log = fill(folder, retention=Retention(bytes=1))
    until(lambda: is_packed(folder))
    log.close()
    assert deleted_from(folder) == DeletedRequests(), "a start may need them"


def test_what_is_recorded_as_deleted_counts_no_more(tmp_path: Path) -> None:
    plain_log(tmp_path)
    record_deleted(tmp_path, DeletedRequests(1, 5.0, 10))
    assert segments_of(tmp_path)[0].serial == 2
    assert missing_bytes(tmp_path, ("requests-00001.log", 10**6)) > 0, "its file is still there, and shorter"
    (tmp_path / "requests-00001.log").unlink()
    assert missing_bytes(tmp_path, ("requests-00001.log", 10**6)) == 0
