"""One exact notion of a URL: the web platform's own cases, Weft's rules on top, and what is derived from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from publicsuffixlist import PSLFILE, PublicSuffixList, encode_idn

from weft import urls
from weft.errors import BadUrl

WPT = Path(__file__).parents[3] / "shared" / "data" / "wpt-urltestdata.json"
FIELDS = ("href", "protocol", "username", "password", "host", "hostname", "port", "pathname", "search", "hash")


def wpt_cases() -> list[dict[str, Any]]:
    if not WPT.exists():
        if os.environ.get("WEFT_REQUIRE_DATA"):
            pytest.fail(f"{WPT} is missing and this run requires it")
        warnings.warn(f"NOT RUN: the web platform's URL tests, {WPT} is missing", stacklevel=2)
        pytest.skip(f"the web platform's URL tests are not here: {WPT}")
    return [case for case in json.loads(WPT.read_text()) if isinstance(case, dict)]


def test_every_case_of_the_web_platform_passes() -> None:
    cases = wpt_cases()
    wrong, refused = [], 0
    for case in cases:
        try:
            url = urls.parse(case["input"], case["base"])
        except BadUrl:
            refused += 1
            if not case.get("failure"):
                wrong.append((case["input"], case["base"], "refused"))
            continue
        if case.get("failure"):
            wrong.append((case["input"], case["base"], "accepted"))
            continue
        wrong += [(case["input"], f, getattr(url, f)) for f in FIELDS if getattr(url, f) != case[f]]
    assert wrong == []
    assert (len(cases), refused) == (891, 267)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HTTP://EXAMPLE.com:80/../a/./b#frag", "http://example.com/a/b"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com:8443/", "https://example.com:8443/"),
        ("http://user:secret@example.com/", "http://example.com/"),
        ("http://bücher.example/ü?ü", "http://xn--bcher-kva.example/%C3%BC?%C3%BC"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://①②⑦.0.0.1/", "http://127.0.0.1/"),
        ("http://example.com/a b", "http://example.com/a%20b"),
        ("http://example.com/%7euser", "http://example.com/%7euser"),
        ("http://example.com\\path\\x", "http://example.com/path/x"),
    ],
)
def test_canonical_form(text: str, expected: str) -> None:
    assert urls.canonical(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("mailto:someone@example.com", "scheme"),
        ("ftp://example.com/", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("http://example.com/" + "a" * 2000, "length"),
        ("http://a:99999/", "syntax"),
        ("http://a b/", "syntax"),
        ("/no/base", "syntax"),
        ("", "syntax"),
    ],
)
def test_what_cannot_be_crawled_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(BadUrl) as caught:
        urls.canonical(text)
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("example.com", "https://example.com/"),
        ("  example.com/x ", "https://example.com/x"),
        ("localhost:8080", "https://localhost:8080/"),
        ("127.0.0.1:8080/x?y", "https://127.0.0.1:8080/x?y"),
        ("//example.com", "https://example.com/"),
        ("http://example.com", "http://example.com/"),
    ],
)
def test_a_seed_without_a_scheme_gets_https(typed: str, expected: str) -> None:
    assert urls.seed(typed) == expected


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("http://exa mple.com/", "space"),
        ("http://example.com/a b", "space"),
        ("http://example.com/\x00", "control character"),
        ("http://example.com:http/", "port"),
        ("http://example.com:65536/", "port"),
        ("gopher://example.com/", "gopher"),
        ("http://" + "a" * 10_000, "characters"),
        ("http://\ufdd0zyx.com/", "valid name"),
        ("http://", "host is missing"),
    ],
)
def test_the_error_of_a_bad_seed_says_what_is_wrong(typed: str, word: str) -> None:
    with pytest.raises(BadUrl, match=word):
        urls.seed(typed)


BASE = "https://www.example.org/dir/page.html?q=1"
HREFS = [
    "/", "/a/b.html", "/a?b=c&d=e#f", "x.html", "x/y/", "?only=query", "#frag", "", "../up", "./here", "../../../over",
    "//other.example/x", "https://example.com", "https://example.com/p", "HTTP://EXAMPLE.com:80/p", "http://127.1/x",
    "http://u:p@example.com/x", "/a//b", "/%2e%2e/x", "/.hidden", "/a/../b", "/ü", "/a b", "\t/tab\n", "x?a:b",
    "https://example.com:443/x", "https://example.com.:80/x", "/x'y", "/x?'y", "/a|b", "/a{b}", "https:relative",
    "https://example.com?x", "/x?y=/../z", "1.html", ".", "..", "%2e/x", "x/%2E%2e/y", "~user/", "/a;b=1/c@d",
]  # fmt: skip


@pytest.mark.parametrize("href", HREFS)
def test_the_fast_way_of_joining_agrees_with_the_parser(href: str) -> None:
    assert urls.join_all(BASE, [href]) == [urls.canonical(href, BASE)]
    for base in (BASE, "http://user:word@example.org/", "HTTP://Example.org:80/", "file:///a/b"):
        try:
            expected = urls.parse(href, base).href
        except BadUrl:
            continue
        assert urls.absolute(href, base) == expected


_HREF_CHARS = st.text(alphabet="ab.1/?#%2e:@-_~ü '&=;\\\t[]", max_size=20)


@given(href=_HREF_CHARS, base=st.sampled_from([BASE, "http://a.b/", "http://a.b:81/x//y/", "http://h/%2e/.z/q"]))
@example(href="/.", base=BASE)
@example(href="//", base=BASE)
def test_joining_agrees_with_the_parser_on_any_text(href: str, base: str) -> None:
    base = urls.canonical(base)
    try:
        expected = [urls.canonical(href, base)]
    except BadUrl:
        expected = []
    assert urls.join_all(base, [href]) == expected
    if expected:
        assert urls.absolute(href, base) == urls.parse(href, base).href


@given(st.text(max_size=60))
def test_canonical_is_idempotent(text: str) -> None:
    for candidate in (text, "http://" + text, "https://example.com/" + text):
        try:
            once = urls.canonical(candidate)
        except BadUrl:
            continue
        assert urls.canonical(once) == once


@given(st.lists(st.text(max_size=40), max_size=5))
def test_joining_never_leaves_http(hrefs: list[str]) -> None:
    for url in urls.join_all(BASE, [*hrefs, "javascript:x", "data:,x", "mailto:x@y", "ftp://h/"]):
        assert url.startswith(("http://", "https://"))
        assert "#" not in url
        assert len(url) <= urls.MAX_LENGTH


def test_refused_links_are_reported_with_their_reason() -> None:
    told: list[tuple[str, str]] = []
    hrefs = ["/" + "a" * 2100, "mailto:x@y", "http://a:b:c/", "/fine"]
    assert urls.join_all(BASE, hrefs, refused=lambda href, why: told.append((href, why))) == [
        "https://www.example.org/fine"
    ]
    assert [why for _, why in told] == ["length", "scheme", "syntax"]


def test_the_query_of_a_link_is_sent_in_the_encoding_of_the_page() -> None:
    joined = urls.join_all("http://example.com/", ["/ü?q=ü&x=1#ü", "/p?q=€"], encoding="iso-8859-1")
    assert joined == ["http://example.com/%C3%BC?q=%FC&x=1", "http://example.com/p?q=%26%238364%3B"]


def test_extensions_that_lead_to_no_text() -> None:
    assert urls.skipped_extension("http://a.b/x.JPG") == "jpg"
    assert urls.skipped_extension("http://a.b/x.sketch?download=1") == "sketch"
    assert urls.skipped_extension("http://a.b/x.tar.gz") == "gz"
    for kept in ("http://my.app/", "http://a.b/x.html", "http://a.b/x?f=y.pdf", "http://a.b/pdf", "http://a.b/jpg/"):
        assert urls.skipped_extension(kept) is None


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("www.example.co.uk", "example.co.uk"),
        ("example.com", "example.com"),
        ("a.b.github.io", "b.github.io"),
        ("co.uk", "co.uk"),
        ("127.0.0.1", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("localhost", "localhost"),
        ("site7.weft-web.test", "site7.weft-web.test"),
        ("xn--bcher-kva.com", "xn--bcher-kva.com"),
        ("www.example.com.", "example.com"),
    ],
)
def test_registrable_domain(host: str, domain: str) -> None:
    assert urls.domain(host) == domain


def test_parts_of_a_canonical_url() -> None:
    url = "https://www.example.com:8443/a/b?c"
    assert urls.host_of(url) == "www.example.com"
    assert urls.origin_of(url) == "https://www.example.com:8443"
    assert urls.domain_of(url) == "example.com"
    assert urls.host_of("http://[::1]:8080/x") == "[::1]"


def test_pod_and_data_dir_are_the_documented_functions() -> None:
    # int(md5("example.com")[:8], 16) and int(sha256(url)[:8], 16), worked out with md5sum and sha256sum
    assert urls.pod_of("example.com", 16) == 0x5ABABD60 % 16
    assert urls.data_dir_of("https://example.com/", 4) == 0x0F115DB0 % 4


def test_pod_and_data_dir_are_the_same_in_every_process() -> None:
    program = (
        "from weft import urls; print([urls.pod_of(f'd{i}.com', 7) for i in range(50)],"
        "[urls.data_dir_of(f'http://d{i}.com/', 5) for i in range(50)])"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(seen) == 1


def test_pods_and_data_dirs_are_even_over_many_domains() -> None:
    for parts in (2, 16):
        pods = Counter(urls.pod_of(f"domain-{i}.example", parts) for i in range(100_000))
        dirs = Counter(urls.data_dir_of(f"https://domain-{i}.example/", parts) for i in range(100_000))
        for counts in (pods, dirs):
            assert len(counts) == parts
            assert all(abs(count - 100_000 / parts) <= 0.1 * 100_000 / parts for count in counts.values())


def test_the_short_way_to_a_domain_leads_where_the_list_does() -> None:
    rules = PublicSuffixList(accept_unknown=False)
    lines = Path(PSLFILE).read_text("utf-8").splitlines()
    listed = {line.split()[0].lower() for line in lines if line.strip() and not line.startswith("//")}
    written = {rule if rule.isascii() else encode_idn(rule) for rule in listed}
    assert urls._rules() == {rule for rule in listed if rule.isascii()}
    assert len(written - urls._rules()) > 100
    for rule in written:
        name = rule.lstrip("!").replace("*", "any")
        for host in (name, f"a.{name}", f"www.b.a.{name}"):
            assert urls.domain(host) == (rules.privatesuffix(host) or host)


@pytest.mark.parametrize(
    "text",
    "http://h https://H.example http://h?x=1 http://h:80/a http://h:99999/ http://127.1/ http://a..b/ http://h/a/../b "
    "http://h/# http://h/a#x //h/x http://h/%2e/x http://xn--/ http:/x http://h/a?b?c http://u@h/ http://0x7f/".split(),
)
def test_absolute_is_what_the_url_parser_makes_of_it(text: str) -> None:
    base = "http://base.example/x"
    try:
        expected = urls.parse(text, base).href
    except BadUrl:
        with pytest.raises(BadUrl):
            urls.absolute(text, base)
    else:
        assert urls.absolute(text, base) == expected
