"""Crawls of one user on one machine: together as polite as one of them, beside an engine and beside the service too."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from engines import host, shared, until
from pace import patience
from served_jobs import TERMINAL, served

import weft
from weft.config import PolitenessSection
from weft.engine import machine
from weft.frontier.requests import RequestStart, read_events
from weft.testing.arrivals import Arrival
from weft.testing.web import SyntheticWeb, synthetic_web

DELAY_S = 0.4


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=3, pages=60, profile="calm", seed=4) as web:
        yield web


def crawl(web: SyntheticWeb, folder: Path, delay_s: float, number: int = 0, *flags: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "weft", "crawl", host(web, number), "--data-dir", str(folder), "--max-pages", "6",
        "--quiet", "--allow-private", "--delay", str(delay_s), "--scope", "host", "--prometheus-port", "0", *flags,
    ]  # fmt: skip
    return subprocess.Popen(command, stderr=subprocess.PIPE)


def starts(web: SyntheticWeb, number: int) -> list[float]:
    return sorted(one.t for one in web.arrivals() if one.host == f"127.1.0.{number + 1}")


def test_two_crawls_and_an_engine_on_one_site_are_no_ruder_than_one(web: SyntheticWeb, tmp_path: Path) -> None:
    with weft.Engine(tmp_path / "engine", **shared(web) | {"delay": DELAY_S}) as engine:
        engine.open("third", host(web, 0), max_pages=6)
        crawls = [crawl(web, tmp_path / f"crawl{number}", DELAY_S) for number in range(2)]
        assert [one.wait(patience(60)) for one in crawls] == [3, 3]
        assert engine.wait("third", patience(60)).pages == 6
    until(lambda: len(starts(web, 0)) >= 18)
    found = starts(web, 0)
    assert min(later - earlier for earlier, later in pairwise(found)) >= DELAY_S - 0.02


def test_two_tasks_and_a_crawl_on_one_site_each_keep_their_own_delay_from_all_of_them(
    web: SyntheticWeb, tmp_path: Path
) -> None:
    delays_s = {"crawl": DELAY_S, "service/engine": 0.2}
    with served(tmp_path / "service", "--job-delay-seconds", "0.2") as service:
        order = {"url": host(web, 1), "max_depth": 5, "scope": "host", "max_pages": 8}
        tasks = [service.call("/scraping/async-scrape", order)["task_id"] for _ in range(2)]
        beside = crawl(web, tmp_path / "crawl", DELAY_S, 1, "--email", "crawl@example.org")
        assert beside.wait(patience(60)) == 3
        assert [service.until(task, *TERMINAL)["progress"]["completed"] for task in tasks] == [8, 8]
    sent = sorted((one.at, asker) for asker in delays_s for one in _sent(tmp_path / asker))
    for (earlier, _), (later, asker) in pairwise(sent):
        assert later - earlier >= delays_s[asker] - 1e-6
    until(lambda: len(starts(web, 1)) >= len(sent))
    # The crawl waits for the end of each request: so much lies between arrivals, too. Tasks wait from start to start,
    # and of that some may be lost on the way.
    arrived = sorted((one.t, _asker(one)) for one in web.arrivals() if one.host == "127.1.0.2")
    gaps = {asker: [b - a for (a, _), (b, who) in pairwise(arrived) if who == asker] for asker in delays_s}
    assert min(gaps["crawl"]) >= DELAY_S and len(gaps["crawl"]) >= 6
    assert arrived[-1][0] - arrived[0][0] >= 0.95 * sum(delays_s[asker] for _, asker in arrived[1:])


def _sent(folder: Path) -> list[RequestStart]:
    return [one for one in read_events(folder / "frontier" / "requests") if isinstance(one, RequestStart)]


def _asker(arrival: Arrival) -> str:
    return "crawl" if "crawl@example.org" in dict(arrival.headers)["User-Agent"] else "service/engine"


def test_a_clock_that_cannot_be_used_is_said_and_refused_beside_another_crawl(
    web: SyntheticWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weft.Engine(tmp_path / "engine", **shared(web)):
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("WEFT_RUNTIME_DIR", str(tmp_path / "file" / "below"))
        second = crawl(web, tmp_path / "second", 0.0)
        _, refusal = second.communicate(timeout=patience(30))
        assert second.returncode == 2
        assert b"another of your crawls is running" in refusal and b"--no-machine-clock" in refusal
        assert not (tmp_path / "second").exists()
    monkeypatch.setattr(machine, "_other_fetching_process", lambda: None)  # other tests have crawls of their own
    said: list[str] = []
    machine.check_clock(PolitenessSection(delay_s=1.0, places=1), said.append)
    assert len(said) == 1 and "cannot be used" in said[0]
