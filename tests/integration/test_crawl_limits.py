"""Where a crawl may go and when it must stop: each setting through the command line, against the oracle.

Each crawl has a web of its own, whose log is the judge.
"""

from __future__ import annotations

import fcntl
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from crawling import Crawler, check_corpus
from pace import patience

from weft import urls
from weft.testing.judge import judge
from weft.testing.web import SyntheticWeb, synthetic_web

DELAY_S = 0.02
CALM: dict[str, Any] = {"hosts": 12, "pages": 100, "seed": 2, "profile": "calm", "stocked": 1}
# Several seeds, one of which redirects; slow hosts, so that what is deep may be found before what is near.
MESSY: dict[str, Any] = {"hosts": 10, "pages": 60, "seed": 12, "profile": "messy", "stocked": 1}


def against_the_oracle(
    folder: Path, world: dict[str, Any], flags: list[object], plan: dict[str, Any], code: int = 0
) -> None:
    """One crawl with these flags does what the oracle expects of this plan."""
    with synthetic_web(**world) as web:
        crawler = Crawler(plan.get("seeds", web.seeds), folder, *flags, delay_s=DELAY_S)
        assert crawler.run() == code, crawler.said
        verdict = web.judge(delay_s=DELAY_S, **plan)
        assert verdict.ok, verdict
        assert verdict.requests > 3
        check_corpus(crawler)


def depth(most: int, world: dict[str, Any]) -> Callable[[Path], None]:
    return lambda folder: against_the_oracle(folder, world, ["--max-depth", most], {"max_depth": most})


def scope(name: str, world: dict[str, Any]) -> Callable[[Path], None]:
    return lambda folder: against_the_oracle(folder, world, ["--scope", name], {"scope": name})


def patterns(include: str, exclude: str, world: dict[str, Any]) -> Callable[[Path], None]:
    flags: list[object] = ["--include", include, "--exclude", exclude]
    return lambda folder: against_the_oracle(folder, world, flags, {"include": (include,), "exclude": (exclude,)})


def seeds_alone(folder: Path) -> None:
    against_the_oracle(folder, MESSY, ["--seeded-urls-only"], {"seeded_urls_only": True})


def excluded_domains(folder: Path) -> None:
    with synthetic_web(**CALM) as web:
        hosts = [site.host for site in web.world.ordinary[3:6]]
        listed = folder / "excluded.txt"
        listed.write_text("# not these\n" + "\n".join(f"{host}  # why" for host in hosts) + "\n\n")
        crawler = Crawler(web.seeds, folder, "--exclude-file", listed, delay_s=DELAY_S)
        assert crawler.run() == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S, exclude_domains=tuple(hosts))
        assert verdict.ok, verdict
        assert not {arrival.host for arrival in web.arrivals()} & {*hosts}
        assert crawler.status()["refused"]["excluded"] > 0


def pages_per_domain(folder: Path) -> None:
    """Never more, and all of them where there are that many."""
    with synthetic_web(**CALM) as web:
        crawler = Crawler(web.seeds, folder, "--max-pages-per-domain", 4, delay_s=DELAY_S)
        assert crawler.run() == 3, crawler.said
        found = Counter(urls.host_of(row.url) for row in crawler.pages())
        assert max(found.values()) == 4
        assert all(found[site.host] == 4 for site in web.world.ordinary[:3])
        assert crawler.run("--max-pages-per-domain", 9, resume=True) == 3, crawler.said
        assert max(Counter(urls.host_of(row.url) for row in crawler.pages()).values()) == 9
        rows = check_corpus(crawler)
        verdict = web.judge(delay_s=DELAY_S, max_pages_per_domain=9)
        # A page is a stored 2xx; the server cannot see which of its answers say noindex and are not stored.
        unstored = {urls.host_of(row.url) for row in rows if row.error == "noindex"}
        assert {fault.partition(":")[0] for fault in verdict.over_budget} <= unstored
        verdict.over_budget = []
        assert verdict.ok, verdict


def pages_in_all(folder: Path) -> None:
    """Exactly as many as asked for, and after a resume with more exactly those."""
    with synthetic_web(**MESSY | {"pages": 600}) as web:
        crawler = Crawler(web.seeds, folder, "--max-pages", 100, delay_s=DELAY_S)
        assert crawler.run() == 3, crawler.said
        assert len(crawler.pages()) == 100 == crawler.status()["pages"]
        assert "Stopped by a limit" in crawler.said and "--resume" in crawler.said.splitlines()[-1]
        assert crawler.run(resume=True) == 3, "the limit that it was started with counts still"
        assert len(crawler.pages()) == 100
        assert crawler.run("--max-pages", 200, resume=True) == 3, crawler.said
        assert len(crawler.pages()) == 200
        check_corpus(crawler)
        incomplete(web)


def duration(folder: Path) -> None:
    """Stops in time, and the rest comes after a resume with nothing asked for twice."""
    with synthetic_web(**CALM | {"pages": 300}) as web:
        crawler = Crawler(web.seeds, folder, delay_s=10 * DELAY_S)
        assert crawler.run("--max-duration", min(patience(1), 10)) == 3, crawler.said
        some = len(crawler.pages())
        assert crawler.status()["queued"] > 0
        assert crawler.run("--delay", DELAY_S, resume=True) == 0, crawler.said
        verdict = web.judge(delay_s=DELAY_S)
        assert verdict.ok, verdict
        assert len(check_corpus(crawler)) > some


def incomplete(web: SyntheticWeb) -> None:
    web.stop()
    verdict = judge(web.arrivals(), web.expect(), DELAY_S, complete=False)
    assert verdict.ok, verdict


def duration_of_a_long_start(folder: Path) -> None:
    """The time of a crawl that is still opening its folder is over, too: here it waits for another process's lock."""
    lock = folder / "data" / "frontier" / "lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        crawler = Crawler(["http://127.0.0.1:9/"], folder, "--max-duration", 1)
        assert crawler.run() == 3, crawler.said
    assert (crawler.status()["state"], crawler.status()["note"]) == ("limit", "max_duration")


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "max_depth 0": depth(0, MESSY),
    "max_depth 1": depth(1, MESSY),
    "max_depth 2": depth(2, CALM),
    "max_depth 3, messy": depth(3, MESSY),
    "scope domain": scope("domain", CALM),
    "scope prefix": scope("prefix", CALM),
    "scope host, messy": scope("host", MESSY),
    "include by glob, exclude by regex": patterns("*/blog/*", r"re:127\.1\.0\.[24]:", CALM),
    "include by regex, exclude by glob": patterns(r"re:/(blog|guides|archive)/", "*.html", CALM),
    "seeded_urls_only": seeds_alone,
    "exclude_file": excluded_domains,
    "max_pages_per_domain": pages_per_domain,
    "max_pages": pages_in_all,
    "max_duration": duration,
    "max_duration of a long start": duration_of_a_long_start,
}


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_a_crawl_keeps_to_it(crawls: dict[Any, Future[None]], scenario: Any) -> None:
    crawls[scenario].result()
