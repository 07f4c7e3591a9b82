"""Pages of frameworks' starters: exactly those are rendered that scripts draw, and both ways of reading agree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import missing
from crawling import weft, weft_here
from starter_site import DOMAIN, STARTERS, starter_site

from weft.extract.page import extract


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    if shutil.which("chromium") is None:
        missing("chromium")
    with starter_site() as one:
        yield one


def url_of(name: str, port: int) -> str:
    host, _, path = name.partition("/")
    return f"http://{host}.{DOMAIN}:{port}/{path}"


def crawled(folder: Path, names: list[str], port: int, render: str) -> dict[str, str]:
    """A crawl of some pages; the text of each."""
    seeds = [url_of(name, port) for name in names]
    ended = weft(
        "crawl", *seeds, "--data-dir", folder, "--max-depth", "0", "--allow-private", "--quiet", "--delay", "0.05",
        "--resolve", f"*.{DOMAIN}=127.0.0.1", "--prometheus-port", "0", "--render", render, timeout_s=120,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    exported = weft("export", folder, "--format", "jsonl", "--content", "text", "--out", "-")
    rows = [json.loads(line) for line in exported.stdout.splitlines()]
    texts = {row["url"]: " ".join(row["text"].split()) for row in rows}
    return {name: texts[url_of(name, port)] for name in names}


def html_of(folder: Path, name: str, port: int, *how: str) -> str:
    """A page as it was stored; empty if it was not stored so."""
    stored = weft_here("get", folder, url_of(name, port), *how)
    return "" if stored.returncode else stored.stdout


def links_of(html: str, name: str, port: int) -> set[str]:
    return set(extract(html.encode(), url_of(name, port), "text/html; charset=utf-8").hrefs)


def test_auto_renders_exactly_the_starters_that_scripts_draw(port: int, tmp_path: Path) -> None:
    texts = crawled(tmp_path / "crawl", list(STARTERS), port, "auto")
    rendered = {name: html_of(tmp_path / "crawl", name, port, "--rendered") for name in STARTERS}
    assert {name for name, html in rendered.items() if html} == {
        name for name, page in STARTERS.items() if page.is_drawn
    }
    assert [name for name, page in STARTERS.items() if page.text not in texts[name]] == []
    for name, page in STARTERS.items():
        links = links_of(rendered[name] or html_of(tmp_path / "crawl", name, port), name, port)
        assert all(any(link.startswith(one) for link in links) for one in page.links), (name, page.links, links)


def test_pages_that_both_ways_can_read_agree(port: int, tmp_path: Path) -> None:
    names = [name for name, page in STARTERS.items() if not page.is_drawn]
    plain = crawled(tmp_path / "plain", names, port, "never")
    rendered = crawled(tmp_path / "rendered", names, port, "always")
    assert rendered == plain
    for name in names:
        drawn = html_of(tmp_path / "rendered", name, port, "--rendered")
        assert drawn and links_of(drawn, name, port) == links_of(html_of(tmp_path / "plain", name, port), name, port)
