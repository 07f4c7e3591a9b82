"""URLs where the short ways part from the long one: what is recognised without the parser is what the parser says."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from written_twice import WAYS, as_installed, in_c, in_python, written

from weft import urls
from weft.errors import BadUrl

BASES = [
    "http://a.example/", "https://a.example/x/y.html", "http://a.example:8080/x/?q=/1/2", "https://a.example/x;v=1/y/",
    "http://a.example/%7Ex/./y", "http://127.0.0.1/a/b", "http://a.example/x//y",
]  # fmt: skip
PATHS = [
    "", "p", "p/", "p/q", "./p", "../p", "../../../p", "p/../q", ".", "..", ".p", "%2e%2e/p", "p%2e", "p.html", "p;v=1",
    "p//q", "//b.example/p", "//b.example", "/", "/p", "/p/../q", "/.p", "/%2e", "//", "/p//q", "p:q", "~p", "p~",
    "http://b.example", "https://b.example/p", "https:p", "http:/p", "HTTP://B.Example:80/P", "https://b.example:443",
    "http://b.example:99/p", "http://b.example:99999/p", "http://[::1]/p", "http://1.2.3/p", "mailto:x@y", "p q",
    "p\\q", "ü", "/ü/p", "//ü.example/", "http://u:p@b.example/x@y", "javascript:1", "p'q", "p\"q", "p<q", "\tp\n",
    " p ",
]  # fmt: skip
TAILS = ["", "?", "?a=1", "?a=1/../2", "?a='1'", "?ü=1", "#f", "?a=1#f", "#", "?a#b?c", "#f#g"]


@pytest.fixture(scope="module", params=WAYS, autouse=True)
def plain(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Whatever joins plain references, in C and in Python."""
    chosen = written(request.param, "weft.plain_links", "weft._plain_links")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(urls, "join_plain", chosen.join_plain)
        yield chosen


def long_way(base: str, href: str) -> str | None:
    try:
        return urls.canonical(href, base)
    except BadUrl:
        return None


@pytest.mark.parametrize("base", BASES)
def test_the_short_ways_lead_where_the_long_one_does(base: str) -> None:
    hrefs = [path + tail for path, tail in product(PATHS, TAILS)]
    told: list[tuple[str, str]] = []
    joined = {href: urls.join_all(base, [href], refused=lambda *one: told.append(one)) for href in hrefs}
    expected = {href: [url] if (url := long_way(base, href)) is not None else [] for href in hrefs}
    assert {href: (joined[href], expected[href]) for href in hrefs if joined[href] != expected[href]} == {}
    assert [href for href, _ in told] == [href for href in hrefs if not expected[href]], "the others are told"
    assert urls.join_all(base, hrefs) == [url for href in hrefs for url in expected[href]], "in order, all at once"


@pytest.mark.parametrize("base", ["http://a.example/", "https://a.example/d/e"])
@pytest.mark.parametrize("start", ["", "/", "//a.example/", "http://a.example/"])
def test_a_reference_may_be_as_long_as_a_url_and_no_longer(base: str, start: str) -> None:
    length = len(urls.canonical(start + "x", base)) - 1
    fits = start + "x" * (urls.MAX_LENGTH - length)
    told: list[tuple[str, str]] = []
    assert [len(url) for url in urls.join_all(base, [fits, fits + "x"], refused=lambda *one: told.append(one))] == [
        urls.MAX_LENGTH
    ]
    assert told == [(fits + "x", "length")]


def test_what_is_no_page_of_the_web_is_reported_with_its_reason() -> None:
    told: list[tuple[str, str]] = []
    hrefs = ["mailto:a@b", "http://b.example:99999/", "//b.example:99999/x", "javascript:void(0)", "http://"]
    assert urls.join_all("http://a/", hrefs, refused=lambda *one: told.append(one)) == []
    assert [reason for _, reason in told] == ["scheme", "syntax", "syntax", "scheme", "syntax"]
    assert urls.join_all("ftp://a/", ["x"]) == []


@pytest.mark.parametrize(
    ("url", "origin", "host"),
    [
        ("http://a/", "http://a", "a"),
        ("https://a.b:8443/x/y", "https://a.b:8443", "a.b"),
        ("http://[::1]/", "http://[::1]", "[::1]"),
        ("https://[::1]:99/x", "https://[::1]:99", "[::1]"),
    ],
)
def test_the_parts_of_a_canonical_url(url: str, origin: str, host: str) -> None:
    assert (urls.origin_of(url), urls.host_of(url)) == (origin, host)


@pytest.mark.parametrize(
    ("url", "extension"),
    [
        ("http://a/x.pdf", "pdf"), ("http://a/x.PDF?q=1.html", "pdf"), ("http://a/x.html", None),
        ("http://a/x.sqlite", "sqlite"), ("http://a/x.asqlite", None), ("http://a/x?f=a.pdf", None),
        ("http://a/x.tar.gz", "gz"), ("http://a/x.", None), ("http://a.zip/", None), ("http://a/x.so", "so"),
    ],
)  # fmt: skip
def test_an_extension_is_the_paths_last(url: str, extension: str | None) -> None:
    assert urls.skipped_extension(url) == extension


@pytest.mark.parametrize(
    ("text", "seed"),
    [
        (" example.com ", "https://example.com/"),
        ("//example.com/x", "https://example.com/x"),
        ("example.com:8080/x", "https://example.com:8080/x"),
        ("localhost:80", "https://localhost:80/"),
        ("http://example.com#f", "http://example.com/"),
        ("http://u:p@example.com/a@b", "http://example.com/a@b"),
        ("http://u:p@example.com/?back=u:p@example.com", "http://example.com/?back=u:p@example.com"),
    ],
)
def test_what_a_person_types_is_a_seed(text: str, seed: str) -> None:
    assert urls.seed(text) == seed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the URL is empty"),
        ("a b", "has a space at position 2"),
        ("ab\x07", "control character '\\x07' at position 3"),
        ("http://", "the host is missing"),
        ("http://:80/", "the host is missing"),
        ("http://a:65536/", "port '65536' is not a number from 0 to 65535"),
        ("http://a:x/", "port 'x' is not a number"),
        ("http://u@/x", "the host is missing"),
        ("http://a<b/", "the host 'a<b' is not a valid name"),
        ("mailto:x@y", "scheme 'mailto' is not crawled"),
        ("/etc/hosts", "a path, not a URL: write it whole"),
        ("./urls.txt", "a path, not a URL"),
        ("../x", "a path, not a URL"),
        ("~/urls.txt", "a path, not a URL"),
        (".", "a path, not a URL"),
    ],
)
def test_what_is_no_seed_is_refused_with_what_to_mend(text: str, said: str) -> None:
    with pytest.raises(BadUrl) as refused:
        urls.seed(text)
    assert said in str(refused.value)


def test_a_url_is_as_long_as_it_may_be_and_no_longer() -> None:
    fits = "http://a/" + "x" * (urls.MAX_LENGTH - 9)
    assert urls.canonical(fits) == fits
    with pytest.raises(BadUrl, match="2001 characters are too many"):
        urls.canonical(fits + "x")


@pytest.mark.parametrize(
    ("href", "encoding", "query"),
    [
        ("/p?q=ü", "iso-8859-1", "q=%FC"),
        ("/p?q=ü#ü", "iso-8859-1", "q=%FC"),
        ("/p?q=€", "iso-8859-1", "q=%26%238364%3B"),
        ("/p?q=ü&r=a'b", "windows-1252", "q=%FC&r=a%27b"),
        ("/p?q=ü", "no-such-encoding", "q=%C3%BC"),
        ("/p#f?q=ü", "iso-8859-1", ""),
        ("/ü?q=1", "iso-8859-1", "q=1"),
    ],
)
def test_a_query_is_in_the_pages_encoding(href: str, encoding: str, query: str) -> None:
    (joined,) = urls.join_all("http://a/", [href], encoding)
    assert joined.partition("?")[2] == query
    assert urls.join("http://a/", href, encoding) == joined


@pytest.mark.parametrize(
    ("host", "registered"),
    [
        ("www.example.co.uk", ("co.uk", "example.co.uk")),
        ("my.blogspot.com.", ("com", "blogspot.com")),
        ("me.github.io", ("io", "github.io")),
        ("com", ("com", "")),
        ("localhost", ("", "")),
        ("127.0.0.1", ("", "")),
        ("[::1]", ("", "")),
        ("www.host.notatld", ("", "")),
    ],
)
def test_what_a_registry_has_given_a_name_under(host: str, registered: tuple[str, str]) -> None:
    assert urls.registered(host) == registered


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("/ü?x={|}^`", "http://a/%C3%BC?x={|}^`"),
        ("/ü?x=ü", "http://a/%C3%BC?x=%FC"),
        ("/ü#y?ü", "http://a/%C3%BC"),
        ("?x=ü#ü", "http://a/?x=%FC"),
    ],
)
def test_only_a_query_that_is_not_ascii_is_written_in_the_pages_encoding(href: str, url: str) -> None:
    assert urls.join("http://a/", href, "iso-8859-1") == url
    assert urls.join_all("http://a/", [href], "iso-8859-1") == [url]


def test_an_empty_label_is_no_part_of_a_domain() -> None:
    assert urls.domain(".a.com") == "a.com"


def test_a_host_under_no_known_suffix_is_its_own_domain() -> None:
    assert urls.domain("a.b.no-such-suffix") == "a.b.no-such-suffix"
    assert (urls.suffix("a.b.no-such-suffix"), urls.registered("a.b.no-such-suffix")) == ("", ("", ""))


def _rooted(parts: list[str]) -> str:
    return "/" + "".join(parts)


HREFS = st.lists(
    st.one_of(
        st.lists(st.sampled_from(["/", "a", "b.html", "?x=1", "#f", "~", "%41", ".", "*"]), max_size=6).map(_rooted),
        st.lists(
            st.sampled_from(
                ["/", "//h.test", "http://", "a", ".", "..", "%2e", "?", "#", "\n", "\t", " ", "é", "\\", ":", "@"]
            ),
            max_size=5,
        ).map("".join),
    ),
    max_size=4,
)


@given(HREFS)
def test_references_of_a_page_are_joined_as_one_by_one(hrefs: list[str]) -> None:
    base, expected, bad = "http://a.test/d/e?q", list[str](), list[tuple[str, str]]()
    for href in hrefs:
        try:
            expected.append(urls.canonical(href, base))
        except BadUrl as error:
            bad.append((href, error.reason))
    refused = list[tuple[str, str]]()
    assert urls.join_all(base, hrefs, refused=lambda href, reason: refused.append((href, reason))) == expected
    assert refused == bad


def test_the_longest_extension_is_seen_in_a_list_as_in_one_url() -> None:
    longest = max(urls.SKIPPED_EXTENSIONS, key=len)
    url = f"https://a.test/x.{longest}"
    assert urls.skipped_extension(url) == longest
    there = ["https://a.test/y.z", url]
    assert urls.with_extension("https://a.test", there, urls.LONGEST_EXTENSION, urls.SKIPPED_EXTENSIONS) == [url]


HOSTS = st.lists(
    st.sampled_from(["a", "b-c", "Z", "0", "7", "0x7f", "127", "xn--", "a--b", "ab--c", ".", ".", "..", "-", "_", "é"]),
    max_size=5,
).map("".join)
PORTS = st.sampled_from(["", "", "", ":", ":80", ":443", ":8080", ":080", ":65535", ":65536", ":123456", ":x"])
ENDS = st.sampled_from(["", "/", "/p", "?q", "#f", "/p?q#f", "//", "/./x", "\\x", "@h/"])


@given(st.sampled_from(["http://", "https://", "HTTP://", "http:/", "//"]), HOSTS, PORTS, ENDS)
@example("https://", "a" * 63 + ".b", "", "/")
@example("https://", "a" * 64 + ".b", "", "/")
@example("http://", ".".join(["abcdefgh"] * 29), "", "/x")
def test_whole_urls_are_as_the_parser_makes_them(scheme: str, host: str, port: str, end: str) -> None:
    base, href = "http://a.test/d/e?q", f"{scheme}{host}{port}{end}"
    expected = long_way(base, href)
    assert urls.join_all(base, [href]) == ([expected] if expected is not None else []), href


def test_what_is_plain_needs_no_parser(plain: Any) -> None:
    hrefs = [
        "/p/q.html?a=/b#c",
        "p/q",
        "p",
        "/",
        "p//?#",
        "/ü",
        "../p",
        "?q",
        "#f",
        "",
        "//b.test/",
        "/p q",
        "mailto:x",
    ]
    joined, others = plain.join_plain("http://a.test", "http://a.test/d/", hrefs, 2000)
    start, folder = "http://a.test/", "http://a.test/d/"
    assert joined == [start + "p/q.html?a=/b", folder + "p/q", folder + "p", start, folder + "p//?", *[None] * 8]
    assert others == 8
    assert plain.join_plain("http://a.test", "", ["p", "/p"], 2000) == ([None, start + "p"], 1)
    assert plain.join_plain("", "", ["p", "/p"], 2000) == ([None, None], 2)
    assert plain.join_plain("http://a.test", "", ["/p", "/pq"], len(start) + 1) == ([start + "p", None], 1)
    assert plain.join_plain("http://a.test", "", ["/p", "/q"], 2000) == ([start + "p", start + "q"], 0)
    assert plain.join_plain("http://a.test", "", [], 2000) == ([], 0)


def test_references_of_plain_characters_are_joined_without_a_pattern(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most of a page's links: one look at all of them is what they cost."""
    plain, start = in_python("weft.plain_links"), "http://a.test"
    for pattern in ("rooted", "_relative"):
        monkeypatch.setattr(plain, pattern, lambda href: pytest.fail(f"{href} was matched"))
    for hrefs in (["/"], ["/a", "/b/c.html?d=/e"], ["/a#f", "/b"], ["/a", "/" + "b" * 100, "/c#d"]):
        transports = [start + href.partition("#")[0] for href in hrefs]
        expected = [url if len(url) <= 100 else None for url in transports]
        assert plain.join_plain(start, start + "/d/", hrefs, 100) == (expected, expected.count(None))


def test_where_it_is_compiled_whole_urls_are_plain_too() -> None:
    plain = in_c("weft._plain_links")
    assert as_installed("weft.plain_links").join_plain is plain.join_plain
    whole = ["https://b.test/x", "http://b.test:81/", "https://www.b-c.test/x?y=1"]
    assert plain.join_plain("http://a.test", "", whole, 2000) == (whole, 0)
    rest = ["https://b.test", "https://b.test?x#y", "https://b.test/x#y", "https://b.test/" + "x" * 1986]
    joined, others = plain.join_plain("http://a.test", "", rest, 2000)
    assert joined == ["https://b.test/", "https://b.test/?x", "https://b.test/x", None] and others == 1
    for wrong in (["x", 3], [b"/x"]):
        with pytest.raises(TypeError):
            plain.join_plain("http://a.test", "", wrong, 2000)
    with pytest.raises(ValueError, match="ASCII"):
        plain.join_plain("http://ü.test", "", ["/x"], 2000)


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("a.test/x", ["https://a.test/x", "http://a.test/x"]),
        (" //A.test ", ["https://a.test/", "http://a.test/"]),
        ("a.test:443/", ["https://a.test/", "http://a.test/"]),
        ("https://a.test/x", ["https://a.test/x"]),
        ("http://a.test/x", ["http://a.test/x"]),
    ],
)
def test_what_was_typed_without_a_scheme_may_be_stored_under_either(typed: str, stored: list[str]) -> None:
    assert urls.stored_as(typed) == stored


def test_a_port_is_at_most_65535() -> None:
    assert urls.seed("a.test:65535/") == "https://a.test:65535/"
    for port in ("65536", "99999", "-1", "x"):
        with pytest.raises(BadUrl, match="port"):
            urls.seed(f"https://a.test:{port}/")
    with pytest.raises(BadUrl, match="host"):
        urls.seed("https://a^b.test:65535/")
