"""A stored page that kills or holds its parser costs that page alone: it is named, and all others are there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from crawling import until, weft
from exporting import make_crawl, page, url_of
from pace import patience

from weft.cli.main import run as weft_here
from weft.engine.parsing import parsers
from weft.records import Row
from weft.store.pages import PageStore
from weft.supervise import process

PAGES = 50
BAD = 21  # the item whose page holds the mark
MARK = "This is page 21,"  # in its text alone
KINDS = {"WEFT_TEST_DEADLY_MARK": "parse_crash", "WEFT_TEST_ENDLESS_MARK": "parse_timeout"}
WHOLE = {n for n in range(1, PAGES + 1) if page(n)[0].status == 200 and page(n)[0].content_type == "text/html"}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_crawl(tmp_path_factory.mktemp("crawl"), PAGES, data_dirs=1)[0]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What the page does, and the word for it."""
    monkeypatch.setenv(request.param, MARK)
    if request.param == "WEFT_TEST_ENDLESS_MARK":
        monkeypatch.setattr(parsers, "PAGE_LIMIT_S", patience(0.3))
    return KINDS[request.param]


@pytest.fixture
def _deadly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_DEADLY_MARK", MARK)


def rows_of(folder: Path) -> dict[int, Row]:
    store = PageStore.open([folder], read_only=True)
    try:
        return {row.item: row for row in store.rows()}
    finally:
        store.abandon()


def test_an_export_has_all_others_and_names_it(
    crawl: Path, tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o.jsonl"
    assert weft_here(["export", str(crawl), "--format", "jsonl", "--content", "text", "--out", str(out)]) == 1
    err = capfd.readouterr().err
    assert "1 pages could not be read" in err and f"{url_of(BAD)} ({kind}: its parser" in err
    assert "`weft get --body` has them" in err and "weft rebuild" not in err
    told = {one["url"]: one for one in map(json.loads, out.read_bytes().splitlines())}
    assert len(told) == PAGES and BAD in WHOLE
    for item in WHOLE:
        one = told[url_of(item)]
        if item == BAD:
            assert (one["text"], one["error"], one["title"]) == (None, kind, f"Page {BAD}")
        else:
            assert f"This is page {item}," in one["text"] and one["error"] is None


@pytest.mark.usefixtures("_deadly")
def test_markdown_and_parquet_leave_its_content_out(crawl: Path, tmp_path: Path) -> None:
    command = ["export", str(crawl), "--out", str(tmp_path / "md"), "--quiet", "--format"]
    assert weft_here([*command, "markdown"]) == 1
    assert len(list((tmp_path / "md").rglob("*.md"))) == len(WHOLE) - 1
    pq = pytest.importorskip("pyarrow.parquet")
    command[3] = str(tmp_path / "o.parquet")
    assert weft_here([*command, "parquet", "--content", "main_text"]) == 1
    told = {one["url"]: one["main_text"] for one in pq.read_table(command[3]).to_pylist()}
    assert told[url_of(BAD)] is None and "This is page 1," in told[url_of(1)]


@pytest.mark.usefixtures("_deadly")
def test_an_export_without_content_does_not_touch_it(crawl: Path, tmp_path: Path) -> None:
    for format_ in ("csv", "warc", "cdxj"):
        assert weft_here(["export", str(crawl), "--format", format_, "--out", str(tmp_path / format_)]) == 0


def test_get_says_so_and_gives_its_body(crawl: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    for what in ("--text", "--links") if kind == "parse_crash" else ("--text",):
        assert weft_here(["get", str(crawl), url_of(BAD), what]) == 1
        out, err = capfd.readouterr()
        assert out == "" and err.count("\n") == 1
        assert f"{url_of(BAD)} cannot be parsed ({kind}: its parser" in err and "--body" in err
    assert weft_here(["get", str(crawl), url_of(BAD), "--body"]) == 0
    assert MARK in capfd.readouterr().out
    assert weft_here(["get", str(crawl), url_of(BAD + 2), "--text"]) == 0
    assert f"This is page {BAD + 2}," in capfd.readouterr().out


def test_rebuild_makes_all_other_texts(tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]) -> None:
    folder = make_crawl(tmp_path, PAGES, data_dirs=1)[0]
    before = rows_of(folder)
    for index in folder.glob("index-*"):
        index.unlink()
    assert weft_here(["rebuild", str(folder), "--text"]) == 1
    out, err = capfd.readouterr()
    assert f"{len(WHOLE) - 1} texts written" in out
    assert "1 pages could not be parsed" in err and f"{url_of(BAD)} ({kind}: its parser" in err
    after = rows_of(folder)
    stored = {item for item, row in before.items() if row.warc_file}
    assert {item: after[item].url for item in stored} == {item: before[item].url for item in stored}
    store = PageStore.open([folder], read_only=True)
    assert {item for item in WHOLE if store.text(after[item]) is not None} == WHOLE - {BAD}
    store.abandon()
    if kind == "parse_crash":
        assert weft_here(["rebuild", str(folder), "--json", "--quiet"]) == 1
        told = json.loads(capfd.readouterr().out)
        assert told["unparsed"] == 1 and told["unparsed_pages"][0].startswith(url_of(BAD))


def test_commands_of_their_own_say_the_same(crawl: Path, tmp_path: Path) -> None:
    """Where the command's process has one thread its children are forked, which a test's process may not have."""
    out = tmp_path / "o.jsonl"
    done = weft("export", crawl, "--format", "jsonl", "--content", "text", "--out", out, WEFT_TEST_DEADLY_MARK=MARK)
    assert done.returncode == 1 and f"{url_of(BAD)} (parse_crash: its parser ended: killed by SIGABRT)" in done.stderr
    assert sum(json.loads(line)["text"] is not None for line in out.read_bytes().splitlines()) >= len(WHOLE) - 1
    done = weft("get", crawl, url_of(BAD), "--text", WEFT_TEST_DEADLY_MARK=MARK)
    assert done.returncode == 1 and "cannot be parsed (parse_crash" in done.stderr


@pytest.mark.usefixtures("_deadly")
def test_a_page_that_the_crawl_could_not_parse_is_not_tried(tmp_path: Path) -> None:
    folder = make_crawl(tmp_path, 0, data_dirs=1)[0]
    store = PageStore.open([folder], crawl_id="x", slot="s")
    row, result = page(BAD)
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    store.add(Row(**values | {"error": "parse_crash"}), result)
    store.close()
    out = tmp_path / "o.jsonl"
    assert weft_here(["export", str(folder), "--format", "jsonl", "--content", "text", "--out", str(out)]) == 0
    assert json.loads(out.read_bytes())["error"] == "parse_crash"


def parsers_below(parent: int) -> list[int]:
    names = ((pid, process.name_of(pid)) for pid in process.pids())
    return [pid for pid, name in names if name == "weft-parser" and process.descends_from(pid, parent)]


def test_an_export_that_is_killed_leaves_no_process_and_goes_on(tmp_path: Path) -> None:
    """The lock on its output is free at once, though a child was held by a page."""
    folder = make_crawl(tmp_path, PAGES, data_dirs=1)[0]
    out = tmp_path / "o.jsonl"
    command = ["export", str(folder), "--format", "jsonl", "--content", "text", "--out", str(out)]
    parent = os.fork()
    if parent == 0:
        os.environ["WEFT_TEST_ENDLESS_MARK"] = MARK
        weft_here([*command, "--quiet"])
        os._exit(1)
    children = until(lambda: parsers_below(parent))
    process.kill(parent)
    os.waitpid(parent, 0)
    assert weft_here(command) == 0
    until(lambda: all(process.has_ended(pid) for pid in children), what="the end of the children")
    assert len(out.read_bytes().splitlines()) == PAGES


def test_what_is_exported_is_what_is_read_in_process(crawl: Path, tmp_path: Path) -> None:
    from weft.engine.stored.stored_page import read_page

    out = tmp_path / "o.jsonl"
    fields = "url,text,markdown,main_text,html,language"
    assert weft_here(["export", str(crawl), "--format", "jsonl", "--fields", fields, "--out", str(out)]) == 0
    told = {one["url"]: one for one in map(json.loads, out.read_bytes().splitlines())}
    store = PageStore.open([crawl], read_only=True)
    for item in WHOLE:
        stored = store.latest_page(url_of(item))
        crawled = read_page(stored) if stored is not None else None
        assert crawled is not None
        here, there = crawled.page, told[crawled.url]
        assert [there[name] for name in ("text", "markdown", "main_text", "language")] == [
            here.text, here.markdown, here.main_text, here.language,
        ]  # fmt: skip
        assert there["html"] == crawled.body.decode()
    store.abandon()
