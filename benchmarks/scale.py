"""What commands and operations cost as a crawl grows: three sizes, each folder built once without a request.

    python benchmarks/scale.py [--sizes 1000000,10000000,30000000] [--hosts N] [--only NAME...] [--busy 4]
                               [--folder DIR] [--keep] [--in-place] [--quick] [--out FILE]

A folder has that many stored pages over a twentieth as many hosts (or `--hosts`) and a hot one with a thousandth of
them, and three queued URLs for each page (`harness/grown_crawl.py`); it lies in `--folder` by size and layout, and is
deleted after its measurement without `--keep`. Each command is a process of its own: wall time, CPU and peak memory of
its process tree. Each operation (`resume`, `retry-failed`, `recrawl`) runs on a copy of the folder, alone and beside
`--busy` loops; with `--in-place`, where the disk has no room for a copy, one after the other on the folder itself,
which is deleted then without `--keep`. Each cost has the machine's load of that moment (`load`). What takes longer than
`--limit` seconds is ended and recorded as that. `--quick`: 10,000 and
100,000 pages.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness import results
from harness.grown_crawl import DELAY_S, HOT_EVERY, Shape, size_of
from harness.measure import Failed, TooLong, one_at_a_time, run
from harness.operations import OPERATIONS, beside, operate
from hosts import serve

ROOT = Path(__file__).resolve().parents[1]
WEFT = [sys.executable, "-m", "weft"]
PORT = 8490
SIZES = "1000000,10000000,30000000"
QUICK = "10000,100000"
PAGES_A_HOST = 20
LIMIT_S = 600.0
LATE_S = 20.0  # before the last page was stored: the range of `audit --since`
EXPORTED = "export.jsonl"
BUILD_LIMIT_S = 4 * 3600.0
FIRST = ["--quiet", "--prometheus-port", "0", "--scope", "any", "--allow-private", "--resolve", "*=127.0.0.1"]
_LAYOUT = re.compile(r"^_?(?:LAYOUT|VERSION) = (\d+)", re.MULTILINE)
# Those that a later Weft has, or an earlier one has not: measured where the command knows the flag.
OPTIONAL = {"audit-host": "--host", "audit-since": "--since"}


def layout() -> str:
    """A name for the layouts of all files of a crawl, as the source has them: a folder of another one is not reused."""
    sources = sorted(
        path for room in ("engine", "frontier", "store") for path in (ROOT / "src/weft" / room).rglob("*.py")
    )
    numbers = [(path.name, *_LAYOUT.findall(path.read_text())) for path in sources]
    return sha256(repr([one for one in numbers if len(one) > 1]).encode()).hexdigest()[:8]


class GrownCrawl:
    """A folder of a size; it is built where there is none."""

    def __init__(self, parent: Path, shape: Shape) -> None:
        self.shape = shape
        self.home = parent / f"{shape.pages}-{shape.hosts}-{shape.port}-{layout()}"
        self.data_dir = self.home / "crawl"
        self._facts = self.home / "built.json"

    def build(self) -> dict[str, Any]:
        """What building it cost, now or then."""
        if self._facts.exists():
            facts: dict[str, Any] = json.loads(self._facts.read_text())
            return facts
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(parents=True)
        begin = [*WEFT, "crawl", "http://127.0.0.1:9/", "--data-dir", str(self.data_dir), *FIRST]
        subprocess.run([*begin, "--delay", str(DELAY_S), "--max-retries", "0"], check=False, capture_output=True)
        fill = [sys.executable, str(ROOT / "benchmarks/harness/grown_crawl.py"), str(self.data_dir)]
        numbers = map(str, (self.shape.pages, self.shape.hosts, self.shape.port))
        cost = run([*fill, *numbers], None, env={"PYTHONPATH": str(ROOT / "benchmarks")}, limit_s=BUILD_LIMIT_S)
        facts = cost.said | {"peak_rss_mb": round(cost.peak_rss_mb, 1)} | self._sizes()
        self._facts.write_text(json.dumps(facts, indent=1))
        return facts

    def _sizes(self) -> dict[str, int]:
        """Files of the folder and bytes of its parts."""
        frontier = self.data_dir / "frontier"
        log_bytes = size_of(frontier / "requests")
        files = [path for path in self.data_dir.rglob("*") if path.is_file()]
        return {
            "files": len(files),
            "folders": sum(path.is_dir() for path in self.data_dir.rglob("*")),
            "index_bytes": sum(path.stat().st_size for path in files if path.name.startswith("index-")),
            "log_bytes": log_bytes,
            "frontier_bytes": size_of(frontier) - log_bytes,
        }

    def copy(self, name: str) -> Path:
        """A copy for one operation."""
        copied = self.home / name
        shutil.rmtree(copied, ignore_errors=True)
        subprocess.run(["cp", "-r", "--reflink=auto", str(self.data_dir), str(copied)], check=True)
        return copied


def commands(grown: GrownCrawl, since: float) -> dict[str, list[str]]:
    """The measured commands by name."""
    shape, folder, hot = grown.shape, str(grown.data_dir), grown.shape.host(0)
    last = HOT_EVERY * (shape.hot_rows - 1)
    export = ["export", folder, "--format", "jsonl", "--out", str(grown.home / EXPORTED), "--host"]
    late = datetime.fromtimestamp(since - LATE_S, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "explain-unknown": ["explain", folder, f"{shape.origin(0)}/never/met.html"],
        "explain-queued": ["explain", folder, shape.link(shape.pages // 7, 20 * (shape.pages // 7))],
        "explain-stored": ["explain", folder, shape.page(last)],
        "get": ["get", folder, shape.page(last)],
        "stats": ["stats", folder],
        "audit": ["audit", folder],
        "audit-host": ["audit", folder, "--host", hot],
        "audit-since": ["audit", folder, "--since", late],
        "export-host": [*export, hot],
        "export-one": [*export, shape.host(1)],
    }


def is_right(name: str, answer: dict[str, Any], shape: Shape) -> bool:
    """Whether a command has answered what the folder holds: the cost of a wrong answer meets no goal."""
    if name.startswith("explain-"):
        # One page in some has failed, which is an answer about a stored page, too.
        reasons = {"explain-unknown": ["unknown"], "explain-queued": ["queued"], "explain-stored": ["page", "error"]}
        return answer["urls"][0]["reason"] in reasons[name]
    if name == "audit":
        return answer["requests"] >= shape.pages and not answer["violations"]
    if name == "audit-since":
        return 0 < answer["requests"] < shape.pages and not answer["violations"]
    if name == "audit-host":
        return bool(answer["requests"] == shape.hot_rows)
    if name == "stats":
        return sum(answer["statuses"].values()) >= shape.pages
    if name == "export-host":
        return bool(answer["rows"] == shape.hot_rows)
    if name == "export-one":
        return bool(answer["rows"] == shape.rows_of(1))
    return True


def knows(name: str) -> bool:
    """Whether this Weft has the flags of a command."""
    if name not in OPTIONAL:
        return True
    help_text = subprocess.run([*WEFT, name.partition("-")[0], "--help"], capture_output=True, text=True, check=True)
    return OPTIONAL[name] in help_text.stdout


def command_cost(name: str, command: list[str], shape: Shape, limit_s: float) -> dict[str, Any]:
    """What one command cost, or that it took too long."""
    try:
        load = os.getloadavg()[0]
        cost = run([*WEFT, *command, "--json"], None, limit_s=limit_s, good_codes=(0, 1))
    except TooLong:
        return {"over_s": limit_s}
    except Failed as error:
        return {"failed": str(error)}
    costs = {"wall_s": round(cost.wall_s, 3), "cpu_s": round(cost.cpu_s, 3), "peak_rss_mb": round(cost.peak_rss_mb, 1)}
    costs["load"] = round(load, 1)
    if not is_right(name, cost.said, shape):
        return costs | {"failed": f"a wrong answer: {json.dumps(cost.said)[:500]}"}
    if name.startswith("audit"):
        costs["requests"] = cost.said["requests"]
    return costs


class Measurement:
    """All measured points; written down after each, so that a run that is cut off has those."""

    def __init__(self, out: Path | None) -> None:
        self._out = out
        before = results.section("scale").get("points", ()) if out is None else ()
        self._kept = {point["pages"]: point for point in before}

    def keep(self, shape: Shape, name: str, cost: dict[str, Any]) -> None:
        """One cost at one size."""
        point = self._kept.setdefault(shape.pages, {"pages": shape.pages, "costs": {}})
        point |= {"hosts": shape.hosts, "known": shape.known, "hot_rows": shape.hot_rows}
        point["costs"][name] = cost
        points = [self._kept[pages] for pages in sorted(self._kept)]
        if self._out is None:
            results.keep("scale", {"points": points})
        else:
            self._out.write_text(json.dumps({"points": points}))
        print(f"  {shape.pages:>11,}  {name}: {json.dumps(cost)}", flush=True)


def measure_size(grown: GrownCrawl, args: argparse.Namespace, measurement: Measurement) -> None:
    """Everything at one size."""
    shape = grown.shape
    facts = grown.build()
    measurement.keep(shape, "build", facts)
    for name, command in commands(grown, facts["since"]).items():
        if (not args.only or name in args.only) and knows(name):
            (grown.home / EXPORTED).unlink(missing_ok=True)
            measurement.keep(shape, name, command_cost(name, command, shape, args.limit))
    for name in OPERATIONS:
        for loops in sorted({0, args.busy}) if not args.only or name in args.only else ():
            folder = grown.data_dir if args.in_place else grown.copy(name)
            load = os.getloadavg()[0]
            with beside(loops):
                cost = operate(name, folder, args.limit) | {"load": round(load, 1)}
            measurement.keep(shape, name if not loops else f"{name}-busy", cost)
            if not args.in_place:
                shutil.rmtree(folder)
    if not args.keep:
        shutil.rmtree(grown.home)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", default=SIZES, help="stored pages")
    parser.add_argument("--quick", action="store_true", help=f"the sizes {QUICK}")
    parser.add_argument("--hosts", type=int, help=f"instead of one for {PAGES_A_HOST} pages")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these commands and operations")
    parser.add_argument("--busy", type=int, default=4, help="loops beside the second round; 0: no second round")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for one command or operation")
    parser.add_argument("--folder", type=Path, default=ROOT / ".bench" / "scale", help="where folders are built")
    parser.add_argument("--keep", action="store_true", help="the folders, for another measurement")
    parser.add_argument("--in-place", action="store_true", help="no copies")
    parser.add_argument("--port", type=int, default=PORT, help="of the server on loopback")
    parser.add_argument("--out", type=Path, help="a file for the points; they do not become the last measured ones")
    args = parser.parse_args()
    sizes = [int(size) for size in (QUICK if args.quick else args.sizes).split(",")]
    ready = threading.Event()
    threading.Thread(target=serve, args=(ready, {"port": args.port}), daemon=True).start()
    ready.wait()
    measurement = Measurement(args.out)
    with one_at_a_time() if args.out is None else nullcontext():
        for pages in sizes:
            shape = Shape(pages, args.hosts or max(1, pages // PAGES_A_HOST), args.port)
            began = time.monotonic()
            measure_size(GrownCrawl(args.folder, shape), args, measurement)
            print(f"{pages:,} pages: {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
