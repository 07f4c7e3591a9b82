"""Makes `crawling`, the harness of the crawl tests, importable from the tests beside it, and runs long crawls together.

A test that is parametrised by `scenario` (a function of a folder) and asks for `crawls` gets its result from there: all
scenarios of its file run side by side from the first such test on, because crawls wait more than they work. Those of
other files are for the workers that those files go to.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import schedule

sys.path.insert(0, str(Path(__file__).parent))
AT_ONCE = 6

Scenario = Callable[[Path], Any]


@pytest.fixture(scope="module")
def crawls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[Scenario, Future[Any]]]:
    """What became of each scenario. Its file is not one of SPREAD: each worker that has a case would run them all."""
    assert request.node.nodeid not in schedule.SPREAD, "its cases must stay together: SPREAD_BY_FUNCTION"
    mine = [item for item in request.session.items if item.path == request.path]
    found = [getattr(item, "callspec", None) for item in mine if "crawls" in _fixtures(item)]
    scenarios = list(dict.fromkeys(spec.params["scenario"] for spec in found if spec and "scenario" in spec.params))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {scenario: pool.submit(scenario, tmp_path_factory.mktemp("crawl")) for scenario in scenarios}
        yield futures
        for future in futures.values():
            future.cancel()


def _fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))
