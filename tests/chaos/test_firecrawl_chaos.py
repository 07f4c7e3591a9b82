"""Firecrawl's clients in numbers: watches that begin at once, a crawl of thousands of pages, clients of other versions.

A few watches and pages always; 300 of each client and 5,000 on demand, with versions two older and two newer than the
one that the other tests use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import firecrawl_smoke
import pytest
from firecrawl_sdks import JAVASCRIPT, javascript, python, run_javascript, run_python
from holding_site import holding_site
from served_http import Service, service_in

from weft.testing.web import synthetic_web

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
WATCHES, AT_ONCE = (300, 10) if FULL else (4, 4)
PAGES = 5000 if FULL else 150
OTHER_PYTHON = ("4.53.0", "4.53.1", "4.53.3", "4.54.0")
OTHER_JAVASCRIPT = ("4.38.0", "4.39.0", "4.41.0", "4.42.0")
on_demand = pytest.mark.skipif(not FULL, reason="other versions are tried on demand: WEFT_TEST_CHAOS=1")


@pytest.fixture(scope="module")
def home() -> Iterator[str]:
    with synthetic_web(hosts=1, pages=PAGES + 50, profile="calm", seed=5) as web:
        yield f"http://127.1.0.1:{web.port}/"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with service_in(tmp_path_factory.mktemp("service") / "data", "--max-concurrent-tasks", 30) as service:
        yield service


def test_no_watcher_misses_a_document(service: Service, home: str) -> None:
    def watch(number: int) -> int:
        limit = 2 + number % 30
        found = firecrawl_smoke.watched(service.url, f"{home}?watch={number}", limit=limit)
        return limit - len(set(found))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        missing = list(pool.map(watch, range(WATCHES)))
    assert len(missing) == WATCHES and not any(missing)


def test_no_javascript_watcher_misses_a_document(service: Service, home: str) -> None:
    run_javascript(javascript(), service.url, f"{home}?javascript", "", WATCHES, limit_s=120 + WATCHES)


def test_the_status_of_a_crawl_that_runs_is_one_answer(
    service: Service, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it has by then: a client that chases it to its end would ask hundreds of times."""
    import requests
    from firecrawl import Firecrawl

    asked: list[str] = []
    get = requests.get

    def counted(url: str, **more: Any) -> Any:
        asked.append(url)
        return get(url, **more)

    monkeypatch.setattr(requests, "get", counted)
    client = Firecrawl(api_key="fc-smoke", api_url=service.url)
    job, looks = client.start_crawl(home, limit=PAGES), 0
    while (status := client.get_crawl_status(job.id)).status == "scraping":
        looks += 1
        assert len(asked) == looks and len(status.data) <= 100
    assert (
        status.status == "completed"
        and len(status.data) == len({one.metadata.source_url for one in status.data}) == PAGES
    )
    assert len(asked) == looks + -(-PAGES // 100), "each document is read once, at the end"


@on_demand
@pytest.mark.parametrize("version", OTHER_PYTHON)
def test_other_versions_of_the_python_client(service: Service, home: str, version: str) -> None:
    with holding_site() as site:
        run_python(python(version), service.url, home, site)


@on_demand
@pytest.mark.parametrize("version", OTHER_JAVASCRIPT)
def test_other_versions_of_the_javascript_client(service: Service, home: str, version: str) -> None:
    assert version != JAVASCRIPT
    with holding_site() as site:
        run_javascript(javascript(version), service.url, home, site)
