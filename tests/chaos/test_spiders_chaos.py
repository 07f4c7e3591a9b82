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
@pytest.mark.parametrize("file", ["test_spider_kills.py", "test_scrapy_spiders.py"])
def test_fifty_kills_lose_and_double_nothing(file: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(TESTS / file), "-k", "again_and_again"],
        env=os.environ | {"WEFT_TEST_SPIDER_KILLS": "50", "WEFT_TEST_SPIDER_PAGES": "1200"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0
