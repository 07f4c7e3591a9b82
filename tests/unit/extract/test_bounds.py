"""Pathological pages: each is read within its bounds, and what could be read is there."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest
from pace import patience
from written_twice import in_c

from weft.extract import parse
from weft.extract.page import ParsedPage, extract

MB = 1 << 20
# Each takes under 0.2 s by itself; the rest is for a busy machine.
LIMIT_S = patience(1)  # of CPU time: what is not bounded takes minutes

PAGES: dict[str, Callable[[], str]] = {
    "200,000 nested divs": lambda: "<div>" * 200_000,
    "200,000 nested divs, closed": lambda: "<div>" * 200_000 + "</div>" * 200_000,
    "one attribute of 5 MB": lambda: f'<a href="{"a" * 5 * MB}">x</a>',
    "one attribute name of 5 MB": lambda: f"<a {'a' * 5 * MB}>x</a>",
    "300,000 links": lambda: "".join(f"<a href=/{i}>x</a>" for i in range(300_000)),
    "100,000 attributes": lambda: f"<a {' '.join(f'a{i}=1' for i in range(100_000))}>",
    "100,000 attributes on a second body": lambda: f"<body><body {' '.join(f'a{i}=1' for i in range(100_000))}>",
    "50,000 bodies": lambda: "".join(f"<body a{i}=1>" for i in range(50_000)),
    "50,000 html tags": lambda: "".join(f"<html a{i}=1>" for i in range(50_000)),
    "unclosed tags": lambda: "<div class='" * 100_000,
    "unclosed paragraphs": lambda: "<p>" * 400_000,
    "less-than flood": lambda: "<" * MB,
    "end tag flood": lambda: "</" * MB,
    "declaration flood": lambda: "<!" * MB,
    "NULs": lambda: "\0" * 2 * MB,
    "NUL tags": lambda: "<\0>" * 500_000,
    "nested tables": lambda: "<table><tr><td>" * 50_000,
    "text in a table": lambda: "<table>" + "x<b>" * 200_000,
    "formatting and paragraphs": lambda: "<b><p>" * 100_000,
    "formatting that is left open": lambda: "<p>" + "".join(f"<i a={i}>" for i in range(600)) + "<p>x" * 200_000,
    "formatting that is closed late": lambda: "".join(f"<b a={i}><div>" for i in range(20_000)) + "</b>" * 20_000,
    "links in links": lambda: "<a href=/x><div>" * 60_000 + "</a>" * 60_000,
    "attributes that are copied": lambda: f"<p><i {' '.join(f'a{i}' for i in range(100_000))}>" + "<p>x" * 3_000,
    "huge comment": lambda: "<!--" + "-" * 2 * MB,
    "comment openings": lambda: "<!-- " * 400_000,
    "huge script": lambda: "<script>" + "x<" * MB,
    "script in script": lambda: "<script>" + "<!--<script>" * 170_000,
    "ampersands": lambda: "&" * 2 * MB,
    "half an entity": lambda: "&CounterClockwiseContourIntegra" * 60_000,
    "nested templates": lambda: "<template><a href=/x>" * 90_000,
    "nested svg": lambda: "<svg><foreignObject>" * 90_000,
    "nested selects": lambda: "<select><option>" * 100_000,
    "nested lists": lambda: "<ul><li>" * 200_000,
    "meta flood": lambda: "<meta charset=" * 100_000,
    "quotes": lambda: "<meta \"'" * 200_000,
    "long title": lambda: "<title>" + "</titl " * 300_000,
    "spaces in a title": lambda: "<title>" + " " * 2 * MB,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_pathological_page_is_read_in_time(name: str) -> None:
    body = PAGES[name]().encode()
    start = process_time()
    page = extract(body, "https://site.test/", "text/html")
    spent = process_time() - start
    assert spent < LIMIT_S
    assert len(page.hrefs) <= 10_000
    start = process_time()
    assert len(page.links) <= 10_000
    assert process_time() - start < LIMIT_S


LATER: dict[str, Callable[[], str]] = {
    "headings of one parent": lambda: "<div>x" + "<h2>Related</h2>word " * 30_000,
    "nested boilerplate": lambda: "<div class=nav>" * 500 + "text " * 300_000,
    "comments": lambda: "<div class=comment>" * 400 + "<div class=comment>text text</div>" * 20_000,
    "links in spans": lambda: f"<p>{'prose ' * 500}</p>" + "<span>" * 400 + "<a href=x>link</a>" * 30_000,
    "deep lists": lambda: "<ul><li>" * 250 + "<p>x</p>" * 40_000,
    "wide table": lambda: "<table>" + ("<tr>" + "<td>x" * 1000) * 150,
    "item references": lambda: "<i itemprop=x id=b>v</i>" * 12_000 + "<p itemscope itemref=b></p>" * 12_000,
    "templates": lambda: "<br>" * 100_000 + "<template " * 100_000 + "shadowrootmode",
}


@pytest.mark.parametrize("name", LATER)
def test_what_is_computed_later_is_bounded_too(name: str) -> None:
    start = process_time()
    page = read(LATER[name]())
    for attribute in ("links", "text", "main_text", "markdown", "language", "meta", "json_ld", "microdata"):
        getattr(page, attribute)
    assert process_time() - start < 4 * LIMIT_S


@pytest.mark.parametrize("start", [b'<a "', b"<!-- ", b"<html ", b"<meta charset="])
def test_the_search_for_a_charset_is_bounded(start: bytes) -> None:
    begin = process_time()
    extract(b"\xff" + start * 200_000, "https://site.test/", "text/html")
    assert process_time() - begin < LIMIT_S


@pytest.mark.parametrize("start", [b"<![CDATA[", b"<!--", b"<", b"&"])
def test_the_text_of_a_feed_is_bounded(start: bytes) -> None:
    begin = process_time()
    assert isinstance(extract(b"<rss>" + start * 400_000, "https://site.test/", "text/xml").text, str)
    assert process_time() - begin < LIMIT_S


def read(html: str) -> ParsedPage:
    return extract(html.encode(), "https://site.test/", "text/html")


def test_links_far_down_a_deep_tree_are_found() -> None:
    assert read("<div>" * 200_000 + "<a href=/deep>x</a>").hrefs == ["/deep"]


def test_a_page_that_multiplies_is_cut_and_says_so() -> None:
    bomb = "<a href=/first>x</a>" + "<p>" + "".join(f"<i a={i}>" for i in range(600)) + "<p>x" * 200_000
    page = read(bomb + "<a href=/last>x</a>")
    assert page.truncated
    assert page.hrefs == ["/first"]


def test_a_big_ordinary_page_is_read_whole() -> None:
    page = read("".join(f"<p>text <b>bold</b> <a href=/{i}>link</a></p>\n" for i in range(9_000)))
    assert (len(page.hrefs), page.truncated, page.capped) == (9_000, False, False)


def test_steps_and_one_go_give_the_same_tree() -> None:
    html = "<title>t</title>" + "".join(f"<p>ä <b>{i}<p><a href=/{i}>&amp;</a><table>x" for i in range(400))
    whole, _ = parse.parse(html)
    in_steps, cut = parse._in_steps(html, 1000, lambda: 0.0)
    assert not cut
    assert in_steps.html == whole.html


def test_a_long_script_is_not_taken_for_a_stuffed_tag() -> None:
    script = "<script>" + "if (a <b ) { run(c, d); }\n" * 1000 + "</script>"
    page = read("<a href=/1>x</a>" + script + "<a href=/2>y</a>")
    assert (page.hrefs, page.truncated) == (["/1", "/2"], False)


def test_parsing_stops_when_its_time_is_used_up() -> None:
    ticks = iter(range(100))
    html = "<br>" * 100_000 + "x" * (4 * parse.STEP_CHARS)
    document, cut = parse.parse(html, lambda: float(next(ticks)))
    assert cut
    assert "x" * parse.STEP_CHARS not in document.text


@pytest.mark.parametrize("other", ["a", "é", "ж", "😀"])
@pytest.mark.parametrize("size", [0, 1, 239, 240, 241, 480, 5000])
def test_letters_are_counted_as_python_counts_them(other: str, size: int) -> None:
    times = in_c("weft.extract._letters").times
    text = "".join("<" if at % 7 in (0, 3) else other for at in range(size))
    assert times(text, "<") == text.count("<")
    assert times("<" * size + other, "<") == size
    with pytest.raises(ValueError, match="ASCII"):
        times(text, "é")
