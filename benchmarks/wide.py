"""The wide web: how much of what politeness allows, and of a stripped client, is left beside dead and slow hosts.

    python benchmarks/wide.py [--hosts 3000] [--seconds 60] [--rounds 1] [--port 8520] [--no-scaled]
    python benchmarks/wide.py --only weft --hosts 800 --seconds 600 --parts 10

The mix of harness/wide_web.py, crawled with the defaults and a delay of one second, beside a client that is told which
hosts are dead (contenders/wide_bound.py); both in turns, each for as long. Rates are of the second half of a run, by
the server's log. Then once more with so many hosts that politeness allows 60 % of what that client did: what counts
there is the share of politeness, and how late requests come. `--parts`: the same of each part of one long run, with
memory and descriptors at its end: all of it should be flat.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from harness import results
from harness.measure import Failed, cores, cpu_s, one_at_a_time, resident, tree
from harness.wide_web import Verdict, WideHost, allowed_per_s, hosts, judge, served

from weft.testing.tls import CA_FILE

DELAY_S = 1.0
HERE = Path(__file__).resolve().parent


class Run:
    """What a client did on a mix."""

    def __init__(
        self, verdict: Verdict, mix: list[WideHost], cpu_share: float, rss_mb: float, parts: Sequence[str] = ()
    ) -> None:
        self.verdict = verdict
        self.parts = parts
        self.allowed = allowed_per_s(mix, DELAY_S)
        self.alive = sum(not host.is_dead for host in mix)
        self.cpu_share = cpu_share
        self.rss_mb = rss_mb

    @property
    def share(self) -> float:
        """Of what politeness allows."""
        return self.verdict.rate / self.allowed

    @property
    def cpu_ms(self) -> float:
        """Of an answer: what it costs, also where others use the machine and the rate says little."""
        return 1000 * self.cpu_share / max(1.0, self.verdict.rate)

    def record(self) -> dict[str, Any]:
        """For the results."""
        own = {"allowed": self.allowed, "share": self.share, "cpu": self.cpu_share, "rss_mb": self.rss_mb}
        own |= {"cpu_ms": self.cpu_ms}
        return {**asdict(self.verdict), **own, "alive": self.alive}

    def line(self) -> str:
        """In a few words."""
        of = self.verdict
        return (
            f"{of.rate:.0f} answers/s of {self.allowed:.0f} ({self.share:.0%}), {of.pages_rate:.0f} pages/s; first "
            f"page {of.first_page_s:.1f} s; late p50 {of.late_p50_s:.2f} s, p99 {of.late_p99_s:.2f} s; {of.reached} of "
            f"{self.alive} hosts; {of.violations} early; CPU {self.cpu_share:.0%}, {self.cpu_ms:.2f} ms an "
            f"answer, {self.rss_mb:.0f} MB" + "".join(f"\n  early: {one}" for one in of.early[:10])
        )


def weft_command(folder: Path, seeds: Path, extra: list[str]) -> list[str]:
    """A crawl with the defaults."""
    return [
        *(sys.executable, "-m", "weft", "crawl", "--seed-file", str(seeds), "--scope", "host", "--allow-private"),
        *("--resolve", "*.weft-web.test=127.0.0.1", "--delay", str(DELAY_S), "--data-dir", str(folder / "crawl")),
        *("--json", "--quiet", "--prometheus-port", "0", *extra),
    ]


def bound_command(folder: Path, seeds: Path, seconds: float) -> list[str]:
    """The stripped client."""
    return [
        *(sys.executable, str(HERE / "contenders" / "wide_bound.py"), str(seeds), str(folder / "pages.gz")),
        *("--ca", str(CA_FILE), "--delay", str(DELAY_S), "--seconds", str(seconds + 5)),
    ]


def run(mix: list[WideHost], who: str, args: argparse.Namespace) -> Run:
    """One client on the mix, for so long."""
    crawler_core, server_core = cores()
    with tempfile.TemporaryDirectory(prefix="weft-wide-", dir=os.environ.get("TMPDIR")) as name:
        folder = Path(name)
        seeds = folder / "seeds.txt"
        wanted = mix if who == "weft" else [host for host in mix if not host.is_dead]
        seeds.write_text("\n".join(host.seed(args.port) for host in wanted) + "\n")
        command = (
            weft_command(folder, seeds, args.weft.split())
            if who == "weft"
            else bound_command(folder, seeds, args.seconds)
        )
        with served(mix, args.port, server_core, folder) as log:
            began = time.monotonic()
            client = subprocess.Popen(
                ["taskset", "-c", str(crawler_core), *command],
                env={**os.environ, "SSL_CERT_FILE": str(CA_FILE)},
                stdout=subprocess.DEVNULL,
            )
            try:
                cpu_share, rss_mb, samples = _watched(client, began, args.seconds, args.parts)
            finally:
                client.send_signal(signal.SIGINT if who == "weft" else signal.SIGKILL)
                client.wait()
        if args.keep:
            shutil.copytree(folder, args.keep, dirs_exist_ok=True)
        window = (began + args.seconds / 2, began + args.seconds)
        parts = [_part(log, mix, began, sample) for sample in samples]
        return Run(judge(log, mix, began, window, DELAY_S), mix, cpu_share, rss_mb, parts)


class Sample(NamedTuple):
    """The end of a part of a run: when it began and ended, memory and open files."""

    since: float
    until: float
    rss_mb: float
    files: int


def _watched(
    client: subprocess.Popen[bytes], began: float, seconds: float, parts: int
) -> tuple[float, float, list[Sample]]:
    """The share of a core that it used in the second half, its memory at the end, and samples of so many parts."""
    samples = list[Sample]()
    half = max(1, parts // 2)
    before, since = 0.0, began
    for part in range(2 * half):
        if part == half:
            before, since = _cpu_s(client.pid), time.monotonic()
        start, end = (began + seconds * at / (2 * half) for at in (part, part + 1))
        time.sleep(max(0.0, end - time.monotonic()))
        if client.poll() is not None:
            raise Failed(f"the client ended early, exit code {client.returncode}")
        pids = tree(client.pid)
        rss_mb = sum(map(resident, pids)) / (1 << 20)
        samples.append(Sample(start, end, rss_mb, sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)))
    cpu_share = (_cpu_s(client.pid) - before) / (time.monotonic() - since)
    return cpu_share, samples[-1].rss_mb, samples if parts else []


def _part(log: Path, mix: list[WideHost], began: float, of: Sample) -> str:
    """A part of a run in a few words."""
    verdict = judge(log, mix, began, (of.since, of.until), DELAY_S)
    return (
        f"{of.until - began:4.0f} s: {verdict.rate:.0f} answers/s, late p50 {verdict.late_p50_s:.2f} s, "
        f"p99 {verdict.late_p99_s:.2f} s, {of.rss_mb:.0f} MB, {of.files} open files"
    )


def _cpu_s(pid: int) -> float:
    return sum(cpu_s(one) for one in tree(pid))


def scaled(args: argparse.Namespace, rate: float) -> list[WideHost]:
    """So many hosts that politeness allows 60 % of a rate."""
    whole = allowed_per_s(hosts(args.hosts), DELAY_S)
    return hosts(max(100, round(args.hosts * 0.6 * rate / whole)))


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Both in turns on the whole mix, then Weft on the scaled one."""
    mix = hosts(args.hosts)
    found: dict[str, list[dict[str, Any]]] = {"bound": [], "weft": [], "scaled": []}
    ratios = []
    for _ in range(args.rounds):
        runs = {}
        for who in ("bound", "weft"):
            runs[who] = run(mix, who, args)
            found[who].append(runs[who].record())
            print(f"  {who}: {runs[who].line()}", flush=True)
        ratios.append(runs["weft"].verdict.rate / runs["bound"].verdict.rate)
    if not args.no_scaled:
        rate = statistics.median(one["rate"] for one in found["bound"])
        few = scaled(args, rate)
        last = run(few, "weft", args)
        found["scaled"].append(last.record())
        print(f"  weft, {len(few)} hosts: {last.line()}", flush=True)
    return {**found, **_figures(found), "of_bound": statistics.median(ratios), "hosts": args.hosts}


def _figures(found: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """What is judged."""
    figures = {
        "share": statistics.median(one["share"] for one in found["weft"]),
        "first_page_s": statistics.median(one["first_page_s"] for one in found["weft"]),
        "violations": sum(one["violations"] for one in found["weft"] + found["scaled"]),
    }
    if found["scaled"]:
        figures |= {"scaled_share": found["scaled"][-1]["share"], "late_p99_s": found["scaled"][-1]["late_p99_s"]}
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--port", type=int, default=8520)
    parser.add_argument("--no-scaled", action="store_true", help="leave out the run with fewer hosts")
    parser.add_argument("--only", choices=["weft", "bound"], help="one run of this, and no record")
    parser.add_argument("--parts", type=int, default=0, help="tell each of so many parts of a run")
    parser.add_argument("--weft", default="", help="more flags for Weft")
    parser.add_argument("--keep", help="folder to keep what the last crawl left")
    args = parser.parse_args()
    try:
        with one_at_a_time():
            if args.only:
                alone = run(hosts(args.hosts), args.only, args)
                print(*alone.parts, alone.line(), sep="\n")
                return 0
            found = measure(args)
    except Failed as why:
        print(f"benchmarks: {why}", file=sys.stderr)
        return 1
    results.keep("wide", found)
    print(f"Weft by the stripped client: {found['of_bound']:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
