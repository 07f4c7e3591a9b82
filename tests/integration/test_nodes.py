"""Crawls that two nodes share: two `weft crawl` with a data dir and a pod each, on the Redis servers of somebody else.

Judged as all crawls are, by the server's log against the oracle, over both corpora together.
"""

from __future__ import annotations

import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, check_corpus, judged_with_kills, kill_now, until, weft, weft_here
from pace import patience

from weft import urls
from weft.crawl.folder import CrawlFolder
from weft.errors import BadInput
from weft.records import Row
from weft.supervise.redis_server import RedisServer
from weft.testing.judge import judge
from weft.testing.web import SyntheticWeb, synthetic_web

pytestmark = pytest.mark.timeout(360)

DELAY_S = 0.05
SLOW_S = 0.3  # for a crawl that only has to be there
MESSY: dict[str, Any] = {
    "hosts": 6,
    "pages": 60,
    "seed": 44,
    "profile": "messy",
    "stocked": 1,
}  # none with a long Crawl-delay
CALM: dict[str, Any] = {"hosts": 14, "pages": 200, "seed": 2, "profile": "calm", "stocked": 1}


class Nodes:
    """Two nodes, and the Redis of each one's pod."""

    def __init__(self, folder: Path, servers: list[RedisServer]) -> None:
        self._folder = folder
        self.servers = servers
        self.flags = ("--pods", servers[0].url, "--pods", servers[1].url, "--fetchers-per-pod", 1)

    def node(self, pod: int, seeds: list[str], *flags: object, name: str = "", delay_s: float = DELAY_S) -> Crawler:
        more = (*self.flags, "--only-pods", pod, *(flags or ("--parsers-per-pod", 0)))
        return Crawler(seeds, self._folder / (name or f"node{pod}"), *more, delay_s=delay_s)


@contextmanager
def two_servers(folder: Path) -> Iterator[Nodes]:
    servers = [RedisServer(folder / f"redis{pod}") for pod in range(2)]
    try:
        for server in servers:
            server.start()
        yield Nodes(folder, servers)
    finally:
        for server in servers:
            server.stop()


def together(*nodes: Crawler) -> list[Row]:
    """The rows of all nodes: each node has its own pod's alone, and no URL is on two."""
    rows = []
    for pod, node in enumerate(nodes):
        own = check_corpus(node)
        assert {urls.pod_of(urls.domain_of(row.url), 2) for row in own} == {pod}
        rows += own
    return rows


def undisturbed(folder: Path) -> None:
    """Started at the same instant: one of them makes the crawl, the other joins it."""
    with two_servers(folder) as nodes, synthetic_web(**MESSY) as web:
        first, second = (nodes.node(pod, web.seeds, "--parsers-per-pod", 1) for pod in range(2))
        with first.running() as one, second.running() as other:
            assert (one.wait(patience(200)), other.wait(patience(200))) == (0, 0), first.said + second.said
        verdict = web.judge(delay_s=DELAY_S)
        assert verdict.ok, verdict
        together(first, second)
        theirs = second.pages()[0].url
        assert "crawled: HTTP 200, stored [page]" in weft("explain", second.data_dir, theirs).stdout
        assert "it belongs to pod 1, whose pages are on another node" in weft("explain", first.data_dir, theirs).stdout
        for node in (first, second):
            audit = weft("audit", node.data_dir)
            assert audit.returncode == 0, audit.stdout + audit.stderr


def killed(folder: Path) -> None:
    """Each is killed once; the other goes on meanwhile, and the one that comes back takes up its own pod."""
    with two_servers(folder) as nodes, synthetic_web(**CALM) as web:
        first, second = (nodes.node(pod, web.seeds) for pod in range(2))
        kills = []
        with second.running() as other:
            with first.running() as one:
                first.pages_at_least(10, 90)
                second.pages_at_least(10, 90)
                kills.append(kill_now(one))
            beyond = second.status()["pages"] + 5
            second.pages_at_least(beyond, 90)
            with first.running(resume=True) as one:
                first.pages_at_least(30, 90)
                kills.append(kill_now(other))
                with second.running(resume=True) as again:
                    assert (one.wait(patience(200)), again.wait(patience(200))) == (0, 0), first.said + second.said
        verdict, _ = judged_with_kills(web, first, kills, beside=[second])
        assert verdict.ok, verdict
        together(first, second)


def pages_in_all(folder: Path) -> None:
    """`max_pages` holds for both together; a new figure must be given to both."""
    with two_servers(folder) as nodes, synthetic_web(**MESSY | {"pages": 300}) as web:
        first, second = (nodes.node(pod, web.seeds, "--parsers-per-pod", 0, "--max-pages", 70) for pod in range(2))
        with second.running() as other, first.running() as one:
            assert (one.wait(patience(200)), other.wait(patience(200))) == (3, 3), first.said + second.said
        assert len(first.pages()) + len(second.pages()) == 70
        with second.running("--max-pages", 111, resume=True) as other:
            until(lambda: second.status().get("state") == "running", 90, "the second node")
            assert first.run(resume=True) == 2
            assert "max_pages (as the crawl was started) is 70 here and 111 there" in first.said
            with first.running("--max-pages", 111, resume=True) as one:
                assert (one.wait(patience(200)), other.wait(patience(200))) == (3, 3), first.said + second.said
        assert len(first.pages()) + len(second.pages()) == 111
        together(first, second)
        check_polite(web)


def check_polite(web: SyntheticWeb) -> None:
    web.stop()
    verdict = judge(web.arrivals(), web.expect(), DELAY_S, complete=False)
    assert verdict.ok, verdict


def depth(folder: Path) -> None:
    """A page that turns out to be nearer is read again by the node that has it."""
    with two_servers(folder) as nodes, synthetic_web(**MESSY) as web:
        first, second = (nodes.node(pod, web.seeds, "--parsers-per-pod", 0, "--max-depth", 2) for pod in range(2))
        with first.running() as one, second.running() as other:
            assert (one.wait(patience(200)), other.wait(patience(200))) == (0, 0), first.said + second.said
        verdict = web.judge(delay_s=DELAY_S, max_depth=2)
        assert verdict.ok, verdict
        together(first, second)


SCENARIOS = [undisturbed, killed, pages_in_all, depth]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_two_nodes_crawl_as_one_does(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()


SEED = "http://127.0.0.1:9/"


def refused(node: Crawler, *more: object, resume: bool = False) -> str:
    """What a node is told that may not start."""
    said = node.refusal(*more, resume=resume)
    assert "Traceback" not in said
    return said


def interrupted(running: subprocess.Popen[bytes]) -> None:
    running.send_signal(signal.SIGINT)
    assert running.wait(patience(30)) == 130


def is_another(node: Crawler, crawl_id: str) -> bool:
    folder = CrawlFolder([node.data_dir])
    try:
        return folder.exists() and folder.identity().id != crawl_id
    except BadInput:  # it is being deleted just now
        return False


def test_a_node_that_may_not_join_learns_why_and_what_runs_is_left_alone(tmp_path: Path) -> None:
    with two_servers(tmp_path) as nodes, synthetic_web(hosts=6, pages=1500, seed=1, profile="calm") as web:
        node = partial(nodes.node, delay_s=SLOW_S)
        first, second = node(0, web.seeds), node(1, web.seeds)
        place = f"{socket.gethostname()}:{first.data_dir.resolve()}"
        with first.running() as one:
            first.pages_at_least(1, 90)
            for name, more, said in (
                ("scope", ("--scope", "host"), 'scope (--scope) is "host" here and "any" there'),
                ("delay", ("--delay", 9), f"politeness_delay_seconds (--delay) is 9.0 here and {SLOW_S} there"),
                ("number", ("--pods", "redis://127.0.0.1:1"), "the crawl has 2 pods, 3 were given"),
                ("all", ("--only-pods", "0-1"), "holds another crawl"),
                ("same", (), f"pod 0 belongs to node {place}, which has its pages"),
            ):
                another = node(0 if name == "same" else 1, web.seeds, name=name)
                assert said in refused(another, *more)
                assert not (another.data_dir / "engine.json").exists()
            assert "seeds (given) is " in refused(node(1, [*web.seeds, SEED], name="seeds"))
            with second.running() as other:
                second.pages_at_least(1, 90)
                interrupted(other)
            assert f"pod 0 is run by node {place}, and --fresh" in refused(second, "--fresh")
            gone_on = first.status()["pages"] + 5
            first.pages_at_least(gone_on, 90)
            interrupted(one)
        before = CrawlFolder([first.data_dir]).identity().id
        with second.running("--fresh"):
            until(lambda: is_another(second, before) and second.status().get("pages"), 90, "a page of the new crawl")
            assert "holds another crawl" in refused(first, resume=True)


def test_managed_pods_are_one_nodes(tmp_path: Path) -> None:
    pods = ("--pods", "managed", "--pods", "managed", "--only-pods", 1)
    said = weft_here("crawl", SEED, "--data-dir", tmp_path / "d", *pods)
    assert said.returncode == 2
    assert "pod 0 is managed, which no other node can reach" in said.stderr
    assert not (tmp_path / "d" / "engine.json").exists()
