"""The wide web and very many seeds, killed again and again: nothing is lost, and no site is asked too soon. Minutes."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
import threading
import time
from contextlib import closing
from http.server import ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, until
from pace import patience
from test_seed_streams import Site

from weft import urls
from weft.frontier.durability.journal import FrontierJournal
from weft.records import Row
from weft.store.pages import PageStore
from weft.testing.tls import CA_FILE

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
wide_web: Any = import_module("harness.wide_web")

pytestmark = [
    pytest.mark.skipif(
        not os.environ.get("WEFT_TEST_CHAOS"),
        reason="takes minutes: WEFT_TEST_CHAOS=1 runs it (tests/integration has what is quick)",
    ),
    pytest.mark.timeout(1800),
]
HOSTS, KILLS, PORT, DELAY_S = 400, 30, 8690, 1.0
SEEDS, SEED_KILLS = 5_000_000, 3
_HREF = re.compile(rb'href="(/[^"]*)"').findall


def test_thirty_kills_in_the_wide_mix(tmp_path: Path) -> None:
    mix, chance, began = wide_web.hosts(HOSTS), random.Random(7), time.monotonic()
    crawler = Crawler(
        [host.seed(PORT) for host in mix], tmp_path, "--scope", "host", "--resolve", f"*.{wide_web.DOMAIN}=127.0.0.1",
        delay_s=DELAY_S,
    )  # fmt: skip
    with wide_web.served(mix, PORT, max(os.sched_getaffinity(0)), tmp_path) as log:
        for run in range(KILLS + 1):
            before = crawler.status().get("pages", 0)
            with crawler.running(resume=run > 0, group=True, SSL_CERT_FILE=str(CA_FILE)) as running:
                crawler.pages_at_least(before + 1, 60)
                time.sleep(chance.uniform(0.5, 4.0))
                if run < KILLS:
                    os.killpg(running.pid, signal.SIGKILL)
                else:
                    running.send_signal(signal.SIGINT)
                    assert running.wait(patience(60)) == 130, crawler.said
    verdict = wide_web.judge(log, mix, began, (began, time.monotonic()), DELAY_S)
    assert verdict.violations == 0, verdict
    admitted, rows = admitted_pages(crawler), crawler.rows()
    assert len({row.item for row in rows}) == len({row.url for row in rows}) == len(rows), "a URL ends once"
    assert len(admitted) == len(set(admitted)), "a URL is admitted once"
    links = check_links(crawler, rows, set(admitted))
    print(f"{KILLS} kills, {len(rows)} rows, {links} links, each admitted once; {verdict}")


def admitted_pages(crawler: Crawler) -> list[str]:
    """The URLs of all pages that were ever let in."""
    with closing(FrontierJournal(crawler.data_dir / "frontier" / "frontier.db")) as journal:
        lines = [line for _, _, lines in journal.admitted_since(0) for line in lines if " p " in line]
    return [line.split(" ", 7)[7] for line in lines]


def check_links(crawler: Crawler, rows: list[Row], admitted: set[str]) -> int:
    """Everything that a stored page links to was let in; gives how many links there were."""
    store, count = PageStore.open([crawler.data_dir], read_only=True), 0
    try:
        for row in rows:
            if row.warc_file and row.status == 200:
                page = store.read_page(row).http
                assert page is not None
                links = [urls.origin_of(row.url) + href.decode() for href in _HREF(page.body)]
                assert admitted.issuperset(links), row
                count += len(links)
    finally:
        store.abandon()
    assert count
    return count


def taken_in(crawler: Crawler, seeds: int) -> None:
    """Waits until so many seeds are taken in."""
    until(lambda: crawler.status().get("seeds", 0) >= seeds, 600, f"seed {seeds}")


def test_each_of_five_million_seeds_is_admitted_once(tmp_path: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    crawler = Crawler([], tmp_path, "--resolve", "*=127.0.0.1", delay_s=30)
    with crawler.seed_file.open("w") as file:
        file.writelines(
            f"http://h{number % 50}.test:{server.server_address[1]}/a/path/of/some/length/{number}\n"
            for number in range(SEEDS)
        )
    for run in range(SEED_KILLS + 1):
        wanted = SEEDS if run == SEED_KILLS else (run + 1) * SEEDS // 10
        with crawler.running(resume=run > 0, group=True) as running:
            taken_in(crawler, wanted)
            if run < SEED_KILLS:
                assert crawler.status()["seeds"] < SEEDS, "all before the kill"
                os.killpg(running.pid, signal.SIGKILL)
            else:
                running.send_signal(signal.SIGINT)
                assert running.wait(patience(60)) == 130, crawler.said
    times = bytearray(SEEDS)
    for url in admitted_pages(crawler):
        times[int(url.rpartition("/")[2])] += 1
    assert times.count(1) == SEEDS
    server.shutdown()
    server.server_close()
