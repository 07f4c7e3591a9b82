"""What a crawl costs: CPU per page and pages per second on the calm synthetic web, crawler and server on a core each.

    python benchmarks/crawl.py [--pages N] [--rounds N] [--limit MS]

The server is nginx where there is one (`scripts/tools nginx nginx` fetches it), else the synthetic web's own, said so.
Prints one JSON object; exits 1 when the median CPU per request is above the limit.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HOSTS = 50


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=6000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=8401)
    parser.add_argument("--limit", type=float, default=1.5, help="most CPU milliseconds a request")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder, served(Path(folder), args.pages, args.port) as by:
        rounds = [one_round(Path(folder) / "crawl", args.port) for _ in range(args.rounds)]
    median = {name: round(statistics.median(run[name] for run in rounds), 3) for name in rounds[0]}
    print(json.dumps({"server": by, "rounds": rounds, "median": median}, indent=2))
    return 0 if median["cpu_ms_per_request"] <= args.limit else 1


@contextmanager
def served(folder: Path, pages: int, port: int) -> Iterator[str]:
    """The calm web, on the last core."""
    web = [sys.executable, "-m", "weft", "web", "--hosts", str(HOSTS), "--pages", str(pages), "--port", str(port)]
    nginx = shutil.which("nginx")
    if nginx:
        subprocess.run([*web, "--nginx", str(folder / "web")], check=True, stdout=subprocess.DEVNULL)
        command = [nginx, "-c", str(folder / "web" / "nginx.conf")]
    else:
        print("no nginx here: the synthetic web's own server is used", file=sys.stderr)
        command = web
    last = max(os.sched_getaffinity(0))
    server = subprocess.Popen(["taskset", "-c", str(last), *command], stdout=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.1.0.1:{port}/")
        yield "nginx" if nginx else "weft web"
    finally:
        server.terminate()
        server.wait()


def wait_for(url: str) -> None:
    until = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def one_round(folder: Path, port: int) -> dict[str, float]:
    """One crawl from scratch, on the first core."""
    shutil.rmtree(folder, ignore_errors=True)
    seeds = [f"http://127.1.0.{n}:{port}/" for n in range(1, 4)]
    flags = ["--scope", "any", "--delay", "0", "--allow-private", "--data-dir", str(folder), "--json"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        ["taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, "-m", "weft", "crawl", *seeds, *flags],
        check=True,
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    status = json.loads(done.stdout)["status"]
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    elapsed_s = status["updated_at"] - status["started_at"]
    return {
        "pages": status["pages"],
        "requests": status["requests"],
        "pages_per_s": round(status["pages"] / elapsed_s, 1),
        "cpu_ms_per_request": round(1000 * cpu_s / status["requests"], 3),
        "peak_rss_mb": after.ru_maxrss / 1024,
    }


if __name__ == "__main__":
    sys.exit(main())
