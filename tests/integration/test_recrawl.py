"""A second visit: conditional requests, revisit records, and a report that names exactly what changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from counting import check_counts
from crawling import Crawler, until
from ports import free_port
from warcio.archiveiterator import ArchiveIterator

from weft.testing.web import SyntheticWeb, synthetic_web
from weft.testing.world import World


def weft(*args: str, allowed: int = 0) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-m", "weft", *args, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == allowed, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def crawl(web: SyntheticWeb, folder: Path, *flags: str, allowed: int = 0) -> dict[str, Any]:
    seeds = [] if "--resume" in flags else web.seeds
    settings = [
        "--scope",
        "any",
        "--delay",
        "0",
        "--allow-private",
        "--data-dir",
        str(folder),
        "--prometheus-port",
        "0",
    ]
    return weft("crawl", *seeds, *settings, *flags, allowed=allowed)


def has_changed(world: World, url: str) -> bool:
    """Whether a page of this edition differs from the first edition's."""
    return key_of(world, url) != key_of(World(replace(world.spec, edition=0)), url)


def key_of(world: World, url: str) -> int:
    place = world.locate(url)
    assert place is not None
    return world.find(*place).key


def body_bytes(web: SyntheticWeb) -> int:
    return sum(arrival.bytes for arrival in web.arrivals())


def test_an_unchanged_site_costs_little_and_a_changed_one_is_reported_exactly(tmp_path: Path) -> None:
    folder, port = tmp_path / "crawl", free_port()
    with synthetic_web(hosts=6, pages=120, stocked=1, port=port) as web:
        first = crawl(web, folder)
        cost = body_bytes(web)
    with synthetic_web(hosts=6, pages=120, stocked=1, port=port) as web:
        again = crawl(web, folder, "--resume", "--recrawl")
        assert again["status"]["pages"] == first["status"]["pages"], "no page was stored twice"
        assert body_bytes(web) <= cost / 10
    report = weft("stats", str(folder), "--changes")
    assert (report["new"], report["changed"], report["gone"], report["moved"]) == ([], [], [], [])
    assert report["unchanged"] == first["status"]["pages"]
    with synthetic_web(hosts=6, pages=120, stocked=1, port=port, edition=1, changed=0.1) as web:
        crawl(web, folder, "--resume", "--recrawl")
        expected = sorted(url for url in web.expect().must if has_changed(web.world, url))
    report = weft("stats", str(folder), "--changes")
    assert expected
    assert sorted(report["changed"]) == expected
    assert (report["new"], report["gone"], report["moved"], report["failed"]) == ([], [], [], 0)
    profiles = set()
    for path in (folder / "warc").glob("*/*.warc.gz"):
        with path.open("rb") as file:
            for record in ArchiveIterator(file):
                if record.rec_type == "revisit":
                    profiles.add(record.rec_headers.get_header("WARC-Profile").rpartition("/")[2])
                    assert record.rec_headers.get_header("WARC-Date") > "2026"
    assert "server-not-modified" in profiles


def test_a_failed_refetch_never_takes_the_old_copy_away(tmp_path: Path) -> None:
    folder, port = tmp_path / "crawl", free_port()
    with synthetic_web(hosts=2, pages=10, port=port) as web:
        first = crawl(web, folder)
        seed = web.seeds[0]
    again = subprocess.run(
        [sys.executable, "-m", "weft", "crawl", "--resume", "--recrawl", "--data-dir", str(folder), "--json",
         "--max-retries", "0", "--breaker-reset-seconds", "0.1", "--prometheus-port", "0"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(again.stdout)["status"]["pages"] == first["status"]["pages"]
    kept = subprocess.run(
        [sys.executable, "-m", "weft", "get", str(folder), seed, "--headers"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert kept.stdout.startswith("HTTP/1.1 200")
    report = weft("stats", str(folder), "--changes")
    assert report["failed"] > 0
    assert (report["gone"], report["changed"], report["unchanged"]) == ([], [], 0)


def _asked(web: SyntheticWeb) -> bool:
    return len(web.arrivals()) > 20


def test_what_is_counted_is_right_after_kills_in_a_recrawl_and_in_retries(tmp_path: Path) -> None:
    port, world = free_port(), dict[str, Any](hosts=3, pages=40, seed=3)
    with synthetic_web(**world, port=port) as web:
        seeds = web.seeds
    crawler = Crawler(seeds, tmp_path / "crawl", "--max-retries", 0, "--breaker-reset-seconds", 0.1, delay_s=0.02)
    assert crawler.run() == 4, "nobody is there yet"
    for edition, flag in ((0, "--retry-failed"), (1, "--recrawl")):
        with synthetic_web(**world, port=port, edition=edition, changed=0.4 * edition) as web:
            with crawler.running(flag, resume=True, group=True) as running:
                until(partial(_asked, web), 20, "some requests")
                os.killpg(running.pid, signal.SIGKILL)
            check_counts([crawler.data_dir])
            assert crawler.run(resume=True) == 0, crawler.said
        check_counts([crawler.data_dir])
    told = weft("stats", str(crawler.data_dir))
    assert told["rows"] > told["urls"] >= told["live_pages"] > 0


@pytest.mark.parametrize("pods", [1, 2])
def test_what_a_limit_had_left_in_the_queue_is_new_when_the_recrawl_fetches_it(tmp_path: Path, pods: int) -> None:
    folder, port = tmp_path / "crawl", free_port()
    with synthetic_web(hosts=4, pages=60, port=port) as web:
        first = crawl(web, folder, "--max-pages", "20", "--num-pods", str(pods), allowed=3)
        assert first["status"]["pages"] == 20 and first["status"]["queued"] > 0
        again = crawl(web, folder, "--resume", "--recrawl")
    report = weft("stats", str(folder), "--changes")
    stored = again["status"]["pages"] - first["status"]["pages"]
    assert (len(report["new"]), len(set(report["new"]))) == (stored, stored)
    assert (report["unchanged"], report["changed"], report["queued"]) == (20, [], 0)
