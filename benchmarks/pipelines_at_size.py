"""What a pipeline costs as its items grow: disk and memory an item, and a rerun of which everything is cached.

    python benchmarks/pipelines_at_size.py [--sizes 20000,200000,1000000] [--only pages,values,light] [--folder DIR]
                                           [--out FILE]

`pages`: the built-in pipeline over a WARC file with pages of 1 KB, one in ten a near copy of the page before it; at
most `--most-pages` of them, since a page takes a millisecond of CPU. `values`: two stages that make values of 2 KB,
which a collector reads. `light`: one stage that does nothing. Each is run twice, with one worker: first, and again with
nothing changed. Disk: the bytes of journal, results and cache. Memory: the peak of the anonymous memory of the parent
and of its children, which leaves out the kernel's page cache. CPU: that of all processes, start included.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

from harness import results
from harness.measure import tree

SIZES = "20000,200000,1000000"
KINDS = ("pages", "values", "light")
COPY_EVERY = 10
WORDS = 110
SAMPLE_S = 0.25


def numbers(settings: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The source of `values` and `light`: items as long as those of `pages`."""
    for number in range(settings["count"]):
        yield {"id": f"pages.warc.gz:{number * 800}", "path": "/data/pages.warc.gz", "offset": number * 800}


def light(item: Mapping[str, Any], _context: Any) -> dict[str, int]:
    """A stage that does nothing."""
    return {"n": item["offset"]}


def text(item: Mapping[str, Any], _context: Any) -> dict[str, str]:
    """A value of 1 KB."""
    words = f"text {item['offset']} " * 100
    return {"url": item["id"], "text": words[:1000]}


def measured(_item: Mapping[str, Any], context: Any) -> dict[str, Any]:
    """A value of 1 KB that depends on another."""
    length = len(context.results["text"]["text"])
    return {"signals": {f"signal_{number}": length / (number + 3) for number in range(30)}, "minima": bytes(500)}


def collected(found: Iterator[Any], _context: Any) -> Iterator[dict[str, Any]]:
    """A collector that reads all values."""
    for result in found:
        yield {"id": result.id, **result.values["text"], **result.values["measured"]["signals"]}


LIGHT = 'stages: {light: {run: "pipelines_at_size:light", version: 1}}\n'
VALUES = """stages:
  text: {run: "pipelines_at_size:text", version: 1}
  measured: {run: "pipelines_at_size:measured", version: 1, needs: [text], inputs: []}
collect: {run: "pipelines_at_size:collected"}
"""


def write_warc(path: Path, count: int) -> None:
    """Pages of 1 KB."""
    random = Random(1)
    vocabulary = [
        f"{a}{b}{c}" for a in ("sta", "ber", "lo", "min") for b in "aeiou" for c in ("ren", "ting", "de", "n")
    ]
    with path.open("wb") as file:
        words: list[str] = []
        for number in range(count):
            is_copy = number % COPY_EVERY == COPY_EVERY - 1
            words = [*words[:20], "other", *words[21:]] if is_copy else random.choices(vocabulary, k=WORDS)
            file.write(gzip.compress(page_record(number, words), 1))


def page_record(number: int, words: list[str]) -> bytes:
    """One page as a WARC record."""
    sentences = [" ".join(["the", *words[at : at + 10], "and that"]).capitalize() for at in range(0, len(words), 10)]
    main_text = f"<main><p>{'. '.join(sentences)}.</p></main>"
    html = f"<html><head><title>Page {number}</title></head><body>{main_text}</body></html>"
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + html.encode()
    url = f"https://site{number % 1000}.example/articles/{number}"
    head = (
        "WARC/1.1\r\nWARC-Type: response\r\nContent-Type: application/http; msgtype=response\r\n"
        f"WARC-Record-ID: <urn:uuid:00000000-0000-4000-8000-{number:012x}>\r\nWARC-Date: 2026-01-01T00:00:00Z\r\n"
        f"WARC-Target-URI: {url}\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def anonymous_mb(pid: int) -> float:
    """Memory that is a process's own."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return 0.0


class Memory:
    """Peaks of a process and of the processes below it."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.parent_mb = self.child_mb = 0.0

    def sample(self) -> None:
        """Adds what runs now."""
        try:
            self.parent_mb = max(self.parent_mb, anonymous_mb(self._pid))
            for child in tree(self._pid)[1:]:
                self.child_mb = max(self.child_mb, anonymous_mb(child))
        except OSError:
            pass  # a process that has ended meanwhile


def run(folder: Path, arguments: list[str]) -> dict[str, float]:
    """One run of the pipeline."""
    before, began_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "weft", "pipeline", "run", *arguments, "--workers", "1", "--quiet"]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL) as process:
        memory = Memory(process.pid)
        while process.poll() is None:
            memory.sample()
            time.sleep(SAMPLE_S)
    if process.returncode != 0:
        raise SystemExit(f"the pipeline ended with exit code {process.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu_s": round(cpu_s, 2), "wall_s": round(time.perf_counter() - began_s, 1),
        "parent_mb": round(memory.parent_mb, 1), "child_mb": round(memory.child_mb, 1),
    }  # fmt: skip


def measure(kind: str, count: int, parent: Path) -> dict[str, Any]:
    """First run and rerun of one size."""
    folder = parent / f"{kind}-{count}"
    folder.mkdir()
    arguments = prepared(kind, count, folder)
    row: dict[str, Any] = {"kind": kind, "items": count}
    for name in ("first", "again"):
        row[name] = run(folder, arguments)
        logs = max((folder / "logs").iterdir())
        row[name] |= {
            "journal_b": round((logs / "journal").stat().st_size / count, 1),
            "results_b": round((logs / "results.jsonl").stat().st_size / count, 1),
            "cache_b": round(sum(file.stat().st_size for file in (folder / ".weft").rglob("*")) / count, 1),
        }
    row["again_ratio"] = round(row["again"]["cpu_s"] / row["first"]["cpu_s"], 3)
    shutil.rmtree(folder)
    return row


def prepared(kind: str, count: int, folder: Path) -> list[str]:
    """What `weft pipeline run` gets."""
    if kind == "pages":
        write_warc(folder / "pages.warc.gz", count)
        return ["pages", "--set", "items.from=pages.warc.gz"]
    source = f'items: {{source: "pipelines_at_size:numbers", settings: {{count: {count}}}}}\nitem_logs: "off"\n'
    (folder / "sized.yaml").write_text(source + (LIGHT if kind == "light" else VALUES))
    return ["sized.yaml"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--only", default=",".join(KINDS))
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--out", type=Path, help="also writes the points there")
    parser.add_argument("--most-pages", type=int, default=200_000)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for kind in args.only.split(","):
            for count in map(int, args.sizes.split(",")):
                if kind == "pages" and count > args.most_pages:
                    continue
                rows.append(measure(kind, count, Path(folder)))
                print(json.dumps(rows[-1]), flush=True)
                results.keep("pipelines at size", {"rows": rows})
                if args.out is not None:
                    args.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
