"""What the audit makes of a request log: logs and robots.txt histories as frontiers leave them, with requests in them
that should not have been made, each at the edge of what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from logged_crawl import DELAY_S, SETTINGS, WALL, Crawled, begin, end, start

from weft.crawl.reports.audit import WORST_KEPT, AuditReport, Violation
from weft.frontier.durability.journal import FrontierJournal


@pytest.fixture
def crawled(tmp_path: Path) -> Crawled:
    made = Crawled(tmp_path / "crawl")
    made.robots("https://a", (0.0, b"User-agent: *\nDisallow: /private\n"))
    return made


def kinds(report: AuditReport) -> list[tuple[str, str]]:
    return [(one.kind, one.url.removeprefix("https://")) for one in report.violations]


def test_requests_that_kept_the_delay_are_counted_and_nothing_is_found(crawled: Crawled) -> None:
    crawled.log(begin(), start(1, 5, "/1"), end(1, 6), start(2, 16, "/2"), end(2, 17), start(3, 30, "/3"), end(3, 31))
    report = crawled.audit()
    assert (report.requests, report.sites, report.cut_off, report.violations) == (3, 1, 0, [])
    assert [(round(waited), needed, url) for waited, needed, url in report.closest[:2]] == [
        (10, 10.0, "https://a/2"),
        (13, 10.0, "https://a/3"),
    ]


def test_a_delay_counts_from_the_end_and_is_judged_to_the_microsecond(crawled: Crawled) -> None:
    crawled.log(
        begin(), start(1, 5, "/1"), end(1, 6), start(2, 15.999999, "/2"), end(2, 17), start(3, 26.999997, "/3"),
        end(3, 28), start(4, 37.5, "/4"), end(4, 38),
    )  # fmt: skip
    report = crawled.audit()
    assert kinds(report) == [("delay", "a/3"), ("delay", "a/4")]
    assert report.violations[1] == Violation(
        "delay", "https://a/4", "a", WALL + 37.5, "9.500 s after the last request, 10 s required"
    )


def test_with_several_places_the_delay_counts_between_starts(crawled: Crawled) -> None:
    crawled.log(
        begin(), start(1, 5, "/1", places=2), end(1, 14), start(2, 15, "/2", places=2), end(2, 16),
        start(3, 24, "/3", places=2), end(3, 25),
    )  # fmt: skip
    assert kinds(crawled.audit()) == [("delay", "a/3")]


@pytest.mark.parametrize("places", [1, 2])
def test_never_are_more_requests_open_than_places(crawled: Crawled, places: int) -> None:
    lines = [start(item, item * 20.0, f"/{item}", places=places) for item in range(1, places + 2)]
    crawled.log(begin(), *lines, *(end(item, 100.0 + item) for item in range(1, places + 2)))
    report = crawled.audit()
    assert kinds(report) == [("places", f"a/{places + 1}")]
    assert report.violations[0].detail == f"{places + 1} requests open, {places} allowed"
    assert report.requests == places + 1


def test_sites_are_judged_each_for_itself(crawled: Crawled) -> None:
    crawled.robots("https://b", (0.0, b""))
    crawled.log(begin(), start(1, 5), start(2, 5, host="b"), end(1, 6), end(2, 6), start(3, 7, host="b"), end(3, 8))
    report = crawled.audit()
    assert (report.sites, kinds(report)) == (2, [("delay", "b/1")])


def test_a_crawl_delay_counts_where_it_is_longer(crawled: Crawled) -> None:
    crawled.robots("https://slow", (0.0, b"User-agent: *\nCrawl-delay: 30\n"))
    crawled.robots("https://quick", (0.0, b"User-agent: *\nCrawl-delay: 2\n"))
    lines = []
    for item, host in ((1, "slow"), (11, "quick")):
        lines += [start(item, 5, host=host), end(item, 6), start(item + 1, 20, "/2", host=host), end(item + 1, 21)]
    crawled.log(begin(), *sorted(lines, key=lambda line: float(line.split("\t")[2])))
    report = crawled.audit()
    assert kinds(report) == [("delay", "slow/2")]
    assert report.violations[0].detail == "14.000 s after the last request, 30 s required"


def test_a_forbidden_page_is_told_with_its_rule(crawled: Crawled) -> None:
    crawled.log(begin(), start(1, 5, "/private/1"), end(1, 6), start(-1, 20, "/robots.txt"), end(-1, 21))
    report = crawled.audit()
    assert kinds(report) == [("robots", "a/private/1")]
    assert report.violations[0].detail == "Disallow: /private (line 2)"
    assert (report.requests, report.cut_off) == (2, 0)


def test_a_page_needs_a_robots_txt_and_a_robots_txt_none(crawled: Crawled) -> None:
    crawled.log(begin(), start(-1, 5, "/robots.txt", host="b"), end(-1, 6), start(1, 20, host="b"), end(1, 21))
    report = crawled.audit()
    assert kinds(report) == [("no-robots", "b/1")]
    assert report.violations[0].detail == "robots.txt had not been requested"


def test_the_robots_txt_of_that_time_counts(crawled: Crawled) -> None:
    forbidden = b"User-agent: *\nDisallow: /\n"
    crawled.robots("https://b", (50.0, b""), (100.0, forbidden), (150.0, b""))
    walls = {1: 49.999, 2: 50.0, 3: 99.999, 4: 100.0, 5: 149.999, 6: 150.0}
    # A claim is logged a moment before the record's own time is taken, within what is written down of it.
    lines = [line for item, at in walls.items() for line in (start(item, at, f"/{item}", host="b", delay_s=0.0),
                                                             end(item, at))]  # fmt: skip
    crawled.log(begin(), *lines)
    assert kinds(crawled.audit()) == [("no-robots", "b/1"), ("robots", "b/4"), ("robots", "b/5")]


def test_a_request_that_was_not_made_after_all_leaves_no_trace(crawled: Crawled) -> None:
    crawled.log(
        begin(), start(1, 5, "/1", places=2), end(1, 6), start(2, 20, "/private", places=2), end(2, 20.1, "unasked"),
        start(3, 21, "/3", places=2), end(3, 22),
    )  # fmt: skip
    report = crawled.audit()
    assert (report.requests, report.violations) == (2, [])
    assert not [url for _, _, url in report.closest if url.endswith("/private")], "it was never made"


def test_a_request_whose_lease_expired_may_have_lasted_until_then(crawled: Crawled) -> None:
    crawled.log(
        begin(), start(1, 5), end(1, 95, "expired"), start(2, 100, "/2"), end(2, 101), start(3, 120, "/private"),
        end(3, 130, "expired"), start(4, 135, "/4"), end(4, 136),
    )  # fmt: skip
    report = crawled.audit()
    assert kinds(report) == [("delay", "a/2")]
    assert (report.requests, report.cut_off) == (3, 1), "a forbidden one was never looked at again"


def test_a_process_that_dies_ends_its_requests_where_they_began(crawled: Crawled) -> None:
    crawled.log(begin(), start(1, 5), begin(12), start(2, 14, "/2"), end(2, 15), end(1, 16), start(3, 30, "/3"))
    report = crawled.audit()
    assert kinds(report) == [("delay", "a/2")], "what was under way is open no more, and its end is not known"
    assert report.requests == 3, "one that is open when the log ends was made"


def test_a_forbidden_claim_that_a_kill_cut_off_is_no_request(crawled: Crawled) -> None:
    crawled.log(begin(), start(1, 5, "/private/1"), begin(7), start(2, 8, "/private/2"))
    report = crawled.audit()
    assert (report.requests, report.cut_off, report.violations) == (0, 2, [])


def test_in_a_new_boot_the_clock_is_another_one(crawled: Crawled) -> None:
    crawled.log(
        begin(1000), start(1, 1005), end(1, 1006), start(2, 1020, "/2"),
        begin(3, boot="boot-2", wall=WALL + 2000), start(3, 4, "/3"), end(3, 5), start(4, 6, "/4"), end(4, 7),
    )  # fmt: skip
    report = crawled.audit()
    assert kinds(report) == [("delay", "a/4")]
    assert report.requests == 4


def test_a_process_that_dies_leaves_the_requests_of_the_others(crawled: Crawled) -> None:
    """A pod's fetchers have logs of their own, and share the sites."""
    crawled.log(begin(), start(1, 5), begin(30), slot="fetcher0")
    crawled.log(begin(1), start(2, 20, "/2"), start(3, 40, "/3"), slot="fetcher1")
    assert kinds(crawled.audit()) == [("places", "a/2"), ("places", "a/3")]
    crawled.log(begin(1), start(2, 32, "/2"), end(2, 33), slot="fetcher1")
    assert kinds(crawled.audit()) == []


def test_robots_txt_requests_of_two_pods_are_not_taken_for_one_another(tmp_path: Path) -> None:
    """Each pod numbers them from one again."""
    crawled = Crawled(tmp_path / "crawl", pods=2)
    for pod, host in enumerate("ab"):
        crawled.robots(f"https://{host}", (0.0, b""), pod=pod)
    crawled.log(begin(), start(-1, 5, "/robots.txt"), pod=0)
    crawled.log(begin(), start(-1, 6, "/robots.txt", host="b"), end(-1, 7), start(1, 8, host="b"), end(1, 9), pod=1)
    report = crawled.audit()
    assert (kinds(report), report.requests, report.sites) == ([("delay", "b/1")], 3, 2)


def test_ends_of_nothing_are_passed_over(crawled: Crawled) -> None:
    crawled.log(begin(), end(7, 1), start(1, 5), end(1, 6), end(1, 6), end(1, 9, "unasked"), start(2, 16, "/2"))
    report = crawled.audit()
    assert (report.requests, report.violations) == (2, [])


@pytest.mark.parametrize("order", [sorted, lambda waits: sorted(waits, reverse=True)])
def test_the_ten_closest_are_told_the_closest_first(
    crawled: Crawled, order: Callable[[list[float]], list[float]]
) -> None:
    waits = order([10.0 + number for number in range(WORST_KEPT + 5)])
    lines, at = [begin()], 0.0
    for item, wait in enumerate([0.0, *waits], 1):
        at += wait
        lines += [start(item, at, f"/{item}"), end(item, at)]
    crawled.log(*lines)
    report = crawled.audit()
    assert report.violations == []
    assert [(round(waited), needed) for waited, needed, _ in report.closest] == [
        (10 + number, 10.0) for number in range(WORST_KEPT)
    ]


def test_a_report_of_nothing_says_nothing() -> None:
    report = AuditReport()
    figures = (report.requests, report.sites, report.cut_off, report.unreadable, report.missing_bytes, report.unproven)
    assert figures == (0, 0, 0, 0, 0, 0)


def test_what_was_asked_before_a_frontier_was_made_anew_cannot_be_proven(crawled: Crawled) -> None:
    journal = FrontierJournal(crawled.folder.pod_folder(0) / "frontier.db")
    journal.put_meta("rebuilt_at", WALL + 50.0)
    journal.close()
    crawled.log(
        begin(), start(1, 20, "/1", host="lost"), end(1, 21), start(2, 49.9, "/2", host="lost"), end(2, 49.95),
        start(5, 50, "/5", host="late"), end(5, 51), start(3, 60, "/3", host="lost"), end(3, 61),
        start(4, 80, "/private"), end(4, 81),
    )  # fmt: skip
    report = crawled.audit()
    assert (report.unproven, report.requests) == (2, 5)
    assert kinds(report) == [("no-robots", "late/5"), ("no-robots", "lost/3"), ("robots", "a/private")], (
        "from that moment on everything is known"
    )


def test_a_host_of_one_letter_has_a_robots_txt_of_its_own(crawled: Crawled) -> None:
    crawled.robots("http://b", (0.0, b"User-agent: *\nDisallow: /private\n"))
    asked = [start(1, 10.0, host="b"), end(1, 10.5), start(2, 30.0, "/private", host="b"), end(2, 30.5)]
    crawled.log(begin(), *(line.replace("https:", "http:") for line in asked))
    report = crawled.audit()
    assert [(one.kind, one.url) for one in report.violations] == [("robots", "http://b/private")]


def test_a_request_is_judged_by_the_settings_in_force_when_it_was_sent(crawled: Crawled) -> None:
    """What a process believed its delay to be is no proof: the recorded settings are, each from its revision on."""
    crawled.folder.keep_settings(SETTINGS | {"politeness_delay_seconds": 1.0, "per_domain_concurrency": 2})
    crawled.log(
        begin(revision=1), start(1, 5, "/1", delay_s=1), end(1, 6), start(2, 8, "/2", delay_s=1, places=2), end(2, 9),
        begin(20, revision=2), start(3, 20, "/3", delay_s=1), end(3, 21), start(4, 23, "/4", delay_s=1), end(4, 24),
    )  # fmt: skip
    report = crawled.audit()
    assert kinds(report) == [("delay", "a/2")]
    assert report.violations[0].detail == "2.000 s after the last request, 10 s required"
    crawled.log(
        begin(revision=1), start(1, 5, "/1", places=2), start(2, 16, "/2", places=2), end(1, 17), end(2, 18),
        begin(30, revision=2), start(3, 30, "/3", places=2), start(4, 45, "/4", places=2), end(3, 46), end(4, 47),
    )  # fmt: skip
    assert ("places", "a/2") in kinds(crawled.audit()) and ("places", "a/4") not in kinds(crawled.audit())


def test_a_robots_txt_is_judged_by_the_user_agent_of_its_time(crawled: Crawled) -> None:
    crawled.robots("https://b", (0.0, b"User-agent: other\nDisallow: /\n"))
    crawled.folder.keep_settings(SETTINGS | {"user_agent_template": "Other/1"})
    crawled.log(begin(revision=1), start(1, 5, "/1", host="b"), end(1, 6), begin(30, revision=1))
    assert kinds(crawled.audit()) == [], "of Weft nothing is forbidden"
    crawled.log(begin(revision=2), start(1, 5, "/1", host="b"), end(1, 6))
    assert kinds(crawled.audit()) == [("robots", "b/1")]


@pytest.mark.parametrize("wall_s", [-1e6, 1e6])
def test_a_wall_clock_that_is_set_changes_no_verdict(tmp_path: Path, wall_s: float) -> None:
    """The robots.txt was fetched, then the clock was set: by its time it is later than the requests, or far earlier."""
    made = Crawled(tmp_path / "crawl")
    made.robots("https://a", (0.0, b"User-agent: *\nDisallow: /old\n"), (5.0, b"User-agent: *\nDisallow: /new\n"))
    (log,) = (made.folder.frontier / "requests").iterdir()
    old, new = (line.rpartition("\t")[0] + "\n" for line in log.read_text().splitlines() if line.startswith("R"))

    def at(item: int, second: float, path: str) -> str:
        return f"S\t{item}\t{second:.6f}\t{WALL + second + wall_s:.6f}\ta\t{DELAY_S:g}\t1\thttps://a{path}\n"

    lines = [begin(), old, at(1, 20, "/new"), end(1, 21), new, at(2, 40, "/new"), end(2, 41), at(3, 60, "/old")]
    made.log(*lines)
    assert kinds(made.audit()) == [("robots", "a/new")]
    assert made.audit().violations[0].wall == WALL + 40 + wall_s, "the first one was allowed then"


def test_boots_follow_each_other_as_in_the_logs_whatever_the_wall_clock_said(tmp_path: Path) -> None:
    """In the second boot the clock was years behind; one slot ran in both."""
    made = Crawled(tmp_path / "crawl", pods=2)
    made.robots("https://a", (0.0, b""), pod=0)
    first = begin(100, "boot-1"), start(1, 101, "/1"), end(1, 102)
    second = begin(5, "boot-2", wall=1.0), start(2, 6, "/2"), end(2, 7)
    made.log(*first, *second, slot="pod0-fetcher0")
    made.log(begin(10, "boot-2", wall=2.0), start(3, 12, "/3"), end(3, 13), slot="pod0-fetcher1")
    assert ("delay", "a/3") in kinds(made.audit()) and ("delay", "a/2") not in kinds(made.audit())
