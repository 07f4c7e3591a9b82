"""Fifty kills of a spider (tests/integration/test_spider_kills.py and test_scrapy_spiders.py, with more of them)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "integration"


@pytest.mark.skipif(
    not os.environ.get("WEFT_TEST_CHAOS"), reason="a few kills are in the files of the integration tests"
)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("file", "lists", "items"),
    [
        ("test_spider_kills.py", 1250, 13),  # 5,000 pages, 20,000 items
        ("test_scrapy_spiders.py", 1700, 10),  # 5,100 pages, 20,400 items from the callbacks
    ],
)
def test_fifty_kills_lose_and_double_nothing(file: str, lists: int, items: int) -> None:
    size = {"WEFT_TEST_SPIDER_KILLS": "50", "WEFT_TEST_SPIDER_PAGES": str(lists), "WEFT_TEST_SPIDER_ITEMS": str(items)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-qs", str(TESTS / file), "-k", "again_and_again"],
        env=os.environ | size, check=False,
    )  # fmt: skip
    assert done.returncode == 0
