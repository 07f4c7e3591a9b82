"""Many slow hosts: whether a crawl is as fast as politeness allows, and sleeps for the rest.

    python benchmarks/slow_hosts.py [--hosts 2000] [--latency 0.1] [--delay 4] [--seconds 75]

With one request to a host every latency + delay seconds, no crawl can make more than hosts / (latency + delay) requests
a second. All hosts begin together, so requests come in waves, and a count over some seconds has a wave more or less:
the rate is that of the mean time from one arrival at a host to the next, over the second half of the run.
"""

from __future__ import annotations

import argparse
import sys

from harness import results
from harness.long_crawl import watch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hosts", type=int, default=2000)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--delay", type=float, default=4.0)
    parser.add_argument("--seconds", type=float, default=75.0)
    parser.add_argument("--port", type=int, default=8490)
    args = parser.parse_args()
    spec = {
        "hosts": args.hosts,
        "port": args.port,
        "latency_s": args.latency,
        "delay_s": args.delay,
        "chains": 8,
        "page_bytes": 42_000,
    }
    samples, said = watch(spec, ["--delay", str(args.delay)], args.seconds, 0.5)
    half = samples[len(samples) // 2]
    seconds = {int(second): count for second, count in said["by_second"].items()}
    window = range(int(half.at) + 1, int(samples[-1].at))
    waited = {int(second): sum_s for second, sum_s in said["waited"].items()}
    arrivals = sum(seconds.get(second, 0) for second in window)
    rate = args.hosts * arrivals / sum(waited.get(second, 0.0) for second in window)
    most = args.hosts / (args.latency + args.delay)
    last = samples[-1]
    found = {
        "rate": rate,
        "most": most,
        "share": rate / most,
        "busy": (last.cpu_s - half.cpu_s) / (last.at - half.at),
        "cpu_ms": 1000 * (last.cpu_s - half.cpu_s) / max(1, last.pages - half.pages),
        "violations": said["violations"],
        "peak_rss_mb": max(sample.rss_mb for sample in samples),
        **spec,
    }
    results.keep("slow hosts", found)
    print(
        f"{rate:.1f} requests/s of {most:.1f} possible: {found['share']:.1%}; CPU busy {found['busy']:.0%}, "
        f"{found['cpu_ms']:.2f} ms a page; {said['violations']} early requests"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
