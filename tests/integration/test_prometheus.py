"""A real Prometheus scrapes a running crawl of two Redis pods: what is documented, shipped and served are the same."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pace import patience
from ports import free_port

from weft.crawl.start import prepare
from weft.supervise.node import NodeMetrics
from weft.testing.web import synthetic_web

ROOT = Path(__file__).parents[2]
DASHBOARD = json.loads((ROOT / "deploy/grafana/weft.json").read_text())
CONFIG = (ROOT / "deploy/prometheus/prometheus.yml").read_text()
SETTINGS = {
    "pods": ["managed", "managed"],
    "fetchers_per_pod": 1,
    "parsers_per_pod": 1,
    "scope": "any",
    "robots_patience_seconds": 0,
    "politeness_delay_seconds": 0.3,
    "allow_private": True,
    "metrics_update_seconds": 0.2,
    "max_retries": 0,
}

AT_WORK = ("weft_errors_total{", "weft_refused_total{", *(f'weft_cross_pod_links_total{{pod="{pod}"' for pod in "01"))


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        assert not os.environ.get("WEFT_REQUIRE_TOOLS"), f"{name} is missing and this run requires it"
        pytest.skip(f"{name} is not here: `make test` fetches it")
    return found


def documented() -> dict[str, str]:
    """The series of docs/metrics.md and their kinds."""
    rows = re.findall(
        r"^\| `(weft_\w+)` \| (\w+) \|",
        (ROOT / "docs/metrics.md").read_text().partition("\n## Of the service")[0],
        re.MULTILINE,
    )
    assert len(rows) == len(dict(rows))
    return dict(rows)


def queries() -> list[str]:
    """Every query of the dashboard, as Grafana would send it."""
    found = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", ())]
    return [query.replace("$__rate_interval", "1m").replace("$pod", ".*") for query in found]


def named(query: str) -> set[str]:
    """The series that a query asks for, histograms by their own name."""
    kinds = documented()
    names = set(re.findall(r"\bweft_\w+", query))
    return {re.sub(r"_(bucket|sum|count)$", "", name) if name not in kinds else name for name in names}


def test_the_dashboard_shows_every_documented_series_and_no_other() -> None:
    shown = set().union(*(named(query) for query in queries()))
    assert shown == set(documented())
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=patience(5)) as answer:
        return str(answer.read().decode())


def until(condition: Callable[[], Any], limit_s: float = 60) -> Any:
    end = time.monotonic() + patience(limit_s)
    while True:
        try:
            value = condition()
        except OSError:
            value = None
        if value:
            return value
        assert time.monotonic() < end
        time.sleep(0.1)


@dataclass
class Scraped:
    """A Prometheus that has scraped a running crawl a few times."""

    api: str
    text: str  # what the endpoint said

    def ask(self, query: str) -> list[dict[str, Any]]:
        answer = json.loads(get(f"{self.api}/query?{urllib.parse.urlencode({'query': query})}"))
        assert answer["status"] == "success", query
        return list(answer["data"]["result"])


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    folder = tmp_path_factory.mktemp("scraped")
    prometheus = program("prometheus")
    with synthetic_web(hosts=30, pages=1500, profile="messy") as web:
        port = free_port()
        settings = SETTINGS | {"data_dirs": [str(folder / "crawl")], "prometheus_port": port}
        prepared = prepare(web.seeds, settings, environment={})
        thread = threading.Thread(target=prepared.orchestrator.run)
        thread.start()
        try:
            until(lambda: all(name in get(f"http://127.0.0.1:{port}/metrics") for name in AT_WORK))
            yield from _scraping(prometheus, folder, port)
        finally:
            prepared.orchestrator.stop(at_once=True)
            thread.join()
            prepared.close()


def _scraping(prometheus: str, folder: Path, target: int) -> Iterator[Scraped]:
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.replace("10s", "1s").replace("localhost:8001", f"127.0.0.1:{target}"))
    process = subprocess.Popen(
        [prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
         f"--web.listen-address=127.0.0.1:{port}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        scraped = Scraped(f"http://127.0.0.1:{port}/api/v1", get(f"http://127.0.0.1:{target}/metrics"))
        # Those that succeeded: on a busy machine one may take longer than it may.
        until(lambda: [row for row in scraped.ask("sum_over_time(up[1m])") if int(row["value"][1]) >= 4], 180)
        yield scraped
    finally:
        process.terminate()
        process.wait(patience(20))


def test_the_endpoint_serves_what_is_documented_and_nothing_else(scraped: Scraped) -> None:
    served = dict(re.findall(r"^# TYPE (weft_\w+) (\w+)$", scraped.text, re.MULTILINE))
    assert served == documented()


def test_promtool_accepts_what_is_served(scraped: Scraped) -> None:
    checked = subprocess.run(
        [program("promtool"), "check", "metrics"], input=scraped.text, capture_output=True, text=True
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


def diskless() -> set[str]:
    """The series of disks, on a machine whose kernel tells of none."""
    return {f"{family.name}_total" for family in NodeMetrics([]).collect() if not family.samples}


def unanswered(scraped: Scraped, queries: Iterable[str]) -> list[str]:
    """The queries without an answer just now: one scrape of a busy machine may have nothing of a server."""
    return [query for query in queries if not scraped.ask(query)]


def test_prometheus_answers_for_every_series(scraped: Scraped) -> None:
    names = {f"{name}_bucket" if kind == "histogram" else name for name, kind in documented().items()} - diskless()
    until(lambda: not unanswered(scraped, names))
    assert until(lambda: len(scraped.ask("sum by (pod) (weft_pages_total) > 0")) == 2), "each pod has stored pages"
    assert until(lambda: len(scraped.ask("weft_cross_pod_links_total > 1")) >= 2), "each has sent links to the other"
    times = scraped.ask("weft_cross_pod_write_seconds_sum / (weft_cross_pod_writes_total > 0)")
    assert times and all(0 < float(row["value"][1]) < 10 for row in times), times
    assert [row["value"][1] for row in scraped.ask("weft_redis_up")] == ["1", "1"]
    processes = {row["metric"]["process"] for row in scraped.ask("weft_process_cpu_seconds_total > 0")}
    assert processes == {"orchestrator", "fetcher0", "parser0"}
    assert 1 <= float(scraped.ask('weft_hot_pod_ratio{by="pages"}')[0]["value"][1]) < 2


def test_every_panel_of_the_dashboard_has_something_to_show(scraped: Scraped) -> None:
    until(lambda: not unanswered(scraped, [query for query in queries() if not named(query) & diskless()]))
