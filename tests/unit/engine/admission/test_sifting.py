"""A page's links judged together: exactly what judging them one by one would give."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_twice import WAYS, as_installed, in_c, written

from weft import urls
from weft.config import ScopeSection
from weft.engine.admission import rules as admission
from weft.engine.admission.rules import AdmissionRules, Patterns
from weft.engine.admission.traps import EARLIEST_YEAR, MAX_SEGMENTS, MAX_VARIANTS, trap_reason
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


LOOKED_FOR = (EARLIEST_YEAR, 2027, MAX_SEGMENTS, urls.LONGEST_EXTENSION, urls.SKIPPED_EXTENSIONS)


@pytest.fixture(scope="module", params=WAYS, autouse=True)
def lists(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Whatever looks through lists of links, in C and in Python."""
    chosen = written(request.param, "weft.frontier.link_lists", "weft.frontier._link_lists")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(admission, "grouped", chosen.grouped)
        yield chosen


def lease(url: str = "https://a.test/x/1", depth: int = 2, offsite: int = 0) -> Lease:
    return Lease(9, 1, url, "", depth, 0, 0, Purpose.PAGE, "", offsite, 0, "", 0, 0.0, 0.0)


def rules_of(settings: dict[str, Any]) -> AdmissionRules:
    return AdmissionRules(ScopeSection(**settings), ["https://a.test/x/start"], this_year=2026)


@given(links=LINKS)
def test_what_looks_like_a_trap_or_is_no_text_is_always_looked_at(lists: Any, links: list[str]) -> None:
    groups = lists.grouped(links, *LOOKED_FOR)
    assert [origin for origin, _, _ in groups] == list(dict.fromkeys(map(urls.origin_of, links)))
    for origin, own, odd in groups:
        assert own == [link for link in links if urls.origin_of(link) == origin]
        assert odd <= set(own)
        for url in own:
            is_plain = trap_reason(url, 2026) is None and "?" not in url and urls.skipped_extension(url) is None
            assert url in odd or is_plain, url


def test_plain_links_are_not_odd(lists: Any) -> None:
    plain = ["", "x", "2019/05/title", "a/b/c/", "a/b/c/d", "1999/12/x", "shop/12345-thing.html", "en/docs/en/start",
             "1990/12/x", "2027/01/x", "x.", "a.sqlite3", "so", "x/12345/", "en/docs/en",
             "/".join(map(str, range(100, 124)))]  # fmt: skip
    assert lists.grouped([f"https://a.so/{path}" for path in plain], *LOOKED_FOR)[0][2] == set()
    odd = ["/".join(map(str, range(100, 101 + MAX_SEGMENTS))), "x/x/x", "1850/05/x", "q?a=1", "x/y/x/z/x", "a=b",
           "1989/12/x", "2028-01", "x.pdf", "y.SQLITE", ".so", "a//b/b/b", "y/x/x/x", "x/x/x/"]  # fmt: skip
    assert len(lists.grouped([f"https://a.so/{path}" for path in odd], *LOOKED_FOR)[0][2]) == len(odd)


def test_a_line_for_each_url(lists: Any) -> None:
    there = ["https://a.test/", "https://a.test/x", "https://a.test/y?z"]
    assert lists.numbered(9, " 2 ", there, 0) == b"".join(
        b"%d 2 %s\n" % (9 + at, url.encode()) for at, url in enumerate(there)
    )
    assert lists.numbered(99, "-", there, 14) == b"99-/\n100-/x\n101-/y?z\n"
    assert lists.numbered(2**63, "", there[:1], 15) == b"9223372036854775808\n"
    assert lists.numbered(1, " ", [], 14) == b""


def test_where_it_is_compiled_that_one_is_used() -> None:
    compiled, used = in_c("weft.frontier._link_lists"), as_installed("weft.frontier.link_lists")
    assert (used.grouped, used.numbered) == (compiled.grouped, compiled.numbered)


def test_what_is_no_url_is_not_written_down() -> None:
    compiled = in_c("weft.frontier._link_lists")
    for wrong in (["https://ü.test/"], [3], ["https://a"], ["x"]):
        with pytest.raises(ValueError, match="canonical"):
            compiled.grouped(wrong, *LOOKED_FOR)
    for wrong, cut in ((["https://ü.test/"], 3), ([3], 0), (["https://a/"], 11), (["https://a/"], -1)):
        with pytest.raises(ValueError, match="canonical"):
            compiled.numbered(1, " ", wrong, cut)
    with pytest.raises(ValueError, match="letters"):
        compiled.grouped([], 1990, 2027, 24, 17, frozenset())
    with pytest.raises(TypeError):
        compiled.grouped(["https://a.test/x.y"], 1990, 2027, 24, 6, 3)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@given(links=LINKS, offsite=st.integers(0, 1))
def test_judged_together_as_one_by_one(settings: dict[str, Any], links: list[str], offsite: int) -> None:
    page = lease(offsite=offsite)
    let_in, refused = rules_of(settings).split_admitted(links, page)
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
    links = [f"https://a.test/p?a={number % 9}&b={number // 9}&c=1" for number in range(MAX_VARIANTS + 2)]
    let_in, refused = rules.split_admitted(links, lease())
    assert [len(some.urls) for some in let_in] == [MAX_VARIANTS]
    assert [reason for _, reason in refused] == [Reason.TRAP, Reason.TRAP]


def test_links_to_an_excluded_domain_are_refused_and_the_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "domains").write_text("b.test\n")
    section = ScopeSection(scope="any", exclude_file=str(tmp_path / "domains"))
    rules = AdmissionRules(section, ["https://a.test/"], this_year=2026)
    there = ["https://b.test/1", "https://www.b.test/2", "https://b.test/3"]
    let_in, refused = rules.split_admitted([*there, "https://c.test/4", "https://ab.test/5"], lease())
    assert sorted(refused) == sorted((url, Reason.EXCLUDED) for url in there)
    assert [some.urls for some in let_in] == [["https://c.test/4"], ["https://ab.test/5"]]


def test_every_pattern_that_matches_is_known() -> None:
    patterns, matched = Patterns("exclude", ["*a*", "*b*", "*c*", "*d*"]), set[str]()
    assert patterns.match("https://x.test/a", matched) and matched == {"exclude *a*"}
    assert patterns.match("https://x.test/abd", matched)
    assert matched == {"exclude *a*", "exclude *b*", "exclude *d*"}
    assert not patterns.match("https://x.test/", matched)
    assert patterns.match("https://x.test/abc", matched) and len(matched) == 4
