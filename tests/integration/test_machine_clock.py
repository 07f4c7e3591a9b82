"""Crawls of one user on one machine: together as polite as one of them, also where an engine is beside them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from engines import host, shared, until
from pace import patience

import weft
from weft.config import PolitenessSection
from weft.engine import machine
from weft.testing.web import SyntheticWeb, synthetic_web

DELAY_S = 0.4


@pytest.fixture(scope="module")
def web() -> Iterator[SyntheticWeb]:
    with synthetic_web(hosts=3, pages=60, profile="calm", seed=4) as web:
        yield web


def crawl(web: SyntheticWeb, folder: Path, delay_s: float) -> subprocess.Popen[bytes]:
    command = [
        sys.executable, "-m", "weft", "crawl", host(web, 0), "--data-dir", str(folder), "--max-pages", "6", "--quiet",
        "--allow-private", "--delay", str(delay_s), "--scope", "host", "--prometheus-port", "0",
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
    monkeypatch.setattr(machine, "_other", lambda: None)  # other tests have crawls of their own
    said: list[str] = []
    machine.check_clock(PolitenessSection(delay_s=1.0, places=1), said.append)
    assert len(said) == 1 and "cannot be used" in said[0]
