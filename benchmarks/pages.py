"""What the pipeline `pages` takes: CPU for each page of a demo crawl, and memory for very many short texts.

    python benchmarks/pages.py [--corpus DIR] [--texts 1000000]

`pages`: the corpus of `weft demo` (made if none is given) through `weft pipeline run pages` with one worker; what a run
over one page takes, the median of three, is subtracted, since it is start-up. `texts`: short texts, one in ten a near
copy of an earlier one, through sketches and the de-duplication in one process, with the memory of its own at a tenth of
them and at the end.
Prints one JSON object; exits 1 when a core does fewer than 300 pages a second, or the memory grows with the texts.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from statistics import median

GOAL_PAGES_PER_S = 300
GOAL_GROWTH_MB = 50
STARTS = 3  # a single one is off by as much as many pages cost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, help="a crawl's data dir")
    parser.add_argument("--texts", type=int, default=1_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = {"texts": texts(args.texts, Path(folder))} if args.texts else {}
        report["pages"] = pages(args.corpus, Path(folder))
    print(json.dumps(report, indent=1))
    slow = report["pages"]["pages_per_core_s"] < GOAL_PAGES_PER_S
    return int(slow or report.get("texts", {}).get("grown_mb", 0) > GOAL_GROWTH_MB)


def pages(corpus: Path | None, folder: Path) -> dict[str, float]:
    """Pages for each second of CPU, start-up left out."""
    if corpus is None:
        corpus = folder / "demo"
        weft(folder, "demo", "--data-dir", corpus, "--quiet")
    record = next((corpus / "warc").glob("*/*.warc.gz")).read_bytes()[: 1 << 16]
    (folder / "one.warc.gz").write_bytes(record)  # its first records, and a cut one: exit code 1
    one = ("pipeline", "run", "pages", "--set", "items.from=one.warc.gz", "--workers", 1, "--fresh", "--quiet")
    start_s = median(weft(folder, *one) for _ in range(STARTS))
    out = folder / "out"
    run = (
        "pipeline",
        "run",
        "pages",
        "--set",
        f"items.from={corpus.absolute()}",
        "--workers",
        1,
        "--out",
        out,
        "--fresh",
    )
    whole_s = weft(folder, *run, "--quiet")
    card = (out / "README.md").read_text()
    count = int(card.partition("| items of the source | ")[2].partition(" ")[0].replace(",", ""))
    return {
        "pages": count,
        "cpu_ms": round(1000 * (whole_s - start_s) / count, 2),
        "start_cpu_s": round(start_s, 2),
        "pages_per_core_s": round(count / (whole_s - start_s)),
    }


def weft(folder: Path, *arguments: object) -> float:
    """Runs a command, and returns the CPU that it and its processes took."""
    before = children_s()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run([sys.executable, "-m", "weft", *map(str, arguments)], cwd=folder, env=environment)
    if done.returncode not in (0, 1):
        raise SystemExit(f"weft {arguments[0]} failed")
    return children_s() - before


def children_s() -> float:
    """The CPU that processes took which this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def texts(count: int, folder: Path) -> dict[str, float]:
    """Short texts through the de-duplication, in this process."""
    from weft.extract.text.similar import sketch
    from weft.pipelines.builtin.pages.duplicates import Duplicates

    duplicates, random = Duplicates(folder, 0.6), Random(1)
    vocabulary = [f"w{number}" for number in range(20_000)]
    found = copies = 0
    early_kb, began = 0, time.process_time()
    last = random.choices(vocabulary, k=30)
    for number in range(count):
        is_copy = number % 10 == 9
        words = [*last[:12], "other", *last[13:]] if is_copy else random.choices(vocabulary, k=30)
        sketched = sketch(" ".join(words))
        assert sketched is not None
        if duplicates.find(sketched) is None:
            duplicates.add(sketched, str(number))
        else:
            found += 1
        copies += is_copy
        last = words
        if number == count // 10:
            early_kb = own_memory_kb()
    return {
        "texts": count,
        "us_per_text": round(1e6 * (time.process_time() - began) / count),
        "copies": copies,
        "found": found,
        "own_mb_at_a_tenth": round(early_kb / 1024),
        "grown_mb": round((own_memory_kb() - early_kb) / 1024),
    }


def own_memory_kb() -> int:
    """Memory that is this process's own, and not the page cache's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    named = {line.partition(":")[0]: line.split()[1] for line in lines if line.endswith("kB")}
    return int(named.get("RssAnon") or named["VmRSS"])


if __name__ == "__main__":
    sys.exit(main())
