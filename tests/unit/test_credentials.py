"""Which origin gets which header and which login."""

from __future__ import annotations

import pytest

from weft.config import load, load_service
from weft.credentials import MOST_ORIGINS, Credentials, exact_name, harmless, seed_origins
from weft.errors import BadConfig, BadInput
from weft.jobs.crawls import engine_settings


def sent(headers: dict[str, str], seeds: list[str], origin: str) -> dict[str, str]:
    """The headers for an origin, of a crawl with these seeds."""
    return dict(Credentials(headers, {}, seed_origins(seeds, headers, {})).headers_for(origin))


def login(logins: dict[str, str], seeds: list[str], origin: str) -> str | None:
    return Credentials({}, logins, seed_origins(seeds, {}, logins)).login_for(origin)


HTTP, HTTPS = ["http://a.test/x"], ["https://a.test/x"]


@pytest.mark.parametrize(
    ("key", "seeds", "origin", "is_sent"),
    [
        ("Cookie", HTTP, "http://a.test", True),
        ("Cookie", HTTP, "https://a.test", True),  # the upgrade
        ("Cookie", HTTPS, "https://a.test", True),
        ("Cookie", HTTPS, "http://a.test", False),
        ("Cookie", HTTP, "http://www.a.test", False),
        ("Cookie", HTTP, "http://a.test:8080", False),
        ("Cookie", HTTP, "https://a.test:8443", False),
        ("Cookie", ["http://a.test:8080/"], "https://a.test:8080", True),
        ("Cookie", ["http://a.test:8080/"], "https://a.test", False),
        ("Cookie", ["http://a.test:443/"], "https://a.test", True),  # the same port
        ("X-Key", HTTP, "http://b.test", False),
        ("Accept-Language", HTTP, "http://a.test", False),  # the client sends it to every site
        ("b.test:X-Key", HTTP, "https://b.test", True),
        ("b.test:X-Key", HTTP, "http://b.test", False),
        ("b.test:X-Key", HTTP, "http://a.test", False),
        ("b.test:Accept-Language", HTTP, "https://b.test", True),
        ("http://b.test:X-Key", HTTP, "http://b.test", True),
        ("http://b.test:X-Key", HTTP, "https://b.test", True),
        ("https://b.test:8443:X-Key", HTTP, "https://b.test:8443", True),
        ("https://b.test:8443:X-Key", HTTP, "https://b.test", False),
        ("A.Test:X-Key", ["http://a.test:81/"], "http://a.test:81", True),
        ("a.test:82:X-Key", ["http://a.test:81/"], "http://a.test:81", False),
        ("a.test:81:X-Key", ["http://a.test:81/"], "http://a.test:81", True),
        ("https://a.test:X-Key", HTTP, "http://a.test", False),  # exactly that
        ("[::1]:81:X-Key", ["http://[::1]:81/"], "http://[::1]:81", True),
    ],
)
def test_a_header_goes_to_the_seeds_origins_or_to_the_host_that_it_names(
    key: str, seeds: list[str], origin: str, is_sent: bool
) -> None:
    assert bool(sent({key: "v"}, seeds, origin)) is is_sent


def test_a_header_for_a_host_replaces_the_one_for_all_seeds_there() -> None:
    headers = {"https://a.test:cookie": "own", "Cookie": "all", "X-Key": "k"}
    assert sent(headers, HTTPS, "https://a.test") == {"cookie": "own", "X-Key": "k"}
    assert harmless({"Accept-Language": "de", "a.test:Accept": "x", "X-Key": "k"}) == {"Accept-Language": "de"}


def test_a_login_goes_to_its_host_over_https_and_to_seeds_there() -> None:
    logins = {"a.test": "u:p", "http://plain.test": "v:q"}
    assert login(logins, ["http://a.test:81/"], "http://a.test:81") == "u:p"
    assert login(logins, [], "https://a.test") == "u:p"
    assert login(logins, HTTPS, "http://a.test") is None and login(logins, HTTP, "http://a.test:82") is None
    assert login(logins, [], "http://plain.test") == "v:q"


def test_more_seeds_than_can_be_meant_need_a_host() -> None:
    many = [f"https://h{number}.test/" for number in range(MOST_ORIGINS)]
    assert len(seed_origins(many, {"Cookie": "a"}, {})) == MOST_ORIGINS
    with pytest.raises(BadInput, match=r"Cookie would go to more than 1,000 hosts.*Name its host"):
        seed_origins([*many, "https://one-more.test/"], {"Cookie": "a"}, {})
    assert seed_origins([*many, "https://one-more.test/"], {"h1.test:Cookie": "a"}, {}) == ["https://h1.test"]
    assert seed_origins(iter([]), {"Accept-Language": "de"}, {}) == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"headers": {"Cookie:a": "b"}}, "write Cookie=VALUE, or HOST:Cookie=VALUE"),
        ({"headers": {"x-key:a": "b"}}, "write x-key=VALUE"),
        ({"headers": {"a b:Cookie": "b"}}, "'a b': not a host"),
        ({"headers": {":Cookie": "b"}}, "not a host"),
        ({"headers": {"https://a.test/path:Cookie": "b"}}, "not a host"),
        ({"headers": {"a.test:": "b"}}, "is not a header that can be sent"),
        ({"auth": {"https://a.test/": "u:p"}}, "not a host"),
        ({"auth": {"a.test": "u"}}, "write user:password"),
    ],
)
def test_what_names_no_host_is_refused_at_the_start(settings: dict[str, dict[str, str]], said: str) -> None:
    with pytest.raises(BadConfig) as refused:
        load(flags=settings, environment={})
    assert said in str(refused.value)


def test_credentials_of_the_service_name_their_host_and_no_seed_of_a_task_adds_another() -> None:
    with pytest.raises(BadConfig, match="tasks choose their own URLs: name its host, 'HOST:X-Key'"):
        load_service(flags={"headers": {"X-Key": "s", "Accept-Language": "de"}}, environment={})
    given = {"headers": {"a.test:X-Key": "s", "DNT": "1"}, "auth": {"b.test": "u:p"}}
    shared = engine_settings(load_service(flags=given, environment={}))
    assert shared["headers"] == {"https://a.test:X-Key": "s", "DNT": "1"}
    assert shared["auth"] == {"https://b.test": "u:p"}
    assert sent(shared["headers"], ["http://a.test/", "https://a.test:81/"], "http://a.test") == {}
    assert exact_name("http://a.test:81:X-Key") == "http://a.test:81:X-Key"
