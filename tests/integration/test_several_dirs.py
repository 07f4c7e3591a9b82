"""Commands that take --data-dir take a,b as `weft crawl` does."""

from __future__ import annotations

from pathlib import Path

import pytest
from crawling import weft_here
from exporting import make_crawl, url_of


@pytest.fixture(scope="module")
def crawl(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return make_crawl(tmp_path_factory.mktemp("crawl"), 30, data_dirs=3)


@pytest.mark.parametrize("how", ["a,b", "a --data-dir b"])
@pytest.mark.parametrize("command", ["get", "export"])
def test_further_data_dirs_are_a_list(crawl: list[Path], command: str, how: str) -> None:
    home, *others = crawl
    flags = ["--data-dir", ",".join(map(str, others))] if how == "a,b" else [f"--data-dir={one}" for one in others]
    if command == "export":
        done = weft_here("export", home, "--format", "jsonl", "--out", "-", *flags)
        assert done.returncode == 0, done
        assert done.stdout.count("\n") == 30
        return
    for number in range(1, 5):
        done = weft_here(command, home, url_of(number), *flags)
        assert done.returncode == 0, done
        assert url_of(number) in done.stdout
