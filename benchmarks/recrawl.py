"""A second visit against the first: what a page costs that the server says has not changed (304).

    python benchmarks/recrawl.py [--pages 8000] [--rounds 5]

Each round crawls the web of the other rows once, then visits every page again (`--resume --recrawl`); nginx answers
with 304. Both on one core, start and end taken out by the same two runs on a single page. The ratio is of CPU time a
page, the median over the rounds.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys

from harness import results
from harness.crawlers import CRAWLERS, ROOT, SCRATCH
from harness.measure import Cost, cores, run
from harness.web import Server, Web, make, served


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=8_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--port", type=int, default=8480)
    args = parser.parse_args()
    folder = ROOT / ".bench" / f"web-{args.port}"
    rounds = []
    webs = make(folder, args.pages, args.port)
    with served(folder, "keep-alive", args.port, cores()[1]) as server:
        for _ in range(args.rounds):
            rounds.append(one_round(webs["large"], webs["start"], server))
            print("first {:.3f} ms, again {:.3f} ms a page".format(*rounds[-1]), flush=True)
    first, again = (statistics.median(found) for found in zip(*rounds, strict=True))
    ratio = statistics.median(again / first for first, again in rounds)
    record = {"first_ms": first, "again_ms": again, "ratio": ratio, "pages": args.pages, "rounds": len(rounds)}
    results.keep("recrawl", record)
    print(f"a 304 costs {ratio:.2f} of a first fetch")
    return 0


def one_round(web: Web, start: Web, server: Server) -> tuple[float, float]:
    """CPU milliseconds for a page of the first visit and of the second."""
    (none, none_again), (some, some_again) = visits(start, server), visits(web, server)
    pages = web.pages - start.pages
    moved = some_again.said["status"]["body_bytes"] - some.said["status"]["body_bytes"]
    assert moved == 0, f"{moved} bytes were moved again"
    return 1e3 * (some.cpu_s - none.cpu_s) / pages, 1e3 * (some_again.cpu_s - none_again.cpu_s) / pages


def visits(web: Web, server: Server) -> tuple[Cost, Cost]:
    """The first visit and the second."""
    shutil.rmtree(SCRATCH, ignore_errors=True)
    SCRATCH.mkdir(parents=True)
    command = CRAWLERS["weft"].command(web, server)
    first = run(command, cores()[0], cwd=SCRATCH)
    before = server.requests()
    flags = [word for word in command[5:] if word != web.seed(server.port, server.scheme)]
    again = run([*command[:4], *flags, "--resume", "--recrawl"], cores()[0], cwd=SCRATCH)
    asked = server.requests() - before
    assert asked >= web.pages, f"{asked} requests for {web.pages} pages"
    return first, again


if __name__ == "__main__":
    sys.exit(main())
