"""A crawl whose home was damaged, by a power cut, a bad disk or a person: what is lost is said, and what can be made
again is. tests/chaos/test_damage.py damages every file; here are the stories with their details."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from crawling import Crawler, check_corpus, until, weft, weft_here
from power_cut import reboot

from weft import urls
from weft.frontier.durability.journal import FrontierJournal
from weft.store.pages import PageStore
from weft.testing.web import SyntheticWeb, synthetic_web

PAGES = 12


class Site(http.server.BaseHTTPRequestHandler):
    """Pages in a row, each with a link to the next two; what was asked for is kept."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        number = self.path.removeprefix("/")
        found = number.isdecimal() and int(number) < PAGES
        body = f'<a href="/{int(number) + 1}">a</a> <a href="/{int(number) + 2}">b</a>'.encode() if found else b""
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture(scope="module")
def site() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def stopped(site: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crawl that a limit has stopped, with pages left."""
    crawler = Crawler([site + "0"], tmp_path_factory.mktemp("stopped"), "--max-pages", 5, delay_s=0)
    assert crawler.run() == 3, crawler.said
    return crawler.data_dir


@pytest.fixture
def crawl(stopped: Path, tmp_path: Path) -> Crawler:
    """A copy of it to damage."""
    shutil.copytree(stopped, tmp_path / "data")
    return Crawler([], tmp_path, delay_s=0)


def numbers(crawler: Crawler) -> set[int]:
    return {int(row.url.rpartition("/")[2]) for row in crawler.pages()}


def goes_on(crawler: Crawler) -> None:
    assert crawler.run("--max-pages", 100, resume=True) == 0, crawler.said
    assert numbers(crawler) == set(range(PAGES))


def log_of(crawler: Crawler) -> str:
    return (crawler.data_dir / "logs" / "pod_0" / "fetcher_0.log").read_text()


def test_a_torn_request_log_is_passed_over_and_the_audit_says_so(crawl: Crawler) -> None:
    path = crawl.data_dir / "frontier" / "requests" / "requests-00000.log"
    path.write_bytes(path.read_bytes()[:-7])
    goes_on(crawl)
    assert "a torn line at the end of the request log is passed over" in log_of(crawl)
    told = json.loads(weft_here("audit", crawl.data_dir, "--json").stdout)
    assert (told["unreadable"], told["unreadable_in"], told["violations"]) == (1, [str(path)], [])
    said = weft_here("audit", crawl.data_dir)
    assert said.returncode == 0, said
    assert f"not covered by this proof: 1 lines of the log cannot be read: {path}" in said.stdout


def test_the_audit_says_when_the_end_of_the_log_is_missing(crawl: Crawler) -> None:
    path = crawl.data_dir / "frontier" / "requests" / "requests-00000.log"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-3]))
    told = json.loads(weft_here("audit", crawl.data_dir, "--json").stdout)
    assert (told["unreadable"], told["missing_bytes"]) == (0, sum(map(len, lines[-3:])))
    assert "bytes are missing at the end of the log" in weft_here("audit", crawl.data_dir).stdout


def test_a_crawl_that_is_killed_at_its_start_has_its_settings(site: str, tmp_path: Path) -> None:
    crawler = Crawler([site + "0"], tmp_path, "--exclude", "*/3", delay_s=30)
    with crawler.running(group=True) as running:
        until((crawler.data_dir / "engine.json").exists, 60, "the crawl's beginning")
        os.killpg(running.pid, signal.SIGKILL)
    kept = json.loads((crawler.data_dir / "crawls/crawl/config.json").read_bytes())["values"]
    assert (kept["politeness_delay_seconds"], kept["exclude"]) == (30.0, ["*/3"])
    assert crawler.run("--delay", 0, resume=True) == 0, crawler.said
    assert not any(row.url.endswith("/3") for row in crawler.rows())


@pytest.mark.parametrize("name", ["crawls/crawl/config.json", "crawls/crawl/seeds.txt"])
@pytest.mark.parametrize("content", [None, b"", b"{"])
def test_settings_and_seeds_that_are_gone_are_not_guessed(crawl: Crawler, name: str, content: bytes | None) -> None:
    path = crawl.data_dir / name
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    before = len(Site.asked)
    assert crawl.run(resume=True) == 2
    assert str(path) in crawl.said and "restore it from a backup, or start over with --fresh" in crawl.said
    assert len(Site.asked) == before, "nobody is asked by settings that nobody gave"


@pytest.mark.parametrize("content", [None, b"", b"no database" * 1000])
def test_a_frontier_that_is_gone_is_made_of_what_is_stored(crawl: Crawler, content: bytes | None) -> None:
    path, before = crawl.data_dir / "frontier" / "frontier.db", numbers(crawl)
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    asked = len(Site.asked)
    assert crawl.run("--max-pages", 100, resume=True) == 2
    assert str(path) in crawl.said and "weft rebuild CRAWL_DIR --frontier" in crawl.said
    assert len(Site.asked) == asked
    made = weft_here("rebuild", crawl.data_dir, "--frontier")
    assert (made.returncode, made.stderr) == (0, ""), made
    assert f"weft crawl --resume --data-dir {crawl.data_dir}" in made.stdout
    goes_on(crawl)
    again = [path for path in Site.asked[asked:] if path.removeprefix("/").isdecimal() and int(path[1:]) in before]
    assert len(again) == 1, "one page of the site is visited again, for its sitemaps"
    told = json.loads(weft_here("audit", crawl.data_dir, "--json").stdout)
    assert told["violations"] == [], "what was lost with the frontier is no violation"


def test_a_folder_of_the_frontier_that_is_gone_is_not_a_new_crawl(crawl: Crawler) -> None:
    shutil.rmtree(crawl.data_dir / "frontier")
    assert crawl.run("--max-pages", 100, resume=True) == 2
    assert "does not have what was fetched last" in crawl.said
    assert weft_here("rebuild", crawl.data_dir, "--frontier").returncode == 0
    goes_on(crawl)


def test_an_index_that_is_older_than_the_frontier_is_not_gone_on_with(crawl: Crawler) -> None:
    """Restored from an older backup, say: its last batches are missing."""
    path = crawl.data_dir / "frontier" / "frontier.db"
    journal = FrontierJournal(path)
    journal.put_meta("acknowledged", 1000)
    journal.close()
    assert crawl.run("--max-pages", 100, resume=True) == 2
    assert "index-pod0-fetcher0.db is older than the crawl, it has lost rows" in crawl.said
    assert f"weft rebuild {crawl.data_dir}" in crawl.said
    assert weft_here("rebuild", crawl.data_dir).returncode == 0
    goes_on(crawl)


def test_what_a_power_cut_took_from_the_frontier_is_read_again_from_the_pages(tmp_path: Path) -> None:
    """All rows of the index reached the disk, and nothing that the frontier had committed since its first moment."""
    with synthetic_web(hosts=3, pages=20, profile="calm", stocked=1, seed=5) as web:
        crawler = Crawler(web.seeds, tmp_path, delay_s=0.02)
        with crawler.running(group=True) as running:
            crawler.pages_at_least(30)
            os.killpg(running.pid, signal.SIGKILL)
        frontier = crawler.data_dir / "frontier"
        (frontier / "frontier.db-wal").unlink()
        assert crawler.run(resume=True) == 2, "the machine has not gone down: this is damage"
        assert "frontier.db: " in crawler.said
        reboot(frontier / "frontier.mark")
        assert crawler.run(resume=True) == 0, crawler.said
        assert "the links of stored pages are read again all=False" in log_of(crawler)
        check_corpus(crawler, lossy=True)
        _check_complete(crawler, web)


def _check_complete(crawler: Crawler, web: SyntheticWeb) -> None:
    rows = {row.url for row in crawler.rows()}
    left_out = [
        url for url in web.expect().must if url not in rows and "robots.txt" not in url and "sitemap" not in url
    ]
    assert left_out == []


def test_of_two_pods_one_that_lost_its_frontier_hears_of_its_pages_from_the_other(tmp_path: Path) -> None:
    with synthetic_web(hosts=6, pages=30, profile="calm", stocked=1, seed=7) as web:
        crawler = Crawler(web.seeds, tmp_path, "--num-pods", 2, "--max-pages", 60, delay_s=0.0)
        assert crawler.run() == 3, crawler.said
        # On a busy machine one pod may have had all pages before the other had begun.
        lost = max(urls.pod_of(urls.domain_of(row.url), 2) for row in crawler.rows())
        for name in ("frontier.db", "frontier.mark"):
            (crawler.data_dir / "frontier" / f"pod_{lost}" / name).unlink()
        assert crawler.run("--max-pages", 10_000, resume=True) == 2, crawler.said
        assert f"pod_{lost}/frontier.db: does not have what was fetched last" in crawler.said
        assert weft_here("rebuild", crawler.data_dir, "--frontier").returncode == 0
        assert crawler.run("--max-pages", 10_000, resume=True) == 0, crawler.said
        _check_complete(crawler, web)


def test_seeds_that_were_refused_for_their_address_are_asked_once_that_is_allowed(site: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    flags = ("--delay", 0, "--prometheus-port", 0, "--data-dir", data)
    first = weft("crawl", site + "0", *flags)
    assert (first.returncode, "--allow-private" in first.stderr) == (4, True), first.stderr
    again = weft("crawl", "--resume", "--data-dir", data)
    assert (again.returncode, "Nothing was stored" in again.stderr) == (4, True), again.stderr
    widened = weft("crawl", "--resume", "--allow-private", "--data-dir", data)
    assert (widened.returncode, f"{PAGES} pages" in widened.stderr) == (0, True), widened.stderr
    asked = len(Site.asked)
    last = weft("crawl", "--resume", "--data-dir", data)
    assert (last.returncode, len(Site.asked)) == (0, asked), "once is enough"
    store = PageStore.open([data], read_only=True)
    assert [row.error.partition(":")[0] for row in store.rows_of_url(site + "0")] == ["address", ""]
    store.abandon()
