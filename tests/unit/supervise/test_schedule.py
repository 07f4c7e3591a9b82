"""Cron lines: when they fire, across changes of the clock, and what is refused."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from weft.errors import BadInput
from weft.supervise.schedule import WORDS, schedule_of

BERLIN = "Europe/Berlin"


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def times(line: str, zone: str, start: str, count: int) -> list[str]:
    schedule, moment, found = schedule_of(line, zone), at(start, zone), list[str]()
    for _ in range(count):
        moment = schedule.after(moment)
        found.append(datetime.fromtimestamp(moment, ZoneInfo(zone)).strftime("%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("30 2 * * *", ["11-17 02:30", "11-18 02:30"]),
        ("*/20 * * * *", ["11-16 12:20", "11-16 12:40"]),
        ("0 9 * * mon-fri", ["11-17 09:00", "11-18 09:00"]),
        ("0 0 29 2 *", ["02-29 00:00", "02-29 00:00"]),
        ("@monthly", ["12-01 00:00", "01-01 00:00"]),
    ],
)
def test_a_line_fires_when_it_says(line: str, expected: list[str]) -> None:
    assert times(line, "UTC", "2026-11-16T12:00", 2) == expected


def test_a_time_that_fires_now_is_not_after_now() -> None:
    schedule = schedule_of("0 * * * *")
    assert schedule.after(at("2026-11-16T12:00")) == at("2026-11-16T13:00")
    assert schedule.after(at("2026-11-16T12:00") - 0.001) == at("2026-11-16T12:00")


def test_an_hour_that_is_left_out_does_not_lose_a_day() -> None:
    assert times("30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == ["03-29 03:00", "03-30 02:30"]


def test_an_hour_that_comes_twice_fires_once() -> None:
    assert times("30 2 * * *", BERLIN, "2026-10-24T12:00", 2) == ["10-25 02:30", "10-26 02:30"]


def test_every_zone_has_its_own_morning() -> None:
    berlin, tokyo = (schedule_of("0 6 * * *", zone).after(at("2026-06-01T00:00")) for zone in (BERLIN, "Asia/Tokyo"))
    assert (berlin, tokyo) == (at("2026-06-01T04:00"), at("2026-06-01T21:00"))


@pytest.mark.parametrize("word", WORDS)
def test_words_stand_for_lines(word: str) -> None:
    assert schedule_of(word).after(0.0) > 0.0


def test_times_only_ever_grow() -> None:
    for line in ("*/7 * * * *", "15 */3 * * *", "0 2 * * sun"):
        schedule, moment = schedule_of(line, BERLIN), at("2026-10-24T00:00")
        for _ in range(300):
            later = schedule.after(moment)
            assert later > moment
            moment = later


@pytest.mark.parametrize("line", ["", "* * * *", "61 * * * *", "* * * * * *", "a b c d e", "@often", "1-0 * * * *"])
def test_what_is_no_cron_line_is_refused(line: str) -> None:
    with pytest.raises(BadInput, match="is no cron line"):
        schedule_of(line)


@pytest.mark.parametrize("line", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_line_that_never_fires_is_refused(line: str) -> None:
    with pytest.raises(BadInput, match="ever fires"):
        schedule_of(line)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "", "Europe", "../etc/passwd", "\x00"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(BadInput, match="timezone"):
        schedule_of("@daily", zone)
