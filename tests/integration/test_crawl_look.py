"""Looking into a crawl: `weft stats`, `weft get` and `weft watch`, on one that has ended and on one that runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from crawling import Crawler, until, weft, weft_here
from pace import patience

from weft.testing.web import SyntheticWeb, synthetic_web


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=10, pages=60, seed=5, gzip=True) as web:
        yield web


@pytest.fixture(scope="module")
def crawler(web: SyntheticWeb, tmp_path_factory: pytest.TempPathFactory) -> Crawler:
    crawler = Crawler(web.seeds, tmp_path_factory.mktemp("look"), "--max-pages", 80, delay_s=0.02)
    assert crawler.run() == 3, crawler.said
    return crawler


def test_stats_tell_what_the_index_holds(crawler: Crawler) -> None:
    facts = json.loads(weft_here("stats", crawler.data_dir, "--json").stdout)
    rows = crawler.rows()
    assert (facts["pages"], facts["rows"]) == (80, len(rows))
    assert facts["body_bytes"] == sum(row.length for row in crawler.pages())
    assert facts["warc_bytes"] == sum(path.stat().st_size for path in (crawler.data_dir / "warc").glob("*/*"))
    assert sum(facts["statuses"].values()) == len(rows)
    assert (facts["state"], facts["note"]) == ("limit", "max_pages")
    assert facts["queued"] > 0 and facts["pages_per_s"] > 0
    text = weft_here("stats", crawler.data_dir, "--top", 3)
    assert text.returncode == 0 and "pages      80 " in text.stdout and "top hosts" in text.stdout


def test_get_shows_a_page(crawler: Crawler, web: SyntheticWeb) -> None:
    url = web.seeds[0]
    facts = json.loads(weft_here("get", crawler.data_dir, url).stdout)
    assert (facts["url"], facts["status"]) == (url, 200)
    headers = weft_here("get", crawler.data_dir, url, "--headers").stdout
    assert headers.startswith("HTTP/1.1 200") and "content-encoding: gzip" in headers.lower()
    body = weft_here("get", crawler.data_dir, url, "--body").stdout
    assert "<html" in body and len(body) > 1000
    assert weft_here("get", crawler.data_dir, url, "--text").stdout.strip()
    main_text = weft_here("get", crawler.data_dir, url, "--main-text").stdout
    kept, text = (
        weft_here("get", crawler.data_dir, url, "--markdown", "--markdown-links", links).stdout
        for links in ("keep", "text")
    )
    assert main_text.strip() and "](http" in kept and text.strip() and "](http" not in text
    as_json = json.loads(weft_here("get", crawler.data_dir, url, "--comments", "--json").stdout)
    assert (as_json["url"], as_json["comments"]) == (url, "")
    links = weft_here("get", crawler.data_dir, url, "--links").stdout.split()
    assert len(links) > 5 and all(link.startswith("http") for link in links)


def test_get_of_what_is_not_there(crawler: Crawler, web: SyntheticWeb, tmp_path: Path) -> None:
    for arguments in (
        (crawler.data_dir, web.seeds[0] + "never/heard/of"),
        (crawler.data_dir, "http://"),
        (tmp_path, web.seeds[0]),
        (tmp_path / "nowhere", web.seeds[0]),
    ):
        ended = weft_here("get", *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("weft: ") and len(ended.stderr.splitlines()) <= 2, "what is wrong, and a command"


def test_watch_of_a_crawl_that_has_ended(crawler: Crawler) -> None:
    ended = weft_here("watch", crawler.data_dir)
    assert ended.returncode == 0
    assert ended.stderr.startswith("limit: 80 pages, ")
    assert json.loads(weft_here("watch", crawler.data_dir, "--json").stdout)["pages"] == 80


def test_a_crawl_that_runs_can_be_looked_into(web: SyntheticWeb, tmp_path: Path) -> None:
    crawler = Crawler(web.seeds, tmp_path, delay_s=0.3)
    with crawler.running() as running:
        crawler.pages_at_least(5)
        facts = json.loads(weft("stats", crawler.data_dir, "--json").stdout)
        assert facts["state"] == "running" and facts["pages"] >= 5
        assert json.loads(weft("watch", crawler.data_dir, "--json").stdout)["state"] == "running"
        assert "<html" in weft("get", crawler.data_dir, web.seeds[0], "--body").stdout
        assert running.poll() is None
    left = weft("watch", crawler.data_dir)
    assert "interrupted: " in left.stderr and "Continue: weft crawl --resume" in left.stderr


def test_watch_ends_with_the_crawl(web: SyntheticWeb, tmp_path: Path) -> None:
    crawler = Crawler(web.seeds, tmp_path, "--max-duration", 3, delay_s=0.2)
    with crawler.running() as running:
        until(lambda: crawler.status().get("state") == "running", 40, "the start")
        watched = weft("watch", crawler.data_dir, timeout_s=20)
        assert watched.returncode == 0 and watched.stderr.splitlines()[-1].startswith("limit: ")
        assert running.wait(patience(40)) == 3


def test_json_summary_of_a_crawl(web: SyntheticWeb, tmp_path: Path) -> None:
    ended = weft(
        "crawl", web.seeds[0], "--allow-private", "--delay", 0.02, "--max-pages", 3, "--prometheus-port", 0,
        "--data-dir", tmp_path / "data", "--json",
    )  # fmt: skip
    facts = json.loads(ended.stdout)
    assert ended.returncode == facts["exit_code"] == 3 and ended.stderr == ""
    assert facts["status"]["pages"] == 3 and facts["data_dir"] == str(tmp_path / "data")


def test_quiet_says_nothing(web: SyntheticWeb, tmp_path: Path) -> None:
    ended = weft(
        "-q", "crawl", web.seeds[0], "--allow-private", "--delay", 0.02, "--max-pages", 3, "--prometheus-port", 0,
        "--data-dir", tmp_path / "data",
    )  # fmt: skip
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "")
