"""Crawls of several embedded pods: processes that share nothing and send each other links.

Judged as the crawls of one process are, by the server's log against the oracle; and each domain is asked by its own pod
alone. Worlds are small: what is tried here is what goes on between pods.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from crawling import (
    Crawler,
    check_corpus,
    check_refusals,
    crawl_with_kills,
    judged_with_kills,
    kill_fetcher,
    until,
    weft,
    weft_here,
)
from pace import patience

from weft import urls
from weft.sealed import sealed_json
from weft.supervise import process
from weft.testing.judge import judge
from weft.testing.web import synthetic_web

pytestmark = pytest.mark.timeout(360)  # many processes each, and several crawls at once

DELAY_S = 0.02
# One host with all special URLs is for crawls that are not disturbed: its hundred requests, one after the other, are
# what the others would wait for.
MESSY: dict[str, Any] = {"hosts": 10, "pages": 60, "seed": 12, "profile": "messy", "stocked": 1}
PLAIN: dict[str, Any] = MESSY | {"stocked": 0}
CALM: dict[str, Any] = {"hosts": 12, "pages": 100, "seed": 2, "profile": "calm", "stocked": 0}


def requests_by_pod(crawler: Crawler, pods: int) -> Iterator[tuple[int, str]]:
    """Every URL that was asked for, with the pod that did so."""
    for pod in range(pods):
        for path in (crawler.data_dir / "frontier" / f"pod_{pod}" / "requests").glob("*.log"):
            yield from ((pod, line.split("\t")[7]) for line in path.read_text().splitlines() if line[0] == "S")


def check_pods(crawler: Crawler, pods: int) -> None:
    """Each pod has asked for its own domains alone, and each has had some."""
    asked = set(requests_by_pod(crawler, pods))
    assert {pod for pod, _ in asked} == set(range(pods))
    assert all(pod == urls.pod_of(urls.domain_of(url), pods) for pod, url in asked)
    logs = [path.read_text() for path in (crawler.data_dir / "logs").rglob("fetcher_*.log")]
    assert len(logs) == pods
    assert not any("wrong pod" in log for log in logs)


def undisturbed(folder: Path) -> None:
    """With more permits than pages: a pod that has nothing left gives back what it was given, and the crawl ends for
    want of pages, not of permits."""
    with synthetic_web(**MESSY) as web:
        crawler = Crawler(web.seeds, folder, "--num-pods", 3, "--max-pages", 5000, delay_s=DELAY_S)
        assert crawler.run(WEFT_DEBUG_POD_ASSIGNMENT="true") == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S)
        assert verdict.ok, verdict
        rows = check_corpus(crawler)
        check_refusals(crawler, web.expect(), rows)
        check_pods(crawler, 3)
        status = crawler.status()
        assert (status["state"], len(status["pods"])) == ("finished", 3)
        assert sum(pod["pages"] for pod in status["pods"]) == status["pages"] == len(crawler.pages())
        check_commands(crawler)


def check_commands(crawler: Crawler) -> None:
    """What reads a crawl's folder reads that of several pods."""
    audit = weft("audit", crawler.data_dir)
    assert audit.returncode == 0, audit.stdout + audit.stderr
    requests = sum(1 for _ in requests_by_pod(crawler, 3))
    asked = re.search(r"([\d,]+) requests", audit.stdout)
    assert asked is not None
    assert 0 < int(asked[1].replace(",", "")) <= requests
    one_of_each = [next(row.url for row in crawler.pages() if row.item >> 48 == pod) for pod in range(3)]
    assert weft("explain", crawler.data_dir, *one_of_each).stdout.count("crawled: HTTP 200, stored [page]") == 3
    assert weft("get", crawler.data_dir, one_of_each[-1]).returncode == 0


def pods_killed(folder: Path) -> None:
    with synthetic_web(**CALM) as web:
        crawler = Crawler(web.seeds, folder, "--num-pods", 2, delay_s=0.05)
        kills = []
        with crawler.running() as running:
            for number, pages in enumerate((10, 40, 80)):
                crawler.pages_at_least(pages)
                children = sorted(until(lambda: process.children(running.pid), 10, "a pod"))
                kills.append(kill_fetcher(children[number % len(children)]))
            assert running.wait(patience(100)) == 0, crawler.said
        verdict, killed = judged_with_kills(web, crawler, kills)
        assert verdict.ok, verdict
        assert killed.in_flight, "no kill hit anything"
        check_corpus(crawler)
        check_pods(crawler, 2)


def all_killed(folder: Path) -> None:
    with synthetic_web(**CALM) as web:
        crawler = Crawler(web.seeds, folder, "--num-pods", 2, delay_s=0.05)
        done = crawl_with_kills(crawler, 2, seed=3, pause_s=(0.2, 0.6))
        verdict, _ = judged_with_kills(web, crawler, done)
        assert verdict.ok, verdict
        check_corpus(crawler)
        check_pods(crawler, 2)


def pages_in_all(folder: Path) -> None:
    with synthetic_web(**PLAIN | {"pages": 400}) as web:
        crawler = Crawler(web.seeds, folder, "--num-pods", 2, "--max-pages", 60, delay_s=DELAY_S)
        assert crawler.run() == 3, crawler.said
        assert len(crawler.pages()) == 60 == crawler.status()["pages"]
        assert crawler.status()["note"] == "max_pages"
        assert crawler.run("--max-pages", 133, resume=True) == 3, crawler.said
        assert len(crawler.pages()) == 133
        check_corpus(crawler)
        web.stop()
        verdict = judge(web.arrivals(), web.expect(), DELAY_S, complete=False)
        assert verdict.ok, verdict


def depth_and_scope(folder: Path) -> None:
    """What another pod has fetched with its links cut, and is found nearer by this one, is expanded there. Where a
    seed's redirect leads is a part of the scope in every pod."""
    with synthetic_web(**MESSY) as web:
        limits = ("--max-depth", 2, "--scope", "host")
        crawler = Crawler(web.seeds, folder, "--num-pods", 2, *limits, delay_s=DELAY_S)
        assert crawler.run() == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S, max_depth=2, scope="host")
        assert verdict.ok, verdict


def duration(folder: Path) -> None:
    with synthetic_web(**CALM) as web:
        # A path that is too long for a socket's name.
        deep = folder / ("d" * 60) / ("e" * 60)
        crawler = Crawler(web.seeds, folder, "--num-pods", 2, delay_s=0.1, data_dir=deep)
        assert crawler.run("--max-duration", 3) == 3, crawler.said
        assert (crawler.status()["state"], crawler.status()["note"]) == ("limit", "max_duration")
        assert len(crawler.pages()) < len(web.expect().must), "not all of it, however slow the start was"
        assert crawler.run(resume=True) == 0, crawler.said
        verdict = web.judge(delay_s=0.1)
        assert verdict.ok, verdict


SCENARIOS = [undisturbed, pods_killed, all_killed, pages_in_all, depth_and_scope, duration]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pods_crawl_as_one_process_does(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()


def test_another_number_of_pods_is_refused(tmp_path: Path) -> None:
    with synthetic_web(**CALM | {"pages": 30}) as web:
        crawler = Crawler(web.seeds, tmp_path, "--num-pods", 2, "--max-pages", 5, delay_s=DELAY_S)
        assert crawler.run() == 3, crawler.said
        said = crawler.refusal("--num-pods", 3, resume=True)
        assert "the crawl has 2 pods, 3 were asked for" in said
        assert "weft reshard" in said
        assert crawler.run("--max-pages", 10, resume=True) == 3, "without a number it goes on with its own"
        identity = crawler.data_dir / "engine.json"
        values = json.loads(identity.read_text())
        del values["sha256"]
        identity.write_bytes(sealed_json(values | {"suffix_list": "1.0.0"}))
        said = crawler.refusal(resume=True)
        assert "-m pip install publicsuffixlist==1.0.0" in said or "uv pip install" in said


def test_politeness_by_address_needs_one_pod(tmp_path: Path) -> None:
    refused = weft_here(
        "crawl", "http://127.0.0.1/", "--num-pods", 2, "--politeness-scope", "ip", "--data-dir", tmp_path
    )
    assert refused.returncode == 2
    assert "`ip` needs one embedded pod, or Redis pods" in refused.stderr
    assert not (tmp_path / "engine.json").exists()
