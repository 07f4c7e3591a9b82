"""A full disk, on a real small tmpfs: the crawl pauses and says so, goes on when there is room, and nothing is lost."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crawling import Crawler, check_corpus, until, weft_here
from pace import patience

from weft.testing.web import SyntheticWeb, synthetic_web

DELAY_S = 0.02
LEFT = 800_000


@pytest.fixture
def small_disk(mount_disk: Callable[[str], Path]) -> Path:
    return mount_disk("16m")


@pytest.fixture
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=12, pages=120, stocked=1, seed=1) as web:
        yield web


@pytest.fixture
def crawler(web: SyntheticWeb, small_disk: Path, tmp_path: Path) -> Crawler:
    return Crawler(web.seeds, tmp_path, "--max-depth", 1, delay_s=DELAY_S, data_dir=small_disk / "data")


def fill(folder: Path, leave: int) -> Path:
    """Ballast that takes all room but a little."""
    path = folder / "ballast"
    free = os.statvfs(folder)
    path.write_bytes(b"\0" * max(0, free.f_bavail * free.f_frsize - leave))
    return path


def test_it_pauses_says_so_and_goes_on(crawler: Crawler, web: SyntheticWeb, small_disk: Path) -> None:
    ballast = fill(small_disk, LEFT)
    with crawler.running() as running:
        until(lambda: crawler.status().get("state") == "paused", 30, "the pause")
        assert "no space left on the device" in crawler.status()["note"]
        until(lambda: "no space left on the device" in crawler.said, 15, "a line about it")
        asked = len(web.arrivals())
        time.sleep(1.0)
        assert len(web.arrivals()) - asked < 12, "a paused crawl asks for nothing more"
        assert running.poll() is None
        ballast.unlink()
        until(lambda: crawler.status().get("state") == "running", 10, "the end of the pause")
        assert running.wait(patience(60)) == 0, crawler.said
    assert "Traceback" not in crawler.said
    verdict = web.judge(delay_s=DELAY_S, max_depth=1)
    assert verdict.ok, verdict
    check_corpus(crawler)


def test_killed_while_it_is_paused_nothing_is_lost(crawler: Crawler, web: SyntheticWeb, small_disk: Path) -> None:
    ballast = fill(small_disk, LEFT)
    with crawler.running():
        until(lambda: crawler.status().get("state") == "paused", 30, "the pause")
        assert json.loads(weft_here("stats", crawler.data_dir, "--json").stdout)["state"] == "paused"
    assert crawler.status()["state"] == "paused", "it could not say that it was killed"
    facts = json.loads(weft_here("stats", crawler.data_dir, "--json").stdout)
    assert (facts["state"], facts["note"]) == ("interrupted", "no process is running it")
    told = weft_here("stats", crawler.data_dir).stdout
    command = f"weft crawl --resume --data-dir {crawler.data_dir}"
    assert f"interrupted (no process is running it)\n           {command}\n" in told
    assert f"Continue: {command}" in weft_here("watch", crawler.data_dir).stderr
    ballast.unlink()
    assert crawler.run(resume=True) == 0, crawler.said
    verdict = web.judge(delay_s=DELAY_S, max_depth=1)
    verdict.duplicates = []  # what was in memory when it was killed
    assert verdict.ok, verdict
    check_corpus(crawler)


@pytest.mark.parametrize("pods", [1, 2])
def test_a_crawl_that_is_paused_by_a_full_disk_ends_by_its_max_duration(
    crawler: Crawler, web: SyntheticWeb, small_disk: Path, pods: int
) -> None:
    ballast = fill(small_disk, pods * LEFT)
    assert crawler.run("--max-duration", 4, "--num-pods", pods) == 3, crawler.said
    assert "Stopped by a limit (max_duration)" in crawler.said and "Traceback" not in crawler.said
    ballast.unlink()
    if pods == 1:
        assert crawler.run(resume=True) == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S, max_depth=1)
        verdict.duplicates = []  # what was in memory when it ended
        assert verdict.ok, verdict


def test_ctrl_c_while_it_is_paused_ends_it(crawler: Crawler, web: SyntheticWeb, small_disk: Path) -> None:
    ballast = fill(small_disk, LEFT)
    with crawler.running() as running:
        until(lambda: crawler.status().get("state") == "paused", 30, "the pause")
        running.terminate()
        assert running.wait(patience(20)) == 130, crawler.said
        assert "Traceback" not in crawler.said
    ballast.unlink()
    assert crawler.run(resume=True) == 0, crawler.said
    verdict = web.judge(delay_s=DELAY_S, max_depth=1)
    verdict.duplicates = []
    assert verdict.ok, verdict
    check_corpus(crawler)
