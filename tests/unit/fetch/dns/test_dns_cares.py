"""Names by c-ares, from a real name server on loopback that answers well, badly, late, or not at all."""

from __future__ import annotations

import builtins
import select
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import patience

from weft.config import FetchSection
from weft.errors import BadInput
from weft.fetch.curl.client import Client
from weft.fetch.dns import dns_cares
from weft.fetch.dns import resolver as dns
from weft.fetch.dns.dns_cares import CaresLookups, servers_in
from weft.fetch.dns.dns_system import ThreadLookups
from weft.fetch.dns.resolver import ResolvedName, Resolver
from weft.fetch.guard import Guard
from weft.records import FetchResult
from weft.testing.name_server import NameServer, Says

TRY_S = 0.1  # for one try; three are made
ZONE = {
    "a.example": Says("192.0.2.1", "192.0.2.2", ttl_s=77),
    "six.example": Says("2001:db8::1"),
    "alias.example": Says("192.0.2.5", how="alias"),
    "cut.example": Says(*(f"192.0.2.{number}" for number in range(1, 60)), how="cut"),
    "late.example": Says("192.0.2.9", how="late", late_s=1.5 * TRY_S),
    "forged.example": Says("192.0.2.8", how="forged"),
    "none.example": Says(),
    "loop.example": Says(how="loop"),
    "failed.example": Says(how="servfail"),
    "refused.example": Says(how="refused"),
    "never.example": Says(how="never"),
    "stray.example": Says(how="other"),
    "garbage.example": Says(how="garbage"),
    "brief.example": Says("192.0.2.3", ttl_s=0),
    "long.example": Says("192.0.2.4", ttl_s=1_000_000),
}


@pytest.fixture
def server() -> Iterator[NameServer]:
    with NameServer(ZONE) as names:
        yield names


@pytest.fixture
def resolver(server: NameServer) -> Iterator[Resolver]:
    made = Resolver({"pin.example": "192.0.2.99"}, servers=[server.address], timeout_s=TRY_S)
    yield made
    made.close()


def ask(resolver: Resolver, *hosts: str) -> dict[str, ResolvedName]:
    """What the client's loop does: waits for answers and for time limits."""
    for host in hosts:
        resolver.ask(host)
    answers: dict[str, ResolvedName] = {}
    until = time.monotonic() + patience(10)
    while len(answers) < len(set(hosts)):
        assert time.monotonic() < until, f"no answer for {set(hosts) - answers.keys()}"
        select.select([resolver.fileno()], [], [], max(0.0, min(1.0, resolver.due - time.monotonic())))
        answers |= dict(resolver.completed())
    return answers


@pytest.mark.parametrize(
    ("host", "addresses"),
    [
        ("a.example", ("192.0.2.1", "192.0.2.2")),
        ("six.example", ("2001:db8::1",)),
        ("alias.example", ("192.0.2.5",)),
        ("late.example", ("192.0.2.9",)),
        ("forged.example", ("192.0.2.8",)),
        ("localhost", ("127.0.0.1", "::1")),  # of /etc/hosts, or built in
    ],
)
def test_addresses_are_found(resolver: Resolver, host: str, addresses: tuple[str, ...]) -> None:
    found = ask(resolver, host)[host].addresses
    assert set(found) <= set(addresses) and found[0] == addresses[0]


def test_a_cut_answer_is_asked_for_again_over_tcp(resolver: Resolver, server: NameServer) -> None:
    assert len(ask(resolver, "cut.example")["cut.example"].addresses) == 59
    assert server.asked["cut.example", "tcp"]


@pytest.mark.parametrize(
    ("host", "says", "outcome"),
    [
        ("no.example", "the name does not exist", "absent"),
        ("none.example", "the name has no address", "empty"),
        ("loop.example", "the name has no address", "empty"),
        ("failed.example", "the name server has failed", "failed"),
        ("refused.example", "the name server refuses the question", "refused"),
        ("never.example", "no name server has answered", "timeout"),
        ("stray.example", "no name server has answered", "timeout"),
        ("garbage.example", "the name server's answer is not valid", "failed"),
        ("x" * 64 + ".example", "not a name that can be looked up", "absent"),
        ("a..example", "not a name that can be looked up", "absent"),
    ],
)
def test_what_a_failure_says(resolver: Resolver, host: str, says: str, outcome: str) -> None:
    answer = ask(resolver, host)[host]
    assert answer.addresses == () and answer.error.startswith(says)
    assert resolver.counts.outcomes == {outcome: 1} and resolver.counts.running == 0


def test_an_answer_that_is_no_dns_takes_no_other_name_along(resolver: Resolver, server: NameServer) -> None:
    server.zone |= {f"good{number}.example": Says(f"192.0.2.{number}") for number in range(50)}
    hosts = [f"good{number}.example" for number in range(50)]
    answers = ask(resolver, "garbage.example", *hosts)
    assert [answers[host].addresses for host in hosts] == [(f"192.0.2.{number}",) for number in range(50)]


@pytest.mark.parametrize(
    ("host", "kept_s"),
    [("a.example", 77), ("brief.example", dns.MIN_TTL_S), ("long.example", dns.MAX_TTL_S),
     ("no.example", dns.ABSENT_TTL_S), ("failed.example", dns.FAILED_TTL_S)],
)  # fmt: skip
def test_an_answer_is_kept_as_long_as_it_says_within_bounds(server: NameServer, host: str, kept_s: float) -> None:
    now = 1000.0
    resolver = Resolver(servers=[server.address], timeout_s=TRY_S, clock=lambda: now)
    resolver.ask(host)
    answers: dict[str, ResolvedName] = {}
    while not answers:
        select.select([resolver.fileno()], [], [], 0.05)
        answers = dict(resolver.completed())
    assert answers[host].expires == now + kept_s
    now += kept_s - 1
    assert resolver.find(host) == answers[host]
    now += 1
    assert resolver.find(host) is None
    resolver.close()


def test_names_that_nobody_answers_for_hold_up_no_others(resolver: Resolver, server: NameServer) -> None:
    server.zone |= {f"dead{number}.example": Says(how="never") for number in range(500)}
    server.zone["*.many.example"] = Says("192.0.2.7")
    for number in range(500):
        resolver.ask(f"dead{number}.example")
    answers = ask(resolver, *(f"h{number}.many.example" for number in range(500)))
    assert {answer.addresses for answer in answers.values()} == {("192.0.2.7",)}


def test_a_channel_is_replaced_and_what_runs_on_it_ends(server: NameServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dns_cares, "CHANNEL_LOOKUPS", 3)
    server.zone["*.many.example"] = Says("192.0.2.7")
    resolver = Resolver(servers=[server.address], timeout_s=TRY_S)
    answers = ask(resolver, "late.example", "never.example", *(f"h{number}.many.example" for number in range(20)))
    assert sum(bool(answer.addresses) for answer in answers.values()) == 21
    assert not resolver._lookups._others  # type: ignore[union-attr]
    resolver.close()


def test_closing_drops_what_runs(server: NameServer) -> None:
    resolver = Resolver(servers=[server.address], timeout_s=5.0)
    for number in range(100):
        resolver.ask(f"never{number}.example")
    resolver.close()


# ── configuration ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_resolv_conf_is_told_with_the_failure(tmp_path: Path) -> None:
    lookups = CaresLookups((), TRY_S, resolv_conf=tmp_path / "resolv.conf")
    lookups._channel.ares.servers = ["127.0.0.1:9"]  # what c-ares asks then, less whoever serves on this machine
    lookups.ask("a.example")
    ended, until = lookups.completed(), time.monotonic() + patience(5)
    while not ended and time.monotonic() < until:
        select.select([lookups.fileno()], [], [], 0.05)
        ended = lookups.completed()
    lookups.close()
    assert "names none, and `dns_servers` neither" in ended[0].error


def test_a_resolv_conf_that_changes_is_read_again(
    tmp_path: Path, server: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dns_cares, "POLL_EVERY", 1)
    conf = tmp_path / "resolv.conf"
    lookups = CaresLookups((), TRY_S, resolv_conf=conf)
    first = lookups._channel
    lookups.ask("localhost")
    assert lookups._channel is first
    conf.write_text("nameserver 127.0.0.1\n")
    lookups.ask("localhost")
    assert lookups._channel is not first and servers_in(conf) == ["127.0.0.1"]
    lookups.close()


class Warned:
    def __init__(self) -> None:
        self.events: list[str] = []

    def warning(self, event: str, **_: object) -> None:
        self.events.append(event)


def test_without_pycares_the_system_is_asked_and_dns_servers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.startswith(("pycares", "weft.fetch.dns.dns_cares")):
            raise ImportError("No module named 'pycares'")
        return real(name, *args, **kwargs)

    real = builtins.__import__
    monkeypatch.delitem(sys.modules, "weft.fetch.dns.dns_cares")
    monkeypatch.setattr(builtins, "__import__", missing)
    log = Warned()
    monkeypatch.setattr(dns, "log", log)
    lookups = dns.lookups_of((), 1.0)
    assert isinstance(lookups, ThreadLookups) and "pycares cannot be used" in log.events[0]
    lookups.close()
    with pytest.raises(BadInput, match="`dns_servers` needs pycares"):
        dns.lookups_of(("192.0.2.1",), 1.0)


def test_the_systems_resolver_can_be_asked_for() -> None:
    lookups = dns.lookups_of(("system",), 1.0)
    assert isinstance(lookups, ThreadLookups)
    lookups.close()


# ── the client ─────────────────────────────────────────────────────────────────────────────────────────────────────


def fetch(server: NameServer, host: str, refusal: Any) -> FetchResult:
    section = FetchSection(dns_servers=(server.address,), dns_timeout_s=TRY_S, connect_timeout_s=patience(2))
    client = Client(section, refusal=refusal, handles=1)
    client.submit(f"http://{host}:1/", (), "tag")
    done, until = client.poll(0.1), time.monotonic() + patience(10)
    while not done and time.monotonic() < until:
        done = client.poll(0.1)
    client.close()
    return done[0][1]


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "::ffff:192.168.0.1", "fd00::1"])
def test_a_name_that_leads_inside_is_refused(server: NameServer, address: str) -> None:
    server.zone["inside.example"] = Says(address)
    result = fetch(server, "inside.example", Guard().check)
    assert result.error == "address" and result.ip == ""


def test_the_guard_sees_every_record_and_the_checked_address_is_the_one_connected_to(server: NameServer) -> None:
    server.zone["mixed.example"] = Says("10.0.0.1", "127.0.0.1", "192.168.1.1", ttl_s=0)
    seen: list[str] = []

    def only_loopback(address: str) -> str | None:
        seen.append(address)
        server.zone["mixed.example"] = Says("10.0.0.1", ttl_s=0)  # another answer from now on: it is not asked for
        return None if address == "127.0.0.1" else "private"

    result = fetch(server, "mixed.example", only_loopback)
    assert result.error == "connect" and {"10.0.0.1", "127.0.0.1", "192.168.1.1"} <= set(seen)
    assert server.asked["mixed.example", "udp"] <= 2  # one lookup: its A and its AAAA


def test_a_dead_name_ends_as_a_failure_of_dns(server: NameServer) -> None:
    result = fetch(server, "never.example", Guard().check)
    assert (result.error, result.detail) == ("dns", "no name server has answered")
