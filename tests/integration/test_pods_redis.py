"""Crawls of pods on Redis through the command line: fetchers, parsers and servers that the crawl runs itself.

Judged as all crawls are, by the server's log against the oracle. tests/chaos has the full size.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from crawling import (
    MANAGED,
    Crawler,
    Kill,
    check_corpus,
    check_pods,
    check_refusals,
    is_gone,
    judged_with_kills,
    kill_fetcher,
    kill_losing,
    kill_now,
    processes,
    requests_by_pod,
    until,
    weft,
    weft_here,
)
from pace import patience
from recoveries import ParserWatch, recoveries
from server_kills import kill_written

from weft import urls
from weft.frontier.redis.connection import connect
from weft.supervise import process
from weft.supervise.redis_server import RedisServer
from weft.testing.judge import judge
from weft.testing.web import synthetic_web

pytestmark = pytest.mark.timeout(360)  # many processes each, and several crawls at once

DELAY_S, SHORT_S = 0.05, 0.02
# One host with all special URLs is for the crawl that is not disturbed: its hundred requests, one after the other, are
# what the others would wait for.
STOCKED: dict[str, Any] = {"hosts": 10, "pages": 60, "seed": 12, "profile": "messy", "stocked": 1}
MESSY: dict[str, Any] = STOCKED | {"stocked": 0}
OTHER: dict[str, Any] = {"hosts": 22, "pages": 130, "seed": 53, "profile": "messy", "stocked": 0}
CALM: dict[str, Any] = {"hosts": 12, "pages": 60, "seed": 2, "profile": "calm", "stocked": 0}
LOST_S = 0.5
BACK_S = patience(10)  # tests/chaos holds it to 5 and 10 s: here several crawls share the machine
SPLIT = (*MANAGED, "--fetchers-per-pod", 2, "--parsers-per-pod", 1)
ONE_EACH = ("--fetchers-per-pod", 1, "--parsers-per-pod", 0)
FUSED = (*MANAGED, *ONE_EACH)


@contextmanager
def redis_servers(folder: Path, count: int) -> Iterator[list[RedisServer]]:
    """Servers that the crawl does not run itself."""
    servers = [RedisServer(folder / f"server{number}") for number in range(count)]
    try:
        for server in servers:
            server.start()
        yield servers
    finally:
        for server in servers:
            server.kill()
            server.stop()


def on(servers: list[RedisServer], *, parsers: int) -> list[object]:
    """The flags of a crawl with a pod on each of these."""
    pods: list[object] = [word for server in servers for word in ("--pods", server.url)]
    return [*pods, "--fetchers-per-pod", 1, "--parsers-per-pod", parsers]


def undisturbed(folder: Path) -> None:
    with synthetic_web(**STOCKED) as web:
        crawler = Crawler(web.seeds, folder, *SPLIT, delay_s=SHORT_S)
        assert crawler.run(WEFT_DEBUG_POD_ASSIGNMENT="true") == 0, crawler.said
        verdict = web.judge(delay_s=SHORT_S)
        assert verdict.ok, verdict
        rows = check_corpus(crawler)
        check_refusals(crawler, web.expect(), rows)
        check_pods(crawler)
        status = crawler.status()
        assert (status["state"], status["note"], len(status["pods"])) == ("finished", "done", 2)
        assert sum(pod["pages"] for pod in status["pods"]) == status["pages"] == len(crawler.pages())
        logs = {str(path.relative_to(crawler.data_dir / "logs")) for path in (crawler.data_dir / "logs").rglob("*.log")}
        assert {"pod_0/orchestrator.log", "pod_0/fetcher_1.log", "pod_1/parser_0.log"} <= logs
        assert len([*crawler.data_dir.glob("index-*.db")]) == 6, "each process has an index of its own"
        assert not any(path.is_file() for path in (crawler.data_dir / "spool").rglob("*")), "what has been read is gone"
        check_commands(crawler)


def check_commands(crawler: Crawler) -> None:
    audit = weft("audit", crawler.data_dir)
    assert audit.returncode == 0, audit.stdout + audit.stderr
    one_of_each = [next(row.url for row in crawler.pages() if row.item >> 48 == pod) for pod in range(2)]
    assert weft("explain", crawler.data_dir, *one_of_each).stdout.count("crawled: HTTP 200, stored [page]") == 2
    assert weft("get", crawler.data_dir, one_of_each[-1]).returncode == 0
    assert "pods " in weft("stats", crawler.data_dir).stdout


def all_roles_killed(folder: Path) -> None:
    """A fetcher, a parser, a server, another fetcher, and a server whose last moments are lost: each is started again,
    and no page is missing, or there twice."""
    with synthetic_web(**OTHER) as web:
        crawler = Crawler(web.seeds, folder, *SPLIT, delay_s=DELAY_S)
        kills = []
        with crawler.running() as running, ParserWatch(crawler) as parsers:
            for pages, role, which in (
                (10, "fetcher", 0),
                (40, "parser", 1),
                (70, "server", 0),
                (110, "fetcher", -1),
                (150, "server", -1),
            ):
                crawler.pages_at_least(pages, 60)
                victim = processes(crawler, running.pid, role)[which]
                if which == -1 and role == "server":
                    kills.append(kill_losing(running.pid, victim, crawler.data_dir, LOST_S))
                else:
                    kills.append(kill_fetcher(victim, crawler.data_dir))
            assert running.wait(patience(150)) == 0, crawler.said
        back = recoveries(crawler, kills, parsers)
        assert back.seconds, back
        assert max(max(took) for took in back.seconds.values()) < BACK_S, back
        verdict, _ = judged_with_kills(web, crawler, kills)
        assert verdict.ok, verdict
        check_corpus(crawler, lossy=True)
        check_pods(crawler)


def orchestrator_killed(folder: Path) -> None:
    with synthetic_web(**MESSY) as web:
        crawler = Crawler(web.seeds, folder, *FUSED, delay_s=DELAY_S)
        kills: list[Kill] = []
        for pages in (20, 60):
            with crawler.running(resume=bool(kills)) as running:
                crawler.pages_at_least(pages, 60)
                children = process.children(running.pid)
                kill = kill_fetcher(running.pid)
                until(partial(_are_gone, children), 10, "the end of all children")
                kills.append(replace(kill, after=time.monotonic()))  # they may have sent something until now
        assert crawler.run(resume=True) == 0, crawler.said
        verdict, _ = judged_with_kills(web, crawler, kills)
        assert verdict.ok, verdict
        check_corpus(crawler)
        check_pods(crawler)


def _are_gone(pids: list[int]) -> bool:
    return all(map(is_gone, pids))


def pages_in_all(folder: Path) -> None:
    """`--max-pages` holds for all pods together. `weft explain` asks them what is queued, and says where they cannot be
    asked."""
    with redis_servers(folder, 2) as servers:
        pods = (*(word for server in servers for word in ("--pods", server.url)), "--fetchers-per-pod", 2)
        with synthetic_web(**CALM | {"pages": 300}) as web:
            crawler = Crawler(web.seeds, folder, *pods, "--parsers-per-pod", 0, "--max-pages", 70, delay_s=0.02)
            assert crawler.run() == 3, crawler.said
            assert len(crawler.pages()) == 70 == crawler.status()["pages"]
            assert crawler.run("--max-pages", 111, resume=True) == 3, crawler.said
            assert len(crawler.pages()) == 111
            check_corpus(crawler)
            web.stop()
            expected = web.expect()
            verdict = judge(web.arrivals(), expected, 0.02, complete=False)
            assert verdict.ok, verdict
        missing = sorted({*expected.must} - {row.url for row in crawler.rows()})
        by_pod = [[url for url in missing if urls.pod_of(urls.domain_of(url), 2) == pod] for pod in (0, 1)]
        told = explained(crawler, [url for part in by_pod for url in part[:: 1 + len(part) // 30]])
        queued = [url for url, answer in told.items() if answer["reason"] == "queued"]
        assert queued  # of which pods, depends on how fast each was
        assert all("come before it" in told[url]["evidence"][0] for url in queued)
        for server in servers:
            server.kill()
        for answer in explained(crawler, queued[:3]).values():
            assert (answer["crawled"], answer["reason"]) == (False, "unknown")
            assert "does not answer" in answer["summary"]
            assert "no server is running there" in answer["evidence"][0]


def explained(crawler: Crawler, those: list[str]) -> dict[str, dict[str, Any]]:
    answers = json.loads(weft("explain", crawler.data_dir, *those, "--json").stdout)["urls"]
    return {answer["url"]: answer for answer in answers}


def one_pod(folder: Path) -> None:
    """Orchestrator and fetcher on the first core, the parser on the next. When the server's password changes, the pod
    pauses until it is accepted again."""
    if not {0, 1} <= os.sched_getaffinity(0):
        pytest.skip("needs the cores 0 and 1")
    with redis_servers(folder, 1) as (server,), synthetic_web(**CALM) as web:
        flags = (*on([server], parsers=1), "--enable-cpu-affinity", "--max-pages", 40)
        crawler = Crawler(web.seeds, folder, *flags, delay_s=DELAY_S)
        with crawler.running() as running:
            crawler.pages_at_least(5)
            (fetcher,), (parser,) = (processes(crawler, running.pid, role) for role in ("fetcher", "parser"))
            assert [os.sched_getaffinity(pid) for pid in (running.pid, fetcher, parser)] == [{0}, {0}, {1}]
            change_password(server, crawler)
            assert running.wait(patience(100)) == 3, crawler.said
        web.stop()
        verdict = judge(web.arrivals(), web.expect(), DELAY_S, complete=False)
        assert (verdict.robots, verdict.delay, verdict.overlap) == ([], [], []), verdict
        pages = [row.url for row in crawler.pages()]
        assert len(pages) == len({*pages}) == 40
    logs = "".join(path.read_text() for path in (crawler.data_dir / "logs").rglob("*.log"))
    assert "Traceback" not in logs and "refuses the password" in logs


def change_password(server: RedisServer, crawler: Crawler) -> None:
    """And back, when the crawl says what it waits for."""
    client: Any = connect(server.url)
    client.config_set("requirepass", "changed")
    client.client_kill_filter(_type="normal", skipme=True)
    until(lambda: "refuses the password" in crawler.status()["note"], 30, "the reason of the pause")
    assert crawler.status()["state"] == "paused"
    client.config_set("requirepass", "")


def redis_hangs_and_dies(folder: Path) -> None:
    """A server that hangs holds up its own pod alone. One that is away pauses it, and links for it wait."""
    with redis_servers(folder, 2) as servers, synthetic_web(**OTHER | {"pages": 200}) as web:
        crawler = Crawler(web.seeds, folder, *on(servers, parsers=1), delay_s=DELAY_S)
        with crawler.running(WEFT_REDIS_SOCKET_TIMEOUT="3600") as running:
            crawler.pages_at_least(20, 60)
            kills = hangs(servers[1], crawler)
            served = asked_by(crawler, 1)
            until(lambda: asked_by(crawler, 1) > served + 5, 30, "pages of pod 1")
            died = time.monotonic()
            kill_written(servers[1])
            kills.append(Kill(died, died))
            until(lambda: crawler.status()["pods"][1]["state"] == "paused", 30, "a pause of pod 1")
            gone_on = crawler.status()["pods"][0]["requests"] + 10
            until(lambda: crawler.status()["pods"][0]["requests"] >= gone_on, 30, "pages of pod 0")
            kept = crawler.data_dir / "frontier" / "pod_0" / "outbox"
            until(lambda: any(path.stat().st_size for path in kept.glob("*.db-wal")), 30, "links in an outbox")
            assert running.poll() is None, crawler.said
            servers[1].start()
            assert running.wait(patience(100)) == 0, crawler.said
        verdict, _ = judged_with_kills(web, crawler, kills)
        assert verdict.ok, verdict
        check_corpus(crawler)
        check_pods(crawler)


def hangs(server: RedisServer, crawler: Crawler) -> list[Kill]:
    """For a while, in which the other pod's fetcher dies."""
    stopped, hanging, before = time.monotonic(), server.pid, asked_by(crawler, 0)
    assert hanging is not None
    os.kill(hanging, signal.SIGSTOP)
    try:
        # Whoever waits for its answer waits for ever: neither the other pod does, nor who replaces its dead.
        until(lambda: asked_by(crawler, 0) >= before + 10, 20, "pages of pod 0")
        killed = kill_fetcher(pid_of(crawler, "pod0-fetcher0"), crawler.data_dir)
        again = asked_by(crawler, 0)
        until(lambda: asked_by(crawler, 0) >= again + 10, 20, "pages of pod 0 by another fetcher")
    finally:
        os.kill(hanging, signal.SIGCONT)
    return [Kill(stopped, stopped), killed]


def pid_of(crawler: Crawler, slot: str) -> int:
    """Who fills a slot, as it has told itself."""
    return int(json.loads((crawler.data_dir / "status" / f"{slot}.json").read_bytes())["pid"])


def asked_by(crawler: Crawler, pod: int) -> int:
    """How many requests a pod has begun."""
    return sum(1 for one, _ in requests_by_pod(crawler, 2) if one == pod)


def ends_lost(folder: Path) -> None:
    """A server that comes back as it was some time ago: what was stored since is not fetched again, but read again."""
    with redis_servers(folder, 1) as (server,):
        kept, earlier = folder / "server0" / "appendonlydir", folder / "earlier"
        with synthetic_web(**CALM) as web:
            crawler = Crawler(web.seeds, folder, *on([server], parsers=1), delay_s=DELAY_S)
            with crawler.running() as running:
                crawler.pages_at_least(15, 60)
                server.kill()
                shutil.copytree(kept, earlier)
                server.start()
                crawler.pages_at_least(len(crawler.pages()) + 40, 60)
                kill_now(running)
            server.kill()
            shutil.rmtree(kept)
            shutil.copytree(earlier, kept)
            server.start()
            assert crawler.run(resume=True) == 0, crawler.said
            logs = "".join(path.read_text() for path in (crawler.data_dir / "logs").rglob("*.log"))
            assert "their links are read again" in logs
            verdict = web.judge(delay_s=DELAY_S)
            assert (verdict.missing, verdict.robots, verdict.delay, verdict.overlap) == ([], [], [], []), verdict


def databases_emptied(folder: Path) -> None:
    """Both at once while the crawl runs; one while it does not, with keys that its processes wrote before the end."""
    with redis_servers(folder, 2) as servers:
        clients: list[Any] = [connect(server.url) for server in servers]
        with synthetic_web(**CALM) as web:
            crawler = Crawler(web.seeds, folder, *on(servers, parsers=1), delay_s=DELAY_S)
            with crawler.running() as running:
                crawler.pages_at_least(20, 60)
                for client in clients:
                    client.flushall()
                until(lambda: all(client.hget("meta", "seeded") for client in clients), 30, "the pods' seeds")
                crawler.pages_at_least(len(crawler.pages()) + 10, 60)
                kill_now(running)
            stored = [row.url for row in crawler.pages()]
            clients[0].flushall()
            clients[0].hset("n", mapping={"ops": 7, "last": 1})
            clients[0].hset("slots", "pod0-parser0", 99)
            clients[0].set("owner", "a node")
            clients[0].hset("meta", "seeded", "1")
            assert crawler.run(resume=True) == 0, crawler.said
            assert "pod 0: " in crawler.said and "was emptied; it is filled again from what is stored" in crawler.said
            verdict = web.judge(delay_s=DELAY_S)
            assert (verdict.missing, verdict.robots, verdict.delay, verdict.overlap) == ([], [], [], []), verdict
            pages = [row.url for row in crawler.pages()]
            assert len(pages) == len({*pages}) and {*stored} < {*pages}, "what was stored is there, once"
        logs = "".join(path.read_text() for path in (crawler.data_dir / "logs").rglob("*.log"))
        assert "a pod's database was emptied: it is filled again from what is stored" in logs


# --max-depth over pods on Redis: in test_nodes.py.
# Those that wait longest come first.
SCENARIOS = [
    databases_emptied,
    all_roles_killed,
    redis_hangs_and_dies,
    ends_lost,
    undisturbed,
    orchestrator_killed,
    pages_in_all,
    one_pod,
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_pods_on_redis_crawl_as_one_process_does(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()


SEED = "http://127.0.0.1:9/"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--pods", "redis://127.0.0.1:1/0"], "pod 0: redis://127.0.0.1:1/0: refuses the connection"),
        (["--pods", "http://127.0.0.1/"], "must begin with redis://"),
        (["--pods", "managed", "--only-pods", "3"], "there is no pod 3"),
        (["--pods", "managed", "--only-pods", "x"], "names no pods"),
        (["--pods", "managed", "--pods", "managed", "--only-pods", "1"], "is managed, which no other node can reach"),
        (["--only-pods", "0"], "works with Redis pods alone"),
        (["--parsers-per-pod", "2"], "an embedded pod parses in its one process"),
        (["--seen-filter", "bloom"], "bloom works with Redis pods alone"),
        (
            ["--pods", "managed", "--enable-cpu-affinity", "--fetchers-per-pod", "500", "--parsers-per-pod", "12"],
            "512 cores are needed (1 pods with 500 fetchers and 12 parsers each)",
        ),
        (["--pods", "managed", "--parse-queue-soft-limit", "9", "--parse-queue-hard-limit", "8"], "must not be above"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path: Path, flags: list[str], said: str) -> None:
    refused = weft_here("crawl", SEED, "--data-dir", tmp_path / "data", "--prometheus-port", 0, *flags)
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "data" / "engine.json").exists()


def test_two_pods_on_one_database_are_refused(tmp_path: Path, start_server: Any) -> None:
    url = start_server().url
    refused = weft("crawl", SEED, "--data-dir", tmp_path, "--prometheus-port", 0, "--pods", url, "--pods", url)
    assert refused.returncode == 2, refused.stderr
    assert "pods 0 and 1 are one database" in refused.stderr
    assert not (tmp_path / "engine.json").exists()


def test_a_log_dir_that_cannot_be_written_and_a_port_in_use_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    refused = weft("crawl", SEED, "--data-dir", tmp_path / "a", "--num-pods", 2, "--log-dir", tmp_path / "file" / "x")
    assert refused.returncode == 2
    assert "log_dir" in refused.stderr
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = weft("crawl", SEED, "--data-dir", tmp_path / "b", "--num-pods", 2, "--prometheus-port", port)
    assert refused.returncode == 2
    assert f"prometheus_port {port}" in refused.stderr
