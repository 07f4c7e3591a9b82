"""A refresh over many proxies, most of them bad in some way: the right verdict for each."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pace import patience
from proxying import EchoSite, Proxies, free_port, hangs, hijacks

from weft.config import FetchSection, ProxySection
from weft.fetch.proxies.entry import parse, parse_list
from weft.fetch.proxies.probe import Probe

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
ENTRIES = 3000 if FULL else 150


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
