"""What the live display and its plain lines show of a status."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from rich.console import Console

from weft.cli import crawl
from weft.cli.display import Display
from weft.engine.loop.progress import CrawlStatus

BUSY = CrawlStatus(state="running", pages=3, errors={"http_4xx": 2}, slowed={"429": 7})


def drawn(status: CrawlStatus, crawls: Mapping[str, CrawlStatus] = MappingProxyType({})) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80)
    display = Display("data", console=console)
    console.print(display._picture(status, crawls))
    display.close()
    return out.getvalue()


def test_answers_that_ask_to_slow_down_are_shown_while_they_come() -> None:
    assert "429 7" in drawn(BUSY) and "http_4xx 2" in drawn(BUSY)
    assert "slowed" not in drawn(CrawlStatus(state="running"))


def test_what_holds_a_crawl_up_is_shown_in_full(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status = CrawlStatus(state="running", note="no proxy of list.txt is usable: " + "word " * 20 + "`proxies=FILE`")
    monkeypatch.setattr(crawl, "LINE_EVERY_S", 0.0)
    crawl.Lines()(status)
    for said in (drawn(status), capsys.readouterr().err):
        assert "no proxy of list.txt" in said and "--proxies FILE" in said


def test_what_a_crawl_waits_for_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cause = "another crawl on this machine is asking a.com"
    status = CrawlStatus(state="running", waiting_for=cause, waiting_until=time.time() + 3700.0)
    monkeypatch.setattr(crawl, "LINE_EVERY_S", 0.0)
    crawl.Lines()(status)
    assert f'waiting_for="{cause}"' in capsys.readouterr().err
    assert cause in drawn(status) and "1:01:" in drawn(status)
    assert "waiting" not in drawn(CrawlStatus(state="running"))


def test_the_plain_lines_show_them_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(crawl, "LINE_EVERY_S", 0.0)
    crawl.Lines()(BUSY)
    assert "errors=2 slowed=7" in capsys.readouterr().err


def test_several_crawls_have_a_row_each() -> None:
    crawls = {f"task-{number}": CrawlStatus(state="running", pages=number, rate=float(number)) for number in range(30)}
    text = drawn(CrawlStatus(state="running", pages=435), crawls)
    assert "task-29" in text and "task-3 " not in text, "the fastest are shown where there is no room for all"
    assert "and 14 more" in text and "435" in text
