"""Whether memory stays flat over a long crawl.

    python benchmarks/flat.py [--seconds 600]

A crawl at full speed of sites that never end and whose queue stays as long as it is: what grows is what visited pages
leave in memory. Growth is that of the last fifth of the run over the second; the fingerprints of the pages themselves,
7 bytes each, which an exact seen set must keep, are told apart from the rest; the whole is judged.
"""

from __future__ import annotations

import argparse
import sys
from statistics import median

from harness import results
from harness.long_crawl import watch

FINGERPRINT = 7


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--port", type=int, default=8491)
    args = parser.parse_args()
    spec = {"hosts": 50, "port": args.port, "latency_s": 0, "delay_s": 0, "chains": 20, "page_bytes": 8_000}
    samples, _ = watch(spec, ["--delay", "0"], args.seconds, 1.0)
    fifth = len(samples) // 5
    early, late = samples[fifth : 2 * fifth], samples[-fifth:]
    early_mb, late_mb = (median(sample.rss_mb for sample in part) for part in (early, late))
    pages = median(sample.pages for sample in late) - median(sample.pages for sample in early)
    kept_mb = pages * FINGERPRINT / (1 << 20)
    found = {
        "seconds": args.seconds,
        "early_mb": early_mb,
        "late_mb": late_mb,
        "growth": late_mb / early_mb - 1,
        "growth_besides": (late_mb - kept_mb) / early_mb - 1,
        "bytes_a_page": (late_mb - early_mb) * (1 << 20) / max(1, pages),
        "pages": samples[-1].pages,
        "samples": [[round(sample.at - samples[0].at), round(sample.rss_mb, 1)] for sample in samples],
    }
    results.keep("flat", found)
    print(
        f"{found['pages']:,} pages in {args.seconds:.0f} s: {early_mb:.1f} MB, then {late_mb:.1f} MB "
        f"({found['growth']:+.1%}, {found['bytes_a_page']:.1f} B a page; "
        f"{found['growth_besides']:+.1%} besides the seen set)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
