"""What the live display and its plain lines show of a status."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from rich.console import Console

from weft.cli.crawls.display import CrawlPicture, status_line
from weft.cli.terminal.live import Box, RegularLines
from weft.engine.loop.progress import CrawlStatus

BUSY = CrawlStatus(state="running", pages=3, errors={"http_4xx": 2}, slowed={"429": 7})


def drawn(
    status: CrawlStatus, max_pages: int | None = None, crawls: Mapping[str, CrawlStatus] = MappingProxyType({})
) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    picture = CrawlPicture("data", max_pages)
    display = Box[CrawlStatus](lambda status, size: picture(status, size, crawls), console)
    display(status)
    display._live.refresh()  # it draws four times a second by itself
    display.close()
    return out.getvalue()


def test_answers_that_ask_to_slow_down_are_shown_while_they_come() -> None:
    assert "429 7" in drawn(BUSY) and "http_4xx 2" in drawn(BUSY)
    assert "slowed" not in drawn(CrawlStatus(state="running"))


def test_a_bar_takes_a_line_of_its_own() -> None:
    status = CrawlStatus(state="running", pages=3, rate=1.0, updated_at=1.0)
    assert "█" in drawn(status, max_pages=10)  # the rates are below it


def test_what_holds_a_crawl_up_is_shown_in_full() -> None:
    status = CrawlStatus(state="running", note="no proxy of list.txt is usable: " + "word " * 20 + "`proxies=FILE`")
    for said in (drawn(status), status_line(status)):
        assert "no proxy of list.txt" in said and "--proxies FILE" in said


def test_what_a_crawl_waits_for_is_shown() -> None:
    cause = "another crawl on this machine is asking a.com"
    status = CrawlStatus(state="running", waiting_for=cause, waiting_until=time.time() + 3700.0)
    assert f'waiting_for="{cause}"' in status_line(status)
    assert cause in drawn(status) and "1:01:" in drawn(status)
    assert "waiting" not in drawn(CrawlStatus(state="running"))


def test_the_plain_lines_show_them_too() -> None:
    assert "errors=2 slowed=7" in status_line(BUSY)


def test_lines_come_now_and_then_and_at_each_change(capsys: pytest.CaptureFixture[str]) -> None:
    for every_s, count in ((0.0, 3), (3600.0, 0)):
        lines = RegularLines[CrawlStatus](status_line, every_s)
        for _ in range(3):
            lines(BUSY)
        assert len(capsys.readouterr().err.splitlines()) == count
    changing = RegularLines[str](str, 3600.0, key=str)
    for state in ("PENDING", "RUNNING", "RUNNING", "COMPLETED"):
        changing(state)
    assert capsys.readouterr().err.split() == ["PENDING", "RUNNING", "COMPLETED"]


def test_several_crawls_have_a_row_each() -> None:
    crawls = {f"task-{number}": CrawlStatus(state="running", pages=number, rate=float(number)) for number in range(30)}
    text = drawn(CrawlStatus(state="running", pages=435), crawls=crawls)
    assert "task-29" in text and "task-3 " not in text, "the fastest are shown where there is no room for all"
    assert "and 14 more" in text and "435" in text
