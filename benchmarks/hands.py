"""Pages a second through workers: one brain with 1, 2 and 4 hands on this machine, and the CPU of each part by page.

    python benchmarks/hands.py [--pages 3000] [--hosts 200] [--hands 1,2,4] [--out hands.json]

A synthetic web without delay, a Redis or Valkey of its own, `weft crawl --workers cluster`. The brain's CPU is that
of the crawl's processes, that of the hands their processes'; where all share the machine's cores, the rate says little,
and the brain's CPU by page says at which rate one core of it is full.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from weft.cluster.key import make_key
from weft.supervise.process import pids
from weft.supervise.redis_server import RedisServer
from weft.testing.web import synthetic_web

TICKS = os.sysconf("SC_CLK_TCK")
WEFT = [sys.executable, "-m", "weft"]


def cpu_s(root: int) -> float:
    """The CPU of a process and its descendants, ended children included."""
    rows = {}
    for pid in pids():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        rows[pid] = int(fields[1]), sum(map(int, fields[11:15]))
    total, left = 0.0, [root]
    while left:
        one = left.pop()
        children = [pid for pid, row in rows.items() if row[0] == one]
        left += children
        if one in rows:
            total += rows[one][1]
    return total / TICKS


def measure(folder: Path, hands: int, pages: int, hosts: int) -> dict[str, float]:
    """One crawl."""
    folder.mkdir()
    server = RedisServer(folder / "redis")
    server.start()
    make_key(folder / "cluster.key")
    own = ["--broker", server.url, "--key-file", str(folder / "cluster.key"), "--queues", "fetch", "--concurrency", "2"]
    workers = [
        subprocess.Popen([*WEFT, "worker", *own], stderr=(folder / f"hand{number}.log").open("wb"))
        for number in range(hands)
    ]
    try:
        for number in range(hands):
            while b" serves " not in (folder / f"hand{number}.log").read_bytes():
                time.sleep(0.1)
        with synthetic_web(hosts=hosts, pages=pages, seed=5, profile="calm") as web:
            before = sum(cpu_s(one.pid) for one in workers)
            argv = [
                *WEFT, "crawl", *web.seeds, "--allow-private", "--data-dir", str(folder / "crawl"), "--delay", "0",
                "--workers", "cluster", "--broker", server.url, "--cluster-key-file", str(folder / "cluster.key"),
                "--quiet", "--prometheus-port", "0", "--hand-in-flight", "256",
            ]  # fmt: skip
            began = time.monotonic()
            crawl = subprocess.Popen(argv)
            brain_s = 0.0
            while crawl.poll() is None:
                brain_s = max(brain_s, cpu_s(crawl.pid))
                time.sleep(0.2)
            took_s = time.monotonic() - began
            assert crawl.returncode == 0
            hands_s = sum(cpu_s(one.pid) for one in workers) - before
        shown = subprocess.run([*WEFT, "stats", str(folder / "crawl"), "--json"], check=True, capture_output=True)
        stored = int(json.loads(shown.stdout)["pages"])
    finally:
        for one in workers:
            one.terminate()
        for one in workers:
            one.wait()
        server.stop()
    return {
        "hands": hands, "pages": stored, "pages_per_s": round(stored / took_s, 1),
        "brain_cpu_ms_per_page": round(1000 * brain_s / stored, 2),
        "hands_cpu_ms_per_page": round(1000 * hands_s / stored, 2),
        "brain_cores": round(brain_s / took_s, 2), "brain_is_full_at_pages_per_s": round(stored / brain_s, 1),
    }  # fmt: skip


def main() -> None:
    """Runs all of them, and writes JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--hands", default="1,2,4")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for hands in map(int, given.hands.split(",")):
            rows.append(measure(Path(folder, str(hands)), hands, given.pages, given.hosts))
            print(json.dumps(rows[-1]), flush=True)
    facts = {"cores": os.cpu_count(), "load": os.getloadavg()[0], "rows": rows}
    if given.out is not None:
        given.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
