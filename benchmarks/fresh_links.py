"""What a link to a URL costs that was not met before, all in: CPU microseconds of joining, judging, admitting, queueing
and writing it down, at 5, 20, 100 and 300 new links a page.

    python benchmarks/fresh_links.py [--profile]

Pages of the bench's own markup go through the loop's own parts (parser, round, frontier, store, commit) in one process
each, without a network: what is fetched is made here. What is counted is the time spent following links, in the round's
admission and in the frontier's commit, with everything else of a page between them, so that caches are as cold as in a
crawl. A known link is one that such a page has after all of them were read once. By difference: what a page costs more
whose links are new, for each of them; the same thing measured from outside. `--profile`: where the time of a page with
100 new links goes, by function.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import markup, results
from harness.frontiers import SLUGS

from weft import urls
from weft.config import FetchSection, PolitenessSection, ScopeSection
from weft.engine.admission.rules import AdmissionRules
from weft.engine.crawls.running_crawl import RunningCrawl
from weft.engine.loop.commit import Committer
from weft.engine.loop.fetcher.answer import EndedTransfer
from weft.engine.loop.fetcher.robots import RobotsBook
from weft.engine.loop.loop_parts import parser_half
from weft.engine.loop.metrics import EngineMetrics
from weft.engine.loop.parser.parsing import MOST_PAGES_TOGETHER
from weft.engine.loop.parser.suspects import Heartbeat, Suspects
from weft.engine.loop.progress import CrawlProgress
from weft.engine.parsing.parsers import Parsers
from weft.frontier.contract import CrawlLimits, RobotsRecord
from weft.frontier.embedded.embedded_frontier import EmbeddedFrontier
from weft.records import FetchResult, Found, Lease
from weft.store.pages import PageStore
from weft.telemetry import Metrics, Slot
from weft.testing.content.resources import Reference, Resource
from weft.testing.content.texts import SyntheticTexts

SIZES = (5, 20, 100, 300)
LINKS = 60_000  # of each size, so that the queues spill and the caches are those of a crawl
HOSTS = 200
ROUNDS = 3
COMMIT_EVERY = 64  # pages: about what a core does between two commits
PAGE_BYTES = 30_000
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n"
ROBOTS = b"User-agent: *\nDisallow: /private/\nDisallow: /search\nDisallow: /*?print=\n"
STEPS = ("follow", "admit", "commit")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--links", type=int, default=LINKS)
    parser.add_argument("--size", type=int, help="one size, in this process")
    args = parser.parse_args()
    if args.profile:
        with temporary() as folder:
            profile(Path(folder), args.size or 100, args.links)
        return 0
    if args.size:
        with temporary() as folder:
            print(json.dumps(measured(Path(folder), args.size, args.links)))
        return 0
    rows = [best([in_process(size, args.links) for _ in range(ROUNDS)]) for size in SIZES]
    results.keep("fresh links", {"rows": rows})
    print(table(rows))
    return 0


def temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder for the frontier and the store."""
    return tempfile.TemporaryDirectory(prefix="weft-fresh-", dir=os.environ.get("TMPDIR"))


def in_process(size: int, links: int) -> dict[str, Any]:
    """One size in a process of its own."""
    command = [sys.executable, __file__, "--size", str(size), "--links", str(links)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def best(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run that cost least: whatever else a machine does comes on top of it."""
    return min(runs, key=lambda run: run["fresh_us"])


def measured(folder: Path, size: int, links: int) -> dict[str, Any]:
    """Microseconds a link, by step; of new links and of known ones."""
    crawl = Crawl(folder)
    count = max(HOSTS, links // size)
    fresh = crawl.read(count, size)
    known = crawl.read(count, size, again=True)
    assert crawl.frontier.status.stats().admitted == count * size + HOSTS, "every link was new once, and no more"
    crawl.close()
    amount = count * size
    row = {f"{step}_us": round(1e6 * fresh[step] / amount, 2) for step in STEPS}
    return {
        "new_a_page": size,
        "fresh_us": round(1e6 * sum(fresh[step] for step in STEPS) / amount, 2),
        "known_us": round(1e6 * sum(known[step] for step in STEPS) / amount, 2),
        **row,
        "by_difference_us": round(1e6 * (fresh["page"] - known["page"]) / amount, 2),
        "page_us": round(1e6 * fresh["page"] / count, 1),
        "links": amount,
    }


class Crawl:
    """The parts of a loop, and pages for them."""

    def __init__(self, folder: Path) -> None:
        politeness = PolitenessSection(delay_s=0.0, places=50)
        self.frontier = EmbeddedFrontier(folder / "frontier", politeness)
        self._store = PageStore.open([folder], crawl_id="bench")
        number = self.frontier.crawls.open_crawl("bench", CrawlLimits())
        self.frontier.recovery.recover()
        scope, self._progress = ScopeSection(scope="any"), CrawlProgress(None, 1)
        rules, book = AdmissionRules(scope, [], this_year=2026), RobotsBook(self.frontier.sites, "Weft/1")
        self._crawl = RunningCrawl(
            number, rules, scope, FetchSection(), self.frontier, self._progress, politeness=politeness
        )
        metrics = EngineMetrics(Metrics(folder / "metrics", Slot(0, "fetcher")), 5.0)
        self._suspects = Suspects(Heartbeat(folder))
        self._round, self._parsing = parser_half(
            self.frontier, self._store, {number: self._crawl}, self._suspects, metrics, Parsers(), sends_all=False
        )
        self._committer = Committer(self.frontier, self._store, lambda _step: None)
        self._texts = SyntheticTexts(0)
        self._next = 0
        self._used: deque[list[str]] = deque()
        self.frontier.queue.forbids = lambda _number, record, origin, urls: book.forbidden_urls(record, origin, urls)
        for host in range(HOSTS):
            book.store_record(origin(host), RobotsRecord("ok", ROBOTS, 9e12))
            book.rules_of_origin(origin(host))
        self.frontier.queue.admit(number, [Found(origin(host) + "/", 0) for host in range(HOSTS)])
        self.spent = Counter[str]()
        watched(self._parsing, "_follow_links", self.spent, "follow")
        watched(self._round, "_admit_urls", self.spent, "admit")
        watched(self.frontier.durability, "commit", self.spent, "commit")

    def read(self, count: int, size: int, *, again: bool = False) -> Counter[str]:
        """Reads so many pages with `size` links each, to new URLs or `again` to those of the pages read before.

        Gives what was spent, in seconds.
        """
        self.spent.clear()
        for start in range(0, count, COMMIT_EVERY):
            leases = self.frontier.leases.claim("bench", min(COMMIT_EVERY, count - start))
            assert len(leases) == min(COMMIT_EVERY, count - start)
            answers = [self._answer(lease, self._hrefs(lease, size, again)) for lease in leases]
            began = time.thread_time()
            for at in range(0, len(answers), MOST_PAGES_TOGETHER):
                self._parsing.handle(answers[at : at + MOST_PAGES_TOGETHER])
                self._round.flush()
            self._committer.commit()
            self.spent["page"] += time.thread_time() - began
        return self.spent.copy()

    def _hrefs(self, lease: Lease, size: int, again: bool) -> list[str]:
        """A page's links."""
        if again:
            self._used.rotate(-1)
            return self._used[0]
        hrefs = [href(self._next + at) for at in range(size)]
        self._next += size
        self._used.append(urls.join_all(lease.url, hrefs))
        return hrefs

    def _answer(self, lease: Lease, hrefs: list[str]) -> EndedTransfer:
        references = [Reference(one, None) for one in hrefs]
        title = f"Page {lease.item}"
        resource = Resource("/", references=references, language="en", title=title, key=lease.item, size=PAGE_BYTES)
        body = markup.render(resource, self._texts)
        result = FetchResult(lease.url, 200, HEAD, body, None, "", 1.0, 2.0, "127.0.0.1", b"GET / HTTP/1.1\r\n\r\n")
        return EndedTransfer(self._crawl, lease, result, 1_700_000_000.0)

    def close(self) -> None:
        """Ends everything."""
        self._committer.close()
        self._store.close()
        self.frontier.close()
        self._suspects.close()


def origin(number: int) -> str:
    """The origin of a host: a registrable domain of its own."""
    return f"http://www.{SLUGS[number & 7]}-{number:x}.org"


def href(number: int) -> str:
    """A link as pages write them; one in ten is to another host."""
    path = f"/{SLUGS[number % 7]}/{2000 + number % 27}/{SLUGS[number % 5]}-{number:x}.html"
    return path if number % 10 else origin(number * 7919 % HOSTS) + path


def watched(part: object, name: str, spent: Counter[str], step: str) -> None:
    """Has a method's CPU time counted."""
    method: Callable[..., Any] = getattr(part, name)

    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        try:
            return method(*args, **kwargs)
        finally:
            spent[step] += time.thread_time() - began

    setattr(part, name, timed)


def profile(folder: Path, size: int, links: int) -> None:
    """Where the time of a page goes, by function; the profiler makes calls dearer than they are."""
    crawl = Crawl(folder)
    crawl.read(HOSTS, size)
    profiler = cProfile.Profile(time.thread_time)
    take, flush, commit = crawl._parsing.handle, crawl._round.flush, crawl._committer.commit
    for part, name, method in (
        (crawl._parsing, "handle", take),
        (crawl._round, "flush", flush),
        (crawl._committer, "commit", commit),
    ):
        setattr(part, name, lambda *args, method=method: profiler.runcall(method, *args))
    crawl.read(max(HOSTS, links // size), size)
    crawl.close()
    pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)


def table(rows: list[dict[str, Any]]) -> str:
    """The Markdown table."""
    lines = [
        "| new links a page | a new link | followed | admitted | committed | by difference | a known link | the page |",
        "|---" * 8 + "|",
    ]
    lines += [
        f"| {row['new_a_page']} | {row['fresh_us']:.1f} µs | {row['follow_us']:.1f} µs | {row['admit_us']:.1f} µs | "
        f"{row['commit_us']:.1f} µs | {row['by_difference_us']:.1f} µs | "
        f"{row['known_us']:.1f} µs | {row['page_us']:.0f} µs |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
