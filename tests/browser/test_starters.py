"""Pages of frameworks' starters: exactly those are rendered that scripts draw, and both ways of reading agree."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urljoin

import pytest
from browsing import missing
from crawling import weft, weft_here
from starter_site import DOMAIN, STARTERS, source_of, starter_site

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


def rendered_page(folder: Path, name: str, port: int) -> str:
    """A page as the browser had it; empty if it was not rendered."""
    stored = weft_here("get", folder, url_of(name, port), "--rendered")
    return "" if stored.returncode else stored.stdout


def links_of(html: str, name: str, port: int) -> set[str]:
    url = url_of(name, port)
    return {urljoin(url, link) for link in extract(html.encode(), url, "text/html; charset=utf-8").hrefs}


def test_auto_renders_exactly_the_starters_that_scripts_draw(port: int, tmp_path: Path) -> None:
    texts = crawled(tmp_path / "crawl", list(STARTERS), port, "auto")
    rendered = {name: rendered_page(tmp_path / "crawl", name, port) for name in STARTERS}
    assert {name for name, html in rendered.items() if html} == {
        name for name, page in STARTERS.items() if page.is_drawn
    }
    assert [name for name, page in STARTERS.items() if page.text not in texts[name]] == []
    for name, page in STARTERS.items():
        links = links_of(rendered[name] or source_of(name), name, port)
        assert all(any(link.startswith(urljoin(url_of(name, port), one)) for link in links) for one in page.links), name


def test_pages_that_both_ways_can_read_agree(port: int, tmp_path: Path) -> None:
    names = [name for name, page in STARTERS.items() if not page.is_drawn]
    plain = crawled(tmp_path / "plain", names, port, "never")
    rendered = crawled(tmp_path / "rendered", names, port, "always")
    assert rendered == {name: text.replace(STARTERS[name].taken_away, "") for name, text in plain.items()}
    for name in names:
        html = rendered_page(tmp_path / "rendered", name, port)
        assert html and links_of(html, name, port) == links_of(source_of(name), name, port)
