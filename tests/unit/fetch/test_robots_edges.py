"""robots.txt where a limit lies: the last byte that is read, and the first that is not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.fetch.robots import FEW_RULES, MAX_AGENTS_CACHED, MAX_BODY_BYTES, MAX_LINE_BYTES, Robots, RobotsRules


def filled(size: int, newline: bytes = b"\n") -> bytes:
    """Comments of so many bytes, the last of them ended."""
    return (b"#" * 99 + newline) * (size // 100 - 1) + b"#" * (size % 100 + 99) + newline


@pytest.mark.parametrize("newline", [b"\n", b"\r"])
@pytest.mark.parametrize("beyond", [1, 2, 50])
def test_what_lies_beyond_the_limit_is_left_off_after_the_last_whole_line(newline: bytes, beyond: int) -> None:
    whole = b"User-agent: *" + newline + b"Disallow: /last" + newline
    start = filled(MAX_BODY_BYTES - len(whole) - 30, newline)
    body = start + whole + b"Disallow: /" + b"x" * (19 + beyond)
    assert len(body) == MAX_BODY_BYTES + beyond
    robots = Robots.parse(body)
    assert robots.body == start + whole
    assert not robots.allows("weft", "http://a/last")
    assert robots.allows("weft", "http://a/" + "x" * 19), "half a rule is none"


def test_a_body_of_just_the_limit_is_read_to_its_end() -> None:
    end = b"User-agent: *\nDisallow: /x"
    body = filled(MAX_BODY_BYTES - len(end)) + end
    assert len(body) == MAX_BODY_BYTES
    assert Robots.parse(body).body == body


@pytest.mark.parametrize(("left", "is_cut"), [(MAX_LINE_BYTES - 1, False), (MAX_LINE_BYTES, True)])
def test_a_line_that_is_too_long_in_any_case_does_not_cost_the_rest(left: int, is_cut: bool) -> None:
    """Its first bytes are all that is read of it, limit or no limit."""
    start = filled(MAX_BODY_BYTES - left)
    body = start + b"x" * 100_000
    assert len(Robots.parse(body).body) == (MAX_BODY_BYTES if is_cut else len(start))


def test_of_a_long_line_the_beginning_counts() -> None:
    head = b"User-agent: *\nDisallow: /"
    path = b"a" * (MAX_LINE_BYTES - len(b"Disallow: /"))
    robots = Robots.parse(head + path + b"bbb\nDisallow: /next\n")
    assert not robots.allows("weft", "http://x/" + path.decode() + "zzz")
    assert not robots.allows("weft", "http://x/next")
    verdict = robots.verdict("weft", "http://x/next")
    assert (verdict.rule, verdict.line) == ("Disallow: /next", 3)


def test_few_agents_are_remembered_and_all_are_answered() -> None:
    robots = Robots.parse(b"User-agent: a\nDisallow: /\n\nUser-agent: *\nDisallow: /x\n")
    for letter in "abcdefghijklmnopqrstuvwxyz" * 2:
        assert robots.allows(letter, "http://h/y") == (letter != "a")
        assert not robots.allows(letter, "http://h/x")
        assert len(robots._rules) <= MAX_AGENTS_CACHED


@pytest.mark.parametrize(
    ("rules", "path", "rule", "line"),
    [
        (b"Disallow: /a\nAllow: /a", "/a", "Allow: /a", 3),
        (b"Allow: /a\nDisallow: /ab", "/ab", "Disallow: /ab", 3),
        (b"Disallow: /a\nDisallow: /a", "/a", "Disallow: /a", 2),
        (b"Disallow: /a*b*c$\nAllow: /a", "/a-b-c", "Disallow: /a*b*c$", 2),
        (b"Disallow: /a**\nAllow: /ab", "/abc", "Disallow: /a**", 2),
        (b"Disallow: /a$", "/a", "Disallow: /a$", 2),
        (b"Allow: /dir/index.html\nDisallow: /dir/", "/dir/", "Allow: /dir/$", 2),
    ],
)
def test_the_rule_that_decides_is_quoted_with_its_line(rules: bytes, path: str, rule: str, line: int) -> None:
    verdict = Robots.parse(b"User-agent: *\n" + rules).verdict("weft", f"https://h{path}")
    assert (verdict.rule, verdict.line, verdict.allowed) == (rule, line, rule.startswith("Allow"))


PARTS = st.sampled_from(["/", "/a", "/b/", "*", "?", "x=", ".php", "$", "a", "%41", "é"])
RULES = st.lists(
    st.tuples(st.sampled_from(["Allow", "Disallow"]), st.lists(PARTS, max_size=4).map("".join)), max_size=FEW_RULES + 4
)
PATHS = st.lists(
    st.lists(st.sampled_from(["/", "a", "b", "/b/", "?", "x=", ".php", "%41", "%c3%a9"]), max_size=5), max_size=6
)


@given(RULES, PATHS)
def test_of_several_urls_those_are_forbidden_that_are_one_by_one(
    lines: list[tuple[str, str]], paths: list[list[str]]
) -> None:
    body = "User-agent: *\n" + "".join(f"{key}: {pattern}\n" for key, pattern in lines)
    rules = Robots.parse(body.encode()).for_agent("weft")
    urls = [f"http://a.test/{''.join(path)}" for path in paths]
    assert rules.forbidden("http://a.test", urls) == [url for url in urls if not rules.allows(url)]


def test_of_few_urls_each_is_asked_about_where_the_rules_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(f"Disallow: /*word{number}\n" for number in range(1000))
    rules = Robots.parse(f"User-agent: *\n{lines}".encode()).for_agent("weft")
    monkeypatch.setattr(RobotsRules, "_concerns", lambda *_: pytest.fail("a search for each of a thousand rules"))
    urls = ["https://a.test/some", "https://a.test/word7"]
    assert rules.forbidden("https://a.test", urls) == urls[1:]


@pytest.mark.parametrize(
    ("rule", "path"),
    [("/*secret", "a/secret/b"), ("/a/*.php$", "a/x.php"), ("/a", "a/b"), ("/%61", "%61/b"), ("/%7Ej", "%7ej")],
)
def test_one_forbidden_url_is_found_among_many(rule: str, path: str) -> None:
    rules = Robots.parse(f"User-agent: *\nDisallow: {rule}\n".encode()).for_agent("weft")
    urls = [f"https://a.test/{number}" for number in range(50)]
    assert rules.forbidden("https://a.test", urls) == []
    urls.insert(20, f"https://a.test/{path}")
    assert rules.forbidden("https://a.test", urls) == [f"https://a.test/{path}"]
