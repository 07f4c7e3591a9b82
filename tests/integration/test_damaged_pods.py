"""A crawl on Redis over two data dirs, of which one has lost the end of its index: noticed, told, and mended."""

from __future__ import annotations

from pathlib import Path

from crawling import Crawler, weft

from weft.store.pages import PageStore
from weft.testing.web import synthetic_web

INDEX = "index-pod0-fetcher0.db"


def test_an_index_of_one_data_dir_that_lost_its_last_rows_is_not_gone_on_with(tmp_path: Path) -> None:
    second = tmp_path / "second"
    flags = ("--pods", "managed", "--fetchers-per-pod", 1, "--parsers-per-pod", 0, "--data-dir", second)
    with synthetic_web(hosts=4, pages=60, profile="calm", stocked=1, seed=5) as web:
        crawler = Crawler(web.seeds, tmp_path, "--max-pages", 30, delay_s=0.02, data_dir=tmp_path / "first")
        assert crawler.run(*flags) == 3, crawler.said
        saved = (second / INDEX).read_bytes()
        assert crawler.run("--data-dir", second, "--max-pages", 90, resume=True) == 3, crawler.said
        (second / INDEX).write_bytes(saved)  # as it is without the log of the second run
        sizes = {path: path.stat().st_size for path in (second / "warc").glob("*/*")}
        assert crawler.run("--data-dir", second, "--max-pages", 1000, resume=True) == 2, crawler.said
        assert f"{second / INDEX} is older than the crawl, it has lost rows: `weft rebuild" in crawler.said
        assert {path: path.stat().st_size for path in (second / "warc").glob("*/*")} == sizes, "nothing is cut off"
        told = weft("rebuild", crawler.data_dir, second)
        assert told.returncode == 0, told
        assert crawler.run("--data-dir", second, "--max-pages", 1000, resume=True) == 0, crawler.said
        store = PageStore.open([crawler.data_dir, second], read_only=True)
        rows = {row.url for row in store.rows()}
        store.abandon()
        verdict = web.judge(delay_s=crawler.delay_s)
        assert not verdict.missing, verdict
        missing = set(web.expect().must) - rows
        assert all(url.endswith(("/robots.txt", ".xml", ".xml.gz")) for url in missing), missing
