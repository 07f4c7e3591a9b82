"""What Weft must reach, each as one command that prints its number and exits 1 when it is missed.

    python benchmarks/figures.py NAME     measures what it needs, then judges
    python benchmarks/figures.py          judges everything that was measured last, and holds the ratios against
                                          benchmarks/recorded.json: more than 15 % worse is told, and is exit code 1

Names: the keys of FIGURES.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import results
from harness import scale_points as points

HERE = Path(__file__).resolve().parent
RECORDED = HERE / "recorded.json"
WORSE = 0.15


@dataclass(frozen=True, slots=True)
class Figure:
    """One goal. `value` is None where nothing was measured; `most` and `least` bound it."""

    section: str
    command: list[str]
    what: str
    value: Callable[[dict[str, Any]], float | None]
    unit: str = ""
    most: float | None = None
    least: float | None = None

    def holds(self, value: float) -> bool:
        """Whether the goal is met."""
        return (self.most is None or value <= self.most) and (self.least is None or value >= self.least)

    @property
    def goal(self) -> str:
        return f"≤ {self.most:g}{self.unit}" if self.most is not None else f"≥ {self.least:g}{self.unit}"


def times_faster(peer: str) -> Callable[[dict[str, Any]], float | None]:
    """By pages/s and by CPU per page: the smaller of the two ratios counts."""

    def value(section: dict[str, Any]) -> float | None:
        speed = results.ratio(section, "weft", peer, "pages_per_s")
        cost = results.ratio(section, peer, "weft", "cpu_ms")
        return None if speed is None or cost is None else min(speed, cost)

    return value


def cpu(section: dict[str, Any]) -> float | None:
    """CPU milliseconds a page."""
    found = results.figures(section.get("weft", {}))
    return None if found is None else found["cpu_ms"]


def key(name: str) -> Callable[[dict[str, Any]], float | None]:
    """A number that stands in the section."""
    return lambda section: section.get(name)


def fresh(links: int) -> Callable[[dict[str, Any]], float | None]:
    """What a link to a new URL costs on a page with so many."""
    return lambda section: next(
        (row["fresh_us"] for row in section.get("rows", ()) if row["new_a_page"] == links), None
    )


def p99(name: str) -> Callable[[dict[str, Any]], float | None]:
    """The 99th percentile of what stands in the section."""
    return lambda section: section[name]["p99"] if name in section else None


def whole(name: str, of: str, least: float) -> Callable[[dict[str, Any]], float | None]:
    """A number that counts only where the run was as large as the goal says: a small one proves nothing."""
    return lambda section: section.get(name) if section.get(of, 0) >= least else None


def growth(axis: str) -> Callable[[dict[str, Any]], float | None]:
    """How much more the largest costs than the smallest, the worst of admit and claim."""

    def value(section: dict[str, Any]) -> float | None:
        rows = section.get(axis)
        if not rows or section.get("quick"):
            return None
        first, last = rows[0], rows[-1]
        return max(last[name] / first[name] - 1 for name in ("admit_us", "claim_us"))

    return value


def queued(section: dict[str, Any]) -> float | None:
    """What a queued URL takes beside its place in the seen set."""
    return section["queued"]["bytes"] - section["seen"]["bytes"] if "queued" in section else None


def sized(kind: str, value: Callable[[list[dict[str, Any]]], float]) -> Callable[[dict[str, Any]], float | None]:
    """A number of a kind of pipeline, from its rows by size; only where the largest has a million items."""

    def at_largest(section: dict[str, Any]) -> float | None:
        rows = sorted((row for row in section.get("rows", ()) if row["kind"] == kind), key=lambda row: row["items"])
        return value(rows) if len(rows) > 1 and rows[-1]["items"] >= 1_000_000 else None

    return at_largest


def parent_bytes(rows: list[dict[str, Any]]) -> float:
    """Memory of the parent for each item more."""
    more_mb = rows[-1]["first"]["parent_mb"] - rows[0]["first"]["parent_mb"]
    return float(more_mb * (1 << 20) / (rows[-1]["items"] - rows[0]["items"]))


def scale(what: str, value: points.Value, most: float, unit: str = " s") -> Figure:
    """A goal for the largest crawl that was measured."""
    return Figure("scale", SCALE, f"{what}, at the largest size", points.at_largest(value), unit, most=most)


SCALE = ["scale"]
HALF_NEW = ["compare", "half-new", "--rounds", "5"]
ALIVE, TLS = ["compare", "keep-alive"], ["compare", "tls", "--rounds", "3"]
FIGURES = {
    "scrapy": Figure("keep-alive", ALIVE, "times as fast as Scrapy", times_faster("scrapy"), "x", least=20),
    "spider-rs": Figure("keep-alive", ALIVE, "times as fast as spider-rs", times_faster("spider-rs"), "x", least=2),
    "bound": Figure("keep-alive", ALIVE, "of the stripped bound", times_faster("bound"), "", least=0.9),
    "cpu": Figure("keep-alive", ALIVE, "CPU a page", cpu, " ms", most=0.85),
    "tls": Figure("tls", TLS, "CPU a page with a new TLS connection", cpu, " ms", most=1.8),
    "half-new": Figure("half-new", HALF_NEW, "of the bound, half of the links new", times_faster("bound"), least=0.75),
    "half-new-spider-rs": Figure(
        "half-new",
        HALF_NEW,
        "times as fast as spider-rs, half of the links new",
        times_faster("spider-rs"),
        "x",
        least=2,
    ),
    "half-new-scrapy": Figure(
        "half-new", HALF_NEW, "times as fast as Scrapy, half of the links new", times_faster("scrapy"), "x", least=14
    ),
    "fresh-links": Figure(
        "fresh links", ["fresh_links"], "for a link to a new URL, all in, 100 of them a page", fresh(100), " µs", most=3
    ),
    "fresh-links-few": Figure(
        "fresh links", ["fresh_links"], "for a link to a new URL, all in, 5 of them a page", fresh(5), " µs", most=3
    ),
    "slow-hosts": Figure(
        "slow hosts", ["slow_hosts"], "of what the delay allows on slow hosts", key("share"), least=0.95
    ),
    "idle": Figure("slow hosts", ["slow_hosts"], "of a core busy on slow hosts", key("busy"), most=0.6),
    "violations": Figure(
        "slow hosts", ["slow_hosts"], "requests within the delay, by the server", key("violations"), most=0
    ),
    "wide": Figure("wide", ["wide"], "of a stripped client that knows the dead hosts", key("of_bound"), least=0.8),
    "wide-polite": Figure(
        "wide", ["wide"], "of what the delay allows beside dead hosts", key("scaled_share"), least=0.95
    ),
    "wide-late": Figure("wide", ["wide"], "late, at the 99th percentile", key("late_p99_s"), " s", most=1.5),
    "wide-first-page": Figure("wide", ["wide"], "to the first page of a wide web", key("first_page_s"), " s", most=2),
    "wide-violations": Figure(
        "wide", ["wide"], "requests within the delay on the wide web, by the server", key("violations"), most=0
    ),
    "growth-urls": Figure("growth", ["growth"], "dearer at 10 M URLs than at 10 k", growth("urls"), most=0.25),
    "growth-domains": Figure("growth", ["growth"], "dearer at 1 M domains than at 1 k", growth("domains"), most=0.25),
    "seen": Figure(
        "growth", ["growth"], "of memory a seen URL", lambda s: s.get("seen", {}).get("bytes"), " B", most=12
    ),
    "queued": Figure("growth", ["growth"], "of memory a queued URL", queued, " B", most=80),
    "restart": Figure(
        "restart",
        ["restart"],
        "to come back with 5 M queued URLs",
        whole("seconds", "queued", 5_000_000),
        " s",
        most=20,
    ),
    "million-hosts": Figure(
        "hosts",
        ["hosts", "--only", "hosts"],
        "to the first request with a million hosts",
        whole("first_request_s", "hosts", 1_000_000),
        " s",
        most=3,
    ),
    "million-hosts-page": Figure(
        "hosts",
        ["hosts", "--only", "hosts"],
        "to the first page with a million hosts",
        whole("first_page_s", "hosts", 1_000_000),
        " s",
        most=10,
    ),
    "million-hosts-memory": Figure(
        "hosts",
        ["hosts", "--only", "hosts"],
        "of memory with a million hosts",
        whole("rss_mb", "hosts", 1_000_000),
        " MB",
        most=500,
    ),
    "seeds": Figure(
        "seeds",
        ["hosts", "--only", "seeds"],
        "to the first request with 5 M seeds",
        whole("first_request_s", "seeds", 5_000_000),
        " s",
        most=5,
    ),
    "pause": Figure(
        "pause",
        ["hosts", "--only", "pause"],
        "of CPU in the longest pause of the loop at 5 M URLs",
        whole("turn", "urls", 5_000_000),
        " s",
        most=0.15,
    ),
    "flat": Figure(
        "flat",
        ["flat", "--seconds", "120"],
        "more memory late in a crawl",
        whole("growth", "seconds", 120),
        most=0.05,
    ),
    "pods": Figure(
        "pods",
        ["pods"],
        "dearer a page with two embedded pods",
        key("two_pods_dearer"),
        most=0.15,
    ),
    "redis-cpu": Figure("pods", ["pods"], "of Redis CPU a page", key("redis_cpu_ms"), " ms", most=0.15),
    "round-trips": Figure("pods", ["pods"], "round trips to Redis a page", key("round_trips"), most=0.5),
    "many-crawls": Figure(
        "engine", ["engine"], "dearer a page with 200 crawls and 10,000 that wait", key("many_dearer"), most=0.1
    ),
    "waiting": Figure("engine", ["engine"], "of memory a waiting crawl", key("waiting_kb"), " KB", most=20),
    "readers": Figure("engine", ["engine"], "dearer a page with 50 readers", key("readers_dearer"), most=0.05),
    "first-page": Figure(
        "engine",
        ["engine"],
        "to a small crawl's first page beside a large one (p95)",
        key("first_page_p95_s"),
        " s",
        most=1,
    ),
    "cancel": Figure("engine", ["engine"], "to cancel a million queued URLs", key("cancel_s"), " s", most=2),
    "service-idle": Figure(
        "service", ["service", "idle"], "of memory for the idle service", key("idle_mb"), " MB", most=150
    ),
    "submit": Figure("service", ["service", "submit"], "for a submit at 200/s (p99)", p99("submit_ms"), " ms", most=50),
    "submits-lost": Figure("service", ["service", "submit"], "acknowledged tasks lost", key("submits_lost"), most=0),
    "status": Figure(
        "service", ["service", "status"], "for a status at 1,000/s (p99)", p99("status_ms"), " ms", most=25
    ),
    "streams": Figure(
        "service", ["service", "streams"], "late with 2,000 streams (p99)", p99("stream_lag_ms"), " ms", most=250
    ),
    "streams-wrong": Figure(
        "service", ["service", "streams"], "streams with a gap or a repeat", key("streams_wrong"), most=0
    ),
    "queue": Figure(
        "service",
        ["service", "queue"],
        "for a status beside 200 running and 10,000 waiting tasks (p99)",
        p99("queue_status_ms"),
        " ms",
        most=25,
    ),
    "job-cancel": Figure(
        "service", ["service", "cancel"], "to cancel a task (p99)", p99("cancel_ms"), " ms", most=2000
    ),
    "dashboard-view": Figure(
        "dashboard",
        ["dashboard", "views"],
        "of CPU for the dearest page with 10,000 tasks",
        key("dashboard_cpu_ms"),
        " ms",
        most=100,
    ),
    "dashboard-paint": Figure(
        "dashboard",
        ["dashboard", "views"],
        "to the first paint with 10,000 tasks",
        key("dashboard_first_paint_ms"),
        " ms",
        most=1000,
    ),
    "dashboard-viewers": Figure(
        "dashboard",
        ["dashboard", "viewers"],
        "times the CPU a page with 50 open pages",
        key("viewers_ratio"),
        most=1.05,
    ),
    "first-fetch": Figure("start", ["startup"], "to the first fetch", key("first_fetch_s"), " s", most=1.5),
    "help": Figure("start", ["startup"], "for `weft --help`", key("help_s"), " s", most=0.3),
    "web-page": Figure("parts", ["parts"], "of CPU a page of the synthetic web", key("web_page_ms"), " ms", most=0.333),
    "links": Figure("parts", ["parts"], "links made canonical a second", key("links_per_s"), least=400_000),
    "header": Figure("parts", ["parts"], "to find a header", key("header_us"), " µs", most=3),
    "unpack": Figure("parts", ["parts"], "to unpack a page", key("unpack_ms"), " ms", most=0.5),
    "address": Figure("parts", ["parts"], "to check an address again", key("address_us"), " µs", most=10),
    "cookies": Figure("parts", ["parts"], "for a host without cookies", key("cookies_us"), " µs", most=20),
    "robots": Figure("parts", ["parts"], "to ask 100,000 rules", key("robots_us"), " µs", most=5000),
    "names": Figure("names", ["names"], "names looked up a second, 5 % of them dead", key("per_s"), least=2000),
    "recrawl": Figure(
        "recrawl", ["recrawl"], "of a first fetch, for a page that has not changed", key("ratio"), most=1
    ),
    "scale-explain-unknown": scale("for `explain` of an unknown URL", points.cost("explain-unknown", "wall_s"), 0.5),
    "scale-explain-queued": scale("for `explain` of a queued URL", points.cost("explain-queued", "wall_s"), 0.5),
    "scale-explain-stored": scale("for `explain` of a stored URL", points.cost("explain-stored", "wall_s"), 0.5),
    "scale-get": scale("for `get`", points.cost("get", "wall_s"), 0.5),
    "scale-stats": scale("for `stats`", points.cost("stats", "wall_s"), 0.5),
    "scale-audit-memory": scale("of memory for `audit`", points.cost("audit", "peak_rss_mb"), 200, " MB"),
    "scale-audit-host": scale("for `audit` of a hot host", points.cost("audit-host", "wall_s"), 10),
    "scale-audit-since": scale("for `audit` of the last requests", points.cost("audit-since", "wall_s"), 10),
    "scale-export-one": scale("for `export` of one host", points.cost("export-one", "wall_s"), 0.5),
    "scale-export-host": scale("for a row in `export` of a hot host", points.export_row_ms, 1, " ms"),
    "scale-resume": scale("to the first request of a resume", points.cost("resume", "first_request_s"), 10),
    "scale-recrawl": scale("to the first request of a recrawl", points.cost("recrawl", "first_request_s"), 10),
    "scale-retry": scale("to the first request of a retry", points.cost("retry-failed", "first_request_s"), 10),
    "scale-resume-busy": scale(
        "to the first request of a resume beside four busy loops", points.cost("resume-busy", "first_request_s"), 10
    ),
    "scale-recrawl-busy": scale(
        "to the first request of a recrawl beside four busy loops", points.cost("recrawl-busy", "first_request_s"), 10
    ),
    "scale-retry-busy": scale(
        "to the first request of a retry beside four busy loops",
        points.cost("retry-failed-busy", "first_request_s"),
        10,
    ),
    "scale-stop": scale("to stop", points.longest_stop, 5),
    "scale-gap": scale("between two heartbeats at most", points.longest_gap, 10),
    "scale-kills": scale("processes killed", points.kills, 0, ""),
    "scale-files": scale("files in the folder", points.built("files"), 500, ""),
    "scale-log-bytes": scale("of request log a page", points.built("log_bytes", "pages"), 13, " B"),
    "scale-index-insert": Figure(
        "scale",
        SCALE,
        "times the CPU to commit a row, largest by 1 M",
        points.growth_of(points.insert_us),
        "x",
        most=1.3,
    ),
    "scale-seen-bytes": Figure(
        "scale",
        SCALE,
        "of memory a known URL, beyond those of 1 M pages",
        points.growth_of(points.anonymous_bytes, "known"),
        " B",
        most=6,
    ),
    "pipeline-journal": Figure(
        "pipelines at size",
        ["pipelines_at_size"],
        "of journal for an item with 2 KB of values",
        sized("values", lambda rows: rows[-1]["first"]["journal_b"]),
        " B",
        most=250,
    ),
    "pipeline-memory": Figure(
        "pipelines at size",
        ["pipelines_at_size"],
        "of memory in the parent for an item, 20,000 to a million",
        sized("values", parent_bytes),
        " B",
        most=16,
    ),
    "pipeline-rerun": Figure(
        "pipelines at size",
        ["pipelines_at_size"],
        "of the CPU of the first run, for a cached rerun of a stage that does nothing",
        sized("light", lambda rows: rows[-1]["again_ratio"]),
        most=0.95,
    ),
    "retention": Figure(
        "retention",
        ["retention"],
        "more on the disk of a service late than early",
        whole("growth", "seconds", 600),
        most=0.1,
    ),
    "large-bodies": Figure(
        "large bodies",
        ["large_bodies"],
        "of memory with 200 transfers of 100 MB",
        whole("peak_rss_mb", "body_mb", 19_000),
        " MB",
        most=500,
    ),
    "rendering": Figure(
        "rendering",
        ["rendering"],
        "CPU of a rendered page beside a bare Playwright script",
        key("cpu_ratio"),
        "x",
        most=1.35,
    ),
    "rendering-memory": Figure(
        "rendering",
        ["rendering"],
        "memory of the browsers, late beside half-way",
        whole("memory_growth", "pages", 500),
        "x",
        most=1.2,
    ),
    "first-contact": Figure(
        "connections", ["connections"], "of a first contact by one libcurl handle", key("full_ratio"), most=0.75
    ),
    "own-python": Figure("budget", ["budget"], "of the CPU is our own Python", key("own_python"), most=0.35),
}
RATIOS = ("scrapy", "spider-rs", "bound")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", choices=list(FIGURES))
    args = parser.parse_args()
    if args.name:
        command = FIGURES[args.name].command
        subprocess.run([sys.executable, str(HERE / f"{command[0]}.py"), *command[1:]], check=True)
    names = [args.name] if args.name else list(FIGURES)
    missed = [name for name in names if not judged(name)]
    worse = [] if args.name else regressions()
    for line in worse:
        print(f"worse than recorded: {line}")
    return 1 if missed or worse else 0


def judged(name: str) -> bool:
    """Prints a figure; True if its goal is met."""
    figure = FIGURES[name]
    value = figure.value(results.section(figure.section))
    if value is None:
        print(f"  not measured  {name}: {figure.what}")
        return False
    met = figure.holds(value)
    print(f"{'ok' if met else 'MISSED':>8}  {value:10.3f}{figure.unit:3} {figure.what} ({name}; goal {figure.goal})")
    return met


def ratios() -> dict[str, float]:
    """The ratios that a record holds, as measured last."""
    section = results.section("keep-alive")
    found = {name: FIGURES[name].value(section) for name in RATIOS}
    return {name: round(value, 3) for name, value in found.items() if value is not None}


def regressions() -> list[str]:
    """Ratios that are more than WORSE below those recorded."""
    recorded = json.loads(RECORDED.read_text())["ratios"] if RECORDED.exists() else {}
    now = ratios()
    return [
        f"{name}: {now[name]:.2f}, was {value:.2f}"
        for name, value in recorded.items()
        if name in now and now[name] < value * (1 - WORSE)
    ]


if __name__ == "__main__":
    sys.exit(main())
