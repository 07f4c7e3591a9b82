"""What one crawl lets in, and why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft.config import ScopeSection
from weft.engine.admission.rules import AdmissionRules, read_domains
from weft.engine.admission.traps import (
    MAX_VARIANTS,
    SAME_LEVELS,
    ParameterGuard,
    SamenessGuard,
    pattern_of,
    trap_reason,
    without_parameters,
    without_session,
)
from weft.errors import BadInput
from weft.records import Reason

SEED = "https://www.example.com/docs/start.html"


def rules(*seeds: str, **settings: Any) -> AdmissionRules:
    section = ScopeSection(**({"scope": "domain"} | settings))
    return AdmissionRules(section, seeds or (SEED,), this_year=2026)


@pytest.mark.parametrize(
    ("scope", "url", "inside"),
    [
        ("any", "http://other.org/", True),
        ("domain", "http://blog.example.com/", True),
        ("domain", "http://example.org/", False),
        ("host", "https://www.example.com/x", True),
        ("host", "https://blog.example.com/x", False),
        ("prefix", "https://www.example.com/docs/a/b", True),
        ("prefix", "https://www.example.com/doc", False),
        ("prefix", "https://www.example.com/", False),
        ("prefix", "http://www.example.com/docs/", False),
    ],
)
def test_scope(scope: str, url: str, inside: bool) -> None:
    assert rules(scope=scope).refusal(url, 1) is (None if inside else Reason.SCOPE)


def test_a_seeds_redirect_extends_the_scope() -> None:
    crawl = rules()
    assert crawl.refusal("https://example.net/x", 0) is Reason.SCOPE
    crawl.extend("https://www.example.net/")
    assert crawl.refusal("https://example.net/x", 0) is None


def test_one_hop_off_scope_when_allowed_and_no_further() -> None:
    crawl = rules(offsite_hops=1)
    assert crawl.refusal("http://other.org/", 1, offsite=0) is None
    assert crawl.refusal("http://third.org/", 2, offsite=1) is Reason.SCOPE
    assert crawl.refusal("http://example.com/back", 2, offsite=1) is None
    assert (crawl.in_scope("http://other.org/"), crawl.in_scope("http://example.com/")) == (False, True)


def test_extensions_bind_links_and_not_what_was_listed_on_purpose() -> None:
    crawl = rules()
    assert crawl.refusal("https://example.com/a.pdf", 1) is Reason.EXTENSION
    assert crawl.refusal("https://example.com/a.pdf", 1, is_link=False) is None


def test_depth() -> None:
    crawl = rules(max_depth=2)
    assert crawl.refusal("https://example.com/a", 2) is None
    assert crawl.refusal("https://example.com/a", 3) is Reason.DEPTH


def test_patterns_are_globs_over_the_whole_url_or_regular_expressions_anywhere() -> None:
    crawl = rules(include=("*/docs/*", r"re:/news/\d+$"), exclude=("*secret*",))
    assert crawl.refusal("https://example.com/docs/a", 1) is None
    assert crawl.refusal("https://example.com/news/12", 1) is None
    assert crawl.refusal("https://example.com/news/12x", 1) is Reason.PATTERN
    assert crawl.refusal("https://example.com/docs/secret", 1) is Reason.PATTERN


def test_an_excluded_domain_and_its_subdomains_are_never_requested(tmp_path: Path) -> None:
    path = tmp_path / "exclude.txt"
    path.write_text("# not these\nexample.org\n\n  .Bad.Example.COM # nor this\n")
    crawl = rules(scope="any", exclude_file=str(path))
    for url in ("http://example.org/", "http://a.b.example.org/", "https://bad.example.com/x"):
        assert crawl.refusal(url, 1) is Reason.EXCLUDED
    for url in ("http://notexample.org/", "https://example.com/"):
        assert crawl.refusal(url, 1) is None
    path.write_text("example.org\nnot a domain\n")
    with pytest.raises(BadInput, match=r"exclude.txt:2: 'not a domain' is not a domain"):
        read_domains(str(path))
    with pytest.raises(BadInput, match="cannot be read"):
        read_domains(str(tmp_path / "none"))


def test_urls_are_known_without_session_ids_and_stripped_parameters() -> None:
    crawl = rules(strip_query=("utm_*", "ref"))
    sid = "0123456789abcdef0123456789abcdef"
    assert crawl.rewritten(f"http://a/x?sid={sid}&id=1") == "http://a/x?id=1"
    assert crawl.rewritten(f"http://a/x;jsessionid={sid}?a=1&utm_source=x&ref=y") == "http://a/x?a=1"
    assert crawl.rewritten(f"http://a/x?PHPSESSID={sid}") == "http://a/x"
    for kept in ("http://a/x?sid=7", "http://a/x?id=1", "http://a/x;v=1", "http://a/?session=spring"):
        assert crawl.rewritten(kept) == kept
    assert without_session("http://a/p?x=1&sid=0123456789abcdef") == "http://a/p?x=1"
    assert without_parameters("http://a/p?x=1&y", ("*",)) == "http://a/p"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://a/loop/a/b/a/b/a/b/", "repeating path segments"),
        ("http://a/x/x/x", "repeating path segments"),
        ("http://a/1/x/2/x/3/x/4/x/5/x", "repeating path segments"),
        ("http://a/" + "/".join(f"d{n}" for n in range(30)), "too many path segments"),
        ("http://a/calendar/2031/05", "a calendar out of its years"),
        ("http://a/events?year=2099&month=3", "a calendar out of its years"),
        ("http://a/archive/1850-01-02/", "a calendar out of its years"),
    ],
)
def test_the_look_of_a_trap(url: str, why: str) -> None:
    assert trap_reason(url, 2026) == why


@pytest.mark.parametrize(
    "url",
    [
        "http://a/2011/11/11/story", "http://a/a/b/a/b/", "http://a/product/3500/reviews", "http://a/calendar/2026/12",
        "http://a/item/1234567", "http://a/x?page=2", "http://a/docs/en/docs/api/docs/", "http://a/isbn/1984",
    ],
)  # fmt: skip
def test_what_only_looks_a_little_like_a_trap(url: str) -> None:
    assert trap_reason(url, 2026) is None


def test_too_many_variants_of_one_path_are_an_explosion() -> None:
    guard = ParameterGuard()
    exploded = [guard.explodes(f"http://a/list?color={n % 9}&size={n // 9}&sort=x") for n in range(MAX_VARIANTS + 5)]
    assert exploded == [False] * MAX_VARIANTS + [True] * 5
    assert not any(guard.explodes(f"http://a/view?id={n}&page=1") for n in range(500)), "paging is no explosion"
    assert not guard.explodes("http://a/list?color=1&size=1&page=1"), "other parameters, another count"


def test_a_trap_is_refused_as_a_link_only() -> None:
    crawl = rules()
    assert crawl.refusal("https://example.com/x/x/x", 1) is Reason.TRAP
    assert crawl.refusal("https://example.com/x/x/x", 1, is_link=False) is None


def test_a_pattern_is_a_url_without_its_numbers_and_values() -> None:
    assert pattern_of("http://a/day/2031/05?x=1&b=2") == "http://a/day/0/0?b&x"
    assert pattern_of("http://a:80/about") is None


def test_a_pattern_that_keeps_giving_the_same_page_is_stopped() -> None:
    guard = SamenessGuard()
    for day in range(SAME_LEVELS):
        assert not guard.stops("http://a/day/999", f"http://a/day/{day}")
        read(guard, f"http://a/day/{day}", f"http://a/day/{day + 1}", depth=day)
    assert guard.stops("http://a/day/999", "http://a/day/12")
    assert not guard.stops("http://a/other/999", "http://a/day/12")
    assert not guard.stops("http://b/day/999", "http://a/day/12")
    assert not guard.stops("http://a/day/999", "http://a/diary/"), "another page's link is no step of an endless chain"


def read(guard: SamenessGuard, page: str, *new: str, depth: int = 1) -> None:
    """A page that says what all of them say, and what it leads to."""
    words = frozenset(f"word{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
    guard.observe(page, "Page 1", 12, depth, lambda: words)
    guard.record_links(page, new)


def test_leaves_are_no_trap_however_alike() -> None:
    guard = SamenessGuard()
    for number in range(100):
        read(guard, f"http://a/leaf/{number}", depth=number)
        read(guard, f"http://a/card/{number}", "http://a/about", f"http://b/seller/{number}", depth=number)
        read(guard, f"http://a/list/{number}", f"http://a/item/{number}", f"http://a/list/{number + 1}", depth=number)
        read(guard, f"http://a/item/{number}", depth=number + 1)
        read(guard, f"http://a/page/{number}", f"http://a/{number}/unread", f"http://a/page/{number + 1}", depth=number)
    for kind in ("leaf", "card", "list", "item"):
        assert not guard.stops(f"http://a/{kind}/999", f"http://a/{kind}/1"), kind
    assert guard.stops("http://a/page/999", "http://a/page/1"), "what it leads to besides is no page"
    assert not guard.stops("http://a/999/unread", "http://a/page/1"), "it is found there alone"


def test_two_patterns_that_lead_to_each_other_are_stopped() -> None:
    guard = SamenessGuard()
    for number in range(SAME_LEVELS):
        read(guard, f"http://a/month/{number}", f"http://a/view/{number}", depth=2 * number)
        read(guard, f"http://a/view/{number}", f"http://a/month/{number + 1}", depth=2 * number + 1)
    assert guard.stops("http://a/month/99", "http://a/view/98")
    assert guard.stops("http://a/view/99", "http://a/month/99")


def test_what_is_remembered_of_pages_that_were_read_is_bounded() -> None:
    guard = SamenessGuard(kept=50)
    for number in range(5000):
        read(guard, f"http://host-{number}.test/leaf/1")
    assert len(guard._pages_read) <= 1024 and len(guard._runs) <= 50
    assert not guard.needs_new_links("http://host-1.test/leaf/1")
    read(guard, "http://host-9.test/leaf/1", "http://host-9.test/leaf/2")


def test_numbered_pages_that_differ_go_on() -> None:
    guard = SamenessGuard()
    for number in range(100):
        words = frozenset({f"word-{number}", "the", "and"})
        guard.observe(f"http://a/story/{number}", "A Site", 30, number, words.copy)
        guard.observe(f"http://a/item/{number}", f"Item {'abc'[number % 3]}", 30, number, frozenset)
        guard.observe(f"http://a/list/{number}", "List", number, number, frozenset)
        for kind in ("story", "item", "list"):
            guard.record_links(f"http://a/{kind}/{number}", [f"http://a/{kind}/{number + 1}"])
    assert not any(guard.stops(f"http://a/{kind}/1", f"http://a/{kind}/2") for kind in ("story", "item", "list"))


@pytest.mark.parametrize(
    ("pattern", "url", "matches"),
    [
        ("/blog/*", "https://www.example.com/blog/a", True),
        ("/blog/*", "https://other.example.com:8080/blog/a/b?x=1", True),
        ("/blog/*", "https://www.example.com/blog", False),
        ("/blog/*", "https://www.example.com/old/blog/a", False),
        ("/blog/*", "https://www.example.com/?u=/blog/a", False),
        ("/a", "https://www.example.com/a", True),
        ("/a", "https://www.example.com/a?x=1", True),
        ("/a", "https://www.example.com/ab", False),
        ("/a?x=*", "https://www.example.com/a?x=1", True),
        ("/", "https://www.example.com/", True),
        ("/", "https://www.example.com/a", False),
        ("/[ab]/*.html", "https://www.example.com/b/c.html", True),
        ("*/blog/*", "https://www.example.com/old/blog/a", True),
        ("https://www.example.com/a", "https://www.example.com/a?x=1", False),
        ("re:/a", "https://www.example.com/b/a", True),
    ],
)
def test_a_pattern_that_begins_with_a_slash_matches_the_path(pattern: str, url: str, matches: bool) -> None:
    assert rules(include=(pattern,)).refusal(url, 1) is (None if matches else Reason.PATTERN)
    assert rules(exclude=(pattern,)).refusal(url, 1) is (Reason.PATTERN if matches else None)


def test_patterns_that_have_matched_are_known() -> None:
    crawl = rules(include=("/a/*", "*/a/*", "/b/*", "re:never"), exclude=("/a/x", "/c"))
    crawl.refusal("https://example.com/a/1", 1)
    crawl.refusal("https://example.com/a/x", 1)
    crawl.refusal("https://example.com/b/1", 0, included=True)  # a seed counts, though it is let in anyway
    assert crawl.matched == {"include /a/*", "include */a/*", "include /b/*", "exclude /a/x"}


@pytest.mark.parametrize(
    ("settings", "out"),
    [
        ({}, []),
        ({"exclude": ["/b*"]}, ["b"]),
        ({"include": ["/a*"]}, ["b", "c"]),
        ({"include": ["/a*", "/b*"], "exclude": ["/b*"]}, ["b", "c"]),
    ],
)
def test_what_the_patterns_keep_out_follows_an_edit(settings: dict[str, Any], out: list[str]) -> None:
    crawl = rules(exclude=["/never*"])
    crawl.edit(ScopeSection(scope="domain", **settings))
    assert [name for name in "abc" if crawl.excludes(f"https://www.example.com/{name}")] == out


def test_what_is_in_the_scope_follows_an_edit_also_where_it_was_asked_before() -> None:
    crawl = rules()
    asked = ["https://example.com/", "https://www.example.com/", "https://example.org/"]
    assert [crawl.refusal(url, 1) for url in asked] == [None, None, Reason.SCOPE]
    crawl.edit(ScopeSection(scope="any"))
    assert [crawl.refusal(url, 1) for url in asked] == [None, None, None]
