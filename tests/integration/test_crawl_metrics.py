"""A crawl's metrics endpoint, scraped while it runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from pace import patience
from ports import free_port

from weft.crawl.start import prepare
from weft.errors import Busy
from weft.testing.web import synthetic_web


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patience(5)) as answer:
        return str(answer.read().decode())


SERIES = (
    'weft_pages_total{pod="0",process="fetcher0"}',
    'weft_queue_urls{pod="0",process="fetcher0"}',
    'weft_fetch_seconds_bucket{kind="page",le="0.1",pod="0",process="fetcher0"}',
    'weft_parse_seconds_count{pod="0",process="fetcher0"}',
    'weft_responses_total{pod="0",process="fetcher0",status="200"}',
    'weft_process_cpu_seconds_total{pod="0",process="fetcher0"}',
)


def test_a_running_crawl_tells_its_numbers_and_promtool_accepts_them(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "scope": "any", "politeness_delay_seconds": 0.05, "allow_private": True, "data_dirs": [str(tmp_path / "c")],
        "prometheus_port": port, "metrics_update_seconds": 0.2,
    }  # fmt: skip
    with synthetic_web(hosts=4, pages=40) as web:
        prepared = prepare(web.seeds, settings, environment={})
        thread = threading.Thread(target=prepared.orchestrator.run)
        thread.start()
        try:
            until, text = time.monotonic() + patience(30), scrape(port)
            while not all(series in text for series in SERIES) and time.monotonic() < until:
                time.sleep(0.1)
                text = scrape(port)
            with pytest.raises(Busy, match=f"prometheus_port {port}"):
                prepare(web.seeds, settings | {"data_dirs": [str(tmp_path / "d")]}, environment={})
        finally:
            prepared.orchestrator.stop(at_once=True)
            thread.join()
            prepared.close()
    for series in SERIES:
        assert series in text, text
    promtool = shutil.which("promtool")
    if promtool is None:
        assert not os.environ.get("WEFT_REQUIRE_TOOLS"), "promtool is missing and this run requires it"
        pytest.skip("promtool is not here: `make test` fetches it")
    checked = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
