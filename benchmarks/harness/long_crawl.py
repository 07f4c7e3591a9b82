"""A crawl of the endless sites, watched from outside: its memory, its CPU, and what the server saw."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.endless import seeds
from harness.measure import cores, cpu_s, one_at_a_time, resident, tree

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = ROOT / ".bench" / "scratch"


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the crawl's process tree. `at` is time.monotonic(), which the server counts by too."""

    at: float
    rss_mb: float
    cpu_s: float
    pages: int


def watch(
    spec: dict[str, Any], flags: list[str], duration_s: float, every_s: float
) -> tuple[list[Sample], dict[str, Any]]:
    """Crawls for so long; gives the samples and the server's count."""
    with one_at_a_time():
        return _watch(spec, flags, duration_s, every_s)


def _watch(
    spec: dict[str, Any], flags: list[str], duration_s: float, every_s: float
) -> tuple[list[Sample], dict[str, Any]]:
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    seed_file = SCRATCH / "seeds.txt"
    seed_file.write_text("\n".join(seeds(spec["hosts"], spec["port"])) + "\n")
    crawler_core, server_core = cores()
    server = subprocess.Popen(
        ["taskset", "-c", str(server_core), sys.executable, "-m", "harness.endless", json.dumps(spec)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT / "benchmarks",
    )
    assert server.stdout is not None
    assert server.stdin is not None
    server.stdout.readline()
    data = SCRATCH / "crawl"
    crawl = subprocess.Popen(
        [
            *("taskset", "-c", str(crawler_core), sys.executable, "-m", "weft", "crawl", "--seed-file", str(seed_file)),
            *("--scope", "any", "--allow-private", "--data-dir", str(data), "--json", "--quiet", *flags),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        samples = _samples(crawl, data, duration_s, every_s)
    finally:
        crawl.send_signal(signal.SIGINT)
        crawl.wait()
        server.stdin.close()
        said = json.loads(server.stdout.read())
        server.wait()
        shutil.rmtree(SCRATCH, ignore_errors=True)
    return samples, said


def _samples(crawl: subprocess.Popen[bytes], data: Path, duration_s: float, every_s: float) -> list[Sample]:
    start = time.monotonic()
    found = []
    while time.monotonic() < start + duration_s:
        time.sleep(every_s)
        if crawl.poll() is not None:
            sys.exit(f"benchmarks: the crawl ended early, exit code {crawl.returncode}")
        pids = tree(crawl.pid)
        found.append(
            Sample(
                time.monotonic(),
                sum(map(resident, pids)) / (1 << 20),
                sum(_cpu(pid) for pid in pids),
                _pages(data / "status.json"),
            )
        )
    return found


def _cpu(pid: int) -> float:
    try:
        return cpu_s(pid)
    except OSError:
        return 0.0


def _pages(status: Path) -> int:
    try:
        return int(json.loads(status.read_bytes())["pages"])
    except (OSError, ValueError, KeyError):
        return 0
