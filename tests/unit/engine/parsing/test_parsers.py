"""Parser children: what they read is what is read in process, and a page that ends or holds one costs itself alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from pace import patience

from weft.engine.parsing import parsers
from weft.engine.parsing.extracted import NAMES, Asked, Extracted, PageFormats, Reply, framed, reply_of
from weft.engine.parsing.parsers import Parsers, PendingPage
from weft.errors import Missing, Unparsed, WeftError
from weft.extract.formats import Shape, render
from weft.extract.kind import BodyKind
from weft.extract.page import MAX_BYTES, extract
from weft.extract.rules.field_rules import compile_rules
from weft.frames import frames
from weft.supervise import process

BODIES = {
    "text/html; charset=utf-8": b"""<html lang=de><head><title>Ein  Titel</title><base href="/b/">
        <link rel=canonical href=c><meta name=description content=wovon><meta property=og:title content=T>
        <script type="application/ld+json">{"@type": "Article", "name": "half \\ud800 a pair"}</script></head>
        <body><h1>Kopf</h1><p>Ein Absatz mit <a href="x?a=1" rel=nofollow>einem Verweis</a> und genug Worten, damit
        die Sprache zu erkennen ist.</p><div itemscope itemtype=urn:t><i itemprop=p>v</i></div></body></html>""",
    "text/html": "<meta charset=windows-1251><p>Привет".encode("cp1251"),
    "text/plain": b"plain words",
    "application/xml": b"<?xml version='1.0'?><a>words</a>",
    "image/png": b"\x89PNG\r\n\r\n" + bytes(50),
    "": b"",
}
ALWAYS = [name for name in Extracted.__struct_fields__ if name not in ("asked", "body", "is_shell")]


@pytest.fixture(params=["as it comes", "exec"])
def start(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The fork server is forked where the process has one thread; else, as here, it is a program of its own."""
    if request.param == "exec":
        monkeypatch.setattr(process, "is_single_threaded", lambda: False)
    return str(request.param)


@pytest.fixture(autouse=True)
def _marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_DEADLY_MARK", "kills-parsers")
    monkeypatch.setenv("WEFT_TEST_ENDLESS_MARK", "holds-parsers")


def text_of(pages: Parsers, pending: PendingPage) -> str:
    try:
        return pages.result(pending).text
    except Unparsed as error:
        return error.kind


def submit(pages: Parsers, text: str) -> PendingPage:
    return pages.submit(f"<p>{text}".encode(), f"http://a.test/{text}", "text/html", ["text"])


def is_alive(pid: int) -> bool:
    return not process.has_ended(pid)


def until_gone(pid: int) -> bool:
    limit = time.monotonic() + patience(10)
    while is_alive(pid) and time.monotonic() < limit:
        time.sleep(0.01)
    return not is_alive(pid)


def test_a_child_reads_what_is_read_in_process() -> None:
    names = sorted(NAMES - {"article", "fields", "in_formats"})
    with Parsers() as pages:
        for content_type, body in BODIES.items():
            page = extract(body, "http://a.test/dir/page", content_type)
            read = pages.result(pages.submit(body, "http://a.test/dir/page", content_type, names))
            for name in ALWAYS:
                assert getattr(read, name) == getattr(page, name), name
            for name in names:
                expected = repr(getattr(page, name)).replace("\\ud800", "?")  # which UTF-8 cannot hold
                assert repr(getattr(read, name)) == expected, name


def test_what_was_not_asked_for_is_no_empty_value() -> None:
    with Parsers() as pages:
        read = pages.result(pages.submit(b"<p>x<a href=y>", "http://a.test/", "text/html", ["text"]))
    assert (read.text, read.kind) == ("x", BodyKind.HTML)
    with pytest.raises(LookupError, match="hrefs was not asked for"):
        _ = read.hrefs


def test_a_long_body_is_cut_as_in_process() -> None:
    body = b"<p>" + b"x" * MAX_BYTES
    with Parsers() as pages:
        cut = pages.result(pages.submit(body, "http://a.test/", "text/html", ["text"]))
        whole = pages.result(pages.submit(body[:MAX_BYTES], "http://a.test/", "text/html", ["text"]))
    assert cut.truncated and not whole.truncated and cut.text == whole.text


def test_pages_that_kill_or_hold_cost_themselves(start: str) -> None:
    with Parsers(2, limit_s=patience(0.3)) as pages:
        bad = {7: "kills-parsers", 8: "kills-parsers", 20: "holds-parsers", 39: "kills-parsers"}
        pending = [submit(pages, bad.get(n, f"page {n}")) for n in range(40)]
        told = [text_of(pages, one) for one in pending]
    kinds = {"kills-parsers": "parse_crash", "holds-parsers": "parse_timeout"}
    assert told == [kinds[bad[n]] if n in bad else f"page {n}" for n in range(40)]
    assert isinstance(pending[7].error, Unparsed) and "killed by SIGABRT" in str(pending[7].error)


def test_a_page_that_needs_too_much_memory_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "MEMORY_MB", 150.0)
    monkeypatch.setenv("WEFT_TEST_GREEDY_MARK", "fills-memory")
    with Parsers() as pages:
        pending = [submit(pages, text) for text in ("a", "fills-memory", "b")]
        assert [text_of(pages, one) for one in pending] == ["a", "parse_crash", "b"]
    assert isinstance(pending[1].error, Unparsed) and "over the memory limit" in str(pending[1].error)


def started(pages: Parsers, many: int) -> list[int]:
    """The children, once there are so many: a page may be answered before it is known which process has read it."""
    limit = time.monotonic() + patience(10)
    while len(pages.pids) < many and time.monotonic() < limit:
        pages.turn(0.05)
    return pages.pids


def test_a_stopped_child_is_replaced_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsers, "_HEARTBEAT_S", 0.5)
    with Parsers() as pages:
        assert text_of(pages, submit(pages, "first")) == "first"
        (stopped,) = started(pages, 1)
        os.kill(stopped, signal.SIGSTOP)
        assert text_of(pages, submit(pages, "second")) == "second"
        assert pages.pids != [stopped] and until_gone(stopped)


def test_a_child_that_is_killed_from_outside_loses_nothing(start: str) -> None:
    with Parsers(2) as pages:
        for _ in range(3):
            pending = [submit(pages, f"page {n}") for n in range(20)]
            for pid in pages.pids:
                with suppress(ProcessLookupError):  # the other's death may have ended it
                    os.kill(pid, signal.SIGKILL)
            assert [text_of(pages, one) for one in pending] == [f"page {n}" for n in range(20)]
        for pid in pages.pids:  # while they have nothing to do
            os.kill(pid, signal.SIGKILL)
            assert until_gone(pid)
        assert text_of(pages, submit(pages, "one more")) == "one more"


def test_another_child_is_started_only_when_there_is_enough_to_do() -> None:
    with Parsers(3) as pages:
        assert pages.pids == []
        first = submit(pages, "page")
        assert pages.unanswered == 1
        assert text_of(pages, first) == "page" and len(started(pages, 1)) == 1
        for pending in [submit(pages, "page") for _ in range(40)]:
            assert text_of(pages, pending) == "page"
        assert len(started(pages, 3)) == 3


def test_large_pages_both_ways_do_not_block_each_other() -> None:
    text = "word " * 300_000
    with Parsers() as pages:
        pending = [pages.submit(f"<p>{n} {text}".encode(), "http://a.test/", "text/html", ["text"]) for n in range(12)]
        assert [pages.result(one).text[:2].strip() for one in pending] == [str(n) for n in range(12)]


def test_on_done_gets_each_page_once() -> None:
    done: list[PendingPage] = []
    with Parsers(limit_s=patience(0.3)) as pages:
        pages.on_done = done.append
        pending = [submit(pages, text) for text in ("a", "kills-parsers", "b", "holds-parsers", "c")]
        limit = time.monotonic() + patience(20)
        while pages.unanswered and time.monotonic() < limit:
            pages.turn(0.05)
    assert [one.position for one in done] == [one.position for one in pending]
    assert [one.error is not None for one in done] == [False, True, False, True, False]


def test_an_extra_that_is_missing_is_told_as_such(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "re2.py").write_text("raise ModuleNotFoundError('no', name='re2')")
    monkeypatch.setattr(process, "is_single_threaded", lambda: False)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    rules = b'{"a": {"regex": "x"}}'
    with Parsers() as pages, pytest.raises(Missing, match=r"the extra 'patterns': .*pip install .*'weft\[patterns\]'"):
        pages.result(pages.submit(b"<p>x", "http://a.test/", "text/html", ["fields"], rules=rules))


def test_children_that_do_not_start_are_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "is_single_threaded", lambda: False)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with Parsers() as pages, pytest.raises(WeftError, match=r"do not start: .*the last one exited with code 1"):
        pages.result(submit(pages, "page"))


_PARENT = """
import os, sys, time
from weft.engine.parsing.parsers import Parsers
from weft.supervise import process
if sys.argv[1] == "exec":
    process.is_single_threaded = lambda: False
pages = Parsers(1)
pages.result(pages.submit(b"<p>ready", "http://a.test/", "text/html", ["text"]))
for text in sys.argv[2:]:
    pages.submit(text.encode(), "http://a.test/", "text/html", ["text"])
while not pages.pids:  # a page may be answered before the fork server has said which process reads it
    pages.turn(0.05)
print(*pages.pids, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("how", ["fork", "exec"])
@pytest.mark.parametrize("texts", [(), ("holds-parsers",)], ids=["idle", "held"])
def test_children_end_with_their_parent(how: str, texts: tuple[str, ...]) -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT, how, *texts], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_alive(pid) and process.name_of(pid) == "weft-parser"
        parent.kill()
    assert until_gone(pid)


def test_frames_come_in_any_pieces() -> None:
    page = Extracted("u", BodyKind.TEXT, None, None, None, "u", None, None, False, False, False, False, Asked(text="t"))
    data = framed(Reply(1, page)) + framed(Reply(2, error=("Missing", "x")))
    heard, found = bytearray(), list[Reply]()
    for at in range(0, len(data), 7):
        heard += data[at : at + 7]
        found += map(reply_of, frames(heard))
    assert [reply.number for reply in found] == [1, 2] and not heard
    assert found[0].page is not None and found[0].page.text == "t" and found[1].error == ("Missing", "x")


def test_a_child_applies_rules_and_renders_formats_as_in_process() -> None:
    body, url = b"<title>T</title><main><h1>A</h1><p>12<p class=ad>x</main>", "http://a.test/"
    spec = {"h": "h1", "n": {"regex": r"\d+", "type": "number"}, "d": {"css": "p", "type": "date"}}
    order = PageFormats(("markdown", "links"), include=("main",), exclude=(".ad",))
    page = extract(body, url, "text/html")
    with Parsers() as pages:
        read = pages.result(
            pages.submit(
                body, url, "text/html", ["fields", "in_formats"], rules=msgspec.json.encode(spec),
                order=msgspec.json.encode(order),
            )
        )  # fmt: skip
    assert read.fields == compile_rules(spec).apply(page).encoded()
    assert json.loads(read.fields)["fields"] == {"h": "A", "n": 12, "d": None}
    assert read.in_formats == render(page, order.formats, Shape(include=order.include, exclude=order.exclude))
