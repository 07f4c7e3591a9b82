"""`weft.crawl(...)` in Python: yields what is kept, stops when it is left, raises what is wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawling import is_gone
from pace import patience

import weft
from weft.crawl.reports.rebuild import rebuild
from weft.errors import BadConfig, BadInput, BadUrl
from weft.testing.web import SyntheticWeb, synthetic_web

SETTINGS: dict[str, Any] = {"scope": "any", "politeness_delay_seconds": 0, "allow_private": True}


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=8, pages=60, seed=5) as web:
        yield web


def test_it_yields_exactly_as_many_pages_as_asked_for(web: SyntheticWeb) -> None:
    pages = list(weft.crawl(web.seeds, max_pages=20, **SETTINGS))
    assert len(pages) == 20 == len({page.url for page in pages})
    known = {*web.expect().must}
    for page in pages:
        assert page.url in known and page.status == 200
        assert page.header("content-type") and isinstance(page.depth, int)
        assert page.url in repr(page)
    html = [page for page in pages if (page.header("content-type") or "").startswith("text/html")]
    assert len(html) > 10
    for page in html:
        assert page.title and page.title == (page.page.title or "")
        assert b"<html" in page.body.lower() and page.page.hrefs


def test_pages_come_while_the_crawl_runs_and_leaving_the_loop_ends_it(web: SyntheticWeb, tmp_path: Path) -> None:
    status = tmp_path / "data" / "status.json"
    for page in weft.crawl(web.seeds, data_dir=tmp_path / "data", **SETTINGS | {"politeness_delay_seconds": 0.05}):
        fetcher = json.loads(status.read_bytes())["pid"]
        assert page.status == 200 and not is_gone(fetcher), "the first page came after the crawl had ended"
        break
    assert is_gone(fetcher)
    assert json.loads(status.read_bytes())["state"] == "interrupted"
    assert "crawl" not in {thread.name for thread in threading.enumerate()}


def test_a_kept_crawl_can_be_resumed(web: SyntheticWeb, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = [page.url for page in weft.crawl(web.seeds, data_dir=data, max_pages=10, **SETTINGS)]
    assert len(first) == 10
    new = [page.url for page in weft.crawl(data_dir=data, resume=True, max_pages=15)]
    assert len(new) == len({*new}) == 5 and not {*first} & {*new}, "what was stored before is not given again"
    some = [page.url for page, _ in zip(weft.crawl(data_dir=data, resume=True, max_pages=25), range(3), strict=False)]
    rest = [page.url for page in weft.crawl(data_dir=data, resume=True)]
    assert len({*some, *rest}) == len(some) + len(rest) == 10, "what was stored and not yielded yet is, once"
    assert list(weft.crawl(data_dir=data, resume=True)) == []
    with pytest.raises(BadInput, match="no seeds"):
        next(weft.crawl(data_dir=tmp_path / "other"))


PROGRAM = """
import json, os, pathlib, signal, sys, time, weft
pages = weft.crawl(sys.argv[2:], data_dir="data", max_pages=10, scope="any", delay=0, allow_private=True)
print(next(pages).url, flush=True)
print(next(pages).url, flush=True)
if sys.argv[1] == "killed":
    while json.loads(pathlib.Path("data/status.json").read_bytes())["state"] == "running":
        time.sleep(0.05)
    os.kill(os.getpid(), signal.SIGKILL)
"""  # it keeps the iterator in a variable until it ends


@pytest.mark.parametrize("end", ["killed", "ended"])
def test_a_program_that_ends_inside_its_loop_misses_no_page(
    end: str, web: SyntheticWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [sys.executable, "-c", PROGRAM, end, *web.seeds]
    program = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=patience(30))
    assert (program.returncode, program.stderr) == (-signal.SIGKILL if end == "killed" else 0, "")
    first = program.stdout.split()
    assert len(first) == 2
    (tmp_path / "data").rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    rest = [page.url for page in weft.crawl(data_dir="moved", resume=True)]
    assert len(rest) == len({*rest}) and len({*first, *rest}) == 10, "what was stored and not yielded comes"
    monkeypatch.chdir(tmp_path / "moved")
    assert list(weft.crawl(data_dir=tmp_path / "moved", resume=True)) == [], "also when it is named in another way"
    (tmp_path / "moved" / "crawls/crawl/yielded.json").write_text("{")
    assert len(list(weft.crawl(data_dir=tmp_path / "moved", resume=True))) == 10, "where nobody knows, all come again"


def test_a_rebuild_keeps_what_was_yielded_and_without_an_index_all_come_again(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    first = [page.url for page in weft.crawl(web.seeds, data_dir=data, max_pages=5, **SETTINGS)]
    rebuild([data])
    rest = [page.url for page in weft.crawl(data_dir=data, resume=True, max_pages=10)]
    assert len({*first, *rest}) == len(first) + len(rest) == 10
    for index in data.glob("index-*"):
        index.unlink()
    rebuild([data])
    assert len(list(weft.crawl(data_dir=data, resume=True))) == 10


def test_without_a_data_dir_nothing_stays(web: SyntheticWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert len(list(weft.crawl(web.seeds[0], max_pages=1, **SETTINGS))) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_is_wrong_is_raised(tmp_path: Path) -> None:
    with pytest.raises(BadUrl):
        next(weft.crawl("http://", **SETTINGS))
    with pytest.raises(BadInput, match="no seeds"):
        next(weft.crawl([], **SETTINGS))
    with pytest.raises(BadInput, match=r"`email='you@example.com'`"):
        next(weft.crawl("https://example.com/"))
    with pytest.raises(BadConfig, match="max_pages"):
        next(weft.crawl("http://127.0.0.1/", max_pages="many", allow_private=True))  # type: ignore[arg-type]
    with pytest.raises(BadConfig, match="data_dir and data_dirs are the same setting"):
        weft.crawl("http://127.0.0.1/", data_dir="x", data_dirs=["y"])
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput):
        next(weft.crawl("http://127.0.0.1/", data_dir=tmp_path / "file", **SETTINGS))


def test_a_seed_that_was_a_link_before_leads_as_far_as_any_seed(web: SyntheticWeb, tmp_path: Path) -> None:
    first, settings = web.seeds[0], SETTINGS | {"max_depth": 1}
    near = {page.url: page for page in weft.crawl(first, data_dir=tmp_path / "data", **settings)}
    alone = {url: {page.url for page in weft.crawl(url, **settings)} for url in [*near][1:4]}
    later = next(url for url, reached in alone.items() if reached - {*near})
    new = {page.url for page in weft.crawl(later, data_dir=tmp_path / "data", resume=True)}
    assert new == alone[later] - {*near}


def test_settings_may_be_called_as_their_flags_are(web: SyntheticWeb, tmp_path: Path) -> None:
    folders = [tmp_path / "a,b", tmp_path / "c"]
    crawl = weft.crawl(
        web.seeds, max_pages=3, allow_private=True, scope="any",
        delay=0, fetcher_workers=4, data_dirs=folders, header={"X-Test": "1"},
    )  # fmt: skip
    assert len(list(crawl)) == 3
    kept = json.loads((folders[0] / "crawls/crawl/config.json").read_bytes())["values"]
    assert kept["politeness_delay_seconds"] == 0 and kept["headers"] == {"X-Test": "1"}
    assert folders[1].is_dir()


def test_settings_may_come_from_a_file_and_the_environment(
    web: SyntheticWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weft.yaml").write_text(f"scope: any\nallow_private: true\ndata_dirs: {tmp_path / 'kept'}\n")
    monkeypatch.setenv("WEFT_DELAY", "0")
    assert len(list(weft.crawl(web.seeds[0], config=tmp_path / "weft.yaml", max_pages=2))) == 2
    assert (tmp_path / "kept" / "engine.json").exists()


def test_a_name_that_is_no_setting_is_refused_at_the_call() -> None:
    with pytest.raises(BadConfig, match=r"^no setting 'dellay'; did you mean 'delay'\?$"):
        weft.crawl("http://127.0.0.1/", dellay=0)  # type: ignore[call-arg]
    with pytest.raises(BadConfig, match="no setting 'http_timeout_seconds'; here it is 'total_timeout'"):
        weft.crawl("http://127.0.0.1/", http_timeout_seconds=3)  # type: ignore[call-arg]


def test_stored_pages_are_read_without_a_request(web: SyntheticWeb, tmp_path: Path) -> None:
    data = tmp_path / "data"
    crawled = {page.url: page.body for page in weft.crawl(web.seeds, data_dir=data, max_pages=15, **SETTINGS)}
    arrived = len(web.arrivals())
    with weft.StoredPages(data) as pages:
        again = {page.url: page.body for page in pages}
        assert again == crawled
        url = next(iter(crawled))
        page = pages.get(url)
        assert page is not None and page.body == crawled[url] and page.row.url == url
        assert pages.get("http://127.9.9.9/nothing") is None
        rows = {row.url: row for row in pages.rows()}
        assert {row.url for row in rows.values() if row.status == 200} >= set(crawled)
        parents = {pages.parent(row) for row in rows.values()}
        assert None in parents and parents - {None} <= set(rows)
        (answer,) = pages.explain(url)
        assert answer.crawled and answer.reason == "page"
        with pytest.raises(BadInput, match="there is no crawl 'other'"):
            weft.StoredPages([data], crawl="other")
    assert len(web.arrivals()) == arrived


def test_a_folder_without_a_crawl_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=str(tmp_path)):
        weft.StoredPages(tmp_path)
