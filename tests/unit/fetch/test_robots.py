"""What robots.txt allows: cases written from RFC 9309 and from what Google documents of its own parser."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import patience

from weft.fetch.robots import FEW_GLOBS, MAX_BODY_BYTES, MAX_LINE_BYTES, Robots, RobotsVerdict, product_token

HOST = "https://shop.example"


def allows(body: str | bytes, url: str, agent: str = "Weft") -> bool:
    """Asks both ways: the fast answer and the explained one must be the same."""
    robots = Robots.parse(body.encode() if isinstance(body, str) else body)
    full = HOST + url if url.startswith("/") else url
    allowed = robots.allows(agent, full)
    assert robots.verdict(agent, full).allowed == allowed
    return allowed


def group(*rules: str, agent: str = "Weft") -> str:
    return "\n".join([f"User-agent: {agent}", *rules, ""])


# (rules for Weft, URLs that may be fetched, URLs that may not)
MATCHING: list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = [
    # nothing said, nothing forbidden
    ((), ("/", "/a", "/a?b"), ()),
    (("Disallow:",), ("/", "/a"), ()),
    (("Disallow: ", "Allow: "), ("/", "/a"), ()),
    (("Disallow: # nothing",), ("/", "/a"), ()),
    # everything
    (("Disallow: /",), (), ("/", "/a", "/a/b?c=d", "/?q", "")),
    (("Disallow: *",), (), ("/", "/a")),
    (("Disallow: /*",), (), ("/", "/a")),
    # a rule is a prefix
    (("Disallow: /tea",), ("/", "/te", "/coffee/tea", "/Tea"), ("/tea", "/tea/", "/teapot", "/tea.html", "/tea?x=1")),
    (("Disallow: /tea*",), ("/te", "/green/tea"), ("/tea", "/tea/", "/teapot", "/tea?x=1")),
    (("Disallow: /tea/",), ("/tea", "/tea.html", "/teapot"), ("/tea/", "/tea/green", "/tea/?x")),
    (("Disallow: /a/b/c",), ("/a", "/a/", "/a/b", "/a/b/", "/b/c"), ("/a/b/c", "/a/b/cd")),
    # paths are case-sensitive
    (("Disallow: /Tea",), ("/tea", "/TEA"), ("/Tea", "/Teapot")),
    (("disallow: /*.PHP",), ("/x.php",), ("/x.PHP",)),
    # the longest pattern wins, in whatever order
    (("Disallow: /a", "Allow: /a/b"), ("/a/b", "/a/bc", "/a/b/c", "/b"), ("/a", "/a/", "/a/c", "/ab")),
    (("Allow: /a/b", "Disallow: /a"), ("/a/b", "/a/bc"), ("/a", "/a/c")),
    (("Allow: /a", "Disallow: /a/b"), ("/a", "/a/c"), ("/a/b", "/a/b/c")),
    (("Disallow: /", "Allow: /a/", "Disallow: /a/b/", "Allow: /a/b/c/"), ("/a/", "/a/b/c/d"), ("/", "/a/b/", "/a/b/d")),
    # ties are given to Allow
    (("Disallow: /x", "Allow: /x"), ("/x", "/xy"), ()),
    (("Allow: /x", "Disallow: /x"), ("/x", "/xy"), ()),
    (("Disallow: /", "Allow: /"), ("/", "/x"), ()),
    (("Disallow: /a*c", "Allow: /abc"), ("/abc", "/abcd"), ("/axc",)),
    # the length counts the wildcards
    (("Allow: /page", "Disallow: /*.html"), ("/page", "/page.txt"), ("/page.html",)),
    (("Allow: /shop/item.", "Disallow: /*.html"), ("/shop/item.html",), ("/shop/other.html",)),
    (("Disallow: /ab", "Allow: /a*"), ("/ac",), ()),
    (("Disallow: /ab", "Allow: /a**"), ("/ac", "/ab"), ()),
    (("Allow: /$", "Disallow: /"), ("/",), ("/x", "/?x")),
    # `*` inside
    (("Disallow: /*.pdf",), ("/pdf", "/a.PDF"), ("/a.pdf", "/x/a.pdf", "/a.pdf?x", "/?f=a.pdf", "//a.pdfx")),
    (("Disallow: /a*z",), ("/a", "/z", "/ba/z"), ("/az", "/abz", "/a/b/z", "/azz", "/a?z")),
    (("Disallow: /a/*/c",), ("/a/c", "/a/b", "/a/b/d"), ("/a/b/c", "/a//c", "/a/b/b/c", "/a/b/cd")),
    (("Disallow: /*/private/",), ("/private/", "/a/private"), ("/a/private/", "/a/b/private/x", "//private/")),
    (("Disallow: *private",), ("/public",), ("/private", "/x/private", "/?private")),
    (("Disallow: */b",), ("/a",), ("/b", "/a/b")),
    (("Disallow: /a**b",), ("/a", "/b"), ("/ab", "/axb")),
    (("Disallow: /*?",), ("/", "/a"), ("/?", "/a?b", "/a?b?c")),
    (("Disallow: /*?*sort=",), ("/a?b=c", "/sort="), ("/a?sort=up", "/a?b=c&sort=up")),
    (("Disallow: /*a*b*c",), ("/cba", "/ab", "/bca"), ("/abc", "/xaybzc", "/aabbcc")),
    (("Disallow: /*ab*ab",), ("/ab", "/aba", "/aab"), ("/abab", "/abxab")),
    # `$` at the end, and only there
    (("Disallow: /a$",), ("/", "/ab", "/a/", "/a?b"), ("/a",)),
    (("Disallow: /*.pdf$",), ("/a.pdf?x", "/a.pdf/", "/a.pdfx", "/pdf"), ("/a.pdf", "/x/a.pdf", "/a.pdf.pdf")),
    (("Disallow: /a*b$",), ("/ab/", "/abc", "/b"), ("/ab", "/axb", "/abb", "/a/b")),
    (("Disallow: /ab*b$",), ("/ab",), ("/abb", "/ab/b")),
    (("Disallow: /*ab*b$",), ("/ab", "/abc"), ("/abb", "/xabb")),
    (("Disallow: /a*$",), ("/", "/b"), ("/a", "/abc")),
    (("Disallow: *$",), (), ("/", "/a")),
    (("Disallow: $",), ("/", "/a", "/$"), ()),
    (("Disallow: /a$b",), ("/a", "/ab"), ("/a$b", "/a$bc")),
    (("Disallow: /a$*",), ("/a", "/ab"), ("/a$", "/a$b")),
    (("Disallow: /a$$",), ("/a", "/a$$"), ("/a$",)),
    (("Disallow: /$",), ("/a", "/?"), ("/", "")),
    # a pattern that starts with neither `/` nor `*` matches nothing
    (("Disallow: a",), ("/a", "/"), ()),
    (("Disallow: https://shop.example/a",), ("/a", "/"), ()),
    (("Disallow: ?x",), ("/?x",), ()),
    # the query and parameters belong to the path
    (("Disallow: /?",), ("/", "/a?b"), ("/?", "/?a")),
    (("Disallow: /a;b",), ("/a", "/a;c"), ("/a;b", "/a;bc")),
    (("Disallow: /go?to=http://other.example/",), ("/go?to=http://x/",), ("/go?to=http://other.example/a",)),
    # the fragment does not
    (("Disallow: /a",), ("/b#/a", "/#/a"), ("/a#b", "/a#")),
    # percent-encoding: rules are brought to capitals and ASCII, nothing is decoded
    (("Disallow: /café",), ("/caf", "/café"), ("/caf%C3%A9", "/caf%C3%A9/x")),
    (("Disallow: /caf%C3%A9",), ("/caf",), ("/caf%C3%A9", "/caf%c3%a9")),
    (("Disallow: /caf%c3%a9",), ("/caf",), ("/caf%C3%A9", "/caf%c3%a9", "/caf%c3%A9")),
    (("Disallow: /茶$",), ("/%E8%8C%B6x",), ("/%E8%8C%B6",)),
    (("Disallow: /*茶",), ("/tea",), ("/x/%E8%8C%B6/y",)),
    (("Disallow: /a%2fb",), ("/a/b",), ("/a%2Fb", "/a%2fb")),
    (("Disallow: /%74ea",), ("/tea",), ("/%74ea",)),
    (("Disallow: /~joe",), ("/%7Ejoe",), ("/~joe",)),
    (("Disallow: /100%",), ("/100",), ("/100%", "/100%zz")),
    (("Disallow: /a%2",), ("/a",), ("/a%2", "/a%2F", "/a%2x")),
    (("Disallow: /%%41",), ("/%A",), ("/%%41",)),
    (("Disallow: /a b",), ("/a%20b",), ("/a b",)),
    # escapes count as three when lengths are compared
    (("Disallow: /é", "Allow: /*****"), ("/%C3%A8",), ("/%C3%A9",)),
    # an allowed index page allows its directory, and only that
    (("Disallow: /", "Allow: /in/index.html"), ("/in/", "/in/index.html"), ("/in", "/in/index.htm", "/in/x", "/")),
    (("Disallow: /", "Allow: /in/index.htm"), ("/in/", "/in/index.htm", "/in/index.html"), ("/in/index", "/in/x")),
    (("Disallow: /", "Allow: /index.html"), ("/", "/index.html"), ("/x", "/?x")),
    (("Disallow: /", "Allow: /*/index.html"), ("/a/", "/a/b/", "/a/index.html"), ("/", "/a", "/a/b")),
    (("Disallow: /in/index.html",), ("/in/", "/in/x"), ("/in/index.html",)),
    (("Disallow: /", "Allow: /in/xindex.html"), ("/in/xindex.html",), ("/in/",)),
    (("Disallow: /", "Allow: index.html"), (), ("/", "/index.html")),
    # comments
    (("Disallow: /a # and /b",), ("/b",), ("/a", "/ab")),
    (("# Disallow: /a", "Disallow: /b"), ("/a",), ("/b",)),
    (("Disallow: /a#b",), ("/b",), ("/a", "/ac")),
    # names of any case, slips of the pen, loose spacing, a missing colon
    (("DISALLOW: /a", "aLLoW: /a/b"), ("/a/b",), ("/a",)),
    (("disalow: /1", "dissallow: /2", "dissalow: /3"), ("/4",), ("/1", "/2", "/3")),
    (("disallaw: /4", "diasllow: /5"), ("/6",), ("/4", "/5")),
    (("disallowed: /a",), (), ("/a",)),
    (("disalllow: /a", "dis-allow: /b", "noindex: /c"), ("/a", "/b", "/c"), ()),
    (("Disallow /a", "Disallow\t/b", "Disallow \t /c"), ("/d",), ("/a", "/b", "/c")),
    (("Disallow /a /b", "Disallow"), ("/a", "/b"), ()),
    (("  Disallow  :  /a  ", "\tDisallow\t:\t/b\t"), ("/c",), ("/a", "/b")),
    (("Disallow:/a",), ("/b",), ("/a",)),
    ((": /a", "/a", "Disallow=/a", "=", ":"), ("/a",), ()),
    (("Disallow; /a",), ("/b",), ("/a",)),
    # robots.txt itself may always be read
    (("Disallow: /",), ("/robots.txt",), ("/robots.txt?x", "/robots.txt/", "/a/robots.txt")),
    (("Disallow: /robots.txt",), ("/robots.txt",), ("/robots.txt.bak",)),
]  # fmt: skip

CHECKS = [
    (rules, url, wanted)
    for rules, allowed, refused in MATCHING
    for urls, wanted in ((allowed, True), (refused, False))
    for url in urls
]


@pytest.mark.parametrize(("rules", "url", "wanted"), CHECKS)
def test_rules_match_paths(rules: tuple[str, ...], url: str, wanted: bool) -> None:
    assert allows(group(*rules), url if url else HOST) is wanted


def test_rules_match_the_same_paths_among_very_many_others() -> None:
    others = tuple(f"Disallow: /*other{number}" for number in range(FEW_GLOBS + 1))
    for rules, url, wanted in CHECKS:
        assert allows(group(*rules, *others), url if url else HOST) is wanted, (rules, url)
    for path in ("/other5", "/x/other64", "/another7.html"):
        assert not allows(group(*others), path)
    for path in ("/abc", "/x/abc", "/abcd"):
        assert not allows(group("Disallow: /*abc", *others), path)


def test_there_are_enough_checks() -> None:
    assert len(CHECKS) >= 250


@pytest.mark.parametrize(
    ("url", "seen_as"),
    [
        ("", "/"),
        ("shop.example", "/"),
        ("https://shop.example", "/"),
        ("https://shop.example/", "/"),
        ("https://shop.example?q", "/?q"),
        ("https://shop.example;p", "/;p"),
        ("https://shop.example#f", "/"),
        ("https://shop.example#f/x", "/"),
        ("https://u:p@shop.example:8080/a", "/a"),
        ("https://[::1]:80/a", "/a"),
        ("shop.example/a", "/a"),
        ("shop.example/a?b=c#d", "/a?b=c"),
        ("//shop.example/a/b", "/a/b"),
        ("/a/b", "/a/b"),
        ("/a//b", "/a//b"),
        ("x/y", "/y"),
        ("https://shop.example//a", "//a"),
        ("https://shop.example/a://b", "/a://b"),
        ("https://shop.example/a?u=https://b/c", "/a?u=https://b/c"),
    ],
)
def test_only_path_and_query_of_a_url_count(url: str, seen_as: str) -> None:
    assert Robots.parse(group(f"Disallow: {seen_as}$").encode()).allows("Weft", url) is False
    assert Robots.parse(group("Disallow: /", f"Allow: {seen_as}$").encode()).allows("Weft", url) is True


# ── which group


GROUPS = """
Disallow: /before-any-group

User-agent: *
Disallow: /all

User-agent: Alpha
Disallow: /alpha

User-agent: Beta
User-agent: Gamma

Disallow: /beta-gamma
Allow: /beta-gamma/open

user-agent: alpha
Disallow: /more-alpha

User-agent: Delta
User-agent: *
Disallow: /delta-and-all

User-agent: Empty
Disallow:
"""


@pytest.mark.parametrize(
    ("agent", "allowed", "refused"),
    [
        ("Alpha", "/all /beta-gamma /delta-and-all /before-any-group", "/alpha /more-alpha"),
        ("ALPHA", "/all /beta-gamma", "/alpha /more-alpha"),
        ("alpha", "/all /beta-gamma", "/alpha /more-alpha"),
        ("Beta", "/all /alpha /beta-gamma/open", "/beta-gamma /beta-gamma/x"),
        ("Gamma", "/all /alpha /beta-gamma/open", "/beta-gamma"),
        ("Delta", "/all /alpha", "/delta-and-all"),
        ("Empty", "/all /alpha /delta-and-all", ""),
        ("Other", "/alpha /beta-gamma /before-any-group", "/all /delta-and-all"),
        ("Alph", "/alpha", "/all /delta-and-all"),
        ("Alpha-Beta", "/alpha", "/all /delta-and-all"),
        ("", "/alpha /before-any-group", "/all /delta-and-all"),
    ],
)
def test_the_groups_of_an_agent_are_merged_and_beat_the_general_ones(agent: str, allowed: str, refused: str) -> None:
    assert all(allows(GROUPS, url, agent) for url in allowed.split())
    assert not any(allows(GROUPS, url, agent) for url in refused.split())


def test_rules_before_any_group_are_ignored() -> None:
    assert allows("Disallow: /\nAllow: /x\n", "/a")
    assert allows("Disallow: /\n\nUser-agent: Weft\nDisallow: /x\n", "/a")


def test_no_group_for_the_agent_and_none_for_all_allows() -> None:
    assert allows(group("Disallow: /", agent="Other"), "/a")


@pytest.mark.parametrize(
    "body", [b"", b"\n\n", b"# nothing\n", b"<html><body>Not found: sorry</body></html>", b"\0\xff\xfe"]
)
def test_a_file_that_says_nothing_allows(body: bytes) -> None:
    assert allows(body, "/a")
    assert allows(body, "")


@pytest.mark.parametrize(
    "line", ["", "Sitemap: https://shop.example/s.xml", "Crawl-delay: 3", "Host: x", "# comment", "junk"]
)
def test_only_rules_end_a_run_of_agents(line: str) -> None:
    body = f"User-agent: Weft\n{line}\nUser-agent: *\nDisallow: /a\n"
    assert not allows(body, "/a", "Weft")
    assert not allows(body, "/a", "Other")


@pytest.mark.parametrize("rule", ["Disallow: /b", "Allow: /b", "Disallow:", "disalow: /b"])
def test_a_rule_ends_a_run_of_agents(rule: str) -> None:
    body = f"User-agent: Weft\n{rule}\nUser-agent: *\nDisallow: /a\n"
    assert allows(body, "/a", "Weft")
    assert not allows(body, "/a", "Other")


@pytest.mark.parametrize("line", ["", "\n\n\n", "Sitemap: https://shop.example/s.xml", "Unknown: x", "# comment"])
def test_a_group_goes_on_after_blank_and_other_lines(line: str) -> None:
    body = f"User-agent: Weft\nDisallow: /a\n{line}\nDisallow: /b\n"
    assert not allows(body, "/a")
    assert not allows(body, "/b")


@pytest.mark.parametrize(
    "key",
    ["User-agent", "USER-AGENT", "user-agent", "UserAgent", "User Agent", "user-agents", "uSeR-aGeNt", " User-Agent "],
)
def test_the_agent_line_may_be_written_loosely(key: str) -> None:
    assert not allows(f"{key}: Weft\nDisallow: /\n", "/a")


@pytest.mark.parametrize("line", ["User-agent Weft", "User-agent\tWeft", "useragent Weft"])
def test_the_agent_line_may_lack_its_colon(line: str) -> None:
    assert not allows(f"{line}\nDisallow /\n", "/a")


def test_three_words_without_a_colon_say_nothing() -> None:
    assert allows("user agent Weft\nDisallow: /\n", "/a")


@pytest.mark.parametrize(
    "value",
    [
        "Weft",
        "weft",
        "WEFT",
        "Weft/1.0",
        "Weft/*",
        "Weft bot",
        "Weft (+mail)",
        "Weft*",
        "Weft\t2",
        "Weft,Other",
        "Weft2",
    ],
)
def test_the_agent_line_counts_up_to_the_end_of_its_token(value: str) -> None:
    assert not allows(group("Disallow: /", agent=value), "/a")


@pytest.mark.parametrize("value", ["Weft-bot", "Weft_", "Wef", "aWeft", "2Weft", "(Weft", "*Weft", "", "Wéft", "-Weft"])
def test_another_token_is_another_agent(value: str) -> None:
    assert allows(group("Disallow: /", agent=value), "/a")


@pytest.mark.parametrize("value", ["*", "* all robots", "*\tx", "*  ", "*#comment"])
def test_a_star_and_what_follows_a_space_is_everybody(value: str) -> None:
    assert not allows(group("Disallow: /", agent=value), "/a")


@pytest.mark.parametrize("value", ["**", "*x", "*/1.0"])
def test_a_star_with_something_attached_is_nobody(value: str) -> None:
    assert allows(group("Disallow: /", agent=value), "/a")


@pytest.mark.parametrize("agent", ["Weft/1.0", "Weft Bot", "Weft*", " Weft", "Weft (+mail)", ""])
def test_an_agent_that_is_no_token_gets_the_general_rules(agent: str) -> None:
    body = group("Disallow: /special") + group("Disallow: /general", agent="*")
    assert allows(body, "/special", agent)
    assert not allows(body, "/general", agent)


@pytest.mark.parametrize(
    ("user_agent", "token"),
    [
        ("Weft/0.1 (+mail@example.org)", "Weft"),
        ("Weft", "Weft"),
        ("weft-news_2", "weft-news_"),
        ("Mozilla/5.0 (compatible)", "Mozilla"),
        ("", ""),
        ("7bot", ""),
        ("Wéft", "W"),
    ],
)
def test_the_product_token_of_a_user_agent(user_agent: str, token: str) -> None:
    assert product_token(user_agent) == token


# ── the file


LINES = ["User-agent: Weft", "Disallow: /a", "", "", "Allow: /a/b", "Disallow: /c"]


@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n"])
@pytest.mark.parametrize("last", ["", "\n", "\r", "\r\n"])
def test_every_line_ending_is_one_line(ending: str, last: str) -> None:
    robots = Robots.parse((ending.join(LINES) + last).encode())
    assert robots.verdict("Weft", HOST + "/c") == RobotsVerdict(False, "Disallow: /c", 6)
    assert robots.verdict("Weft", HOST + "/a/b") == RobotsVerdict(True, "Allow: /a/b", 5)


def test_line_endings_may_be_mixed() -> None:
    body = b"User-agent: Weft\nDisallow: /a\r\n\r\nAllow: /a/b\r\r\nDisallow: /c"
    assert Robots.parse(body).verdict("Weft", HOST + "/c").line == 6


@pytest.mark.parametrize("mark", [b"\xef\xbb\xbf", b"\xef\xbb", b"\xef", b""])
def test_a_byte_order_mark_whole_or_in_part_is_skipped(mark: bytes) -> None:
    assert not allows(mark + b"User-agent: Weft\nDisallow: /\n", "/a")


@pytest.mark.parametrize("junk", [b"\xef\x11\xbf", b"\xbb\xbf", b"\xbf", b"\xfe\xff", b"\xef\xbb\xbf\xef\xbb\xbf"])
def test_other_bytes_before_the_first_line_spoil_it(junk: bytes) -> None:
    assert allows(junk + b"User-agent: Weft\nDisallow: /\n", "/a")


def test_a_byte_order_mark_further_down_spoils_its_line() -> None:
    assert allows(b"User-agent: Weft\n\xef\xbb\xbfDisallow: /\n", "/a")


def test_a_nul_ends_its_line_only() -> None:
    body = b"User-agent: Weft\0bot\nDisallow: /a\0b\r\nDisallow: /c\n"
    assert [allows(body, url) for url in ("/a", "/ab", "/b", "/c")] == [False, False, True, False]


def test_a_line_too_long_is_cut() -> None:
    room = MAX_LINE_BYTES - len("Disallow: ")
    path = "/" + "x" * (room - 1)
    body = group(f"Disallow: {path}yyy")
    assert not allows(body, path)
    assert not allows(body, path + "zzz")
    assert allows(body, path[:-1])


def test_a_body_too_long_is_cut_at_a_line() -> None:
    start = b"User-agent: Weft\nDisallow: /a\n"
    filler = b"#" * 99 + b"\n"
    body = (start + filler * 6000)[: MAX_BODY_BYTES - 11] + b"\nDisallow: /b\nDisallow: /c\n"
    robots = Robots.parse(body)
    assert len(robots.body) <= MAX_BODY_BYTES
    assert not robots.allows("Weft", HOST + "/a")
    assert robots.allows("Weft", HOST + "/b"), "`Disallow: /` must not be what is left of `Disallow: /b`"


def test_a_body_that_is_one_endless_line_is_kept_as_one_cut_line() -> None:
    assert not allows(b"User-agent: *\nDisallow: /a" + b"*" * 600_000, "/a")


def test_parsing_again_what_was_kept_gives_the_same() -> None:
    robots = Robots.parse(GROUPS.encode())
    again = Robots.parse(robots.body)
    for url in ("/all", "/alpha", "/beta-gamma"):
        assert again.verdict("Alpha", HOST + url) == robots.verdict("Alpha", HOST + url)


# ── evidence


def test_the_verdict_quotes_the_rule_and_its_line() -> None:
    robots = Robots.parse(
        b"User-agent: *\nDisallow: /a\nAllow: /a/*/c$\nDisallow: /a/caf\xc3\xa9*\nAllow: /d/index.html\n"
    )
    assert robots.verdict("Weft", HOST + "/b") == RobotsVerdict(True, None, None)
    assert robots.verdict("Weft", HOST + "/a/x") == RobotsVerdict(False, "Disallow: /a", 2)
    assert robots.verdict("Weft", HOST + "/a/b/c") == RobotsVerdict(True, "Allow: /a/*/c$", 3)
    assert robots.verdict("Weft", HOST + "/a/caf%C3%A9") == RobotsVerdict(False, "Disallow: /a/caf%C3%A9*", 4)
    assert robots.verdict("Weft", HOST + "/d/") == RobotsVerdict(True, "Allow: /d/$", 5)


def test_of_equal_rules_the_first_line_is_quoted() -> None:
    robots = Robots.parse(
        b"User-agent: *\nDisallow: /a\nDisallow: /a\nDisallow: /*b\nDisallow: /*b\nDisallow: /c$\nDisallow: /c$"
    )
    assert [robots.verdict("x", HOST + url).line for url in ("/a", "/b", "/c")] == [2, 4, 6]


def test_a_missing_file_allows_and_says_why() -> None:
    verdict = Robots.ALLOW_ALL.verdict("Weft", HOST + "/a")
    assert verdict.allowed and verdict.line is None and "missing" in str(verdict.rule)
    assert Robots.ALLOW_ALL.allows("Weft", HOST + "/a") and Robots.ALLOW_ALL.sitemaps == ()


def test_an_unreachable_file_refuses_and_says_why() -> None:
    verdict = Robots.DISALLOW_ALL.verdict("Weft", HOST + "/a")
    assert not verdict.allowed and verdict.line is None and "cannot be reached" in str(verdict.rule)
    assert not Robots.DISALLOW_ALL.allows("Anyone", HOST)
    assert not Robots.parse(Robots.DISALLOW_ALL.body).allows("Weft", HOST)


# ── other lines


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("5", 5.0), ("0", 0.0), ("2.5", 2.5), (".5", 0.5), ("10 # slow", 10.0), ("7s", 7.0), ("3.", 3.0), ("1e9", 1.0)]
    + [(bad, None) for bad in ("", "-1", "soon", "inf", "nan", "#5")],
)
def test_crawl_delay_is_a_number_of_seconds(value: str, seconds: float | None) -> None:
    assert Robots.parse(group(f"Crawl-delay: {value}").encode()).crawl_delay("Weft") == seconds


def test_crawl_delay_belongs_to_its_group() -> None:
    body = group("Crawl-delay: 3", "Disallow:", agent="*") + group("Crawl-delay: 9", "Disallow: /x", agent="Slow")
    robots = Robots.parse(body.encode() + group("Disallow: /y", agent="Silent").encode())
    assert [robots.crawl_delay(agent) for agent in ("Weft", "Slow", "slow", "Silent")] == [3.0, 9.0, 9.0, None]


def test_crawl_delay_holds_for_the_agents_named_before_it() -> None:
    robots = Robots.parse(b"User-agent: Slow\nCrawl-delay: 30\nUser-agent: *\nDisallow: /x\n")
    assert robots.crawl_delay("Slow") == 30.0
    assert robots.crawl_delay("Weft") is None


def test_the_longest_crawl_delay_is_taken() -> None:
    assert Robots.parse(group("Crawl-delay: 2", "crawldelay: 8", "Crawl-Delay 4").encode()).crawl_delay("Weft") == 8.0


def test_sitemaps_are_read_wherever_they_stand() -> None:
    body = (
        "Sitemap: https://shop.example/1.xml\nUser-agent: x\nsite-map: /2.xml\nDisallow: /\n"
        "SITEMAP:https://shop.example/3.xml # third\nSitemap:\nSitemap: https://shop.example/1.xml\n"
    )
    assert Robots.parse(body.encode()).sitemaps == (
        "https://shop.example/1.xml",
        "/2.xml",
        "https://shop.example/3.xml",
    )


# ── any input, against the definition written out slowly


def slow_match(pattern: str, path: str) -> bool:
    """The definition: the set of all places in the path that the pattern read so far may have reached."""
    ends = pattern.endswith("$")
    places = {0}
    for char in pattern[:-1] if ends else pattern:
        if char == "*":
            places = set(range(min(places), len(path) + 1))
        else:
            places = {at + 1 for at in places if path[at : at + 1] == char}
        if not places:
            return False
    return not ends or len(path) in places


def slow_allows(rules: list[tuple[bool, str]], path: str) -> bool:
    """The longest that matches; Allow among equals."""
    matching = [(len(pattern), allow) for allow, pattern in rules if pattern and slow_match(pattern, path)]
    return max(matching)[1] if matching else True


PATTERNS = st.builds("/".__add__, st.text("ab/*$", max_size=8)) | st.text("ab/*$", max_size=8)
PATHS = st.builds("/".__add__, st.text("ab/$", max_size=10))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.booleans(), PATTERNS), max_size=12), st.lists(PATHS, min_size=1, max_size=8))
def test_the_compiled_rules_agree_with_the_definition(rules: list[tuple[bool, str]], paths: list[str]) -> None:
    robots = Robots.parse(
        group(*(f"{'Allow' if allow else 'Disallow'}: {pattern}" for allow, pattern in rules)).encode()
    )
    for path in paths:
        verdict = robots.verdict("Weft", HOST + path)
        assert verdict.allowed == robots.allows("Weft", HOST + path) == slow_allows(rules, path)
        assert verdict.rule is None or slow_match(verdict.rule.partition(": ")[2], path)


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), st.text("abc*", max_size=7)), min_size=65, max_size=120),
    st.text("abc", max_size=12),
)
def test_very_many_wildcards_agree_with_the_definition(rules: list[tuple[bool, str]], tail: str) -> None:
    rules = [(allow, f"/*{pattern}") for allow, pattern in rules]
    body = group(*(f"{'Allow' if allow else 'Disallow'}: {pattern}" for allow, pattern in rules))
    assert allows(body, "/" + tail) == slow_allows(rules, "/" + tail)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.text(max_size=20), st.text(max_size=40))
def test_any_bytes_parse_and_any_question_is_answered(body: bytes, agent: str, url: str) -> None:
    robots = Robots.parse(b"User-agent: *\nDisallow: " + body)
    assert robots.allows(agent, url) == robots.verdict(agent, url).allowed
    assert robots.crawl_delay(agent) is None or robots.crawl_delay(agent) >= 0  # type: ignore[operator]
    assert all(isinstance(text, str) for text in robots.sitemaps)


# ── bounds


def seconds(robots: Robots, url: str, times: int = 5) -> float:
    robots.allows("Weft", url)
    spans = []
    for _ in range(times):
        start = time.process_time()
        robots.allows("Weft", url)
        spans.append(time.process_time() - start)
    return min(spans)


def test_a_hostile_pattern_costs_its_length_only() -> None:
    path = HOST + "/" + "a" * 1990
    robots = Robots.parse(group("Disallow: /" + "a*" * 1000 + "b", "Disallow: /" + "*a" * 1000 + "b$").encode())
    assert seconds(robots, path) < patience(0.1), "what tries every split takes for ever"


@pytest.mark.parametrize("form", ["/{:x}", "/{:x}$", "/{:x}*z", "/*{:x}", "/*{:x}$"])
def test_very_many_rules_parse_and_match_fast(form: str) -> None:
    body = b"User-agent:*\n" + "".join(f"Disallow:{form.format(number)}\n" for number in range(100_000)).encode()
    start = time.process_time()
    robots = Robots.parse(body)
    robots.for_agent("Weft")
    parsed_s = time.process_time() - start
    assert parsed_s < patience(1.5)
    assert len(robots.body) <= MAX_BODY_BYTES
    assert not robots.allows("Weft", HOST + "/" + "fff" + ("z" if form.endswith("z") else ""))
    assert seconds(robots, HOST + "/some/ordinary/page.html?with=query") < parsed_s / 20, "not all are looked at"


def test_nested_prefixes_do_not_slow_a_check_down() -> None:
    robots = Robots.parse(group(*("Disallow: /" + "a" * length for length in range(1, 980))).encode())
    one_rule_s = seconds(Robots.parse(group("Disallow: /b").encode()), HOST + "/" + "a" * 1500)
    assert seconds(robots, HOST + "/" + "a" * 1500) < 1000 * one_rule_s
    assert seconds(robots, HOST + "/" + "a" * 900 + "b") < 1000 * one_rule_s
    assert robots.verdict("Weft", HOST + "/" + "a" * 900 + "b").line == 901


def test_rules_beneath_one_for_the_whole_site_are_not_all_looked_at() -> None:
    many = [f"Disallow: /{number:x}" for number in range(0x1000, 0x6000)]
    apart, beneath = (Robots.parse(group(*rules).encode()) for rules in (many, ["Allow: /", *many]))
    assert beneath.verdict("Weft", HOST + "/zzz").line == 2
    assert seconds(beneath, HOST + "/zzz") < 100 * seconds(apart, HOST + "/zzz")


def test_the_agents_cached_are_bounded() -> None:
    robots = Robots.parse(GROUPS.encode())
    for number in range(100):
        assert robots.allows(f"Agent{number}", HOST + "/alpha")
    assert len(robots._rules) <= 16
