"""Pages that workers render: the brain judges their parts; a kill of a worker costs a retry, and leaves no browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from browsing import missing as tool_missing
from cluster_crawls import ClusterOfOne
from crawling import WEFT, environment, weft
from drawn_site import THIRD_PARTY, DrawnSite, drawn_site
from hands import HandProcess, wait_until
from pace import patience

from weft.fetch.browser.chromium import sandbox_trouble
from weft.supervise.redis_server import RedisServer

StartServer = Callable[..., RedisServer]
KEPT_KILLS = [int(number) for number in os.environ.get("WEFT_TEST_RENDER_HANDS", "17,3,20").split(",")]


@pytest.fixture(autouse=True)
def _needs_chromium() -> None:
    if shutil.which("chromium") is None:
        tool_missing("chromium")


@pytest.fixture
def cluster(tmp_path: Path, start_server: StartServer) -> Iterator[ClusterOfOne]:
    made = ClusterOfOne(tmp_path, start_server("valkey").url)
    yield made
    made.stop()


def flags(cluster: ClusterOfOne, folder: Path, **more: object) -> list[str]:
    named = [text for name, value in more.items() for text in (f"--{name.replace('_', '-')}", str(value))]
    own = [
        "--workers", "cluster", "--broker", cluster.url, "--cluster-key-file", str(cluster.key_file), "--data-dir",
        str(folder), "--allow-private", "--quiet", "--prometheus-port", "0", "--delay", "0.2",
    ]  # fmt: skip
    return [*own, *named]


def exported(folder: Path) -> list[dict[str, Any]]:
    ended = weft("export", folder, "--format", "jsonl", "--content", "text", "--out", "-")
    assert ended.returncode == 0, ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def browsers_of(cluster: ClusterOfOne) -> list[str]:
    """The processes of this cluster's browsers: those of all hands there were."""
    marks = [f"weft-browsers-{os.getuid()}-{hand.name}-".encode() for hand in cluster.hands]
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if any(mark in command for mark in marks):
                found.append(entry.name)
    return found


def renderer(cluster: ClusterOfOne, *, wait: bool = True) -> HandProcess:
    own = ("--no-browser-sandbox",) if sandbox_trouble() else ()
    return cluster.start_hand("--queues", "fetch,render", "--concurrency", "2", *own, wait=wait)


def test_a_page_with_large_parts_is_rendered_by_a_worker_as_by_the_brain(tmp_path: Path, cluster: ClusterOfOne) -> None:
    """No browser is installed at the brain."""
    renderer(cluster)
    with drawn_site(links=2) as site:
        url = f"{site.url}/"
        ended = weft(
            "crawl", url, *flags(cluster, tmp_path / "crawl", render="auto", render_screenshot="full"), timeout_s=120,
            CHROMIUM_PATH="/nowhere/chromium",
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        assert_drawn(tmp_path / "crawl", site)
    picture = weft("get", tmp_path / "crawl", f"{site.url}/drawn1", "--screenshot")
    assert picture.returncode == 0 and "PNG" in picture.stdout[:8]


def assert_drawn(folder: Path, site: DrawnSite) -> None:
    """Scripts have drawn what they must, and nothing was loaded that robots.txt forbids."""
    texts = {row["url"].removeprefix(site.url): row["text"] for row in exported(folder)}
    assert all(f"hello {path}" in texts[path] for path in ("/drawn0", "/drawn1"))
    assert {"/drawn0/next", "/drawn1/next"} <= texts.keys(), "links that scripts have drawn are followed"
    assert "/private/picture.png" not in site.paths() and "/forbidden/picture.png" not in site.paths(THIRD_PARTY)
    assert site.paths(THIRD_PARTY)[0] == "/robots.txt"
    assert "/picture.png" in site.paths(THIRD_PARTY)
    report = weft("audit", folder, "--json")
    assert report.returncode == 0, report.stdout


@pytest.mark.parametrize(
    ("links", "hands", "kills"),
    [
        (2, 2, 2),
        pytest.param(*KEPT_KILLS, marks=pytest.mark.skipif(not os.environ.get("WEFT_TEST_CHAOS"), reason="make chaos")),
    ],
)
@pytest.mark.timeout(1800)
def test_kills_of_workers_leave_each_page_once_and_no_browser(
    links: int, hands: int, kills: int, tmp_path: Path, cluster: ClusterOfOne
) -> None:
    folder, killed = tmp_path / "crawl", 0
    for _ in range(hands):
        renderer(cluster, wait=False)
    running = [hand.wait_ready() for hand in cluster.hands]
    with drawn_site(links=links, twins=3) as site:
        hosts = ["127.1.0.1", *(f"127.1.1.{number}" for number in (1, 2, 3))]
        seeds = [f"http://{host}:{site.port}/" for host in hosts]
        short = {"total_timeout": 10, "hand_queue_seconds": 10, "hand_slack_seconds": 5}
        argv = [*WEFT, "crawl", *seeds, *flags(cluster, folder, render="always", **short)]
        crawl = subprocess.Popen(argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        every, next_at = max(1, len(hosts) * links // (kills + 2)), 1
        end = time.monotonic() + patience(120 + 10 * links)
        while crawl.poll() is None and time.monotonic() < end:
            drawn = sum(path.startswith("/data") for path in site.paths_of_all())
            ready = [hand for hand in running if hand.name]
            if killed < kills and drawn >= next_at and len(ready) > 1 and browsers_of(cluster):
                ready[0].kill()
                running.remove(ready[0])
                running.append(renderer(cluster, wait=False))
                killed, next_at = killed + 1, drawn + every
            time.sleep(0.1)
        assert crawl.wait(patience(60)) == 0, crawl.communicate()[1]
        assert killed == kills
        stored = Counter(row["url"] for row in exported(folder))
        assert set(stored.values()) == {1} and len(stored) == len(hosts) * (3 * links + 1)
        texts = [row["text"] for row in exported(folder) if "/drawn" in row["url"] and "/next" not in row["url"]]
        assert all("hello /drawn" in text for text in texts) and len(texts) == len(hosts) * links
        pages, by_host = {url.partition(f":{site.port}")[2] for url in stored}, defaultdict[str, list[float]](list)
        for one in site.arrived:
            if one.host in hosts and one.path in pages:
                by_host[one.host].append(one.at)
        assert all(later - earlier >= 0.19 for starts in by_host.values() for earlier, later in pairwise(starts))
        assert weft("audit", folder).returncode == 0
    cluster.stop()
    wait_until(lambda: not browsers_of(cluster), "a browser has outlived its worker")
