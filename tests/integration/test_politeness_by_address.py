"""Names that share an address are one site when politeness is by address: judged at the server, address by address."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
import yaml
from crawling import MANAGED, Crawler, check_corpus, check_pods, judged_with_kills, kill_fetcher, processes
from pace import patience

from weft import urls
from weft.crawl.start import prepare
from weft.testing.web import SyntheticWeb, synthetic_web

DELAY_S = 0.1
# Six domains on three addresses.
SHARED: dict[str, Any] = {"hosts": 6, "pages": 6, "seed": 3, "names": True, "addresses": 3}
DEPTH = 1


def crawler_of(web: SyntheticWeb, folder: Path, *flags: object) -> Crawler:
    folder.mkdir(exist_ok=True)
    settings = folder / "settings.yaml"
    settings.write_text(yaml.safe_dump({"resolve": web.resolve, "politeness_scope": "ip"}))
    crawler = Crawler(web.seeds, folder, *MANAGED, "--config", settings, "--max-depth", DEPTH, *flags, delay_s=DELAY_S)
    by_address: dict[str, set[int]] = {}
    for host, address in web.resolve.items():
        by_address.setdefault(address, set()).add(urls.pod_of(urls.domain(host), 2))
    assert list(by_address.values()) == [{0, 1}] * 3, "each address has domains of both pods"
    return crawler


def two_pods(folder: Path) -> None:
    with synthetic_web(**SHARED) as web:
        crawler = crawler_of(web, folder, "--fetchers-per-pod", 1, "--parsers-per-pod", 1)
        assert crawler.run() == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S, key="address", max_depth=DEPTH)
        assert verdict.ok, verdict
        check_corpus(crawler)
        check_pods(crawler)


def two_pods_with_a_fetcher_killed(folder: Path) -> None:
    with synthetic_web(**SHARED) as web:
        crawler = crawler_of(web, folder, "--fetchers-per-pod", 1, "--parsers-per-pod", 0)
        kills = []
        with crawler.running() as running:
            for pages, which in ((8, 0), (16, -1)):
                crawler.pages_at_least(pages, 60)
                kills.append(kill_fetcher(processes(crawler, running.pid, "fetcher")[which], crawler.data_dir))
            assert running.wait(patience(100)) == 0, crawler.said
        verdict, _ = judged_with_kills(web, crawler, kills, key="address", max_depth=DEPTH)
        assert verdict.ok, verdict
        check_corpus(crawler)
        check_pods(crawler)


@pytest.mark.parametrize("scenario", [two_pods, two_pods_with_a_fetcher_killed])
def test_domains_of_several_pods_share_the_clock_of_their_address(
    crawls: dict[Any, Future[None]], scenario: Any
) -> None:
    crawls[scenario].result()


def test_hosts_of_one_address_share_one_clock(tmp_path: Path) -> None:
    with synthetic_web(hosts=3, pages=12, names=True) as web:
        prepared = prepare(
            web.seeds,
            {
                "scope": "any",
                "max_depth": DEPTH,
                "politeness_scope": "ip",
                "politeness_delay_seconds": 0.02,
                "allow_private": True,
                "data_dirs": [str(tmp_path / "crawl")],
                "resolve": {"*.weft-web.test": "127.0.0.1"},
                "prometheus_port": 0,
            },
            environment={},
        )
        assert prepared.orchestrator.run() == 0
        prepared.close()
        verdict = web.judge(delay_s=0.02, key="address", max_depth=DEPTH)
        assert verdict.ok, verdict
        assert verdict.requests > 50
