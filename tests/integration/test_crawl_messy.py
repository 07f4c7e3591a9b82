"""A whole crawl of the messy web by the command line, alone and under kill -9, judged by the server's own log.

tests/chaos has the full size.
"""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from crawling import crawl_messy_web, crawl_while_all_is_killed, crawl_while_fetchers_are_killed

# Seeds whose slowest host (one that answers 429, and is asked once a second from then on) has few pages.
LARGE: dict[str, Any] = {"hosts": 24, "pages": 200, "seed": 44, "profile": "messy"}
SMALL: dict[str, Any] = {"hosts": 22, "pages": 130, "seed": 44, "profile": "messy", "stocked": 1}
OTHER: dict[str, Any] = {"hosts": 10, "pages": 60, "seed": 36, "profile": "messy", "stocked": 1}


def undisturbed(folder: Path) -> str:
    return crawl_messy_web(folder, LARGE, delay_s=0.1)


def all_killed(folder: Path) -> str:
    return crawl_while_all_is_killed(folder, SMALL, delay_s=0.05, kills=3)


def fetchers_killed(folder: Path) -> str:
    return crawl_while_fetchers_are_killed(folder, OTHER, delay_s=0.05, at_pages=(0, 20, 100))


@pytest.mark.parametrize("scenario", [undisturbed, all_killed, fetchers_killed])
def test_fetched_set_rows_and_politeness_are_right(crawls: dict[Any, Future[str]], scenario: Any) -> None:
    print(crawls[scenario].result())
