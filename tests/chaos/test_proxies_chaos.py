"""Many proxies, most of them bad in some way: the right verdict for each, and the right pause after each failure."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from crawling import Crawler, audited
from pace import patience
from ports import free_port
from proxying import EchoSite, Proxies, hangs, hijacks

from weft.config import FetchSection, ProxySection
from weft.fetch.proxies.entry import parse, parse_list
from weft.fetch.proxies.probe import Probe

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
ENTRIES = 3000 if FULL else 150
PAGES = 300 if FULL else 40
REST_S = 0.5
ROUNDING_S = 0.001  # tinyproxy tells times cut to the millisecond


@pytest.mark.usefixtures("proxies_here")
def test_of_many_proxies_each_gets_the_right_verdict(tmp_path: Path) -> None:
    """Many logins at few proxies, dead ports, and proxies that hang, lie or want another password."""
    chance = random.Random(19)
    with EchoSite() as site, Proxies(tmp_path) as running:
        http, socks = running.tinyproxy("127.0.0.3"), running.microsocks("127.0.0.4")
        locked = running.microsocks("127.0.0.5", "user", "p@ss")
        hanging, lying, dead = running.listening(hangs), running.listening(hijacks), free_port()
        # By kind: how often, the entry of a number, whether it works.
        kinds: dict[str, tuple[int, Callable[[int], str], bool]] = {
            "http": (4, lambda number: f"http://user{number}:x@127.0.0.1:{http.port}", True),
            "socks": (1, lambda _: f"socks5h://127.0.0.1:{socks.port}", True),
            "login": (1, lambda _: f"socks5://user:p@ss@127.0.0.1:{locked.port}", True),
            "wrong": (2, lambda number: f"socks5://user{number}:other@127.0.0.1:{locked.port}", False),
            "dead": (8, lambda number: f"http://user{number}:x@127.0.0.1:{dead}", False),
            "lies": (2, lambda number: f"http://user{number}:x@127.0.0.1:{lying}", False),
            "hangs": (1, lambda number: f"http://user{number}:x@127.0.0.1:{hanging}", False),
        }
        chosen = chance.choices(list(kinds), [kinds[kind][0] for kind in kinds], k=ENTRIES)
        expected = {kinds[kind][1](number): kinds[kind][2] for number, kind in enumerate(chosen)}
        section = ProxySection(test_url=site.url, timeout_s=patience(2), parallel=200)
        probe = Probe(section, FetchSection(email="a@b.test"), lambda _: None)
        found = {one.proxy.url: one.why for one in probe.run(map(parse, expected), probe.expect())}
    assert len(found) == len(expected)
    for entry, works in expected.items():
        assert (not found[parse(entry).url]) == works, (entry, found[parse(entry).url])


@pytest.mark.usefixtures("proxies_here")
def test_a_proxy_that_fails_or_is_blocked_is_left_alone_for_its_time_and_then_asked_again(tmp_path: Path) -> None:
    """By the proxies' own logs: never within its time, and longer and longer. (A request that fails in another way, as
    on a busy machine, costs the shortest time.) What the crawl itself logged says that it was polite."""
    with EchoSite(pages=1) as site, Proxies(tmp_path) as running:
        fine, blocked = running.tinyproxy("127.0.0.3"), running.tinyproxy("127.0.0.7")
        locked = running.tinyproxy("127.0.0.8", "user another")
        site.blocked = {"127.0.0.7"}
        listed = tmp_path / "list.txt"
        listed.write_text("".join(f"127.0.0.1:{one.port}\n" for one in (fine, blocked, locked)))
        seeds = [f"{site.url}page/{number}" for number in range(PAGES)]
        rests = ("--proxy-rest-seconds", REST_S, "--proxy-ban-seconds", REST_S)
        crawler = Crawler(seeds, tmp_path, "--proxies", listed, *rests, delay_s=0.1)
        assert crawler.run() == 0, crawler.said
        for one in (blocked, locked):
            waited = [(after - before).total_seconds() for before, after in pairwise(one.times("/page/"))]
            assert len(waited) >= (4 if FULL else 1), f"it was not asked again: {waited}"
            assert min(waited) > REST_S - ROUNDING_S, waited
            assert not FULL or max(waited) > 8 * REST_S, waited
            print(f"asked again after {waited} s")
        assert len(fine.times("/page/")) > len(blocked.times("/page/")) + len(locked.times("/page/"))
    report = audited(crawler.data_dir)
    assert not report.violations and report.requests >= PAGES


def test_a_list_of_a_hundred_thousand_lines_is_read_line_by_line() -> None:
    """Rubbish, duplicates and logins with any letters, in one pass."""
    chance = random.Random(41)
    rubbish = ["", "#", "nonsense", "1.2.3.4", "1.2.3.4:99999", "http://", "\x00\x01", "x" * 3000, "ftp://1.2.3.4:1"]
    lines = [f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:8080" for number in range(50_000)]
    lines += [f"user:p@s:s@10.9.{number >> 8 & 255}.{number & 255}:1080" for number in range(20_000)]
    lines += chance.choices(rubbish, k=20_000) + chance.choices(lines, k=10_000)
    chance.shuffle(lines)
    listed = parse_list(lines)
    assert len(listed.proxies) == 70_000
    assert listed.duplicates == 10_000
