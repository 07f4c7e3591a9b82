"""Spiders of Scrapy's, unmodified: each gives the items in Weft that Scrapy has made of the same site, once, whatever is
killed. The site and the spiders are in tests/shared."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from crawling import environment, fetcher_of, until
from crawling import weft as weft_command
from pace import patience
from quotes_site import QuotesSite
from scrapy_runs import NAMES, SPIDERS, by_scrapy, expected, in_order
from scrapy_site import scrapy_site

AT_ONCE = 3
KILLS = int(os.environ.get("WEFT_TEST_SPIDER_KILLS", "3"))


class ScrapyRun(NamedTuple):
    """What came of a spider in Weft."""

    lines: list[str]
    stderr: str
    folder: Path
    asked: list[str]


def run(name: str, folder: Path) -> ScrapyRun:
    out = folder / "items.jsonl"
    with scrapy_site() as site:
        done = weft_command_in(
            folder, "run", "--scrapy", SPIDERS / f"{name}.py", "-a", f"site={site.url}", "--data-dir", folder / "data",
            "--allow-private", "--prometheus-port", "0", *([] if name == "pipelines" else ["-o", out]),
        )  # fmt: skip
        assert done.returncode == (3 if name == "closing" else 0), done.stderr
        asked = site.paths()
    listed = weft_command("items", folder / "data").stdout if name == "pipelines" else out.read_text()
    return ScrapyRun(in_order([json.loads(line) for line in listed.splitlines()]), done.stderr, folder, asked)


def weft_command_in(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weft", *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, timeout=patience(60), env=environment(), check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[ScrapyRun]]]:
    """All spiders, side by side: they wait more than they work."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {name: pool.submit(run, name, tmp_path_factory.mktemp(name)) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_spider_gives_the_items_that_scrapy_makes(runs: dict[str, Future[ScrapyRun]], name: str) -> None:
    assert runs[name].result(patience(100)).lines == expected(name)
