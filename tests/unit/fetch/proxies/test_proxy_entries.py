"""Proxies as people write them: each form is read, what is wrong is told without the password."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fetch.proxies.entry import BadProxy, Proxy, parse, parse_list


@pytest.mark.parametrize(
    ("text", "proxy"),
    [
        ("192.0.2.1:8080", Proxy("http", "192.0.2.1", 8080)),
        ("Proxy.Example.com:3128", Proxy("http", "proxy.example.com", 3128)),
        ("https://p:443/", Proxy("https", "p", 443)),
        ("SOCKS5://p:1080", Proxy("socks5", "p", 1080)),
        ("socks://p:1080", Proxy("socks5", "p", 1080)),
        ("socks4a://p:1080", Proxy("socks4a", "p", 1080)),
        ("[2001:db8::1]:80", Proxy("http", "2001:db8::1", 80)),
        ("p:80:me:secret", Proxy("http", "p", 80, "me", "secret")),
        ("p:80:me:se:cr@et", Proxy("http", "p", 80, "me", "se:cr@et")),
        ("p:80:me", Proxy("http", "p", 80, "me")),
        ("me:secret@p:80", Proxy("http", "p", 80, "me", "secret")),
        ("me@home.example:s@cr:et@p:80", Proxy("http", "p", 80, "me@home.example", "s@cr:et")),
        ("http://me:a%40b%3Ac@p:80", Proxy("http", "p", 80, "me", "a@b:c")),
        ("socks5h://me:secret@[::1]:9", Proxy("socks5h", "::1", 9, "me", "secret")),
    ],
)
def test_each_form_is_read(text: str, proxy: Proxy) -> None:
    assert parse(text) == proxy


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "host"), ("p", "no port"), ("p:0", "port"), ("p:65536", "port"), ("p:x", "port"), ("p:٣", "port"),
        ("ftp://p:21", "scheme"), ("<html>:80", "host"), ("a b:80", "host"), ("http://:80", "host"),
        ("me:se\x01cret@p:80", "control"), ("x" * 3000 + ":80", "longer"), ("[::1]", "host"), ("-x:80", "host"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told(text: str, wrong: str) -> None:
    with pytest.raises(BadProxy, match=wrong):
        parse(text)


def test_a_list_has_each_once_and_tells_the_lines_that_are_rubbish() -> None:
    lines = ["# mine", "", "a:1", " a:1 ", "http://a:1", "me:secret@a:1", "rubbish secret@", "b:2", "me:newer@a:1"]
    listed = parse_list(lines, scheme="socks5", tier=2)
    names = ["socks5://a:1", "http://a:1", "socks5://me@a:1", "socks5://b:2", "socks5://me@a:1"]
    assert [proxy.name for proxy in listed.proxies] == names
    assert [proxy.password for proxy in listed.proxies if proxy.user] == ["secret", "newer"]
    assert {proxy.tier for proxy in listed.proxies} == {2}
    assert (listed.duplicates, [line for line, _ in listed.rejected]) == (1, [7])
    assert "secret" not in repr(listed.rejected)
    assert listed.unreadable == "1 line cannot be read: line 7 (its host is not a name or an address)"


def test_of_many_lines_that_cannot_be_read_the_count_and_the_first_are_told() -> None:
    said = parse_list(["a:1", *["x"] * 7]).unreadable
    assert said.startswith("7 lines cannot be read: line 2 (it has no port), line 3 ")
    assert said.endswith("line 6 (it has no port) and 2 more")


WORD = st.text(st.characters(blacklist_categories=["Cs", "Cc"]), max_size=20)


@given(st.sampled_from(["http", "https", "socks4", "socks5", "socks5h"]), WORD, WORD, st.integers(1, 65535))
def test_what_is_written_is_read_as_it_was_and_the_name_hides_the_password(
    scheme: str, user: str, password: str, port: int
) -> None:
    proxy = Proxy(scheme, "p.example", port, user, password if user else "")
    assert parse(proxy.url) == proxy
    if len(password) > 8 and password not in user:
        assert password not in proxy.name
