"""What the frontiers of an engine with many crawls do in addition: crawls may differ in what they trust."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from harnesses import ALLOW, CheckpointedHarness, EmbeddedHarness, PodHarness, no_robots, pages

from weft.frontier.contract import CrawlLimits, End, EndedLease, TransferEnd

Make = Callable[..., EmbeddedHarness]


@pytest.fixture(params=[EmbeddedHarness, CheckpointedHarness, PodHarness])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., EmbeddedHarness]]:
    made: list[EmbeddedHarness] = []

    def build(**politeness: Any) -> EmbeddedHarness:
        made.append(request.param(tmp_path / f"f{len(made)}", **politeness))
        return made[-1]

    yield build
    for harness in made:
        harness.close()


def test_a_breaker_binds_the_crawls_of_its_trust_alone(make: Make) -> None:
    harness = make(delay_s=1.0, breaker_failures=2, breaker_reset_s=300.0, breaker_max_probes=1)
    frontier = harness.start()
    no_robots(harness, "a")
    crawls = [
        frontier.crawls.open_crawl(name, CrawlLimits(), harness.section) for name in ("pinned", "pinned too", "plain")
    ]
    pinned, pinned_too, plain = crawls
    for crawl in (pinned, pinned_too):
        frontier.crawls.follow(crawl, 1, "pinned")
        frontier.sites.robots_known("pinned http://a", ALLOW, None)
    for crawl in crawls:
        frontier.queue.admit(crawl, pages("a", 9))
    failed = Counter[int]()
    asked: list[tuple[float, int]] = []
    began = harness.time
    while harness.time < began + 400:
        for lease in frontier.leases.claim("me", 10):
            asked.append((harness.time - began, lease.crawl))
            ok = lease.crawl == plain
            failed[lease.crawl] += not ok
            frontier.leases.cool([TransferEnd(lease, harness.time, ok=ok)])
            frontier.leases.finish([EndedLease(lease, End.PAGE if ok else End.OTHER)])
        harness.advance(0.5)
    assert [whose for _, whose in asked].count(plain) == 9 and max(at for at, whose in asked if whose == plain) < 60
    assert sum(failed.values()) == 3, "two open it, one is the probe after its time"
    assert max(at for at, whose in asked if whose != plain) >= 300
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(asked)]
    assert min(gaps) >= 0.95, "the clock is everybody's"
    rejected = Counter(rejection.crawl for rejection in frontier.rejected.rejections())
    assert rejected[plain] == 0 and rejected[pinned] + rejected[pinned_too] == 18 - 3
