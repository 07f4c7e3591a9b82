"""Fifty kills of a spider with items and POSTs (tests/integration/test_spider_kills.py, with more of them)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1] / "integration" / "test_spider_kills.py"


@pytest.mark.skipif(not os.environ.get("WEFT_TEST_CHAOS"), reason="a few kills are in test_spider_kills.py")
def test_fifty_kills_lose_and_double_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(TESTS), "-k", "again_and_again"],
        env=os.environ | {"WEFT_TEST_SPIDER_KILLS": "50", "WEFT_TEST_SPIDER_PAGES": "1200"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0
