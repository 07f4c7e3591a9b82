"""Which proxy is next: cheap ones first, good ones more often, none that rests or is banned, and kept where asked."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from weft.fetch.proxies import rotation as rules
from weft.fetch.proxies.entry import Proxy, parse
from weft.fetch.proxies.rotation import ProxyOutcome, Rotation


def proxies(*names: str, tier: int = 0) -> list[Proxy]:
    return [Proxy("http", name, 80, tier=tier) for name in names]


def rotation(*entries: Proxy) -> Rotation:
    return Rotation(entries, random.Random(7))


def taken(made: Rotation, count: int = 300, now: float = 0.0, domain: str = "site", **how: bool) -> Counter[str]:
    return Counter(proxy.host for _ in range(count) if (proxy := made.choose(domain, now, **how)) is not None)


def end(
    made: Rotation, host: str, outcome: ProxyOutcome, now: float = 0.0, domain: str = "site", took_s: float = 0.1
) -> None:
    made.ended(f"http://{host}:80", domain, outcome, took_s, now)


def test_all_that_are_alike_have_their_share() -> None:
    assert min(taken(rotation(*proxies("a", "b", "c")), 600).values()) > 100


def test_the_quicker_and_the_more_reliable_are_asked_more_often_and_no_other_never() -> None:
    made = rotation(*proxies("good", "slow"))
    for _ in range(30):
        end(made, "good", ProxyOutcome.OK, took_s=0.1)
        end(made, "slow", ProxyOutcome.OK, took_s=9.0)
    shares = taken(made, 1000)
    assert shares["good"] > 5 * shares["slow"] > 0


def test_one_that_fails_rests_twice_as_long_each_time_and_dies_in_the_end() -> None:
    made, now = rotation(*proxies("a")), 0.0
    for failures in range(1, rules.FAILS_TO_DIE):
        end(made, "a", ProxyOutcome.FAILED, now)
        rest_s = rules.FIRST_REST_S * 2 ** (failures - 1)
        assert made.choose("site", now + rest_s - 0.01) is None
        now += rest_s
        assert made.choose("other", now) is not None
    end(made, "a", ProxyOutcome.FAILED, now)
    assert (made.choose("site", now + 1e9), made.usable(now + 1e9)) == (None, 0)
    made.replace([(proxies("a")[0], 0.2)])
    assert (made.usable(now), taken(made, 1, now)) == (1, Counter(a=1)), "it was tested, and is here again"


def test_an_answer_ends_a_row_of_failures() -> None:
    made, now = rotation(*proxies("a")), 0.0
    for _ in range(3 * rules.FAILS_TO_DIE):
        end(made, "a", ProxyOutcome.FAILED, now)
        end(made, "a", ProxyOutcome.OK, now)
        now += rules.FIRST_REST_S
        assert made.choose("site", now) is not None


def test_one_that_a_site_blocks_is_banned_there_and_nowhere_else() -> None:
    made = rotation(*proxies("a", "b"))
    end(made, "a", ProxyOutcome.BLOCKED, 10.0)
    assert taken(made, 50, 10.0) == Counter(b=50)
    assert taken(made, 50, 10.0, "other")["a"] > 5
    assert taken(made, 50, 10.0 + rules.FIRST_BAN_S)["a"] > 5
    end(made, "a", ProxyOutcome.BLOCKED, 400.0)
    assert taken(made, 50, 400.0 + 1.5 * rules.FIRST_BAN_S) == Counter(b=50), "twice as long the second time"
    end(made, "a", ProxyOutcome.OK, 2000.0)
    end(made, "a", ProxyOutcome.BLOCKED, 2000.0)
    assert taken(made, 50, 2000.0 + rules.FIRST_BAN_S)["a"] > 5


def test_dearer_ones_come_when_a_site_blocks_the_cheap_and_go_again() -> None:
    made = rotation(*proxies(*"abcdefgh"), *proxies("dear", tier=3))
    assert "dear" not in taken(made)
    for host in "abc"[: rules.BLOCKS_PER_TIER - 1]:
        end(made, host, ProxyOutcome.BLOCKED)
    assert "dear" not in taken(made)
    end(made, "h", ProxyOutcome.BLOCKED)
    assert taken(made, 20) == Counter(dear=20)
    assert "dear" not in taken(made, domain="other")
    assert "dear" not in taken(made, now=rules.RAISED_S)


def test_dearer_ones_come_when_no_cheap_one_may_be_used_and_cheap_ones_when_there_is_nothing_above() -> None:
    made = rotation(*proxies("cheap"), *proxies("dear", tier=1))
    end(made, "cheap", ProxyOutcome.FAILED)
    assert taken(made, 5, 1.0) == Counter(dear=5)
    alone = rotation(*proxies(*"abcd"))
    for host in "abc":
        end(alone, host, ProxyOutcome.BLOCKED)
    assert taken(alone, 5) == Counter(d=5)


def test_a_sticky_site_keeps_its_proxy_until_that_may_not_be_used() -> None:
    made = rotation(*proxies(*"abcdef"))
    ((kept, count),) = taken(made, 40, sticky=True).items()
    assert count == 40
    end(made, kept, ProxyOutcome.BLOCKED)
    ((another, _),) = taken(made, 40, sticky=True).items()
    assert another != kept
    end(made, another, ProxyOutcome.FAILED)
    ((third, _),) = taken(made, 40, sticky=True).items()
    assert third not in (kept, another)


def test_sites_that_are_apart_share_none() -> None:
    made = rotation(*proxies(*"abc"))
    first, second = taken(made, 50, domain="one", apart=True), taken(made, 50, domain="two", apart=True)
    third = taken(made, 50, domain="three", apart=True)
    assert (len(first), len(second), len(third)) == (1, 1, 1)
    assert set(first) | set(second) | set(third) == set("abc")
    assert made.choose("four", 0.0, apart=True) is None
    assert set(taken(made, 200, domain="four")) == set("abc"), "whoever does not mind shares"


def test_what_is_known_of_those_that_stay_is_kept_and_the_ends_of_others_are_no_error() -> None:
    made = rotation(*proxies("a", "b"))
    end(made, "a", ProxyOutcome.BLOCKED)
    made.replace([(proxy, 0.5) for proxy in proxies("a", "c")])
    assert taken(made, 50) == Counter(c=50)
    end(made, "b", ProxyOutcome.FAILED)
    assert len(made) == 2


@pytest.mark.parametrize("count", [0, 1])
def test_where_there_are_none_none_is_chosen(count: int) -> None:
    made = rotation(*proxies(*"a"[:count]))
    assert (len(made), made.usable(0.0), made.choose("site", 0.0) is None) == (count, count, not count)


def test_the_one_free_proxy_among_thousands_is_found() -> None:
    proxies = [parse(f"10.0.{number >> 8}.{number & 255}:80") for number in range(3000)]
    rotation = Rotation(proxies, random.Random(1))
    for proxy in proxies[:-1]:
        rotation.ended(proxy.url, "site.test", ProxyOutcome.BLOCKED, 0.1, 10.0)
    assert rotation.choose("site.test", 11.0) == proxies[-1]
    assert len({rotation.choose("other.test", 11.0) for _ in range(500)}) > 200


def test_a_dead_site_does_not_use_up_the_proxies_and_a_proxy_that_reaches_none_rests() -> None:
    good, bad = parse("10.0.0.1:80"), parse("10.0.0.2:80")
    rotation = Rotation([good, bad], random.Random(1))
    for _ in range(20):
        rotation.ended(good.url, "dead.test", ProxyOutcome.UNREACHED, 1.0, 10.0)
    assert rotation.usable(11.0) == 2
    assert {rotation.choose("dead.test", 11.0) for _ in range(20)} == {bad}
    for domain in ("dead.test", "a.test", "b.test"):
        rotation.ended(bad.url, domain, ProxyOutcome.UNREACHED, 1.0, 10.0)
    assert rotation.usable(11.0) == 1
    assert rotation.choose("dead.test", 11.0) is None


def test_a_site_that_is_not_reached_meanwhile_does_not_shorten_a_ban() -> None:
    proxy = parse("10.0.0.1:80")
    rotation = Rotation([proxy], rest_s=1.0, ban_s=100.0)
    rotation.ended(proxy.url, "a.test", ProxyOutcome.BLOCKED, 0.1, 0.0)
    rotation.ended(proxy.url, "a.test", ProxyOutcome.UNREACHED, 0.1, 1.0)  # it was on its way already
    assert rotation.choose("a.test", 99.0) is None
    assert rotation.choose("a.test", 100.0) == proxy
    rotation.ended(proxy.url, "a.test", ProxyOutcome.BLOCKED, 0.1, 100.0)
    assert rotation.choose("a.test", 299.0) is None, "twice as long the second time"


def test_of_two_logins_at_one_address_the_one_that_works_is_used_while_the_other_rests() -> None:
    old, new = parse("me:old@10.0.0.1:80"), parse("me:new@10.0.0.1:80")
    rotation = Rotation([old, new], random.Random(1))
    rotation.ended(old.url, "a.test", ProxyOutcome.FAILED, 0.1, 0.0)
    assert rotation.usable(1.0) == 1
    assert {rotation.choose("a.test", 1.0) for _ in range(9)} == {new}
