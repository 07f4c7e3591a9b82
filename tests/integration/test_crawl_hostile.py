"""Servers that mean harm, and pages that kill their parser: the crawl ends, small, and everything has its right row."""

from __future__ import annotations

import http.server
import threading
from pathlib import Path

import pytest
from crawling import Crawler, Hostile, check_corpus, crawl_hostile_web
from pace import patience

from weft.fetch.guard import Guard
from weft.records import Row

# One of these is the error of the row, for each behaviour; an empty one is a page or a redirect without fault.
ERRORS = {
    "drip-body": {"timeout"},
    "drip-headers": {"timeout"},
    "endless-body": {"too_large"},
    "endless-chunks": {"too_large"},
    "endless-headers": {"headers_too_large"},
    "never-answers": {"timeout"},
    "empty-answer": {"reset"},
    "gzip-bomb": {"too_large"},
    "br-bomb": {"too_large"},
    "zstd-bomb": {"too_large"},
    "nested-bomb": {"too_large"},
    "broken-chunk": {"protocol"},
    "huge-chunk": {"protocol", "too_large"},
    "missing-final-chunk": {"protocol", "truncated"},
    "huge-header": {"headers_too_large"},
    "many-headers": {"headers_too_large"},
    "no-colon": {"", "protocol"},  # what a process has learnt of a host dies with it, and a parser dies here
    "garbage-status": {"protocol"},
    "no-status-line": {"protocol"},
    "long-length": {"truncated"},
    "short-length": {"", "wrong_length"},
    "negative-length": {"protocol"},
    "two-lengths": {"protocol"},
    "drop-mid-body": {"reset"},
    "truncated-gzip": {"decode"},
    "false-gzip": {"decode"},
    "redirect-file": {"redirect to scheme"},
    "redirect-metadata": {""},
    "redirect-private": {""},
    "redirect-gopher": {"redirect to scheme"},
    "redirect-self": {"too_many_redirects"},
    "redirect-long": {"redirect to length"},
    "redirect-nowhere": {""},
    "deep-nesting": {""},
    "huge-attribute": {""},
    "million-links": {""},
    "nul-bytes": {""},
    "invalid-utf8": {""},
    "cookie-flood": {"", "headers_too_large"},
    "crash-parser": {"parse_crash"},
    "robots-endless": {""},
    "robots-silent": {"robots-unreachable"},
}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    return crawl_hostile_web(tmp_path_factory.mktemp("hostile"), hosts=2, pages=20, seed=6)


def last_rows(crawl: Hostile) -> dict[str, Row]:
    """The last row of each hostile URL, by behaviour."""
    return {row.url.rpartition("/")[2]: row for row in crawl.rows if "/hostile/" in row.url}


def test_it_ends_and_all_that_can_be_fetched_is(crawl: Hostile) -> None:
    assert crawl.code == 0, crawl.said
    crawl.verdict.duplicates = []  # what the parser's two deaths took down with them is asked for again
    assert crawl.verdict.ok, crawl.verdict


@pytest.mark.parametrize("behaviour", ERRORS)
def test_each_ends_with_the_right_error(crawl: Hostile, behaviour: str) -> None:
    assert last_rows(crawl)[behaviour].error.partition(":")[0] in ERRORS[behaviour]


def test_its_memory_stays_under_400_mb(crawl: Hostile) -> None:
    print(f"peak {crawl.peak_rss_bytes / 1e6:.0f} MB")
    assert 0 < crawl.peak_rss_bytes < 400e6


def test_no_page_is_over_its_limits(crawl: Hostile) -> None:
    assert max(row.length for row in crawl.rows if row.warc_file) <= crawl.max_body_bytes


def test_nothing_outside_loopback_is_connected_to(crawl: Hostile) -> None:
    assert crawl.peers and all(peer.startswith("127.") for peer in crawl.peers)
    refused = {row.url: row for row in crawl.rows if row.error.startswith("address: ")}
    assert set(refused) == {"http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/"}
    assert all(not row.status and not row.warc_file for row in refused.values())
    assert Guard(allow_private=True).check("169.254.169.254")


def test_pathological_pages_are_parsed_in_bounded_time(crawl: Hostile) -> None:
    rows = last_rows(crawl)
    for name in ("deep-nesting", "huge-attribute", "million-links"):
        assert rows[name].status == 200 and rows[name].warc_file, name
    assert crawl.longest_parse_s < patience(2)
    found = {row.url.rpartition("/")[2] for row in crawl.rows if row.parent == rows["million-links"].item}
    assert found == set("0123456789")


def test_a_page_that_kills_its_parser_is_stored_unparsed_and_named(crawl: Hostile) -> None:
    row = last_rows(crawl)["crash-parser"]
    assert (row.status, row.error, row.title) == (200, "parse_crash", "") and row.warc_file
    assert f"Stored unparsed, because parsing crashed: {row.url}" in crawl.said
    assert crawl.status["poisoned"] == [row.url]
    assert crawl.deaths == 2


# ── more pages that kill than a crash loop has lives ───────────────────────────────────────────────────────────────


class Minefield(http.server.BaseHTTPRequestHandler):
    """Twenty pages, five of which kill whoever parses them."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        links = "".join(f'<a href="/{number}">{number}</a>' for number in range(20))
        deadly = "kills-parsers" if self.path in ("/3", "/4", "/5", "/11", "/19") else "harmless"
        body = f"<title>{self.path}</title><p>{deadly}</p>{links}".encode()
        self.send_response(200 if self.path != "/robots.txt" else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


def test_many_deadly_pages_are_no_crash_loop(tmp_path: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Minefield)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        origin = f"http://127.0.0.1:{server.server_address[1]}/"
        crawler = Crawler([origin], tmp_path, delay_s=0.02)
        assert crawler.run(WEFT_TEST_DEADLY_MARK="kills-parsers") == 0, crawler.said
    finally:
        server.shutdown()
        server.server_close()
    rows = check_corpus(crawler)
    assert {row.url: row.error for row in rows if row.error} == {
        origin + str(number): "parse_crash" for number in (3, 4, 5, 11, 19)
    }
    assert len(rows) == 21
