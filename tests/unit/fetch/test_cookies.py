"""The cookie jar: whom a cookie goes to, how long, and how many are kept."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fetch.cookies import MAX_AGE_S, MAX_COOKIE_BYTES, MAX_COOKIES, CookieJar

NOW = 1_700_000_000.0
SUFFIXES = {"example", "org", "co.uk", "github.io", "com"}


def registrable(host: str) -> str:
    """The registrable domain, as `weft.urls.domain` gives it: hosts that have none are their own."""
    labels = host.split(".")
    if host[-1].isdigit():
        return host
    for at in range(1, len(labels)):
        if ".".join(labels[at:]) in SUFFIXES:
            return ".".join(labels[at - 1 :])
    return host


class Site:
    """A jar as one site and its visitor see it."""

    def __init__(self) -> None:
        self.jar = CookieJar(registrable)

    def sets(
        self, *values: str, host: str = "www.shop.example", path: str = "/", secure: bool = True, now: float = NOW
    ) -> Site:
        self.jar.store(host, path, secure, values, now)
        return self

    def gets(
        self, host: str = "www.shop.example", path: str = "/", secure: bool = True, now: float = NOW
    ) -> str | None:
        return self.jar.header(host, path, secure, now)


def test_a_cookie_is_replayed() -> None:
    assert Site().sets("wall=passed").gets() == "wall=passed"


def test_no_cookie_no_header() -> None:
    assert Site().gets() is None
    assert Site().sets("a=1", host="other.example").gets() is None


def test_several_cookies_go_in_one_header() -> None:
    assert Site().sets("a=1", "b=2; Path=/").sets("c=3", now=NOW + 1).gets() == "a=1; b=2; c=3"


@pytest.mark.parametrize(
    ("header", "sent"),
    [
        ("a=1", "a=1"),
        (" a = 1 ; Path=/", "a=1"),
        ("a=", "a="),
        ("a=b=c", "a=b=c"),
        ('a="quoted; no"', 'a="quoted'),
        ("a=x y", "a=x y"),
        ("a=1; nonsense; =; ;;", "a=1"),
        ("a=1; HttpOnly; SameSite=Lax", "a=1"),
        ("a", None),
        ("=1", None),
        ("", None),
        (";a=1", None),
        ("a=1\r\nX-Evil: 1", None),
        ("a=1\0", None),
        ("a=1; Path=/\x7f", None),
        ("a=1; Path=/\n", None),
    ],
)
def test_what_counts_as_a_cookie(header: str, sent: str | None) -> None:
    assert Site().sets(header).gets() == sent


def test_the_same_cookie_is_replaced_and_keeps_its_place() -> None:
    site = Site().sets("a=1").sets("b=1", now=NOW + 1).sets("a=2", now=NOW + 2)
    assert site.gets(now=NOW + 3) == "a=2; b=1"
    assert len(site.jar) == 2


# ── whose


@pytest.mark.parametrize(
    ("host", "domain", "goes_to", "not_to"),
    [
        ("www.shop.example", "", ["www.shop.example"], ["shop.example", "a.www.shop.example", "api.shop.example"]),
        ("www.shop.example", "shop.example", ["shop.example", "a.b.shop.example"], ["xshop.example", "example"]),
        ("www.shop.example", ".shop.example", ["shop.example", "api.shop.example"], ["shop.example.org"]),
        ("www.shop.example", "SHOP.Example", ["shop.example"], []),
        ("www.shop.example", "www.shop.example", ["www.shop.example", "a.www.shop.example"], ["shop.example"]),
        ("shop.example", "shop.example", ["shop.example", "www.shop.example"], []),
        # another's, or everybody's
        ("www.shop.example", "other.example", [], ["other.example", "www.shop.example"]),
        ("www.shop.example", "api.shop.example", [], ["api.shop.example", "www.shop.example"]),
        ("shop.example", "www.shop.example", [], ["www.shop.example", "shop.example"]),
        ("www.shop.example", "hop.example", [], ["hop.example", "www.shop.example"]),
        ("www.shop.example", "example", [], ["example", "www.shop.example", "other.example"]),
        ("www.shop.co.uk", "co.uk", [], ["www.shop.co.uk", "other.co.uk", "co.uk"]),
        ("me.github.io", "github.io", [], ["me.github.io", "you.github.io"]),
        ("www.shop.example", ".", ["www.shop.example"], ["shop.example", "a.www.shop.example"]),
        # a public suffix may keep its own, but not share it
        ("github.io", "github.io", ["github.io"], ["you.github.io"]),
        # addresses and names without a dot have no domain above them
        ("127.0.0.1", "127.0.0.1", ["127.0.0.1"], ["127.0.0.2"]),
        ("127.0.0.1", "0.0.1", [], ["127.0.0.1", "1.0.0.1"]),
        ("localhost", "localhost", ["localhost"], []),
        ("[::1]", "", ["[::1]"], []),
    ],
)  # fmt: skip
def test_whom_a_cookie_goes_to(host: str, domain: str, goes_to: list[str], not_to: list[str]) -> None:
    site = Site().sets(f"a=1; Domain={domain}" if domain else "a=1", host=host)
    assert [site.gets(other) for other in goes_to] == ["a=1"] * len(goes_to)
    assert [site.gets(other) for other in not_to] == [None] * len(not_to)


def test_cookies_of_the_host_and_of_its_domain_go_together() -> None:
    site = Site().sets("wide=1; Domain=shop.example").sets("own=1", now=NOW + 1)
    assert site.gets() == "wide=1; own=1"
    assert site.gets("api.shop.example") == "wide=1"


# ── where


@pytest.mark.parametrize(
    ("set_at", "attribute", "sent_to", "not_to"),
    [
        ("/", "", ["/", "/a", "/a/b"], []),
        ("/a/b", "", ["/a", "/a/", "/a/c", "/a/b/c"], ["/", "/ab"]),
        ("/a/b/", "", ["/a/b", "/a/b/c"], ["/a", "/a/bc"]),
        ("/a?x=/b/c", "", ["/", "/b"], []),
        ("/a", "Path=/", ["/", "/b"], []),
        ("/", "Path=/a", ["/a", "/a/", "/a/b", "/a?q"], ["/", "/ab", "/A"]),
        ("/", "Path=/a/", ["/a/", "/a/b"], ["/a"]),
        ("/a/b", "Path=relative", ["/a/x"], ["/"]),
        ("/a/b", "Path=", ["/a/x"], ["/"]),
        ("/", "Path=/" + "x" * 2000, ["/", "/a"], []),
        ("/" + "x" * 2000 + "/y", "", ["/", "/a"], []),
        ("", "", ["/", "/a"], []),
        ("nonsense", "", ["/", "/a"], []),
    ],
)
def test_what_paths_a_cookie_is_sent_to(set_at: str, attribute: str, sent_to: list[str], not_to: list[str]) -> None:
    site = Site().sets(f"a=1; {attribute}", path=set_at)
    assert [site.gets(path=path) for path in sent_to] == ["a=1"] * len(sent_to)
    assert [site.gets(path=path) for path in not_to] == [None] * len(not_to)


def test_the_longer_path_goes_first() -> None:
    assert Site().sets("a=1; Path=/").sets("a=2; Path=/x", now=NOW + 1).gets(path="/x/y") == "a=2; a=1"


def test_a_secure_cookie_stays_on_secure_connections() -> None:
    site = Site().sets("a=1; Secure", "b=2")
    assert site.gets(secure=False) == "b=2"
    assert site.gets() == "a=1; b=2"


def test_plain_http_can_neither_set_nor_change_a_secure_cookie() -> None:
    site = Site().sets("a=1; Secure")
    assert site.sets("a=2", "c=3; Secure", secure=False).gets() == "a=1"
    assert site.sets("a=; Max-Age=0", secure=False).gets() == "a=1"


@pytest.mark.parametrize(
    ("header", "kept"),
    [
        ("__Secure-a=1; Secure", True),
        ("__Secure-a=1", False),
        ("__secure-a=1", False),
        ("__Host-a=1; Secure; Path=/", True),
        ("__Host-a=1; Secure; Path=/x", False),
        ("__Host-a=1; Secure", False),
        ("__Host-a=1; Path=/", False),
        ("__Host-a=1; Secure; Path=/; Domain=www.shop.example", False),
    ],
)
def test_a_prefix_is_a_promise(header: str, kept: bool) -> None:
    assert (Site().sets(header).gets(path="/x") is not None) is kept


# ── how long


@pytest.mark.parametrize(
    ("attributes", "seconds"),
    [
        ("Max-Age=60", 60),
        ("max-age=60", 60),
        ("Max-Age=60; Expires=Thu, 01 Jan 1970 00:00:00 GMT", 60),
        ("Expires=Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Expires=Tuesday, 14-Nov-23 22:14:20 GMT", 60),
        ("Expires=Tue Nov 14 22:14:20 2023", 60),
        ("expires=22:14:20 14 nov 2023", 60),
        ("Max-Age=soon; Expires=Tue, 14 Nov 2023 22:14:20 GMT", 60),
        ("Max-Age=99999999999999", MAX_AGE_S),
        ("Expires=Fri, 31 Dec 9999 23:59:59 GMT", MAX_AGE_S),
    ],
)
def test_a_cookie_is_sent_until_it_expires(attributes: str, seconds: float) -> None:
    site = Site().sets(f"a=1; {attributes}")
    assert site.gets(now=NOW + seconds - 1) == "a=1"
    assert site.gets(now=NOW + seconds) is None
    assert len(site.jar) == 0, "what has expired is not kept"


@pytest.mark.parametrize(
    "attributes",
    [
        "",
        "Max-Age=",
        "Max-Age=soon",
        "Expires=",
        "Expires=never",
        "Expires=Tue, 45 Nov 2023 22:14:20 GMT",
        "Expires=2023",
        "Expires=Tue, 14 Nov 1500 22:14:20 GMT",
        "Expires=Tue, 14 Nov 2023 29:14:20 GMT",
        "Expires=14 2023 22:14:20",
    ],
)
def test_without_a_valid_date_it_lasts_as_long_as_the_crawl(attributes: str) -> None:
    assert Site().sets(f"a=1; {attributes}").gets(now=NOW * 2) == "a=1"


@pytest.mark.parametrize("attributes", ["Max-Age=0", "Max-Age=-1", "Expires=Thu, 01 Jan 1970 00:00:00 GMT"])
def test_an_expired_cookie_deletes_the_one_before(attributes: str) -> None:
    site = Site().sets("a=1", "b=2")
    assert site.sets(f"a=; {attributes}").gets() == "b=2"
    assert site.sets(f"never=seen; {attributes}").gets() == "b=2"


def test_deletion_needs_the_same_path_and_domain() -> None:
    site = Site().sets("a=1; Path=/x").sets("a=; Max-Age=0; Path=/").sets("a=; Max-Age=0; Domain=shop.example; Path=/x")
    assert site.gets(path="/x") == "a=1"


# ── how many


def test_a_cookie_too_large_is_refused() -> None:
    assert Site().sets("a=" + "x" * (MAX_COOKIE_BYTES - 1)).gets() is not None
    assert Site().sets("a=" + "x" * MAX_COOKIE_BYTES).gets() is None


def test_of_too_many_the_oldest_goes() -> None:
    site = Site()
    for number in range(MAX_COOKIES + 5):
        site.sets(f"c{number}=1", now=NOW + number)
    header = site.gets(now=NOW + 100) or ""
    assert len(site.jar) == MAX_COOKIES
    assert "c4=" not in header and "c5=" in header and f"c{MAX_COOKIES + 4}=" in header


def test_of_too_many_the_expired_go_first() -> None:
    site = Site().sets("old=1").sets("short=1; Max-Age=1", now=NOW + 1)
    for number in range(MAX_COOKIES - 1):
        site.sets(f"c{number}=1", now=NOW + 10)
    assert "old=1" in (site.gets(now=NOW + 10) or "")


def test_the_jar_forgets_the_hosts_unused_for_longest() -> None:
    jar = CookieJar(registrable, max_bytes=50_000)
    for number in range(100):
        jar.store(f"h{number}.example", "/", True, ["a=" + "x" * 1000], NOW)
        assert jar.header("h0.example", "/", True, NOW) is not None, "it is in use"
    assert jar.header("h1.example", "/", True, NOW) is None
    assert jar.header("h99.example", "/", True, NOW) is not None
    assert 20 < len(jar) < 50


def test_the_size_is_kept_right_through_changes() -> None:
    site = Site()
    for number in range(200):
        site.sets(f"c{number % 70}={'x' * number}", f"d{number % 3}=; Max-Age={number % 2}", now=NOW + number)
        site.gets(now=NOW + number + 1)
    jar = site.jar
    assert jar._size == sum(cookie.size for cookies in jar._cookies.values() for cookie in cookies.values())


# ── across a restart


def test_the_jar_survives_a_restart() -> None:
    site = Site().sets("a=1; Path=/x; Secure; Max-Age=60", "b=é; Domain=shop.example").sets("c=3", host="other.example")
    site.jar = CookieJar.from_bytes(site.jar.to_bytes(), registrable)
    assert site.gets(path="/x") == "a=1; b=é"
    assert site.gets(path="/x", now=NOW + 60) == "b=é"
    assert site.gets("api.shop.example") == "b=é" and site.gets("other.example") == "c=3"
    assert CookieJar.from_bytes(site.jar.to_bytes(), registrable)._size == site.jar._size


def test_bytes_that_are_no_jar_are_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        CookieJar.from_bytes(b"nonsense", registrable)


HOSTS = st.sampled_from(
    ["a.example", "b.a.example", "c.b.a.example", "z.example", "github.io", "u.github.io", "1.2.3.4"]
)
DOMAINS = st.sampled_from(["", "a.example", "b.a.example", "example", "z.example", "github.io", "3.4", "u.github.io"])


@given(HOSTS, DOMAINS, HOSTS)
def test_no_cookie_leaves_its_registrable_domain(host: str, domain: str, other: str) -> None:
    site = Site().sets(f"a=1; Domain={domain}", host=host)
    if site.gets(other) is not None:
        assert registrable(other) == registrable(host)
        assert other == host or (domain and (other == domain or other.endswith("." + domain)))


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_header_is_taken_or_left(header: str, path: str) -> None:
    sent = Site().sets(header, path=path).gets(path="/")
    assert sent is None or not any(char in sent for char in "\r\n\0")


def test_a_domains_cookies_are_moved_from_jar_to_jar_alone() -> None:
    here, there = CookieJar(registrable), CookieJar(registrable)
    here.store("www.shop.example", "/", True, ["a=1", "b=2; Domain=shop.example"], NOW)
    here.store("other.example", "/", True, ["c=3"], NOW)
    there.store("old.shop.example", "/", True, ["gone=1"], NOW)
    there.store("other.example", "/", True, ["kept=1"], NOW)
    there.load(here.dump("shop.example"))
    assert there.contents("shop.example") == here.contents("shop.example") != frozenset()
    assert [there.header(host, "/", True, NOW) for host in ("www.shop.example", "other.example")] == [
        "a=1; b=2",
        "kept=1",
    ]
    assert there.header("old.shop.example", "/", True, NOW) == "b=2"


@given(
    st.lists(st.tuples(st.sampled_from(["a.x.org", "b.x.org", "y.org", "z.co.uk"]), st.integers(0, 3), st.booleans()))
)
def test_the_cookies_of_a_domain_are_those_of_its_hosts(steps: list[tuple[str, int, bool]]) -> None:
    jar = CookieJar(registrable, max_bytes=400)
    for host, name, is_over in steps:
        jar.store(host, "/", True, [f"n{name}=v{'; Max-Age=0' if is_over else ''}"], NOW)
    for base in ("x.org", "y.org", "z.co.uk"):
        by_name = {(where, name) for where, name, _, _ in jar.contents(base)}
        sent = {
            (host, pair.partition("=")[0])
            for host in ("a.x.org", "b.x.org", "y.org", "z.co.uk")
            if registrable(host) == base
            for pair in (jar.header(host, "/", True, NOW) or "").split("; ")
            if pair
        }
        assert by_name == sent
