"""A spider's requests that a browser has: for the spider as a whole, and one by one."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsing import missing as tool_missing
from crawling import weft
from drawn_site import DrawnSite, drawn_site

SPIDER = """
import weft

class Drawn(weft.Spider):
    settings = {{"delay": 0.05, "allow_private": True, "prometheus_port": 0, "spider_workers": 1}}

    def start(self):
        yield weft.Request("{url}/drawn0", meta={{"is": "auto"}}, render="auto")
        yield weft.Request("{url}/drawn1", meta={{"is": "plain"}})
        yield weft.Request("{url}/plain0", meta={{"is": "readable"}}, render="auto")
        yield weft.Request("{url}/form", meta={{"is": "actions"}}, actions=[
            {{"type": "write", "selector": "#q", "text": "weft"}}, {{"type": "select", "selector": "#s", "value": "b"}},
            {{"type": "click", "selector": "#go"}}, {{"type": "screenshot"}},
        ])

    def parse(self, page):
        drawn = [len(page.screenshot) > 1000, page.screenshot[1:4] == b"PNG"]
        yield {{"is": page.meta["is"], "h1": page.css("h1").text, "body": page.xpath("//body").text, "drawn": drawn,
               "rendered": bool(page.rendered), "came": b"<script" in page.body, "hello": b"hello" in page.body}}
"""


@pytest.fixture
def site() -> Iterator[DrawnSite]:
    with drawn_site(links=1) as one:
        yield one


def run(site: DrawnSite, folder: Path, text: str, *more: object, **variables: Any) -> dict[str, dict[str, Any]]:
    file, out = folder / "drawn.py", folder / "out.jsonl"
    file.write_text(text.format(url=site.url))
    done = weft("run", file, "--data-dir", folder / "data", "-o", out, *more, timeout_s=90, **variables)
    assert done.returncode == 0, done.stderr
    items = [json.loads(line) for line in out.read_text().splitlines()]
    return {item["is"]: item for item in items}


def test_a_request_is_rendered_where_it_asks_for_that(site: DrawnSite, tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        tool_missing("chromium")
    items = run(site, tmp_path, SPIDER)
    assert items["auto"]["h1"] == "hello /drawn0"
    assert items["auto"]["rendered"] and items["auto"]["came"] and not items["auto"]["hello"]
    assert items["plain"]["h1"] is None and not items["plain"]["rendered"]
    assert items["readable"]["h1"] == "Plain" and not items["readable"]["rendered"]  # no script has to draw it
    assert "typed weft b" in items["actions"]["body"] and items["actions"]["drawn"] == [True, True]
    asked = site.paths()
    assert [asked.count(path) for path in ("/drawn0", "/drawn1", "/plain0", "/form")] == [1, 1, 1, 1]
    # Once more, of what is stored: the callback has the same page.
    again = tmp_path / "again.jsonl"
    done = weft("extract", tmp_path / "data", "-o", again)
    assert done.returncode == 0, done.stderr
    stored = {item["is"]: item for item in map(json.loads, again.read_text().splitlines())}
    assert stored["auto"] == items["auto"]
    assert len(site.paths()) == len(asked)


def test_a_spider_is_rendered_as_a_whole(site: DrawnSite, tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        tool_missing("chromium")
    text = SPIDER.replace("    def start", '    render = "auto"\n\n    def start').replace(', render="auto"', "")
    items = run(site, tmp_path, text)
    assert items["plain"]["h1"] == "hello /drawn1" and items["plain"]["rendered"]


def test_without_a_browser_a_page_says_why_it_was_not_rendered(site: DrawnSite, tmp_path: Path) -> None:
    none = {"PATH": str(Path(sys.executable).parent), "CHROMIUM_PATH": str(tmp_path / "none")}
    items = run(site, tmp_path, SPIDER, **none)
    assert items["auto"]["h1"] is None and items["plain"]["h1"] is None
    causes = json.loads(weft("errors", tmp_path / "data", "--json").stdout)["failures"]
    assert {one["cause"].partition(":")[0]: one["count"] for one in causes} == {"render_browser": 3}
