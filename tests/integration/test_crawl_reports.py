"""What a crawl tells while it runs and when it has ended, in one process, in embedded pods and in pods on Redis: log
files, names of processes, JSON, metrics. One crawl of each kind, side by side; one of them has its fetcher killed."""

from __future__ import annotations

import json
import os
import re
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from crawling import MANAGED, Crawler, until, weft
from pace import patience
from ports import free_port

from weft.records import Reason, Row
from weft.supervise import process
from weft.testing.web import SyntheticWeb, synthetic_web

ROOT = Path(__file__).parents[2]
SECRET = "hunter2"
KINDS: dict[str, tuple[object, ...]] = {
    "one": ("--log-level", "INFO"),
    "embedded": ("--num-pods", 2, "--log-level", "ERROR"),
    "redis": (*MANAGED, "--fetchers-per-pod", 1, "--parsers-per-pod", 1, "--log-level", "DEBUG"),
}
SLOTS = {
    "one": {"pod0-fetcher0"},
    "embedded": {"pod0-fetcher0", "pod1-fetcher0"},
    "redis": {f"pod{pod}-{role}" for pod in "01" for role in ("fetcher0", "parser0")},
}
# Everything that `weft crawl --json`, `weft stats --json` and `weft watch --json` have in common.
FIELDS = {
    "state", "note", "started_at", "updated_at", "elapsed_s", "pages", "live_pages", "pages_per_s", "body_bytes",
    "requests", "retries", "redirects", "need_javascript", "rendered", "seen", "admitted", "finished", "queued",
    "in_flight", "sites", "statuses", "waiting_for", "waiting_until",
    "errors", "slowed", "refused", "unparsed", "repairs", "pods",
}  # fmt: skip
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (DEBUG|INFO|WARNING|ERROR) \[([A-Za-z0-9-]+)\] \S.*")


@dataclass
class Run:
    """A crawl that has ended, and what was seen of it while it ran."""

    kind: str
    crawler: Crawler
    names: dict[str, str] = field(default_factory=dict)  # the last word of each process's command line: its name
    orchestrator: str = ""
    scraped: str = ""
    said: dict[str, Any] = field(default_factory=dict)

    @property
    def status(self) -> dict[str, Any]:
        return dict(self.said["status"])

    def log(self, name: str) -> list[str]:
        return (self.crawler.data_dir / "logs" / f"{name}.log").read_text().splitlines()


def scrape(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=patience(10)) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def documented() -> dict[str, str]:
    return dict(
        re.findall(
            r"^\| `(weft_\w+)` \| (\w+) \|",
            (ROOT / "docs/metrics.md").read_text().partition("\n## Of the service")[0],
            re.MULTILINE,
        )
    )


def served(text: str) -> dict[str, str]:
    return dict(re.findall(r"^# TYPE (weft_\w+) (\w+)$", text, re.MULTILINE))


def named(pid: int) -> dict[str, str]:
    """The crawl's processes: what they are called with, and the name that `ps` and `top` show."""
    found = {}
    for child in process.children(pid):
        try:
            words = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(b"weft.crawl.") for word in words):
            found[words[-2].decode()] = process.name_of(child) or ""
    return found


def crawl(kind: str, web: SyntheticWeb, folder: Path) -> Run:
    port = free_port()
    run = Run(kind, Crawler(
        web.seeds, folder, *KINDS[kind], "--header", f"X-Token={SECRET}", "--prometheus-port", port,
        "--metrics-update-seconds", 0.2, "--json", delay_s=0.05,
    ))  # fmt: skip
    with run.crawler.running() as running:
        run.names = until(
            lambda: found if set(found := named(running.pid)) == set(found.values()) == SLOTS[kind] else None,
            90, "the names of all processes",
        )  # fmt: skip
        run.orchestrator = process.name_of(running.pid) or ""
        wanted = {name for name in documented() if kind == "redis" or not name.startswith("weft_redis_")}

        def all_served() -> str | None:
            text = scrape(port)
            return text if wanted <= set(served(text)) and fetched(text) == {"page", "robots", "sitemap"} else None

        run.scraped = until(all_served, 120, "every documented series")
        if kind == "one":
            run.crawler.pages_at_least(20, 120)
            (fetcher,) = process.children(running.pid)
            os.kill(fetcher, signal.SIGKILL)
        assert running.wait(patience(240)) == 0, run.crawler.said
    run.said = json.loads(run.crawler.said)
    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[Run]]]:
    with synthetic_web(hosts=6, pages=40, profile="messy", stocked=1, seed=5) as web, ThreadPoolExecutor(3) as pool:
        yield {kind: pool.submit(crawl, kind, web, tmp_path_factory.mktemp(kind)) for kind in KINDS}


@pytest.fixture(params=list(KINDS))
def run(request: pytest.FixtureRequest, runs: dict[str, Future[Run]]) -> Run:
    return runs[request.param].result()


# ── names ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_process_shows_its_slot_in_ps_and_top(run: Run) -> None:
    assert run.names == {slot: slot for slot in SLOTS[run.kind]}
    assert run.orchestrator == "pod0-orchestrat", "as much of it as the kernel keeps"


# ── logs ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def labels(kind: str) -> dict[str, str]:
    """Each log file and the label of its lines."""
    found = {"pod_0/orchestrator": "Orchestrator"}
    for slot in SLOTS[kind]:
        pod, role, index = re.fullmatch(r"pod(\d)-([a-z]+)(\d)", slot).groups()  # type: ignore[union-attr]
        found[f"pod_{pod}/{role}_{index}"] = f"Pod-{pod}-{role.capitalize()}-{index}"
    return found


def test_every_process_has_a_log_of_its_own_and_none_is_empty(run: Run) -> None:
    folder = run.crawler.data_dir / "logs"
    files = {str(path.relative_to(folder))[:-4]: path for path in folder.rglob("*.log")}
    assert set(files) == set(labels(run.kind))
    for name, label in labels(run.kind).items():
        lines = run.log(name)
        assert lines, name
        matches = [LINE.fullmatch(line) for line in lines]
        assert all(match and match[2] == label for match in matches), name
    assert {path.stat().st_mode & 0o777 for path in files.values()} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.glob("pod_*"))} == {0o700}
    assert not any(SECRET in path.read_text() for path in files.values())


def lines_with(lines: list[str], message: str) -> list[dict[str, str]]:
    """The fields of the lines that have this message."""
    found = [line.partition(f"] {message} ")[2] for line in lines if f"] {message} " in line]
    return [dict(re.findall(r'(\w+)=("[^"]*"|\S+)', rest)) for rest in found]


def test_at_info_the_orchestrator_tells_settings_starts_ends_and_restarts(runs: dict[str, Future[Run]]) -> None:
    run = runs["one"].result()
    lines = run.log("pod_0/orchestrator")
    assert "] crawl started crawl=" in lines[0]
    settings = {fields["key"]: (fields["value"], fields["origin"]) for fields in lines_with(lines, "setting")}
    shown = json.loads(weft("config", "show", "--json").stdout)["settings"]
    assert set(settings) == set(shown), "every key"
    assert settings["politeness_delay_seconds"] == ("0.05", "argument")
    assert settings["headers"] == ('{"X-Token":"***"}', "argument")
    (first,) = lines_with(lines, "process started")
    (second,) = lines_with(lines, "process restarted")
    assert (first["process"], first["core"]) == ("pod0-fetcher0", "any")
    assert int(second["incarnation"]) > int(first["incarnation"]) and second["pid"] != first["pid"]
    assert [end["how"] for end in lines_with(lines, "process ended")] == ['"killed by SIGKILL"', '"exited with code 0"']
    (ended,) = lines_with(lines, "crawl ended")
    assert (ended["state"], ended["reason"], int(ended["pages"])) == ("finished", "done", run.status["pages"])
    fetcher = run.log("pod_0/fetcher_0")
    assert [start["pid"] for start in lines_with(fetcher, "process started")] == [first["pid"], second["pid"]]
    seeds = [(fields["seeds"], fields["refused"]) for fields in lines_with(fetcher, "seeds admitted")]
    assert seeds == [(str(len(run.crawler.seed_file.read_text().split())), "0")] * 2
    assert lines_with(fetcher, "retries exhausted"), "the web has pages that always fail"
    assert not any(" DEBUG " in line for line in lines + fetcher)
    assert not lines_with(fetcher, "fetched"), "a line a URL is for DEBUG"


def test_at_debug_there_is_a_line_for_each_url(runs: dict[str, Future[Run]]) -> None:
    run = runs["redis"].result()
    told: Counter[str] = Counter()
    refused = set()
    for name in labels("redis"):
        for fields in lines_with(run.log(name), "fetched"):
            told[fields["purpose"]] += 1
        refused |= {fields["url"] for fields in lines_with(run.log(name), "turned away")}
    assert set(told) == {"page", "robots", "sitemap"}
    assert sum(told.values()) == run.status["requests"]
    assert refused == {row.url for row in run.crawler.rows() if refusal(row)}
    parsed = [fields["url"] for pod in "01" for fields in lines_with(run.log(f"pod_{pod}/parser_0"), "parsed")]
    assert {row.url for row in run.crawler.pages()} <= set(parsed)


def test_at_error_a_clean_log_says_that_the_process_started(runs: dict[str, Future[Run]]) -> None:
    run = runs["embedded"].result()
    for name in labels("embedded"):
        (line,) = run.log(name)
        assert "] crawl started " in line or "] process started pid=" in line


def test_a_second_crawl_does_not_write_into_the_same_logs(tmp_path: Path) -> None:
    with synthetic_web(hosts=2, pages=20) as web:
        first = Crawler(web.seeds, tmp_path / "a", "--log-dir", tmp_path / "logs", delay_s=0.2)
        with first.running():
            until(lambda: (tmp_path / "logs/pod_0/orchestrator.log").exists(), 60, "the first crawl's log")
            second = Crawler(web.seeds, tmp_path / "b", "--log-dir", tmp_path / "logs")
            assert second.run() == 2
            assert f"log_dir {tmp_path / 'logs'}: another crawl logs there" in second.said
            assert not (second.data_dir / "engine.json").exists(), "nothing half-written"


# ── JSON ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def refusal(row: Row) -> bool:
    """A row of what was never asked for, or was left at its head."""
    kind = row.error.partition(":")[0]
    return kind in set(Reason) and (not row.status or kind == Reason.CONTENT_TYPE)


def failures(rows: list[Row]) -> dict[str, int]:
    """What `errors` must be, from the rows."""
    found: Counter[str] = Counter()
    for row in rows:
        if row.error and not refusal(row):
            found[row.error.partition(":")[0]] += 1
        elif not row.error and row.status >= 400:
            found[f"http_{row.status // 100}xx"] += 1
    return dict(found)


def check_against_store(status: dict[str, Any], crawler: Crawler, *, killed: bool = False) -> None:
    """`killed`: what a process alone knows (refusals) is as it said last."""
    rows, pages = crawler.rows(), crawler.pages()
    assert status["pages"] == len(pages)
    assert status["body_bytes"] == sum(row.length for row in pages)
    assert status["statuses"] == Counter(str(row.status) for row in rows)
    assert status["errors"] == failures(list({row.url: row for row in rows}.values())), "by the URLs' last visits"
    for reason, count in Counter(row.error.partition(":")[0] for row in rows if refusal(row)).items():
        assert killed or status["refused"][reason] >= count
    assert status["in_flight"] == 0
    assert status["pages_per_s"] == pytest.approx(status["pages"] / status["elapsed_s"], abs=0.01)


def test_the_json_of_a_crawl_is_what_its_store_holds(run: Run) -> None:
    assert set(run.said) == {"schema", "exit_code", "data_dir", "status", "causes", "unmatched"}
    status = run.status
    assert set(status) == FIELDS
    assert (run.said["schema"], run.said["exit_code"], run.said["causes"]) == (1, 0, [])
    assert status["started_at"] < status["updated_at"] and ISO.fullmatch(status["started_at"])
    assert (status["state"], status["note"], status["queued"]) == ("finished", "done", 0)
    check_against_store(status, run.crawler)
    assert status["seen"] == status["admitted"] == status["finished"] > status["pages"]
    assert status["refused"]["duplicate"] > 0
    assert status["pods"]["of"] == len({slot[:4] for slot in SLOTS[run.kind]})
    each = status["pods"]["each"]
    if run.kind != "one":
        assert sum(pod["pages"] for pod in each) == status["pages"]
        assert [(pod["pod"], pod["state"], pod["queued"]) for pod in each] == [(0, "finished", 0), (1, "finished", 0)]


def test_stats_and_watch_tell_the_same(run: Run) -> None:
    stats = json.loads(weft("stats", run.crawler.data_dir, "--json").stdout)
    watched = json.loads(weft("watch", run.crawler.data_dir, "--json").stdout)
    assert watched == {"schema": 1} | run.status
    same = FIELDS - {"pods"}
    assert {name: stats[name] for name in same} == {name: run.status[name] for name in same}
    more = {"schema", "crawl_id", "rows", "urls", "gone", "warc_bytes", "content_types", "depths", "hosts"}
    assert set(stats) == FIELDS | more
    assert stats["rows"] == len(run.crawler.rows()) <= stats["finished"]
    assert sum(pod["pages"] for pod in stats["pods"]["each"]) == stats["pages"]


@pytest.mark.parametrize("presses", [1, 2])
def test_a_crawl_that_was_interrupted_tells_what_is_left(tmp_path: Path, presses: int) -> None:
    with synthetic_web(hosts=6, pages=100, seed=8, latency_s=0.1) as web:
        crawler = Crawler(web.seeds, tmp_path, "--json", "--quiet", delay_s=0.05)
        with crawler.running() as running:
            crawler.pages_at_least(15)
            for _ in range(presses):
                running.send_signal(signal.SIGINT)
            assert running.wait(patience(60)) == 130
    said = json.loads(crawler.said)
    status = said["status"]
    assert (said["exit_code"], status["state"], status["note"]) == (130, "interrupted", "interrupted")
    check_against_store(status, crawler, killed=presses == 2)
    assert status["queued"] > 0
    if presses == 1:
        assert status["admitted"] == status["finished"] + status["queued"]
    assert weft("watch", crawler.data_dir).stderr.startswith(f"interrupted: {status['pages']} pages, ")


# ── metrics ────────────────────────────────────────────────────────────────────────────────────────────────────────


def samples(text: str, name: str) -> list[tuple[dict[str, str], float]]:
    rows = re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE)
    return [(dict(re.findall(r'(\w+)="([^"]*)"', labels)), float(value)) for labels, value in rows]


def fetched(text: str) -> set[str]:
    """What kinds of things were fetched."""
    return {labels["kind"] for labels, value in samples(text, "weft_fetch_seconds_count") if value}


def test_every_series_is_served_whatever_the_pods_are(run: Run) -> None:
    kinds = documented()
    wanted = {name: kind for name, kind in kinds.items() if run.kind == "redis" or not name.startswith("weft_redis_")}
    assert served(run.scraped) == wanted
    text = run.scraped
    assert fetched(text) == {"page", "robots", "sitemap"}
    assert sum(value for _, value in samples(text, "weft_body_size_bytes_count")) > 0
    pods = {labels["pod"] for labels, _ in samples(text, "weft_urls_added_total")}
    assert pods == {slot[3] for slot in SLOTS[run.kind]}
    for name in ("weft_process_read_calls_total", "weft_process_write_calls_total"):
        assert all(value > 0 for _, value in samples(text, name))
    packets = {labels["device"]: value for labels, value in samples(text, "weft_node_network_sent_packets_total")}
    assert packets["lo"] > 0


def test_open_files_tell_redis_from_http(run: Run) -> None:
    opened: Counter[tuple[str, str]] = Counter()
    for labels, value in samples(run.scraped, "weft_process_open_fds"):
        opened[labels["process"][:6], labels["kind"]] += int(value)
    assert {kind for _, kind in opened} == {"redis", "http", "file", "pipe", "other"}
    on_redis = run.kind == "redis"
    assert (opened["fetche", "redis"] > 0, opened["orches", "redis"] > 0) == (on_redis, on_redis)
    assert opened["orches", "http"] > 0, "whoever scrapes"
    assert opened["fetche", "file"] > 0


def test_each_pod_tells_how_its_redis_fares(runs: dict[str, Future[Run]]) -> None:
    text = runs["redis"].result().scraped
    for name in ("weft_redis_hit_ratio", "weft_redis_ops_per_second", "weft_redis_clients"):
        assert {labels["pod"] for labels, _ in samples(text, name)} == {"0", "1"}
    assert all(0 < value <= 1 for _, value in samples(text, "weft_redis_hit_ratio"))
