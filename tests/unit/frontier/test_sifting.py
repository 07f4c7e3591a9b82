"""A page's links judged together: exactly what judging them one by one would give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.config import ScopeSection
from weft.frontier.admission import Patterns, Rules
from weft.frontier.traps import MAX_SEGMENTS, MAX_VARIANTS, suspects, trap
from weft.records import Lease, Purpose, Reason

ORIGINS = ("https://a.test", "https://www.a.test", "https://b.test:8443", "https://127.0.0.1")
SEGMENTS = st.sampled_from(
    ["x", "x", "y", "ab", "2031", "1850", "2019", "05", "12-", "2031-05", "", "x.pdf", "x.html", "X.JPG", "&y=1850"]
)  # fmt: skip
QUERIES = st.sampled_from(["", "", "", "?", "?q=1", "?a=1&b=2&c=3", "?year=1850", "?x=/x/x/x", "?f=x.pdf"])
LINKS = st.lists(
    st.builds(
        lambda origin, segments, query: f"{origin}/{'/'.join(segments)}{query}",
        st.sampled_from(ORIGINS), st.lists(SEGMENTS, max_size=9), QUERIES,
    ),
    max_size=12,
    unique=True,
)  # fmt: skip
SETTINGS: list[dict[str, Any]] = [
    {"scope": "any"},
    {"scope": "domain"},
    {"scope": "host", "offsite_hops": 1},
    {"scope": "prefix"},
    {"scope": "prefix", "offsite_hops": 1},
    {"scope": "any", "exclude": ["*x.html"], "include": ["/*"]},
    {"scope": "any", "exclude": ["/x*"]},
    {"scope": "any", "include": ["/x*"]},
    {"scope": "any", "max_depth": 3},
    {"scope": "any", "max_depth": 2},
]


def lease(url: str = "https://a.test/x/1", depth: int = 2, offsite: int = 0) -> Lease:
    return Lease(9, 1, url, "", depth, 0, 0, Purpose.PAGE, "", offsite, 0, "", 0, 0.0, 0.0)


def rules_of(settings: dict[str, Any]) -> Rules:
    return Rules(ScopeSection(**settings), ["https://a.test/x/start"], this_year=2026)


@given(LINKS)
def test_what_looks_like_a_trap_is_always_looked_at(links: list[str]) -> None:
    for origin in ORIGINS:
        own = [link for link in links if link.startswith(origin + "/")]
        found = suspects(origin, own, 2026)
        assert found <= set(own)
        for url in own:
            assert url in found or (trap(url, 2026) is None and "?" not in url), url


def test_plain_links_are_no_suspects() -> None:
    plain = ["", "x", "2019/05/title", "a/b/c/", "a/b/c/d", "1999/12/x", "shop/12345-thing.html", "en/docs/en/start"]
    assert suspects("https://a.test", [f"https://a.test/{path}" for path in plain], 2026) == set()
    odd = ["/".join(map(str, range(100, 101 + MAX_SEGMENTS))), "x/x/x", "1850/05/x", "q?a=1", "x/y/x/z/x", "a=b"]
    assert len(suspects("https://a.test", [f"https://a.test/{path}" for path in odd], 2026)) == len(odd)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@given(links=LINKS, offsite=st.integers(0, 1))
def test_judged_together_as_one_by_one(settings: dict[str, Any], links: list[str], offsite: int) -> None:
    page = lease(offsite=offsite)
    let_in, refused = rules_of(settings).sift(links, page)
    alone = rules_of(settings)
    expected: dict[str, Reason | None] = {url: alone.refusal(url, 3, offsite=offsite, page=page.url) for url in links}
    assert dict(refused) == {url: reason for url, reason in expected.items() if reason is not None}
    assert sorted(url for some in let_in for url in some.urls) == sorted(
        url for url, reason in expected.items() if reason is None
    )
    for some in let_in:
        assert (some.depth, some.parent) == (3, 9)
        for url in some.urls:
            assert url.startswith(some.origin + "/")
            outside = bool(settings.get("offsite_hops")) and not alone.in_scope(url)
            assert some.offsite == (offsite + 1 if outside else 0), url


def test_variants_of_a_path_are_counted_once_each() -> None:
    rules = rules_of({"scope": "any"})
    links = [f"https://a.test/p?a={number}&b=1&c=1" for number in range(MAX_VARIANTS + 2)]
    let_in, refused = rules.sift(links, lease())
    assert [len(some.urls) for some in let_in] == [MAX_VARIANTS]
    assert [reason for _, reason in refused] == [Reason.TRAP, Reason.TRAP]


def test_links_to_an_excluded_domain_are_refused_and_the_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "domains").write_text("b.test\n")
    section = ScopeSection(scope="any", exclude_file=str(tmp_path / "domains"))
    rules = Rules(section, ["https://a.test/"], this_year=2026)
    there = ["https://b.test/1", "https://www.b.test/2", "https://b.test/3"]
    let_in, refused = rules.sift([*there, "https://c.test/4", "https://ab.test/5"], lease())
    assert sorted(refused) == sorted((url, Reason.EXCLUDED) for url in there)
    assert [some.urls for some in let_in] == [["https://c.test/4"], ["https://ab.test/5"]]


def test_every_pattern_that_matches_is_known() -> None:
    patterns, matched = Patterns("exclude", ["*a*", "*b*", "*c*", "*d*"]), set[str]()
    assert patterns.match("https://x.test/a", matched) and matched == {"exclude *a*"}
    assert patterns.match("https://x.test/abd", matched)
    assert matched == {"exclude *a*", "exclude *b*", "exclude *d*"}
    assert not patterns.match("https://x.test/", matched)
    assert patterns.match("https://x.test/abc", matched) and len(matched) == 4
