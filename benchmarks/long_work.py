"""Work that grows with the crawl: resume, stop, interrupt, retry of what failed, recrawl; quiet and beside busy loops.

    python benchmarks/long_work.py [--pages 1000000] [--hosts 1000000] [--sizes 10000,100000,1000000] [--busy 4]

A folder with stored pages (one in twenty failed) and a queue of hosts is built once for each size, through the
frontier and the store, without a request; every name leads to a server on loopback. Each operation is a `weft crawl`
on a copy of it. Measured of each: seconds to its first request, seconds from the request to stop until the end, CPU of
all its processes, the largest gap between two heartbeats of its fetcher, and how often a process was killed. The
operations run once alone and once beside `--busy` loops. `--tree` measures the Weft of another working tree.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import results
from harness.measure import one_at_a_time
from hosts import AnyHost, serve

ROOT = Path(__file__).resolve().parents[1]
OPERATIONS: dict[str, list[str]] = {
    "resume": [],
    "interrupt": [],
    "retry-failed": ["--retry-failed"],
    "recrawl": ["--recrawl"],
}
PORT = 8490
DURATION_S = 40.0  # of the first operation: it must have ended 5 s later
STOPPED_AFTER_S = 5.0  # after their first request the others are interrupted
LIMIT_S = 900.0  # an operation that takes longer is killed, and has failed
LOOK_S = 0.005
FLAGS = ["--quiet", "--prometheus-port", "0"]
FIRST_FLAGS = ["--scope", "any", "--allow-private", "--resolve", "*=127.0.0.1", "--delay", "1", "--max-retries", "0"]


def built(folder: Path, pages: int, hosts: int) -> Path:
    """The folder of this size, which is made where there is none."""
    made = folder / f"crawl-{pages}-{hosts}"
    if (made / "built").exists():
        return made
    shutil.rmtree(made, ignore_errors=True)
    crawl = [sys.executable, "-m", "weft", "crawl", "http://127.0.0.1:9/", "--data-dir", str(made)]
    subprocess.run([*crawl, *FLAGS, *FIRST_FLAGS], check=False, stderr=subprocess.DEVNULL)
    fill = [sys.executable, str(ROOT / "benchmarks" / "harness" / "grown_crawl.py"), str(made)]
    began = time.monotonic()
    subprocess.run([*fill, str(pages), str(hosts), str(PORT)], check=True)
    (made / "built").touch()
    print(f"built {pages:,} pages and {hosts:,} hosts in {time.monotonic() - began:.0f} s", flush=True)
    return made


class Heartbeats(threading.Thread):
    """Reads the fetcher's heartbeat, as the orchestrator does: the largest gap between two changes."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(daemon=True)
        self._path = data_dir / "frontier" / "pulse"
        self._over = threading.Event()
        self.largest_s = 0.0

    def run(self) -> None:
        """Until `end`."""
        value, since = b"", 0.0
        while not self._over.wait(LOOK_S):
            now = time.monotonic()
            read = self._path.read_bytes() if self._path.exists() else b""
            if read != value:
                if since:
                    self.largest_s = max(self.largest_s, now - since)
                value, since = read, now

    def end(self) -> float:
        """The gap, in seconds."""
        self._over.set()
        self.join()
        return self.largest_s


def operation(name: str, data_dir: Path, source: Path) -> dict[str, Any]:
    """One `weft crawl` from its start to its end."""
    AnyHost.first, AnyHost.counts = {}, {}
    beats = Heartbeats(data_dir)
    logs = data_dir / "logs-of-this"
    flags = ["--resume", "--data-dir", str(data_dir), "--log-dir", str(logs), *FLAGS, *OPERATIONS[name]]
    if name == "resume":
        flags += ["--max-duration", str(DURATION_S)]
    environment = os.environ | {"PYTHONPATH": str(source / "src")}
    began = time.monotonic()
    running = subprocess.Popen(
        [sys.executable, "-m", "weft", "crawl", *flags], process_group=0, env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    beats.start()
    asked_s = stopped(name, running, began)
    _, status, usage = os.wait4(running.pid, 0)
    ended_s = time.monotonic() - began
    running.returncode = os.waitstatus_to_exitcode(status)
    said = "".join(path.read_text(errors="replace") for path in logs.rglob("*.log"))
    first = AnyHost.first.get("request")
    return {
        "first_request_s": None if first is None else round(first - began, 2),
        "stop_s": round(ended_s - asked_s, 2) if ended_s > asked_s else None,  # None: it had nothing left to do before
        "whole_s": round(ended_s, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "largest_gap_s": round(beats.end(), 2),
        "killed": said.count("process killed"),
        "restarted": said.count("process restarted"),
        "exit_code": running.returncode,
    }


def stopped(name: str, running: subprocess.Popen[bytes], began: float) -> float:
    """Asks it to stop when it is time; how many seconds after its start."""
    if name == "resume":
        return DURATION_S  # it stops itself
    while time.monotonic() - began < LIMIT_S and running.poll() is None:
        first = AnyHost.first.get("request")
        if first is not None and time.monotonic() > first + STOPPED_AFTER_S:
            break
        time.sleep(0.05)
    asked_s = time.monotonic() - began
    if running.poll() is None:
        os.kill(running.pid, signal.SIGINT if asked_s < LIMIT_S else signal.SIGKILL)
    return asked_s


def spin() -> None:
    """A loop that is busy."""
    while True:
        pass


@contextmanager
def beside(loops: int) -> Iterator[None]:
    """Busy loops, for the length of the block."""
    busy = [multiprocessing.get_context("fork").Process(target=spin, daemon=True) for _ in range(loops)]
    for one in busy:
        one.start()
    try:
        yield
    finally:
        for one in busy:
            one.kill()


def measured(made: Path, names: list[str], source: Path) -> dict[str, Any]:
    """The operations, each on a copy of the folder."""
    found: dict[str, Any] = {}
    for name in names:
        copy = made.with_name(f"{made.name}-{name}")
        shutil.rmtree(copy, ignore_errors=True)
        subprocess.run(["cp", "-r", "--reflink=auto", str(made), str(copy)], check=True)
        found[name] = operation(name, copy, source)
        shutil.rmtree(copy)
        print(f"  {name}: {json.dumps(found[name])}", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pages", type=int, help="one size instead of --sizes")
    parser.add_argument("--hosts", type=int)
    parser.add_argument("--sizes", default="10000,100000,1000000", help="of pages and of hosts")
    parser.add_argument("--busy", type=int, default=4, help="loops beside the second round; 0: no second round")
    parser.add_argument("--only", action="append", choices=list(OPERATIONS))
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench" / "long_work", help="where crawls are built")
    parser.add_argument("--tree", type=Path, default=ROOT)
    args = parser.parse_args()
    sizes = [(int(size), int(size)) for size in args.sizes.split(",")]
    if args.pages or args.hosts:
        sizes = [(args.pages or 1000, args.hosts or 1000)]
    args.folder.mkdir(parents=True, exist_ok=True)
    ready, at = threading.Event(), {"port": PORT}
    threading.Thread(target=serve, args=(ready, at), daemon=True).start()
    ready.wait()
    rows = []
    with one_at_a_time():
        for pages, hosts in sizes:
            made = built(args.folder, pages, hosts)
            for loops in sorted({0, args.busy}):
                print(f"{pages:,} pages, {hosts:,} hosts, beside {loops} busy loops", flush=True)
                with beside(loops):
                    operations = measured(made, args.only or list(OPERATIONS), args.tree)
                rows.append({"pages": pages, "hosts": hosts, "busy": loops, "operations": operations})
                record = summed_up(rows)
                results.keep("long work", record)
    print(
        f"largest gap between two heartbeats {record['largest_gap_s']:.1f} s, longest stop {record['stop_s']:.1f} s, "
        f"{record['killed']} killed"
    )
    return 0


def summed_up(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst of all that was measured so far."""
    every = [one for row in rows for one in row["operations"].values()]
    alone = [one for row in rows if not row["busy"] for one in row["operations"].values()]
    return {
        "rows": rows,
        "largest_gap_s": max(one["largest_gap_s"] for one in every),
        "stop_s": max(one["stop_s"] or 0.0 for one in alone),
        "killed": sum(one["killed"] for one in every),
        "hosts": rows[-1]["hosts"],
    }


if __name__ == "__main__":
    sys.exit(main())
