"""Seed files that are read while the crawl runs: from the first second, through kills, each seed once."""

from __future__ import annotations

import gzip
import http.server
import os
import signal
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest
from crawling import WEFT, Crawler, environment, until, weft
from pace import patience

from weft.frontier.durability.journal import FrontierJournal

SEEDS = 150_000  # more than are taken in between two reports of a fast machine
SEEDS_ON_REDIS = 30_000  # the same for servers, which are slower


class Site(http.server.BaseHTTPRequestHandler):
    """A page at every path of every host."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[set[str]] = set()  # hosts

    def do_GET(self) -> None:
        self.asked.add(self.headers["Host"])
        body = b"<title>page</title><p>Words of a page." if not self.path.endswith((".txt", ".xml")) else b""
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        return None


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


def many(port: int, tmp_path: Path, *flags: object, count: int = SEEDS) -> tuple[Crawler, list[str]]:
    """A crawl of many seeds at few sites, each asked for its robots.txt alone: pages would add their sitemaps."""
    seeds = [f"http://h{number % 50}.test:{port}/a/path/of/some/length/{number}" for number in range(count)]
    return Crawler(seeds, tmp_path, "--resolve", "*=127.0.0.1", *flags, delay_s=3600), seeds


def admitted(folder: Path) -> Counter[str]:
    with closing(FrontierJournal(folder / "frontier.db")) as journal:
        lines = [line for _, _, lines in journal.admitted_since(0) for line in lines]
    return Counter(line.split(" ", 7)[7] for line in lines if " p " in line)


def taken_in(crawler: Crawler, seeds: int) -> int:
    """Waits until so many seeds are taken in."""
    until(lambda: crawler.status().get("seeds", 0) >= seeds, 60, f"seed {seeds}")
    return int(crawler.status()["seeds"])


def killed_while_seeds_are_taken_in(crawler: Crawler, kills: int, count: int = SEEDS) -> None:
    """Kills run after run in the middle, and lets the last one read to the end."""
    for run in range(kills + 1):
        with crawler.running(resume=run > 0, group=True) as running:
            if run < kills:
                assert taken_in(crawler, (run + 1) * count // 20) < count, "all before the kill"
                os.killpg(running.pid, signal.SIGKILL)
            else:
                taken_in(crawler, count)
                running.send_signal(signal.SIGINT)
                assert running.wait() == 130, crawler.said


def test_each_seed_is_admitted_once_however_often_it_is_killed(port: int, tmp_path: Path) -> None:
    crawler, seeds = many(port, tmp_path)
    killed_while_seeds_are_taken_in(crawler, 2)
    assert admitted(crawler.data_dir / "frontier") == Counter(seeds)
    assert crawler.status()["seeds"] == SEEDS


@pytest.mark.parametrize("scope", ["any", "host"])
def test_a_resume_reads_no_seed_again_and_gets_to_the_next(port: int, tmp_path: Path, scope: str) -> None:
    """With the scope that a seed file has by default, and with one that depends on the seeds."""
    crawler = Crawler((f"http://{scope}{at // 500}.test:{port}/path/{at}" for at in range(SEEDS)), tmp_path)
    flags = ["--resolve", "*=127.0.0.1", "--delay", "3600", "--allow-private", "--prometheus-port", "0"]
    flags += ["--scope", scope] if scope != "any" else []
    new = ["--seed-file", str(crawler.seed_file), "--data-dir", str(crawler.data_dir), *flags]
    first = subprocess.Popen([*WEFT, "crawl", *new], stdin=subprocess.DEVNULL, env=environment())
    try:
        taken_in(crawler, SEEDS // 20)
        first.send_signal(signal.SIGINT)
        assert first.wait(patience(20)) == 130
    finally:
        first.kill()
        first.wait()
    before, hosts = crawler.status(), set(Site.asked)
    read = [before["seeds_read"]]
    assert 0 < read[0] < 1

    def is_further() -> bool:
        status = crawler.status()
        read.append(status["seeds_read"])
        return status["seeds"] > before["seeds"] and not Site.asked <= hosts

    with crawler.running("--max-duration", 3600, resume=True) as running:
        until(is_further, 60, "progress: more seeds, and a request to another host")
        running.send_signal(signal.SIGINT)
        assert running.wait(patience(20)) == 130, crawler.said
    assert min(read) == read[0], f"{read[0]:.0%} of the seeds were read before, and read again from {min(read):.0%} on"


def test_pods_take_in_their_own(port: int, tmp_path: Path) -> None:
    crawler, seeds = many(port, tmp_path, "--num-pods", 2)
    killed_while_seeds_are_taken_in(crawler, 1)
    parts = [admitted(crawler.data_dir / "frontier" / f"pod_{pod}") for pod in range(2)]
    assert all(parts) and parts[0] + parts[1] == Counter(seeds)


def test_pods_on_redis_take_in_their_own(port: int, tmp_path: Path) -> None:
    pods, count = ("--pods", "managed", "--pods", "managed", "--fetchers-per-pod", 2), SEEDS_ON_REDIS
    crawler, _ = many(port, tmp_path, *pods, count=count)
    killed_while_seeds_are_taken_in(crawler, 1, count)
    status = crawler.status()
    assert (status["seeds"], status["seen"]) == (count, count)


def test_a_gzip_file_is_crawled_to_its_end_and_its_mistakes_are_logged(port: int, tmp_path: Path) -> None:
    crawler = Crawler([], tmp_path, "--resolve", "*=127.0.0.1", "--scope", "host", delay_s=0)
    filler = "# a comment that makes it large\n" * 45_000
    text = f"http://a.test:{port}/1\n{filler}ftp://b.test/\nhttp://b.test:{port}/2\nhttp://a.test:{port}/1\n"
    crawler.seed_file.write_bytes(gzip.compress(text.encode()))
    assert crawler.run() == 0, crawler.said
    assert sorted(row.url for row in crawler.pages()) == [f"http://a.test:{port}/1", f"http://b.test:{port}/2"]
    logged = (crawler.data_dir / "logs" / "pod_0" / "fetcher_0.log").read_text()
    assert "a line of a seed file is not a URL" in logged and "45002" in logged
    assert crawler.status()["refused"]["scheme"] == 1
    assert crawler.run(resume=True) == 0, crawler.said
    told = weft("explain", crawler.data_dir, f"http://b.test:{port}/2")
    assert "a seed" in told.stdout, told


def test_a_large_file_does_not_go_with_a_scope_of_prefixes(tmp_path: Path) -> None:
    crawler = Crawler([f"http://127.0.0.1/{number:080d}" for number in range(15_000)], tmp_path, "--scope", "prefix")
    said = crawler.refusal()
    assert "--scope domain, host or any" in said or "use `scope`" in said
    assert not (crawler.data_dir / "engine.json").exists()


def test_seeds_beyond_this_machine_need_an_address_in_a_large_file_too(tmp_path: Path) -> None:
    lines = [f"http://127.0.0.1:9/{number:080d}" for number in range(15_000)]
    crawler = Crawler([*lines, "http://example.com/"], tmp_path)
    assert "http://example.com/: tell the sites how to reach you" in crawler.refusal()
