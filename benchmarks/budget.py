"""Where a crawl's CPU goes: by stage, and by what it is spent on.

    python benchmarks/budget.py [--pages 6000] [--raw FILE]

py-spy looks at three crawls 250 times a second, C frames included. A sample's stage is that of the innermost
function of Weft's; what it is spent on is told by the innermost frame: a library, the kernel (a system call), the
interpreter's regular expressions and text decoding, or our own Python, which is everything else that the interpreter
does for a function of Weft's: bytecode, objects, strings, dicts, memory. Start and end of the process are left out, and
so are moments of waiting.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

from harness import results
from harness.crawlers import CRAWLERS, PEERS, ROOT, SCRATCH
from harness.measure import cores, run
from harness.web import make, served

STAGES = (
    ("fetch/decode", "decode"),
    ("fetch/robots", "URLs"),
    ("fetch/", "fetch"),
    ("extract/", "parse"),
    ("urls", "URLs"),
    ("engine/admission/rules", "URLs"),
    ("engine/admission/traps", "URLs"),
    ("frontier/seen", "dedup"),
    ("frontier/", "frontier"),
    ("store/", "store"),
    ("", "loop"),
)
LIBRARIES = (
    ("turbohtml", "parser"),
    ("selectolax", "parser"),
    ("isal", "compression"),
    ("zstandard", "compression"),
    ("brotli", "compression"),
    ("zlib", "compression"),
    ("libcrypto", "digest and TLS"),
    ("libssl", "digest and TLS"),
    ("_sha", "digest and TLS"),
    ("_hashlib", "digest and TLS"),
    ("xxhash", "hashing"),
    ("curl", "libcurl"),
    ("easycb.c", "libcurl"),
    ("sqlite", "SQLite"),
    ("ada", "URL parser"),
    ("_cffi", "URL parser"),
    ("msgspec", "msgspec"),
)
# Imports, and a thread that waits for its turn: what it waits in has no name in a stripped libc.
NO_CRAWL = re.compile(r"\w+ \(<frozen importlib|(?:\w+\.)?wait \(threading\.py")
WAITS = {
    "epoll_wait",
    "fdatasync",
    "fsync",
    "poll",
    "select",
    "futex",
    "clock_nanosleep",
    "pthread_cond_timedwait",
    "sem_wait",
}
CALLS = {
    *("send", "sendto", "sendmsg", "recv", "recvfrom", "recvmsg", "read", "write", "writev", "pread64", "pwrite64"),
    *("epoll_ctl", "open64", "openat", "open", "close", "rename", "renameat", "connect", "socket", "accept4", "mmap"),
    *("munmap", "madvise", "brk", "sbrk", "fstat64", "stat64", "lseek64", "ftruncate64", "setsockopt", "getsockopt"),
    *("getsockname", "getpeername", "fcntl64", "ioctl", "unlink", "mkdir", "shutdown", "syscall", "__close", "__write"),
}
FRAME = re.compile(r"^(?P<name>.*) \((?P<where>[^()]*?)(?::\d+)?\)$")
OWN = "our own Python"
CRAWLS = 3  # one tells a share to a point or two


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=20_000, help="of the large web, which is crawled")
    parser.add_argument("--port", type=int, default=8480)
    parser.add_argument("--raw", type=Path, help="a file of py-spy's raw format, instead of a crawl")
    args = parser.parse_args()
    raws = [args.raw.read_text()] if args.raw else [record(args.pages, args.port) for _ in range(CRAWLS)]
    table = Counter[tuple[str, str]]()
    for line in "".join(raws).splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if not any("Loop.run (weft/engine/loop/fetcher/fetch_loop.py" in frame for frame in frames):
            continue
        found = classify(frames)
        if found is not None:
            table[found] += int(count)
    show(table)
    return 0


def record(pages: int, port: int) -> str:
    """One crawl of the large web under py-spy."""
    folder = ROOT / ".bench" / f"web-{port}"
    web = make(folder, pages, port)["large"]
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    raw = ROOT / ".bench" / "budget.raw"
    spy = [
        str(PEERS.with_name("py-spy")),
        "record",
        "--native",
        "--subprocesses",
        "-r",
        "250",
        "-f",
        "raw",
        "-o",
        str(raw),
    ]
    with served(folder, "keep-alive", port, cores()[1]) as server:
        run([*spy, "--", *CRAWLERS["weft"].command(web, server)], cores()[0])
    return raw.read_text()


def classify(frames: list[str]) -> tuple[str, str] | None:
    """The stage of a sample and what it is spent on; None while waiting."""
    parts = [found.groupdict() if (found := FRAME.match(frame)) else {"name": frame, "where": ""} for frame in frames]
    own = next((part["where"] for part in reversed(parts) if part["where"].startswith("weft/")), "")
    stage = next(name for start, name in STAGES if own.removeprefix("weft/").startswith(start))
    if any(part["name"] in WAITS for part in parts[-2:]) or any(NO_CRAWL.match(frame) for frame in frames):
        return None
    return stage, spent_on(parts)


def spent_on(parts: list[dict[str, str]]) -> str:
    """A library, the kernel, the interpreter's own machines, or our Python."""
    leaf = parts[-1]
    if leaf["name"].strip("_") in CALLS and "libc" in leaf["where"]:
        return "kernel"
    for part in reversed(parts):
        name, where = part["name"], part["where"]
        if "libpython" in where or "bin/python" in where:
            if name.startswith(("sre_", "_sre_", "pattern_", "unicode_decode", "PyUnicode_Decode")):
                return "regular expressions, text decoding"
            continue
        if where.startswith(("libc.so", "libc-", "libm", "ld-linux", "libpthread", "libstdc++")) or not where:
            continue
        for known, what in LIBRARIES:
            if known in where:
                return what
        return OWN if where.startswith("weft/") or ".py" in where or "<" in where else "other C"
    return "other C"


def show(table: Counter[tuple[str, str]]) -> None:
    """Prints both ways to cut it, and keeps the shares."""
    total = sum(table.values()) or 1
    kinds, stages = Counter[str](), Counter[str]()
    for (stage, kind), count in table.items():
        stages[stage] += count
        kinds[kind] += count
    columns = [kind for kind, _ in kinds.most_common()]
    print("| stage | share | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 2) + "|")
    for stage, count in stages.most_common():
        cells = [f"{table[stage, kind] / total:.1%}" if table[stage, kind] else "" for kind in columns]
        print(f"| {stage} | {count / total:.1%} | " + " | ".join(cells) + " |")
    print("| all | 100% | " + " | ".join(f"{kinds[kind] / total:.1%}" for kind in columns) + " |")
    print(f"\n{kinds[OWN] / total:.0%} is our own Python ({total} samples)")
    results.keep(
        "budget",
        {
            "own_python": kinds[OWN] / total,
            "kinds": {kind: count / total for kind, count in kinds.items()},
            "stages": {stage: count / total for stage, count in stages.items()},
            "cells": {f"{stage} / {kind}": count / total for (stage, kind), count in table.items()},
            "samples": total,
        },
    )


if __name__ == "__main__":
    sys.exit(main())
