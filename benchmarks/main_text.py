"""How well the main text of real pages is found: word F1 against the true text, and the CPU that a page takes.

    python benchmarks/main_text.py [--data ../shared/data/wcxb-dev.tar]

Prints one JSON object; exits 1 when the mean is under .85, a page type under .70, or the median time over 2 ms.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import statistics
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path

from weft.extract.page import extract

DATA = Path(__file__).parents[2] / "shared" / "data" / "wcxb-dev.tar"
WORDS = re.compile(r"\w+")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA)
    args = parser.parse_args()
    if not args.data.exists():
        print(f"{args.data} is not here: give the pages with --data", file=sys.stderr)
        return 2
    scores: dict[str, list[float]] = {}
    parsing, pruning, sizes = [], [], []
    for body, truth in pages(args.data):
        began = time.process_time()
        page = extract(body, truth["url"], "text/html")
        parsed = time.process_time()
        text = page.main_text
        pruning.append(1000 * (time.process_time() - parsed))
        parsing.append(1000 * (parsed - began))
        sizes.append(len(body))
        scores.setdefault(truth["page_type"], []).append(f1(text, truth["main_content"]))
    every = [score for kind in scores.values() for score in kind]
    together = [a + b for a, b in zip(parsing, pruning, strict=True)]
    report = {
        "pages": len(every),
        "mean_f1": round(statistics.mean(every), 4),
        "by_type": {kind: round(statistics.mean(found), 4) for kind, found in sorted(scores.items())},
        "median_kb": round(statistics.median(sizes) / 1000),
        "cpu_ms": {
            "parse": {"median": round(statistics.median(parsing), 2), "mean": round(statistics.mean(parsing), 2)},
            "main_text": {"median": round(statistics.median(pruning), 2), "mean": round(statistics.mean(pruning), 2)},
            "both": {"median": round(statistics.median(together), 2), "mean": round(statistics.mean(together), 2)},
        },
    }
    print(json.dumps(report, indent=2))
    good = report["mean_f1"] >= 0.85 and min(report["by_type"].values()) >= 0.70
    return 0 if good and statistics.median(together) <= 2.0 else 1


def pages(archive: Path) -> list[tuple[bytes, dict[str, str]]]:
    """Each page's bytes and what is true of it."""
    bodies: dict[str, bytes] = {}
    truths: dict[str, dict[str, str]] = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is None:
                continue
            name = Path(member.name).name
            if name.endswith(".html.gz"):
                bodies[name.removesuffix(".html.gz")] = gzip.decompress(file.read())
            elif name.endswith(".json"):
                truths[name.removesuffix(".json")] = json.loads(file.read())
    return [(bodies[name], truths[name]) for name in sorted(bodies) if name in truths]


def f1(found: str, true: str) -> float:
    """Of the words, as a multiset."""
    ours, theirs = Counter(WORDS.findall(found.lower())), Counter(WORDS.findall(true.lower()))
    common = sum((ours & theirs).values())
    if not common:
        return float(not ours and not theirs)
    precision, recall = common / sum(ours.values()), common / sum(theirs.values())
    return 2 * precision * recall / (precision + recall)


if __name__ == "__main__":
    sys.exit(main())
