"""Where a URL begins to look like a trap: the last one that does not, and the first one that does."""

from __future__ import annotations

import pytest

from weft.engine.admission.traps import (
    EARLIEST_YEAR,
    MAX_SAME_SEGMENT,
    MAX_SEGMENTS,
    MAX_VARIANTS,
    NEARLY_ALL_WORDS,
    SAME_LEVELS,
    SAME_PAGES,
    ParameterGuard,
    SamenessGuard,
    pattern_of,
    trap_reason,
    without_parameters,
    without_session,
)

ORIGINS = ("https://a", "https://www.example.com:8443")


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_path_may_have_so_many_segments(origin: str) -> None:
    names = [f"d{number}" for number in range(MAX_SEGMENTS + 1)]
    assert trap_reason(f"{origin}/{'/'.join(names[:-1])}", 2026) is None
    assert trap_reason(f"{origin}/{'/'.join(names)}", 2026) == "too many path segments"


def test_the_limits_are_those_that_are_documented() -> None:
    for path, is_trap in (("/a/1/a/2/a/3", False), ("/a/1/a/2/a/3/a", True)):
        assert (trap_reason(f"https://h{path}", 2026) is not None) == is_trap, path
    assert (MAX_SEGMENTS, EARLIEST_YEAR, MAX_VARIANTS) == (24, 1990, 40)
    assert (SAME_LEVELS, SAME_PAGES) == (12, 1000)


def test_a_host_with_the_name_of_a_month_is_no_calendar() -> None:
    for scheme in ("http", "https"):
        assert trap_reason(f"{scheme}://1850-05.example/", 2026) is None
        assert trap_reason(f"{scheme}://a/1850-05", 2026) == "a calendar out of its years"


@pytest.mark.parametrize("origin", ORIGINS)
def test_a_segment_may_come_so_often(origin: str) -> None:
    names = [word for number in range(MAX_SAME_SEGMENT) for word in ("same", f"d{number}")]
    assert trap_reason(f"{origin}/{'/'.join(names)}?same/same/same=1", 2026) is None
    assert trap_reason(f"{origin}/{'/'.join([*names, 'same'])}", 2026) == "repeating path segments"
    assert trap_reason(f"{origin}/x/1//2//3//4//5//6//", 2026) is None, "an empty segment is none"


@pytest.mark.parametrize(
    ("path", "is_trap"),
    [
        ("/x/x/x", True), ("/x/x", False), ("/x/x/x/", True), ("/x/x/x?q=1", True), ("/x/x/xy", False),
        ("/ab/cd/ab/cd/ab/cd", True), ("/ab/cd/ab/cd", False), ("/a/b/c/d/a/b/c/d/a/b/c/d", True), ("/y/x/x/x/z", True),
    ],
)  # fmt: skip
def test_what_comes_three_times_in_a_row_repeats(path: str, is_trap: bool) -> None:
    assert (trap_reason(f"https://a{path}", 2026) == "repeating path segments") == is_trap


@pytest.mark.parametrize(
    ("year", "is_trap"), [(EARLIEST_YEAR, False), (EARLIEST_YEAR - 1, True), (2026, False), (2027, False), (2028, True)]
)
@pytest.mark.parametrize("form", ["/{}/05/", "/calendar/{}-05", "/?year={}", "/x?a=1&date={}", "/events?month={}&x"])
def test_a_calendar_has_its_years(form: str, year: int, is_trap: bool) -> None:
    assert (trap_reason("https://a.example" + form.format(year), 2026) == "a calendar out of its years") == is_trap


def test_a_number_that_is_no_year_and_month_is_no_calendar() -> None:
    for path in ("/2099/13/", "/20990/05", "/?id=2099", "/?years=2099", "/2099", "/4099/05"):
        assert trap_reason(f"https://a{path}", 2026) is None, path


def combined(number: int) -> str:
    return f"a={number % 7}&b={number // 7}&c=2"


def test_variants_are_counted_by_path_and_by_the_names_of_their_parameters() -> None:
    guard = ParameterGuard()
    for number in range(MAX_VARIANTS):
        order = combined(number) if number % 2 else "&".join(reversed(combined(number).split("&")))
        for _ in range(2):  # one that is met again is no other
            assert not guard.explodes(f"https://x/list?{order}")
    assert guard.explodes("https://x/list?a=z&b=1&c=2")
    assert guard.explodes("https://x/list?a=0&b=0&c=2")
    assert not guard.explodes("https://x/other?a=z&b=1&c=2")
    assert not guard.explodes("https://x/list?a=z&b=1")
    for number in range(MAX_VARIANTS + 5):
        assert not guard.explodes(f"https://x/two?a={number}&b=1"), "two parameters may have any values"


@pytest.mark.parametrize("form", ["view=article&id={0}&lang=en", "id={0}&shelf={1}&room={2}"])
def test_a_parameter_that_numbers_pages_may_have_any_value(form: str) -> None:
    guard = ParameterGuard()
    for number in range(10 * MAX_VARIANTS):
        assert not guard.explodes("https://x/list?" + form.format(number, number // 10, number // 100)), number


@pytest.mark.parametrize(("numbered", "is_list"), [(MAX_VARIANTS // 2 + 1, True), (MAX_VARIANTS // 2, False)])
def test_most_variants_of_a_list_have_a_number_of_their_own(numbered: int, is_list: bool) -> None:
    guard, found = ParameterGuard(), False
    for number in range(MAX_VARIANTS + 1):
        found = guard.explodes(f"https://x/list?id={number % numbered}&b={number % 9}&c={number % 8}")
    assert found is not is_list


def test_the_variants_of_what_has_not_been_seen_for_longest_are_forgotten() -> None:
    guard = ParameterGuard(kept=3)
    for number in range(MAX_VARIANTS):
        assert not guard.explodes(f"https://x/0?{combined(number)}")
    for number in (1, 2):
        guard.explodes(f"https://x/{number}?a=&b=&c=")
    assert guard.explodes("https://x/0?a=&b=&c=")
    for number in (3, 4):
        guard.explodes(f"https://x/{number}?a=&b=&c=")
    assert guard.explodes("https://x/0?a=&b=&c="), "it was seen between the others"
    for number in (5, 6, 7):
        guard.explodes(f"https://x/{number}?a=&b=&c=")
    assert not guard.explodes("https://x/0?a=&b=&c=")


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("https://h1.example/a/12/b34", "https://h1.example/a/0/b0"),
        ("https://a/about", None),
        ("https://a/about?b=1&a=2&b=3", "https://a/about?a&b&b"),
        ("https://a/about?", "https://a/about?"),
        ("https://10.0.0.1:8080/x", None),
    ],
)
def test_the_pattern_of_a_url_leaves_its_host_alone(url: str, pattern: str | None) -> None:
    assert pattern_of(url) == pattern


WORDS = frozenset(f"word{number}" for number in range(100))


def observed(
    guard: SamenessGuard, count: int, words: frozenset[str] = WORDS, *, title: str = "T {0}", links: int = 5
) -> bool:
    """Pages of one pattern, one link deeper each."""
    for number in range(count):
        guard.observe(f"https://a/{number}", title.format(number), links, number, lambda: words)
        guard.record_links(f"https://a/{number}", [f"https://a/{1000 + number}"])
    return guard.stops("https://a/99", "https://a/98")


def test_so_many_levels_of_pages_that_are_the_same_stop_their_pattern() -> None:
    assert not observed(SamenessGuard(), SAME_LEVELS - 1)
    assert observed(SamenessGuard(), SAME_LEVELS)
    assert not observed(SamenessGuard(is_on=False), 2 * SAME_LEVELS)


def test_pages_at_one_depth_are_a_list_until_there_are_too_many() -> None:
    guard = SamenessGuard()
    for number in range(SAME_PAGES):
        guard.observe(f"https://a/{number}", "T", 5, number % 3, lambda: WORDS)
        assert guard.record_links(f"https://a/{number}", [f"https://a/{number}/9"]) == (number == SAME_PAGES - 1)
    assert guard.stops("https://a/99", "https://a/98")


@pytest.mark.parametrize("leads_on", [0, 9, 5])
def test_a_list_that_names_its_next_page_and_thin_pages_is_no_trap(leads_on: int) -> None:
    """Each of its pages is one link deeper; of each nine thin pages that it names one may name the next itself."""
    guard = SamenessGuard()
    for number in range(5 * SAME_LEVELS):
        items = [f"https://a/item/{9 * number + at}" for at in range(9)]
        guard.observe(f"https://a/list/{number}", f"List {number}", 10, number, lambda: WORDS)
        assert not guard.record_links(f"https://a/list/{number}", [f"https://a/list/{number + 1}", *items]), number
        for at, item in enumerate(items, 1):
            guard.observe(item, "Item", 2, number + 1, lambda: WORDS)
            guard.record_links(item, [f"https://a/item/{9 * number + at}"] if at == leads_on else [])
    assert not guard.stops("https://a/list/99", "https://a/list/98")


def test_pages_that_lead_on_through_another_kind_of_page_are_stopped() -> None:
    guard, stopped = SamenessGuard(), set[str]()
    for number in range(2 * SAME_LEVELS):
        for at, kind in enumerate(("month", "view")):
            page, new = (
                f"https://a/{kind}/{number}",
                f"https://a/{'view' if kind == 'month' else 'month'}/{number + at}",
            )
            guard.observe(page, kind, 1, 2 * number + at, lambda: WORDS)
            if guard.record_links(page, [new]):
                stopped.add(kind)
    assert stopped == {"month", "view"} and guard.stops("https://a/view/99", "https://a/month/99")


def test_a_page_that_differs_starts_the_count_anew() -> None:
    for differs in ({"title": "Other"}, {"links": 6}):
        guard = SamenessGuard()
        observed(guard, SAME_LEVELS - 1)
        observed(guard, 1, **differs)
        assert not observed(guard, SAME_LEVELS - 1)
        assert observed(guard, SAME_LEVELS)


@pytest.mark.parametrize(
    ("left_out", "is_same"),
    [(round(100 * (1 - NEARLY_ALL_WORDS)), True), (round(100 * (1 - NEARLY_ALL_WORDS)) + 1, False)],
)
def test_pages_are_the_same_that_share_nearly_all_their_words(left_out: int, is_same: bool) -> None:
    fewer = frozenset(sorted(WORDS)[left_out:])
    guard = SamenessGuard()
    for number in range(SAME_LEVELS):
        guard.observe(f"https://a/{number}", "T", 5, number, lambda number=number: (WORDS, fewer)[number % 2])  # type: ignore[misc]
        guard.record_links(f"https://a/{number}", [f"https://a/{1000 + number}"])
    assert guard.stops("https://a/99", "https://a/98") == is_same


def test_words_are_compared_from_half_of_the_levels_on() -> None:
    """Which costs something; what looked the same before that is not looked at again."""
    guard, asked = SamenessGuard(), []
    for number in range(SAME_LEVELS):

        def words(number: int = number) -> frozenset[str]:
            asked.append(number)
            return WORDS

        guard.observe(f"https://a/{number}", "T", 5, number, words)
        assert guard.record_links(f"https://a/{number}", [f"https://a/{1000 + number}"]) == (number == SAME_LEVELS - 1)
    assert asked == [6, 7, 8, 9, 10, 11]


def test_a_page_of_other_words_is_the_first_of_a_new_row() -> None:
    guard, others = SamenessGuard(), frozenset({"quite", "different"})
    assert not observed(guard, SAME_LEVELS - 1)
    for number in range(SAME_LEVELS - 1):
        guard.observe(f"https://a/{number}", "T", 5, number, lambda: others)
        assert not guard.record_links(f"https://a/{number}", [f"https://a/{1000 + number}"]), number
    guard.observe("https://a/50", "T", 5, SAME_LEVELS, lambda: others)
    assert guard.record_links("https://a/50", ["https://a/1050"])


def test_links_to_other_hosts_lead_nowhere_here() -> None:
    guard = SamenessGuard()
    for number in range(SAME_LEVELS + 1):
        guard.observe(f"https://a/{number}", "T", 5, number, lambda: WORDS)
        assert not guard.record_links(f"https://a/{number}", [f"https://b/{1000 + number}"])
    assert not guard.stops("https://a/99", "https://a/98")


def test_pages_without_a_number_are_never_taken_for_a_pattern() -> None:
    guard = SamenessGuard()
    for letter in "abcdefghijklmnopqrstuvwxyz":
        guard.observe(f"https://a/{letter}", "T", 5, ord(letter), lambda: WORDS)
        assert not guard.needs_new_links(f"https://a/{letter}")
        guard.record_links(f"https://a/{letter}", [f"https://a/{letter}{letter}", f"https://a/{ord(letter)}"])
    assert not guard.stops("https://a/zz", "https://a/z")
    assert not guard.stops("https://a/1", "https://a/z")


def test_patterns_that_have_not_been_met_for_longest_are_forgotten() -> None:
    guard = SamenessGuard(kept=2)
    observed(guard, SAME_LEVELS - 1)
    for host in ("b", "c"):
        guard.observe(f"https://{host}/1", "T", 5, 1, frozenset)
    assert not observed(guard, SAME_LEVELS - 1)
    assert observed(guard, SAME_LEVELS)


def test_only_what_names_a_visitor_is_taken_out() -> None:
    sid = "0123456789abcdef"
    assert without_session(f"https://a/x;jsessionid={sid};v=1/y?sid={sid}&q=1") == "https://a/x;v=1/y?q=1"
    assert without_session(f"https://a/x?q=1&sid={sid}") == "https://a/x?q=1"
    assert without_session(f"https://a/x?sid={sid[:-1]}") == f"https://a/x?sid={sid[:-1]}", "too short to be one"
    assert without_session("https://a/x?q=&") == "https://a/x?q=&"


def test_parameters_go_by_their_names() -> None:
    patterns = ("utm_*", "ref")
    assert without_parameters("https://a/x", patterns) == "https://a/x"
    assert without_parameters("https://a/x?utm_a=1&b=2&ref&c", patterns) == "https://a/x?b=2&c"
    assert without_parameters("https://a/x?ref=1", patterns) == "https://a/x"
    assert without_parameters("https://a/x?REF=1&reference=2", patterns) == "https://a/x?REF=1&reference=2"


def test_words_may_be_asked_for_once_a_page_of_the_pattern_has_counted() -> None:
    guard = SamenessGuard()
    assert not guard.may_compare("https://a/1") and not guard.may_compare("https://a/about")
    guard.observe("https://a/1", "T", 5, 1, lambda: WORDS)
    assert not guard.may_compare("https://a/2"), "it has led nowhere yet"
    guard.record_links("https://a/1", ["https://a/7"])
    assert guard.may_compare("https://a/2") and not guard.may_compare("https://b/2")


def test_a_page_counts_once_and_by_a_link_of_its_own_host_that_may_lead_on() -> None:
    guard = SamenessGuard()
    others = ["http://ab/1", "https://a/1", "http://a/about"]
    for number in range(SAME_LEVELS + 2):
        page = f"http://a/{number}"
        guard.observe(page, "T", 5, number, lambda: WORDS)
        new = [*others, f"http://a/{1000 + number}"] if number else others  # the first leads nowhere
        assert guard.record_links(page, new) == (number == SAME_LEVELS + 1), (
            "of the first two no more than half lead on"
        )
        assert not guard.record_links(page, [f"http://a/{2000 + number}"])
    assert guard.stops("http://a/98", "http://a/99") and guard.has_stopped("http://a/99")
    guard.observe("http://a/97", "T", 5, 97, lambda: pytest.fail("it is stopped already"))
    assert not guard.needs_new_links("http://a/97")
    assert not guard.stops("http://a/98", "http://a/about"), "what other pages lead to is no step of it"
    assert not guard.stops("http://a/98", "http://b/1") and not guard.stops("http://a/about", "http://a/99")


def test_a_page_whose_pattern_was_forgotten_stops_nothing() -> None:
    guard = SamenessGuard(kept=1)
    guard.observe("http://a/1", "T", 5, 1, frozenset)
    guard.observe("http://b/1", "T", 5, 1, frozenset)
    assert not guard.record_links("http://a/1", ["http://a/2"]) and not guard.has_stopped("http://a/1")
