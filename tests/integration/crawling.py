"""Crawls of the synthetic web through the real command line, and the checks made afterwards.

Used by the crawl tests here and in tests/chaos. A Crawler is one data dir with the `weft crawl` processes that work on
it, one after the other; `check_corpus` reads everything back with three readers; `Killed` counts what kills may cost.
"""

from __future__ import annotations

import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec
from counting import check_counts
from fastwarc.warc import ArchiveIterator as FastIterator
from fastwarc.warc import WarcRecordType
from flights import Flight, Flights, read_flights, slots_of
from pace import patience
from warcio.archiveiterator import ArchiveIterator

from weft import urls
from weft.cli.main import run as run_weft
from weft.config import ScopeSection
from weft.crawl.reports.audit import AuditReport, audit
from weft.crawl.reports.crawls import ReportFolder
from weft.engine.admission.rules import AdmissionRules
from weft.engine.loop.parser.suspects import read_heartbeat
from weft.errors import BadUrl
from weft.frontier.clock import FOLDER_VARIABLE
from weft.records import Row
from weft.store.pages import PageStore
from weft.supervise import process
from weft.testing.arrivals import Arrival
from weft.testing.judge import CrawlVerdict, judge
from weft.testing.oracle import Expectation
from weft.testing.web import SyntheticWeb, synthetic_web

WEFT = [sys.executable, "-m", "weft"]
# A page that has arrived is committed 0.1 s later, and later still on a machine that is busy. What ended longer before
# a kill than this (2 s at the least) must not be asked for again: it bounds how far a kill may throw a crawl back.
# Where a test kills within its first seconds it can find nothing; what holds there is that no page is missing (the
# verdict), or stored twice (`check_corpus`).
COMMIT_WINDOW_S = patience(0.4)
# An answer that a kill left in the socket, or that was just read, is unknown to the crawl. What a site has asked for is
# committed at once, not with the next batch: 0.2 s at the least, and the web's shortest Crawl-delay is 0.5 s.
UNREAD_S = patience(0.04)
LONGEST_PAUSE_S = 0.04  # of somebody who waits for another process: a crawl tells what it has done twice a second


def environment(**more: str) -> dict[str, str]:
    """This process's environment without Weft's own variables, but for its machine: other tests have another."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith("WEFT_") or name == FOLDER_VARIABLE
    }
    return kept | {"NO_COLOR": "1"} | more


def weft(*arguments: object, timeout_s: float = 60, **variables: str) -> subprocess.CompletedProcess[str]:
    """One command to its end."""
    return subprocess.run(
        [*WEFT, *map(str, arguments)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=patience(timeout_s),
        env=environment(**variables),
    )  # fmt: skip


def weft_here(*arguments: object) -> subprocess.CompletedProcess[str]:
    """One command to its end in this process, by the door that `weft` takes: for what is refused, or looks into a
    folder, where a process of its own would be nearly all that it costs. Not in a thread: the streams are everybody's.
    """
    words, streams = [str(argument) for argument in arguments], (io.BytesIO(), io.BytesIO())
    out, err = (io.TextIOWrapper(stream, "utf-8", "replace", write_through=True) for stream in streams)
    with redirect_stdout(out), redirect_stderr(err):
        code = run_weft(words)
    said = (stream.getvalue().decode(errors="replace") for stream in streams)
    return subprocess.CompletedProcess(words, code, *said)


def until(happened: Callable[[], Any], timeout_s: float = 60.0, what: str = "it") -> Any:
    """Waits for what another process is about to do, and gives the first answer that is true.

    What takes long is looked at less often: to look may cost whoever is asked as much as what it is about to do.
    """
    limit, pause_s = time.monotonic() + patience(timeout_s), 0.01
    while time.monotonic() < limit:
        if answer := happened():
            return answer
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, LONGEST_PAUSE_S)
    raise AssertionError(f"{what} did not happen within {patience(timeout_s):g} s")


class Crawler:
    """One data dir, and how it is crawled."""

    def __init__(
        self, seeds: Iterable[str], folder: Path, *flags: object, delay_s: float = 0.05, data_dir: Path | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.data_dir = data_dir or folder / "data"
        self.seed_file = folder / "seeds.txt"
        self.seed_file.write_text("".join(f"{seed}\n" for seed in seeds))
        self.stderr = folder / "stderr.txt"
        # Webs of tests have the same hosts: crawls that run side by side would take turns there, as on one machine.
        self._machine = folder / "machine"
        self._machine.mkdir(exist_ok=True)
        self.delay_s = delay_s
        self._last: subprocess.Popen[bytes] | None = None
        usual = ["--scope", "any", "--delay", delay_s, "--allow-private", "--prometheus-port", 0]
        # Many of the webs have a robots.txt that is never well: three tries are enough.
        self._flags = [*usual, "--robots-patience-seconds", 0, *flags]

    def start(
        self, *more: object, resume: bool = False, group: bool = False, **variables: Any
    ) -> subprocess.Popen[bytes]:
        """Starts a run, on demand in a process group of its own; what it says goes to the file `stderr`."""
        with self.stderr.open("wb") as said:
            self._last = subprocess.Popen(
                [*WEFT, *self._words(more, resume)], stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                env=environment(**{FOLDER_VARIABLE: str(self._machine)} | variables),
                process_group=0 if group else None,
            )  # fmt: skip
        return self._last

    def _words(self, more: Iterable[object], resume: bool) -> list[str]:
        begin = ["--resume"] if resume else ["--seed-file", self.seed_file, *self._flags]
        return [str(word) for word in ("crawl", *begin, "--data-dir", self.data_dir, *more)]

    def refusal(self, *more: object, resume: bool = False) -> str:
        """What a run is told that may not start; in this process (`weft_here`), not in a thread."""
        done = weft_here(*self._words(more, resume))
        assert done.returncode == 2, done.stderr
        return done.stderr

    def run(self, *more: object, resume: bool = False, timeout_s: float = 100, **variables: Any) -> int:
        """A run to its end; its exit code."""
        with self.running(*more, resume=resume, **variables) as running:
            return running.wait(patience(timeout_s))

    @contextmanager
    def running(
        self, *more: object, resume: bool = False, group: bool = False, **variables: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A run that is over at the end of the block, whatever happens in it."""
        running = self.start(*more, resume=resume, group=group, **variables)
        try:
            yield running
        finally:
            running.kill()
            running.wait()

    @property
    def said(self) -> str:
        """What the last run has said so far."""
        return self.stderr.read_text(errors="replace")

    def status(self) -> dict[str, Any]:
        """The content of status.json; empty while there is none."""
        try:
            status: dict[str, Any] = json.loads((self.data_dir / "status.json").read_bytes())
        except (OSError, ValueError):
            return {}
        return status

    def pages_at_least(self, pages: int, timeout_s: float = 60.0) -> None:
        """Waits until the status has this number of pages; fails with all logs, at once when the run ends first."""

        def has_them() -> bool:
            has_ended = self._last is not None and self._last.poll() is not None
            if self.status().get("pages", 0) >= pages:
                return True
            assert not has_ended, f"ended before page {pages}: {self.logs()}"
            return False

        try:
            until(has_them, timeout_s, f"page {pages}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.status()}\n{self.logs()}") from None

    def logs(self) -> str:
        """What the last run printed, and the ends of its log files."""
        files = sorted((self.data_dir / "logs").rglob("*.log"))
        ends = [f"── {file.name}\n" + "\n".join(file.read_text().splitlines()[-40:]) for file in files]
        return "\n".join([self.said, *ends])

    def rows(self) -> list[Row]:
        """All rows of the index."""
        store = PageStore.open([self.data_dir], read_only=True)
        try:
            return list(store.rows())
        finally:
            store.abandon()

    def pages(self) -> list[Row]:
        """The rows that are pages: stored, with a 2xx."""
        return [row for row in self.rows() if row.warc_file and 200 <= row.status < 300]


class Corpus(Protocol):
    """What a crawl has left, however it was run."""

    data_dir: Path

    def rows(self) -> list[Row]: ...


def fetcher_of(running: subprocess.Popen[bytes], timeout_s: float = 10.0) -> int:
    """The fetcher process of a running crawl."""
    children: list[int] = until(lambda: process.children(running.pid), timeout_s, "the start of a fetcher")
    return children[0]


def is_gone(pid: int) -> bool:
    """Whether a process has ended, with all its threads; a zombie that nobody has waited for counts as ended."""
    return process.has_ended(pid)


# ── two pods on Redis ─────────────────────────────────────────────────────────────────────────────────────────────────

MANAGED = ("--pods", "managed", "--pods", "managed")


def requests_by_pod(crawler: Crawler, pods: int) -> Iterator[tuple[int, str]]:
    for pod in range(pods):
        for path in (crawler.data_dir / "frontier" / f"pod_{pod}" / "requests").rglob("*.log"):
            yield from ((pod, line.split("\t")[7]) for line in path.read_text().splitlines() if line[0] == "S")


def check_pods(crawler: Crawler) -> None:
    asked = set(requests_by_pod(crawler, 2))
    assert {pod for pod, _ in asked} == {0, 1}
    assert all(pod == urls.pod_of(urls.domain_of(url), 2) for pod, url in asked)
    assert not any("wrong pod" in path.read_text() for path in (crawler.data_dir / "logs").rglob("*.log"))


def processes(crawler: Crawler, running: int, role: str) -> list[int]:
    """The pids of a crawl's fetchers, parsers or servers."""
    words = {
        "server": b"valkey-server",
        "fetcher": b"weft.crawl.processes.fetcher",
        "parser": b"weft.crawl.pods.parser",
    }

    def those() -> list[int]:
        found = []
        for pid in process.children(running):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if words[role] in line or (role == "server" and b"redis-server" in line):
                found.append(pid)
        return sorted(found)

    pids: list[int] = until(those, 10, f"a {role}")
    return pids


# ── the corpus ─────────────────────────────────────────────────────────────────────────────────────────────────────


def check_corpus(crawler: Corpus, *, lossy: bool = False) -> list[Row]:
    """Reads everything back: one row for each item and visit, and the same records by Weft, warcio and fastwarc.

    `lossy`: a Redis lost data, and a page that is not kept (noindex) may be visited again for its links.
    """
    rows = crawler.rows()
    assert _repeated(row.item for row in rows) == {}
    assert _repeated((row.url, row.hops) for row in rows if not (lossy and row.error == "noindex")) == {}
    # A cookie wall sends its visitor back to itself; one whose first answer a kill took is let in at once then.
    urls_of = {row.item: row.url for row in rows}
    behind_itself = {row.item for row in rows if row.hops and urls_of.get(row.parent) == row.url}
    pages = (row for row in rows if row.warc_file and 200 <= row.status < 300 and row.item not in behind_itself)
    assert _repeated(row.url for row in pages) == {}
    expected = {(row.warc_file, row.warc_offset): row.url for row in rows if row.warc_file}
    assert _by_warcio(crawler.data_dir / "warc") == expected
    assert _by_fastwarc(crawler.data_dir / "warc") == expected
    _check_by_weft(crawler, rows)
    check_counts([crawler.data_dir])
    return rows


def _repeated(things: Iterable[Any]) -> dict[Any, int]:
    return {thing: count for thing, count in Counter(things).items() if count > 1}


def _by_warcio(folder: Path) -> dict[tuple[str, int], str]:
    found = {}
    for path in sorted(folder.glob("*/*.warc.gz")):
        with path.open("rb") as file:
            records = ArchiveIterator(file, check_digests=True)
            for record in records:
                record.raw_stream.read()
                assert record.digest_checker.passed is not False, (path, record.rec_headers)
                if record.rec_type == "response":
                    uri = record.rec_headers.get_header("WARC-Target-URI")
                    found[str(path.relative_to(folder)), records.get_record_offset()] = uri
    return found


def _by_fastwarc(folder: Path) -> dict[tuple[str, int], str]:
    found = {}
    for path in sorted(folder.glob("*/*.warc.gz")):
        for record in FastIterator(str(path), parse_http=False):
            assert "WARC-Block-Digest" not in record.headers or record.verify_block_digest(), (path, record.headers)
            if record.record_type == WarcRecordType.response:
                found[str(path.relative_to(folder)), record.stream_pos] = record.headers["WARC-Target-URI"]
    return found


def _check_by_weft(crawler: Corpus, rows: list[Row]) -> None:
    store = PageStore.open([crawler.data_dir], read_only=True)
    try:
        for row in rows:
            stored = store.read_page(row)
            assert (stored.record is not None) == bool(row.warc_file)
            if stored.http is not None:
                assert (stored.http.status, len(stored.http.body)) == (row.status, row.length), row
    finally:
        store.abandon()


# ── kills ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Kill:
    """One kill, or one process stopped for a while: the moment before it, and the moment when it was over.

    `slots`: how the names of those begin whom it may have cost something.
    """

    before: float
    after: float
    slots: tuple[str, ...] = ("",)
    what: str = "all"  # process, server, loss (of a server's last moments), all; unknown; stopped

    def touches(self, other: Kill) -> bool:
        """Whether both cost the same slots something."""
        return any(one.startswith(two) or two.startswith(one) for one in self.slots for two in other.slots)

    def hit(self, flight: Flight, within_s: float) -> bool:
        """Whether the request was in flight, or had ended too shortly before to be committed."""
        mine = flight.slot.startswith(self.slots)
        return mine and flight.start <= self.after and flight.end >= self.before - within_s


@dataclass
class Killed:
    """What a kill has cost: what the server was asked again, and by the processes' own logs, what was in flight."""

    kills: list[Kill]
    flights: Flights
    arrivals: list[Arrival]
    expectation: Expectation
    refetches: Counter[str] = field(default_factory=Counter)
    in_flight: Counter[str] = field(default_factory=Counter)
    _by_url: dict[str, list[Arrival]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for arrival in sorted(self.arrivals, key=lambda one: one.t):
            self._by_url[arrival.url].append(arrival)
        counts = Counter(arrival.url for arrival in self.arrivals)
        for url, count in counts.items():
            if count > (allowed := self.expectation.requests.get(url, 1)):
                self.refetches[url] = count - allowed
        self.in_flight.update(
            flight.url for flight in self.flights.all if flight.failed or self.is_hit(flight, COMMIT_WINDOW_S)
        )

    def is_hit(self, flight: Flight, within_s: float) -> bool:
        """Whether a kill may have cost what the request brought."""
        return any(kill.hit(flight, within_s) for kill in self.kills)

    def was_unread(self, arrival: Arrival) -> bool:
        """Whether the answer was not processed."""
        flight = self.flights.of(arrival)
        return flight is not None and (flight.failed or self.is_hit(flight, UNREAD_S))

    def as_sent(self, arrival: Arrival) -> Arrival:
        """An arrival that a busy server read when its sender was dead: it was sent before, and nobody had an answer."""
        flight = self.flights.in_order(arrival, self._by_url[arrival.url])
        for kill in self.kills:
            is_sender = flight is not None and kill.what in ("process", "all") and kill.hit(flight, 0.0)
            if is_sender and arrival.t > kill.after:
                return msgspec.structs.replace(arrival, t=kill.after, end=kill.after)
        return arrival

    def check(self) -> None:
        """Only what was in flight was requested again."""
        unexplained = self.refetches - self.in_flight
        assert not unexplained, [
            (
                url,
                [(arrival.t, arrival.end, arrival.status) for arrival in self.arrivals if arrival.url == url],
                self.kills,
            )
            for url in unexplained
        ]

    def __str__(self) -> str:
        return (
            f"{len(self.kills)} kills, {self.refetches.total()} refetches, {self.in_flight.total()} in flight at them"
        )


def kill_now(running: subprocess.Popen[bytes]) -> Kill:
    """kill -9 of the orchestrator; returns when its fetcher is gone too."""
    children = process.children(running.pid)
    before = time.monotonic()
    running.kill()
    running.wait()
    until(lambda: all(map(is_gone, children)), 5, "the end of the fetcher")
    return Kill(before, time.monotonic())


def kill_fetcher(pid: int, data_dir: Path | None = None) -> Kill:
    """kill -9 of one process alone; with the crawl's folder it is known whose requests that may have cost."""
    slots = ("",) if data_dir is None else slots_of(data_dir, pid)
    before = time.monotonic()
    process.kill(pid)
    until(lambda: is_gone(pid), 5, "the end of the fetcher")
    if data_dir is None:
        return Kill(before, time.monotonic())
    what = "unknown" if slots == ("",) else "server" if slots[0].endswith("-") else "process"
    return Kill(before, time.monotonic(), slots, what)


# How soon the processes of a pod notice that its server has lost data: with their next call. What they ask after this
# (3 s at the least) has no excuse.
NOTICE_S = patience(0.6)


def kill_losing(orchestrator: int, server: int, data_dir: Path, lost_s: float) -> Kill:
    """kill -9 of a pod's server, which comes back without what it wrote in its last moments.

    A real one loses them while it syncs, or in a power cut. The restart is delayed meanwhile. Until the pod's processes
    notice, they continue with what they had claimed, and what they fetch is requested again.
    """
    slots = slots_of(data_dir, server)
    pod = slots[0].removeprefix("pod").removesuffix("-")
    folder = data_dir / "frontier" / f"pod_{pod}" / "redis" / "appendonlydir"
    before = time.monotonic()
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    time.sleep(lost_s)
    process.kill(orchestrator, signal.SIGSTOP)
    try:
        process.kill(server)
        until(lambda: is_gone(server), 5, "the end of the server")
        assert {path.name for path in folder.iterdir()} == {*sizes}, "it has not rewritten its file"
        for name, size in sizes.items():
            os.truncate(folder / name, size)
    finally:
        process.kill(orchestrator, signal.SIGCONT)
    return Kill(before, time.monotonic() + NOTICE_S, slots, "loss")


def crawl_with_kills(crawler: Crawler, kills: int, *, seed: int, pause_s: tuple[float, float]) -> list[Kill]:
    """A crawl that is killed at random moments, resumed each time, and let alone at last.

    The pause counts from the moment at which the fetcher has begun; every fifth kill comes at any time of the start.
    """
    chance = random.Random(seed)
    done: list[Kill] = []
    while len(done) < kills:
        # Before crawl.json exists there is nothing to resume.
        resume = (crawler.data_dir / "engine.json").exists()
        has_begun = partial(_fetchers_begun, crawler, 1 + len(fetcher_starts(crawler)))
        with crawler.running(resume=resume) as running:
            if len(done) % 5 == 4:
                time.sleep(chance.uniform(0.0, 1.0))
            else:
                until(has_begun, 30, "the start of a fetcher")
                time.sleep(chance.uniform(*pause_s))
            assert running.poll() is None, f"the crawl ended after {len(done)} kills: {crawler.said}"
            done.append(kill_now(running))
    code = crawler.run(resume=(crawler.data_dir / "engine.json").exists(), timeout_s=300)
    assert code == 0, crawler.said
    return done


def fetcher_starts(crawler: Crawler) -> list[float]:
    """When fetchers opened the frontier, by the server's clock, from the request log."""
    logs = sorted((crawler.data_dir / "frontier").rglob("requests-*.log"))
    lines = (line.split("\t") for log in logs for line in log.read_text(errors="replace").splitlines())
    return sorted(float(line[2]) for line in lines if line[0] == "B")


def _fetchers_begun(crawler: Crawler, many: int) -> bool:
    return len(fetcher_starts(crawler)) >= many


def _unread(arrival: Arrival, expectation: Expectation) -> Arrival:
    """An answer whose Retry-After, or whose robots.txt's Crawl-delay, nobody has read."""
    slow = expectation.robots[arrival.host].crawl_delay_s > 0
    return msgspec.structs.replace(arrival, retry_after_s=None, status=0 if slow else arrival.status)


def judged_with_kills(
    web: SyntheticWeb,
    crawler: Crawler,
    kills: list[Kill],
    *,
    complete: bool = True,
    beside: Iterable[Crawler] = (),
    key: str = "host",
    **plan: Any,
) -> tuple[CrawlVerdict, Killed]:
    """The verdict on a crawl that was killed: what was in flight may be asked for again (so duplicates are judged by
    `Killed`), and nothing else is forgiven.

    An answer that a kill left unread in the socket, or read but not committed, is ignored: its Retry-After or
    Crawl-delay is unknown to the crawl. What was read longer before the kill than UNREAD_S is known. `beside`: other
    nodes.
    """
    web.stop()
    expectation, arrivals = web.expect(**plan), web.arrivals()
    flights = [flight for one in (crawler, *beside) for flight in read_flights(one.data_dir / "frontier")]
    killed = Killed(kills, Flights(flights), arrivals, expectation)
    killed.check()
    last = {arrival.url: arrival.t for arrival in arrivals}
    known = [
        _unread(sent, expectation) if arrival.t < last[arrival.url] and killed.was_unread(arrival) else sent
        for arrival in arrivals
        if (sent := killed.as_sent(arrival))
    ]
    verdict = judge(known, expectation, crawler.delay_s, key, complete=complete)
    verdict.duplicates = []
    if not verdict.ok:
        print(repr(verdict), kills, sep="\n")  # pytest cuts short what it shows
    found = audited(crawler.data_dir).violations
    assert found == [], f"the crawl's own log tells what the server's does: {found[:5]}"
    return verdict, killed


def audited(data_dir: Path) -> AuditReport:
    """What `weft audit` says."""
    return audit(ReportFolder([data_dir]))


# ── refusals ───────────────────────────────────────────────────────────────────────────────────────────────────────


def check_refusals(crawler: Crawler, expectation: Expectation, rows: list[Row], **scope: Any) -> Counter[str]:
    """Every URL that a right crawl leaves out has a reason that the oracle accepts; counted by reason.

    robots: in the URL's row. Reasons that follow from the URL are computed again. Redirects: in the last hop's row.
    """
    errors = {row.url: row.error for row in rows}
    cut = {row.final_url for row in rows if row.error == "too_many_redirects"}
    rules = AdmissionRules(ScopeSection(scope="any", **scope), expectation.seeds, this_year=2026)
    found: Counter[str] = Counter()
    for url, accepted in expectation.never.items():
        if {*accepted} <= {"no-link", "nofollow"}:
            # It stands in no link that may be followed: there was nothing to refuse.
            assert url not in errors
            continue
        reason = _reason(url, errors, cut, rules)
        assert reason in accepted, (url, reason, accepted)
        found[reason] += 1
    refused = crawler.status()["refused"]
    for reason in ("robots", "robots-unreachable"):
        assert (
            refused.get(reason, 0) >= found[reason] == sum(error.startswith(reason + ":") for error in errors.values())
        )
    assert all(refused[reason] >= count for reason, count in found.items() if reason != "redirects")
    return found


def _reason(url: str, errors: dict[str, str], cut: set[str], rules: AdmissionRules) -> str | None:
    if url in errors:
        return errors[url].partition(":")[0]
    if url in cut:
        return "redirects"
    try:
        canonical = urls.canonical(url)
    except BadUrl as bad:
        return bad.reason
    refusal = rules.refusal(canonical, 1)
    return str(refusal) if refusal else None


# ── whole crawls ───────────────────────────────────────────────────────────────────────────────────────────────────


def crawl_messy_web(folder: Path, world: dict[str, Any], *, delay_s: float, timeout_s: float = 100) -> str:
    """An undisturbed crawl: the fetched set, the politeness and the reasons are all as the oracle says."""
    with synthetic_web(**world) as web:
        crawler = Crawler(web.seeds, folder, delay_s=delay_s)
        assert crawler.run(timeout_s=timeout_s) == 0, crawler.said
        verdict = web.judge(delay_s=delay_s)
        assert verdict.ok, verdict
        refusals = check_refusals(crawler, web.expect(), check_corpus(crawler))
        assert {"robots", "robots-unreachable", "extension", "length", "redirects"} <= set(refusals)
        assert "Finished" in crawler.said and f"weft stats {crawler.data_dir}" in crawler.said.splitlines()[-1]
    return f"{verdict}; refused: {dict(refusals)}"


def crawl_while_all_is_killed(
    folder: Path, world: dict[str, Any], *, delay_s: float, kills: int, pause_s: tuple[float, float] = (0.1, 2.0)
) -> str:
    """A crawl whose orchestrator is killed again and again, resumed each time."""
    with synthetic_web(**world) as web:
        crawler = Crawler(web.seeds, folder, delay_s=delay_s)
        done = crawl_with_kills(crawler, kills, seed=5, pause_s=pause_s)
        verdict, killed = judged_with_kills(web, crawler, done)
        assert verdict.ok, verdict
        assert killed.in_flight, "no kill hit anything"
        check_corpus(crawler)
    return f"{verdict}; {killed}"


def crawl_while_fetchers_are_killed(
    folder: Path, world: dict[str, Any], *, delay_s: float, at_pages: Iterable[int], timeout_s: float = 100
) -> str:
    """A crawl whose fetcher is killed: the orchestrator starts another by itself, and the exit code is 0."""
    with synthetic_web(**world) as web:
        crawler = Crawler(web.seeds, folder, delay_s=delay_s)
        kills = []
        with crawler.running() as running:
            for pages in at_pages:
                crawler.pages_at_least(pages, timeout_s)
                kills.append(kill_fetcher(fetcher_of(running)))
            assert running.wait(patience(timeout_s)) == 0, crawler.said
        verdict, killed = judged_with_kills(web, crawler, kills)
        assert verdict.ok, verdict
        check_corpus(crawler)
    return f"{verdict}; {killed}"


# ── the hostile web ────────────────────────────────────────────────────────────────────────────────────────────────

TIMEOUTS = (
    "--connect-timeout", patience(0.8), "--read-timeout", patience(1), "--total-timeout", patience(2),
    "--lease-seconds", patience(4),
)  # fmt: skip
DEADLY_MARK = "weft-crash-parser"


@dataclass
class Hostile:
    """What a crawl of the hostile web came to, and what was seen of its fetchers from outside."""

    code: int
    said: str
    rows: list[Row]
    status: dict[str, Any]
    verdict: CrawlVerdict
    deaths: int
    max_body_bytes: int
    peak_rss_bytes: int
    longest_parse_s: float
    peers: set[str]


class Watch(threading.Thread):
    """Looks at a crawl's fetchers until it is told to stop: memory, connections, CPU time for one page."""

    def __init__(self, crawler: Crawler, running: subprocess.Popen[bytes]) -> None:
        super().__init__(daemon=True)
        self._frontier = crawler.data_dir / "frontier"
        self._running = running
        self._over = threading.Event()
        self.peak_rss_bytes = 0
        self.longest_parse_s = 0.0
        self.peers: set[str] = set()
        self._sockets = Sockets()

    def run(self) -> None:
        parsing, since_s = (0, 0, 0), 0.0
        while not self._over.wait(0.01):
            for pid in process.children(self._running.pid):
                self.peak_rss_bytes = max(self.peak_rss_bytes, process.rss_bytes(pid))
                self.peers |= self._sockets.peers(pid)
                used_s, mark = _cpu_s(pid), (pid, *read_heartbeat(self._frontier))
                if mark != parsing or not mark[2]:
                    parsing, since_s = mark, used_s
                self.longest_parse_s = max(self.longest_parse_s, used_s - since_s)

    def stop(self) -> None:
        self._over.set()
        self.join()


def _cpu_s(pid: int) -> float:
    """What a process has used: unlike a clock, it does not count what others on this machine use."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, IndexError):
        return 0.0


class Sockets:
    """Whom processes talk to. The kernel writes its table of connections anew for every reader, and tests leave many in
    it: it is read when a process has opened something, and at the next look, for what was not connected yet."""

    def __init__(self) -> None:
        self._looks: dict[tuple[int, str], int] = {}

    def peers(self, pid: int) -> set[str]:
        """The addresses that a process has new connections to, or tries to have."""
        inodes = set(_opened(pid))
        fresh = {inode for inode in inodes if self._looks.get((pid, inode), 0) < 2}
        if not fresh:
            return set()
        for inode in fresh:
            self._looks[pid, inode] = self._looks.get((pid, inode), 0) + 1
        try:
            lines = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
        except OSError:
            return set()
        addresses = (line[2].partition(":")[0] for line in lines if line[9] in inodes)
        return {socket.inet_ntoa(int(address, 16).to_bytes(4, sys.byteorder)) for address in addresses}


def _opened(pid: int) -> Iterator[str]:
    """The numbers of a process's sockets."""
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            yield target.removeprefix("socket:[").removesuffix("]")


def crawl_hostile_web(
    folder: Path, *, max_body_bytes: int = 10 * 1024 * 1024, max_retries: int = 1, **world: Any
) -> Hostile:
    """A crawl of the hostile web, in which one page kills its parser."""
    with synthetic_web(profile="hostile", **world) as web:
        limits = ("--max-retries", max_retries, "--retry-backoff-seconds", 0.2, "--max-body-bytes", max_body_bytes)
        crawler = Crawler(web.seeds, folder, *TIMEOUTS, *limits)
        with crawler.running(WEFT_TEST_DEADLY_MARK=DEADLY_MARK) as running:
            watch = Watch(crawler, running)
            watch.start()
            code = running.wait(patience(600))
            watch.stop()
        log = (crawler.data_dir / "logs" / "pod_0" / "orchestrator.log").read_text()
        return Hostile(
            code, crawler.said, check_corpus(crawler), crawler.status(),
            web.judge(delay_s=crawler.delay_s, max_retries=max_retries), log.count("the fetcher died"), max_body_bytes,
            watch.peak_rss_bytes, watch.longest_parse_s, watch.peers,
        )  # fmt: skip
