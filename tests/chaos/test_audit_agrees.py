"""What `weft audit` says of a crawl that is killed again and again, against what a server that is not ours has seen.

nginx serves a calm web and writes down every request. After the kills its log and the crawl's own request log must tell
the same story: nothing arrived that was not logged, all that is logged as answered arrived, each once for each time;
and no site was asked before its delay was over. The short campaign is a part of every test run, the full one of
`make chaos` (WEFT_TEST_CHAOS=1): 40 kills, 2 s.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from crawling import Crawler, audited, is_gone, until, weft
from pace import patience
from ports import free_port

from weft.crawl.folder import CrawlFolder
from weft.frontier.requests import RequestEnd, RequestStart, UnreadableLines, with_checksum
from weft.frontier.view import FrontierView
from weft.supervise import process
from weft.testing import nginx
from weft.testing.content.sites import WorldSpec
from weft.testing.world import World

IS_LONG = bool(os.environ.get("WEFT_TEST_CHAOS"))
pytestmark = [pytest.mark.usefixtures("nginx_here"), pytest.mark.timeout(3600 if IS_LONG else 300)]
REDIS = ("--pods", "managed", "--fetchers-per-pod", 2, "--parsers-per-pod", 1)
IN_A_ROW = 4  # kills of a fetcher: one more, and the crawl takes it for a crash loop
ROUNDING_S = 0.005  # nginx tells when a request ended and how long it took, both cut to the millisecond


@dataclass(frozen=True)
class Campaign:
    """How a crawl is mistreated, and how long."""

    name: str
    kills: int
    delay_s: float
    hosts: int
    pages: int
    pause_s: tuple[float, float]
    flags: tuple[object, ...] = ()


SHORT = [Campaign("embedded", 3, 0.4, 8, 1500, (0.5, 1.5))]
LONG = [
    Campaign("embedded, 40 kills", 40, 2.0, 20, 8000, (0.5, 6.0)),
    Campaign("redis, 40 kills", 40, 2.0, 20, 8000, (0.5, 6.0), REDIS),
]


@dataclass(frozen=True)
class Arrival:
    """A request as the server saw it; times of the wall clock."""

    host: str
    url: str
    start: float
    end: float


@dataclass(frozen=True)
class Asked:
    """A request as the crawl logged it; `outcome` is empty where its process was killed before the end."""

    url: str
    wall: float
    outcome: str = ""

    @property
    def has_arrived(self) -> bool:
        return self.outcome.isdigit()


@dataclass
class Story:
    """What came of a campaign."""

    campaign: Campaign
    data_dir: Path
    arrivals: list[Arrival]
    kills: dict[str, int] = field(default_factory=dict)

    def asked(self) -> list[Asked]:
        return read_asked(self.data_dir)


@contextmanager
def serving(folder: Path, campaign: Campaign) -> Iterator[tuple[World, Path]]:
    """A calm web on nginx, and its log."""
    world = World(WorldSpec(hosts=campaign.hosts, pages=campaign.pages, seed=12, port=free_port()))
    config = nginx.write(world, folder / "site").config
    text, log = config.read_text(), folder / "arrivals.log"
    assert "access_log off;" in text
    form = "log_format arrivals '$msec $request_time $server_addr $server_port $request_uri';"
    config.write_text(text.replace("access_log off;", f"{form}\n  access_log {log} arrivals;"))
    server = subprocess.Popen(["nginx", "-c", str(config)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(world.spec.port), 60, "nginx")
        log.write_text("")  # what the question above has left there
        yield world, log
    finally:
        server.send_signal(signal.SIGQUIT)  # what is under way is ended and logged
        try:
            server.wait(patience(30))
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.1.0.1", port)) == 0


def read_arrivals(log: Path) -> list[Arrival]:
    found = []
    for line in log.read_text().splitlines():
        at, took, address, port, target = line.split(" ", 4)
        found.append(Arrival(address, f"http://{address}:{port}{target}", float(at) - float(took), float(at)))
    return sorted(found, key=lambda arrival: arrival.start)


def read_asked(data_dir: Path) -> list[Asked]:
    """What the audit reads: the request logs, without what was not made after all."""
    found: list[Asked] = []
    open_: dict[tuple[int, int], int] = {}
    with closing(FrontierView(CrawlFolder([data_dir]).pod_folders())) as view:
        for pod, event in view.requests(UnreadableLines()):
            if isinstance(event, RequestStart):
                open_[pod, event.item] = len(found)
                found.append(Asked(event.url, event.wall))
            elif isinstance(event, RequestEnd) and (pod, event.item) in open_:
                at = open_.pop((pod, event.item))
                found[at] = replace(found[at], outcome=event.status)
    return [one for one in found if one.outcome != "unasked"]


def disagreements(asked: Sequence[Asked], arrivals: Sequence[Arrival]) -> list[str]:
    """Where the two logs tell different stories."""
    told = []
    logged: dict[str, list[Asked]] = defaultdict(list)
    for one in sorted(asked, key=lambda one: one.wall):
        logged[one.url].append(one)
    met: set[tuple[str, int]] = set()
    for arrival in arrivals:
        before = [at for at, one in enumerate(logged[arrival.url]) if one.wall <= arrival.start + ROUNDING_S]
        if not before or (arrival.url, before[-1]) in met:
            told.append(f"arrived and is not in the request log: {arrival}")
        else:
            met.add((arrival.url, before[-1]))
    for url, all_ in logged.items():
        told += [
            f"is logged as answered and has not arrived: {one}"
            for at, one in enumerate(all_)
            if one.has_arrived and (url, at) not in met
        ]
    return told


def too_early(arrivals: Sequence[Arrival], delay_s: float) -> list[str]:
    """Sites that were asked before their delay was over, by the server's own times."""
    by_host: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in arrivals:
        by_host[arrival.host].append(arrival)
    return [
        f"{second.start - first.end:.3f} s after {first.url}: {second.url}"
        for all_ in by_host.values()
        for first, second in pairwise(sorted(all_, key=lambda arrival: arrival.start))
        if second.start - first.end < delay_s - ROUNDING_S
    ]


def carry_out(campaign: Campaign, folder: Path) -> Story:
    """A crawl whose fetcher is killed, or all of it, at moments that are drawn; it is stopped after the last."""
    chance, kills = random.Random(7), dict.fromkeys(("fetcher", "all"), 0)
    with serving(folder, campaign) as (world, log):
        crawler = Crawler(world.seeds(), folder, *campaign.flags, delay_s=campaign.delay_s)
        while sum(kills.values()) < campaign.kills:
            resume = (crawler.data_dir / "engine.json").exists()
            with crawler.running(resume=resume) as running:
                _await_request(crawler, running, log)
                in_a_row = 0
                while sum(kills.values()) < campaign.kills:
                    time.sleep(chance.uniform(*campaign.pause_s))
                    assert running.poll() is None, f"the crawl ended after {kills}: {crawler.said}"
                    if in_a_row < IN_A_ROW and chance.random() < 0.6:
                        in_a_row += 1
                        _kill([chance.choice(until(partial(_fetchers, running.pid), 120, "a fetcher"))])
                        kills["fetcher"] += 1
                    else:
                        _kill([running.pid, *process.children(running.pid)], running)
                        kills["all"] += 1
                        break
        with crawler.running(resume=True) as running:
            _await_request(crawler, running, log)
            until(lambda: len({arrival.host for arrival in read_arrivals(log)}) == campaign.hosts, 300, "every site")
            running.terminate()
            assert running.wait(patience(120)) in (0, 130), crawler.said
    return Story(campaign, crawler.data_dir, read_arrivals(log), kills)


def _await_request(crawler: Crawler, running: subprocess.Popen[bytes], log: Path) -> None:
    seen, pid = log.stat().st_size, running.pid
    until(lambda: is_gone(pid) or log.stat().st_size > seen, 300, "a request")
    assert not is_gone(pid), crawler.said


def _kill(pids: Sequence[int], orchestrator: subprocess.Popen[bytes] | None = None) -> None:
    """kill -9, the orchestrator first: its children end with it, and must not be taken for the next one's."""
    for pid in pids:
        process.kill(pid)
    if orchestrator is not None:
        orchestrator.wait()
    until(lambda: all(map(is_gone, pids)), 120, "the end of what was killed")


def _fetchers(orchestrator: int) -> list[int]:
    """Those that run now: one that was killed is started again after a moment."""
    found = []
    for pid in process.children(orchestrator):
        with suppress(OSError):
            if b"weft.crawl.processes.fetcher" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return sorted(found)


@pytest.fixture(scope="module", params=LONG if IS_LONG else SHORT, ids=lambda campaign: campaign.name)
def story(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Story:
    return carry_out(request.param, tmp_path_factory.mktemp("audit"))


def test_the_server_s_log_and_the_audit_agree(story: Story) -> None:
    asked, arrivals, campaign = story.asked(), story.arrivals, story.campaign
    assert disagreements(asked, arrivals) == []
    assert too_early(arrivals, campaign.delay_s) == []
    report = audited(story.data_dir)
    assert report.violations == []
    assert report.requests + report.cut_off == len(asked)
    assert len({arrival.host for arrival in arrivals}) == report.sites == campaign.hosts
    unended = sum(not one.outcome for one in asked)
    gaps = [gap for gap in _gaps(arrivals) if gap < 2 * campaign.delay_s]
    print(
        f"{campaign.name}: {story.kills} kills, {len(arrivals)} arrivals, {report.requests} requests in the audit, "
        f"{unended} cut off by a kill; smallest gap {min(gaps):.3f} s of {campaign.delay_s:g} s; no violation"
    )


def _gaps(arrivals: Sequence[Arrival]) -> list[float]:
    hosts = {arrival.host for arrival in arrivals}
    return [
        second.start - first.end
        for host in hosts
        for first, second in pairwise([arrival for arrival in arrivals if arrival.host == host])
    ]


def test_what_does_not_agree_is_found(story: Story) -> None:
    asked, arrivals, delay_s = story.asked(), story.arrivals, story.campaign.delay_s
    times = Counter(one.url for one in asked)
    once = next(one for one in asked if one.has_arrived and times[one.url] == 1)
    (told,) = disagreements([one for one in asked if one is not once], arrivals)
    assert told.startswith("arrived and is not in the request log") and once.url in told
    (told,) = disagreements(asked, [arrival for arrival in arrivals if arrival.url != once.url])
    assert told.startswith("is logged as answered and has not arrived") and once.url in told
    again = replace(arrivals[-1], start=arrivals[-1].start + 9, end=arrivals[-1].end + 9)
    assert len(disagreements(asked, [*arrivals, again])) == 1, "asked twice, and logged once"
    first, second = [one for one in arrivals if one.host == arrivals[0].host][:2]
    early = replace(second, start=first.end + delay_s / 2, end=first.end + delay_s / 2)
    assert len(too_early([early if one is second else one for one in arrivals], delay_s)) == 1


def test_the_audit_finds_a_request_that_came_too_early(story: Story, tmp_path: Path) -> None:
    """The crawl's own log, in which one request has been moved: its evidence must not be taken on trust."""
    copy = tmp_path / "data"
    shutil.copytree(story.data_dir, copy, ignore=shutil.ignore_patterns("warc", "*.sock"))
    log = next(path for path in sorted(copy.rglob("requests-*.log")) if path.read_text().count("\nS\t") > 2)
    lines = log.read_text().splitlines(keepends=True)
    answered = {line.split("\t")[1] for line in lines if line[0] == "E" and line.split("\t")[3].isdigit()}
    starts = [at for at, line in enumerate(lines) if line[0] == "S" and line.split("\t")[1] in answered]
    site_of = {at: lines[at].split("\t")[4] for at in starts}
    pairs = [(one, two) for one in starts for two in starts if one < two and site_of[one] == site_of[two]]
    before, last = max(pairs, key=lambda pair: (pair[1], pair[0]))
    fields = lines[last].split("\t")
    fields[2] = f"{float(lines[before].split(chr(9))[2]) + story.campaign.delay_s / 2:.6f}"
    lines[last] = with_checksum("\t".join(fields[:8])).decode()
    log.write_text("".join(lines))
    told = weft("audit", copy)
    assert told.returncode == 1, told.stdout + told.stderr
    assert f"{fields[7]} at " in told.stdout and "required" in told.stdout
