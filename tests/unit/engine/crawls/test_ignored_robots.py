"""`ignore_robots`: at which hosts robots.txt is not applied, and that nobody else's crawl learns of it."""

from __future__ import annotations

import pytest

from weft.config import load
from weft.engine.crawls.limits import robots_ignored_at
from weft.engine.crawls.settings import trust_key_of
from weft.engine.loop.fetcher.robots import rules_of, without_rules
from weft.errors import BadConfig
from weft.frontier.contract import RobotsRecord

GIVEN = {"ignore_robots": True, "allow_private": True, "resolve": {"in.test": "10.0.0.5", "out.test": "93.184.216.34"}}


@pytest.mark.parametrize(
    ("host", "is_ignored"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("[::1]", True),
        ("192.168.3.4", True),
        ("in.test", True),
        ("out.test", False),
        ("staging.example.com", False),  # only DNS knows where it leads
        ("93.184.216.34", False),
        ("169.254.169.254", False),
    ],
)
def test_robots_txt_is_ignored_at_private_hosts_alone(host: str, is_ignored: bool) -> None:
    assert robots_ignored_at(load(flags=GIVEN, environment={}).config)(host) is is_ignored
    assert not robots_ignored_at(load(flags=GIVEN | {"ignore_robots": False}, environment={}).config)(host)


def test_it_needs_private_addresses_to_be_allowed() -> None:
    with pytest.raises(BadConfig, match="ignore_robots`: is for loopback and private addresses alone"):
        load(flags={"ignore_robots": True}, environment={})


def test_crawls_that_obey_share_no_robots_txt_with_one_that_does_not() -> None:
    fetch = load(flags=GIVEN, environment={}).config.fetch
    assert trust_key_of(fetch, ignores_robots=True) != trust_key_of(fetch)


def test_sitemaps_stay_and_a_refused_address_stays_refused() -> None:
    robots = RobotsRecord("ok", b"User-agent: *\nDisallow: /\nSitemap: http://a.test/map.xml\n", 1.0)
    rules = rules_of(without_rules(robots))
    assert rules.allows("weft", "http://a.test/x") and [*rules.sitemaps] == ["http://a.test/map.xml"]
    assert rules_of(without_rules(RobotsRecord("unreachable", b"", 1.0))).allows("weft", "http://a.test/x")
    refused = RobotsRecord("address", b"", 1.0)
    assert without_rules(refused) is refused
