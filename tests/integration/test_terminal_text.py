"""What pages hold does nothing to a terminal: control characters are shown; a pipe has everything as it is stored."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import threading
from io import StringIO
from pathlib import Path

import pytest
from crawling import WEFT, environment, weft
from exporting import make_crawl, page
from pace import patience
from rich.console import Console

from weft.cli.crawls.display import CrawlPicture
from weft.cli.terminal.live import Box
from weft.cli.terminal.output import visible
from weft.crawl.folder import CrawlFolder
from weft.engine.loop.progress import CrawlStatus
from weft.records import FetchResult, Row
from weft.store.pages import PageStore

EVIL = "\x1b]0;owned\x07 \x9b31m \x7f \u202egpj.exe \u2066x"
SHOWN = "\\x1b]0;owned\\x07 \\x9b31m \\x7f \\u202egpj.exe \\u2066x"
URL = "http://www.h1.example.com/evil"


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (home,) = make_crawl(tmp_path_factory.mktemp("crawl"), 3, data_dirs=1)
    store = PageStore.open([home], crawl_id=CrawlFolder([home]).identity().id)
    row, result = page(1)
    assert result is not None
    body = f"<title>{EVIL}</title><p>one {EVIL} two\tthree</p><a href=/next>x</a>".encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nX-Evil: \x1b[31m\x9b\xe9\r\n\r\n"
    facts = {name: getattr(row, name) for name in Row.__struct_fields__} | {
        "item": 500, "url": URL, "final_url": URL, "title": EVIL, "content_type": f"text/{EVIL}", "length": len(body),
    }  # fmt: skip
    store.add(Row(**facts), FetchResult(URL, 200, head, body, None, "", 1.0, 2.0, "", b"GET / HTTP/1.1\r\n\r\n"))
    store.close()
    return home


def on_terminal(*arguments: object, code: int = 0) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    parts: list[bytes] = []

    def read() -> None:
        try:
            while part := os.read(ours, 65536):
                parts.append(part)
        except OSError:
            return  # the other side is closed

    reader = threading.Thread(target=read)
    reader.start()
    process = subprocess.run(
        [*WEFT, *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env=environment(),
        timeout=patience(120),
    )
    os.close(theirs)
    reader.join(patience(60))
    os.close(ours)
    assert process.returncode == code, b"".join(parts)
    return b"".join(parts).decode().replace("\r\n", "\n")


def test_visible_keeps_text_and_shows_codes() -> None:
    assert visible(EVIL) == SHOWN
    plain = "a\tb\nc é 漢字 🙂 [red]x[/] \\x1b"
    assert visible(plain) == plain
    kept = {chr(code) for code in range(0x110000) if visible(chr(code)) == chr(code)}
    assert {chr(code) for code in range(0xA0)} & kept == {"\t", "\n", *map(chr, range(0x20, 0x7F))}
    assert not kept & set(
        "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u061c\u2028\u2029\ud800\udfff"
    )
    assert {"\u200d", "\xa0", "\u2027", "\u202f", "\u2065", "\u206a", "\U0001f600"} <= kept
    assert visible("\r\x0b\x1f\x7e\x80\xa0") == "\\x0d\\x0b\\x1f~\\x80\xa0"


def test_get_shows_codes_on_a_terminal(crawl: Path) -> None:
    text = on_terminal("get", crawl, URL, "--text")
    assert f"one {SHOWN} two" in text and not set(text) & set(EVIL) - set(SHOWN)
    assert "X-Evil: \\x1b[31m\\x9bé" in on_terminal("get", crawl, URL, "--headers")
    assert SHOWN in on_terminal("get", crawl, URL, "--body")
    facts = on_terminal("get", crawl, URL)
    assert json.loads(facts)["title"] == EVIL  # JSON has its own escapes
    assert not {char for char in facts if visible(char) != char}


def test_get_gives_a_pipe_what_is_stored(crawl: Path) -> None:
    def piped(what: str) -> bytes:
        command = [*WEFT, "get", str(crawl), URL, what]
        return subprocess.run(command, capture_output=True, check=True, env=environment(), timeout=patience(120)).stdout

    assert f"one {EVIL} two" in piped("--text").decode()
    assert b"X-Evil: \x1b[31m\x9b\xe9\n" in piped("--headers")
    assert EVIL.encode() in piped("--body")
    assert piped("--links") == b"http://www.h1.example.com/next\n"


@pytest.mark.parametrize(
    ("what", "name", "value"),
    [
        ("--links", "links", ["http://www.h1.example.com/next"]),
        ("--headers", "headers", None),
        ("--text", "text", None),
        ("--body", "body_base64", None),
    ],
)
def test_get_has_what_is_asked_for_in_its_json(crawl: Path, what: str, name: str, value: object) -> None:
    done = weft("get", crawl, URL, what, "--json")
    told = json.loads(done.stdout)
    assert told["url"] == URL and told["title"] == EVIL
    assert told[name] if value is None else told[name] == value


def test_reports_show_codes_too(crawl: Path) -> None:
    told = on_terminal("stats", crawl)
    assert f"text/{SHOWN} 1" in told and not {char for char in told if visible(char) != char}


def test_the_live_display_shows_codes_and_takes_no_page_for_markup() -> None:
    out = StringIO()
    console = Console(file=out, force_terminal=True, width=100, color_system=None)
    display = Box(CrawlPicture("/data/[bold]x"), console)
    display(CrawlStatus(state="paused", note=f"[/] {EVIL}", recent=[f"http://x.test/[red]{EVIL}"], updated_at=1.0))
    display._live.refresh()  # it draws four times a second by itself
    display.close()
    drawn = out.getvalue()
    assert "[red]" in drawn and SHOWN in drawn and f"[/] {SHOWN}" in drawn
    assert "\x1b]0;" not in drawn and "\x9b" not in drawn and "\u202e" not in drawn


@pytest.mark.parametrize("format_", ["jsonl", "csv", "cdxj"])
def test_an_export_shows_codes_on_a_terminal(crawl: Path, format_: str) -> None:
    text = on_terminal("export", crawl, "--format", format_, "--out", "-")
    assert URL in text or "/evil" in text
    assert not set(text) & set(EVIL) - set(SHOWN)
    if format_ == "csv":
        assert SHOWN in text and "\\x0d" not in text
        return
    rows = [json.loads(line[line.index("{") :]) for line in text.splitlines()]
    assert format_ == "cdxj" or EVIL in [row["title"] for row in rows], "the lines stay JSON"


def test_an_export_to_a_pipe_is_as_it_is_stored(crawl: Path) -> None:
    assert EVIL in weft("export", crawl, "--format", "csv", "--out", "-").stdout


def test_compressed_records_are_not_written_to_a_terminal(crawl: Path) -> None:
    text = on_terminal("export", crawl, "--format", "warc", "--out", "-", code=2)
    assert text == "weft: --out - writes compressed records, which a terminal cannot show: give a path, or a pipe\n"
