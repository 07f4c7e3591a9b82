"""The rules of a crawl where they meet: which one counts, and where each begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from weft import urls
from weft.config import ScopeSection
from weft.engine.admission.rules import AdmissionRules, read_domains
from weft.engine.admission.traps import MAX_VARIANTS, SAME_LEVELS, SamenessGuard, pattern_of
from weft.errors import BadInput
from weft.records import Reason

SEED = "https://www.example.com/docs/start.html?x=/y/z"


def rules(*seeds: str, extensions: tuple[str, ...] = (), **settings: Any) -> AdmissionRules:
    section = ScopeSection(**({"scope": "domain"} | settings))
    return AdmissionRules(section, seeds or (SEED,), this_year=2026, extensions=extensions)


@pytest.mark.parametrize("scope", ["domain", "host", "prefix"])
def test_origins_are_judged_each_for_itself(scope: str) -> None:
    crawl = rules(scope=scope)
    inside, outside = "https://www.example.com/docs/a", "https://www.example.org/docs/a"
    for _ in range(2):
        assert (crawl.refusal(inside, 1), crawl.refusal(outside, 1)) == (None, Reason.SCOPE)
        assert (crawl.in_scope(inside), crawl.in_scope(outside)) == (True, False)


def test_a_prefix_is_a_seeds_folder_whatever_its_query_holds() -> None:
    crawl = rules(scope="prefix")
    assert crawl.in_scope("https://www.example.com/docs/other?x")
    assert not crawl.in_scope("https://www.example.com/doc")
    assert crawl.refusal("https://www.example.com/docs/other", 1) is None
    assert crawl.refusal("https://www.example.com/", 1) is Reason.SCOPE


def test_what_a_seeds_redirect_added_before_counts_again() -> None:
    crawl = rules(extensions=("https://example.net/",))
    assert crawl.refusal("https://sub.example.net/x", 1) is None


def test_an_extension_changes_what_was_judged_before() -> None:
    crawl = rules(scope="host")
    assert crawl.refusal("https://b.example.com/x", 1) is Reason.SCOPE
    crawl.extend("https://b.example.com/y")
    assert crawl.refusal("https://b.example.com/x", 1) is None


def test_hops_outside_the_scope_are_counted() -> None:
    for hops in (0, 1, 2):
        crawl = rules(offsite_hops=hops)
        answers = [crawl.refusal("https://other.org/", 1, offsite=made) for made in range(4)]
        assert answers == [None] * hops + [Reason.SCOPE] * (4 - hops)
    assert rules(offsite_hops=1).refusal("https://other.org/", 1) is None, "none was made, unless it is told"
    crawl = rules(scope="prefix", offsite_hops=1)
    assert crawl.refusal("https://www.example.com/", 1, offsite=0) is None
    assert crawl.refusal("https://www.example.com/", 1, offsite=1) is Reason.SCOPE


def test_an_excluded_host_is_refused_whatever_else_lets_it_in(tmp_path: Path) -> None:
    path = tmp_path / "exclude.txt"
    path.write_text("www.example.com\n")
    crawl = rules(scope="any", exclude_file=str(path), include=("*",))
    for url in ("https://www.example.com/a.pdf", "https://x.www.example.com/"):
        assert crawl.refusal(url, 99, included=True) is Reason.EXCLUDED
        assert crawl.in_scope(url), "it lies in the scope, and is not wanted"
    assert crawl.refusal("https://example.com/", 1) is None


def test_what_is_included_on_purpose_need_not_match_and_what_is_excluded_never_comes() -> None:
    crawl = rules(include=("*/news/*",), exclude=("re:secret",))
    assert crawl.refusal("https://example.com/docs/", 1) is Reason.PATTERN
    assert crawl.refusal("https://example.com/docs/", 1, included=True) is None
    assert crawl.refusal("https://example.com/news/secret", 1, included=True) is Reason.PATTERN
    assert crawl.refusal("https://example.com/news/1", 1) is None
    one = rules(exclude=("*/private/*",))
    assert one.refusal("https://example.com/private/1", 1) is Reason.PATTERN
    assert one.refusal("https://example.com/public", 1) is None
    assert one.refusal("https://example.com/?u=https://example.com/private/", 1) is Reason.PATTERN


def test_a_depth_of_nought_is_the_seeds_alone() -> None:
    crawl = rules(max_depth=0)
    assert (crawl.refusal("https://example.com/", 0), crawl.refusal("https://example.com/", 1)) == (None, Reason.DEPTH)
    assert rules().refusal("https://example.com/", 1_000_000) is None


def test_each_kind_of_trap_binds_links_alone() -> None:
    for spoil in ("look", "variants", "sameness"):
        crawl = rules()
        url, page = "https://example.com/list?a=1&b=2&c=3", "https://example.com/"
        if spoil == "look":
            url = "https://example.com/x/x/x"
        elif spoil == "variants":
            for number in range(MAX_VARIANTS):
                assert crawl.refusal(f"https://example.com/list?a={number % 7}&b={number // 7}&c=0", 1) is None
        else:
            url = "https://example.com/day/99"
            for number in range(SAME_LEVELS):
                page = f"https://example.com/day/{number}"
                crawl.sameness.observe(page, "T", 1, number, lambda: frozenset({"w"}))
                crawl.sameness.record_links(page, [f"https://example.com/day/{1000 + number}"])
        assert crawl.refusal(url, 1, is_link=False) is None, spoil
        assert crawl.refusal(url, 1, page=page) is Reason.TRAP, spoil


def test_rewriting_leaves_plain_urls_alone() -> None:
    sid = "0123456789abcdef"
    crawl = rules(strip_query=("ref",))
    assert crawl.rewritten("https://a/x") == "https://a/x"
    assert crawl.rewritten(f"https://a/x;jsessionid={sid}") == "https://a/x"
    assert crawl.rewritten("https://a/x?ref=1&b=2") == "https://a/x?b=2"
    assert rules().rewritten("https://a/x?ref=1") == "https://a/x?ref=1"
    links = ["https://a/x", "https://a/x?ref=1", "https://a/y", f"https://a/x;jsessionid={sid}"]
    assert crawl.candidates("https://a/", links, "utf-8") == ["https://a/x", "https://a/y"]
    assert crawl.candidates("https://a/", ["x", "/y", "https://a/x"], None) == ["https://a/x", "https://a/y"]


def test_the_lines_of_an_exclude_file_are_counted_from_one(tmp_path: Path) -> None:
    path = tmp_path / "exclude.txt"
    path.write_text("\n# one\n.Example.org # two\nexample.net\n\nnot a domain\n")
    with pytest.raises(BadInput, match=r"exclude.txt:6: 'not a domain' is not a domain"):
        read_domains(str(path))
    path.write_text("# one\n.Example.org # two\nexample.net\n")
    assert read_domains(str(path)) == {"example.org", "example.net"}
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="cannot be read: it is not text"):
        read_domains(str(path))


def test_hosts_of_one_letter_are_hosts() -> None:
    crawl = rules("http://a/", scope="host")
    assert (crawl.in_scope("http://a/x"), crawl.in_scope("http://b/x")) == (True, False)
    assert (crawl.refusal("http://a/x", 1), crawl.refusal("http://b/x", 1)) == (None, Reason.SCOPE)
    guard = SamenessGuard()
    guard.observe("http://a/1", "", 0, 1, frozenset)
    assert guard.needs_new_links("http://a/1") and not guard.record_links("http://a/1", ["http://b/2", "http://a/2"])
    assert not guard.needs_new_links("http://a/1")
    assert (pattern_of("http://a/12"), pattern_of("http://a/x")) == ("http://a/0", None)
    assert urls.origin_of("http://a/x") == "http://a"
    assert dict(urls.by_origin(["http://a/x", "http://b/"])) == {
        "http://a/": ["http://a/x"],
        "http://b/": ["http://b/"],
    }


def test_a_long_list_of_domains_is_read_to_its_end_and_what_is_no_text_is_not(tmp_path: Path) -> None:
    path = tmp_path / "domains"
    path.write_text("".join(f"domain-{number}.test\n" for number in range(5000)))
    assert path.stat().st_size > 65536 and len(read_domains(str(path))) == 5000
    path.write_bytes(b"\0" * 70_000 + b"\xff")
    with pytest.raises(BadInput, match=r":1: .* is not a domain"):
        read_domains(str(path))
