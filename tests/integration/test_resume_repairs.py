"""A resume that has mended something says in its summary what, and what it has cost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawling import Crawler, weft, weft_here

from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=2, pages=20, profile="calm", stocked=1) as served:
        yield served


@pytest.fixture(scope="module")
def crawled(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> Path:
    crawler = Crawler(web.seeds, tmp_path_factory.mktemp("crawled"), delay_s=0)
    assert crawler.run() == 0, crawler.said
    assert "Repaired" not in crawler.said
    return crawler.data_dir


@pytest.fixture
def crawl(crawled: Path, tmp_path: Path) -> Crawler:
    shutil.copytree(crawled, tmp_path / "data")
    return Crawler([], tmp_path, delay_s=0)


def _damage(crawler: Crawler) -> None:
    """Half a line at the end of the request log, and one bit of the last page's record."""
    (path,) = (crawler.data_dir / "frontier" / "requests").glob("*.log")
    path.write_bytes(path.read_bytes()[:-7])
    last = max(crawler.pages(), key=lambda row: row.warc_offset)
    with (crawler.data_dir / "warc" / last.warc_file).open("r+b") as file:
        file.seek(last.warc_offset + last.warc_length // 2)
        (byte,) = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte ^ 0x10]))


def test_the_summary_says_what_was_repaired_and_at_what_cost(web: SyntheticWeb, crawl: Crawler) -> None:
    _damage(crawl)
    assert weft_here("rebuild", crawl.data_dir).returncode == 0
    assert crawl.run(resume=True) == 0, crawl.said
    (line,) = [line for line in crawl.said.splitlines() if line.startswith("Repaired: ")]
    assert "1 pages that cannot be read were queued again" in line
    assert "1 lines of the request log cannot be read, so that sites had to wait a full delay" in line
    assert crawl.run(resume=True) == 0, crawl.said
    assert "pages that cannot be read" not in crawl.said, "it is told once"


def test_programs_are_told_what_was_repaired(web: SyntheticWeb, crawl: Crawler) -> None:
    _damage(crawl)
    assert weft_here("rebuild", crawl.data_dir).returncode == 0
    done = weft("crawl", "--resume", "--data-dir", crawl.data_dir, "--json")
    assert done.returncode == 0, done.stderr
    repairs = json.loads(done.stdout)["status"]["repairs"]
    assert (repairs["lost_pages"], repairs["request_log_lines"]) == (1, 1)
    assert json.loads(weft_here("stats", crawl.data_dir, "--json").stdout)["repairs"] == repairs
