"""Names to addresses: pins, literals, the cache and its times, lookups in threads that tell the loop."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator

import pytest
from pace import patience

from weft.fetch.dns.dns_system import TTL_S, lookup
from weft.fetch.dns.resolver import ABSENT_TTL_S, FAILED_TTL_S, ResolvedName, Resolver, literal


class Names:
    """A name server that counts, and can be held up."""

    def __init__(self, known: dict[str, tuple[str, ...]]) -> None:
        self.known = known
        self.asked: list[str] = []
        self.open = threading.Event()
        self.open.set()

    def __call__(self, host: str) -> tuple[str, ...]:
        self.asked.append(host)
        self.open.wait(patience(5))
        if host not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.known[host]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def names() -> Names:
    return Names({"a.example": ("192.0.2.1", "192.0.2.2"), "b.example": ("192.0.2.3",), "none.example": ()})


@pytest.fixture
def resolver(names: Names, clock: Clock) -> Iterator[Resolver]:
    made = Resolver({"pin.example": "192.0.2.9"}, lookup=names, clock=clock, size=3)
    yield made
    made.close()


def ask(resolver: Resolver, *hosts: str) -> dict[str, ResolvedName]:
    for host in hosts:
        resolver.ask(host)
    answers: dict[str, ResolvedName] = {}
    while len(answers) < len(set(hosts)):
        assert select.select([resolver.fileno()], [], [], 5)[0]
        answers |= dict(resolver.completed())
    return answers


def test_a_name_is_looked_up_and_kept(resolver: Resolver, names: Names) -> None:
    assert resolver.find("a.example") is None
    answer = ask(resolver, "a.example")["a.example"]
    assert answer.addresses == ("192.0.2.1", "192.0.2.2") and resolver.find("a.example") == answer
    assert names.asked == ["a.example"]


def test_many_askers_are_one_lookup(resolver: Resolver, names: Names) -> None:
    names.open.clear()
    for _ in range(10):
        resolver.ask("a.example")
    resolver.ask("b.example")
    assert resolver.completed() == []
    names.open.set()
    ask(resolver, "a.example", "b.example")
    assert sorted(names.asked) == ["a.example", "b.example"]


def test_an_answer_expires(resolver: Resolver, clock: Clock, names: Names) -> None:
    ask(resolver, "a.example")
    clock.now += TTL_S - 1
    assert resolver.find("a.example") is not None
    clock.now += 2
    assert resolver.find("a.example") is None
    names.known["a.example"] = ("192.0.2.7",)
    assert ask(resolver, "a.example")["a.example"].addresses == ("192.0.2.7",)


@pytest.mark.parametrize(
    ("host", "says", "kept_s"),
    [("no.example", "Name or service not known", ABSENT_TTL_S), ("none.example", "no address", FAILED_TTL_S)],
)
def test_a_failure_is_kept_for_a_while(resolver: Resolver, clock: Clock, host: str, says: str, kept_s: float) -> None:
    answer = ask(resolver, host)[host]
    assert (answer.addresses, answer.error) == ((), says)
    clock.now += kept_s - 1
    assert resolver.find(host) == answer
    clock.now += 2
    assert resolver.find(host) is None


def test_a_lookup_that_breaks_in_an_odd_way_is_a_failure() -> None:
    def broken(host: str) -> tuple[str, ...]:
        raise UnicodeError("label too long")

    resolver = Resolver(lookup=broken)
    assert ask(resolver, "x.example")["x.example"].error == "label too long"
    resolver.close()


def test_the_least_used_is_forgotten_first(resolver: Resolver, names: Names) -> None:
    names.known |= {"c.example": ("192.0.2.4",), "d.example": ("192.0.2.5",)}
    for host in ("a.example", "b.example", "c.example"):
        ask(resolver, host)
    resolver.find("a.example")
    ask(resolver, "d.example")
    assert resolver.find("b.example") is None and resolver.find("a.example") is not None


def test_pins_come_first_the_closest_wins() -> None:
    pins = {"a.example": "192.0.2.1", "*.example": "192.0.2.2", "*.x.example": "192.0.2.3", "*": "192.0.2.4"}
    resolver = Resolver(pins)
    found = {}
    for host in ("a.example", "b.example", "c.x.example", "d.c.x.example", "example", "other.test", "198.51.100.1"):
        answer = resolver.find(host)
        assert answer is not None
        found[host] = answer.addresses[0][-1]
    resolver.close()
    assert "".join(found.values()) == "1233444"


def test_a_wildcard_is_not_meant_for_proxies_and_sites_keep_their_pin(names: Names, clock: Clock) -> None:
    names.known["gate.example"] = ("203.0.113.5",)
    resolver = Resolver({"*": "192.0.2.4", "own.example": "192.0.2.5"}, lookup=names, clock=clock)
    assert resolver.find_proxy("198.51.100.1") == ResolvedName(("198.51.100.1",))
    assert resolver.find_proxy("own.example") == ResolvedName(("192.0.2.5",))
    assert resolver.find_proxy("gate.example") is None
    assert ask(resolver, "gate.example")["gate.example"].addresses == ("203.0.113.5",)
    as_proxy, as_site = resolver.find_proxy("gate.example"), resolver.find("gate.example")
    assert as_proxy is not None and as_proxy.addresses == ("203.0.113.5",)
    assert as_site == ResolvedName(("192.0.2.4",))
    clock.now += 86400
    assert resolver.find_proxy("gate.example") is None and resolver.find("gate.example") == as_site
    resolver.close()


def test_without_a_star_other_names_are_not_pinned(resolver: Resolver) -> None:
    assert resolver.find("pin.example") == ResolvedName(("192.0.2.9",))
    assert resolver.find("sub.pin.example") is None and resolver.find("pin.example.org") is None


def test_literals_need_no_lookup(resolver: Resolver, names: Names) -> None:
    assert resolver.find("192.0.2.77") == ResolvedName(("192.0.2.77",))
    assert resolver.find("[2001:db8::1]") == ResolvedName(("2001:db8::1",))
    assert names.asked == []


@pytest.mark.parametrize(
    ("host", "address"),
    [("127.0.0.1", "127.0.0.1"), ("[::1]", "::1"), ("[::ffff:1.2.3.4]", "::ffff:102:304"), ("a1", None), ("", None),
     ("1.2.3", None), ("2130706433", None), ("0x7f.1", None), ("[zz]", None), ("example.com", None)],
)  # fmt: skip
def test_what_is_a_literal(host: str, address: str | None) -> None:
    got = literal(host)
    assert got == address or (got is not None and address is not None and got.replace("1.2.3.4", "102:304") == address)


def test_the_system_is_asked() -> None:
    assert "127.0.0.1" in lookup("localhost") or "::1" in lookup("localhost")
    with pytest.raises(socket.gaierror):
        lookup("no-such-name.invalid")


def test_a_slow_name_does_not_hold_up_the_others(names: Names) -> None:
    slow = threading.Event()

    def some_are_slow(host: str) -> tuple[str, ...]:
        if host == "slow.example":
            slow.wait(patience(5))
        return ("192.0.2.1",)

    resolver = Resolver(lookup=some_are_slow, threads=2)
    resolver.ask("slow.example")
    assert set(ask(resolver, "a.example", "b.example", "c.example")) == {"a.example", "b.example", "c.example"}
    slow.set()
    resolver.close()


def test_closing_during_a_lookup_ends_the_threads(names: Names) -> None:
    names.open.clear()
    resolver = Resolver(lookup=names, threads=3)
    for host in ("a.example", "b.example", "c.example"):
        resolver.ask(host)
    resolver.close()
    names.open.set()
    for thread in threading.enumerate():
        if thread.name == "weft-dns":
            thread.join(patience(2))
            assert not thread.is_alive()
