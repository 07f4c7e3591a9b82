"""What every page tells about itself, and what is not read as a page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.extract import page as page_module
from weft.extract.kind import BodyKind
from weft.extract.page import MAX_BYTES, ParsedPage, extract
from weft.extract.text import main_text

URL = "https://site.test/dir/page?q=1"


def page(html: str, content_type: str | None = "text/html; charset=utf-8") -> ParsedPage:
    return extract(html.encode(), URL, content_type)


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title>  A \n page </title>", "A page"),
        ("<title>One</title><title>Two</title>", "One"),
        ("<title>R&amp;D &lt;3</title>", "R&D <3"),
        ("<svg><title>Drawing</title></svg><title>Page</title>", "Page"),
        ("<svg><title>Drawing</title></svg>", None),
        ("<template><title>No</title></template>", None),
        ("<p>text", None),
        ("<title> </title>", None),
        ("<title>open", "open"),
    ],
)
def test_title_is_the_first_one_on_one_line(html: str, title: str | None) -> None:
    assert page(html).title == title


def test_title_is_capped() -> None:
    assert page(f"<title>{'word ' * 1000}</title>").title == ("word " * 100).strip()


@pytest.mark.parametrize(
    ("html", "base"),
    [
        ("<p>", URL),
        ("<base href=/other/>", "https://site.test/other/"),
        ("<base href='//cdn.test/x'><base href=/second/>", "https://cdn.test/x"),
        ("<base target=_top><base href=/second/>", "https://site.test/second/"),
        ("<base href='javascript:x()'>", URL),
        ("<base href='http://[bad'>", URL),
        ("<base href=''>", URL),
        ("<body><p><base href=late/>", "https://site.test/dir/late/"),
    ],
)
def test_base_is_the_first_that_can_be_one(html: str, base: str) -> None:
    assert page(html).base == base


@pytest.mark.parametrize(
    ("html", "canonical"),
    [
        ("<link rel=canonical href=/own>", "https://site.test/own"),
        ("<link rel='nofollow CANONICAL' href=' own '>", "https://site.test/dir/own"),
        ("<base href=/b/><link rel=canonical href=own>", "https://site.test/b/own"),
        ("<link rel=canonical href=own><base href=/b/>", "https://site.test/b/own"),
        ("<link rel=canonical href=/1><link rel=canonical href=/2>", "https://site.test/1"),
        ("<link rel=canonical><link rel=canonical href=/2>", "https://site.test/2"),
        ("<link rel=canonical href='mailto:x@y'>", None),
        ("<link rel=alternate href=/x>", None),
        ("<template><link rel=canonical href=/x></template>", None),
    ],
)
def test_canonical_is_resolved(html: str, canonical: str | None) -> None:
    assert page(html).canonical == canonical


@pytest.mark.parametrize(
    ("html", "wishes"),
    [
        ("<p>", (False, False)),
        ("<meta name=robots content='noindex'>", (True, False)),
        ("<meta name=ROBOTS content='NoFollow, index'>", (False, True)),
        ("<meta name=robots content='none'>", (True, True)),
        ("<meta name=robots content='all'>", (False, False)),
        ("<meta name=robots content='index,follow'><meta name=weft content=noindex,nofollow>", (True, True)),
        ("<meta name=googlebot content='noindex,nofollow'>", (False, False)),
        ("<meta name=robots>", (False, False)),
        ("<meta name=robots content='noindex'><meta name=robots content='nofollow'>", (True, True)),
        ("<body><div><meta name=robots content=nofollow></div>", (False, True)),
        ("<meta name=robots content='nofollowing, noindexed'>", (False, False)),
    ],
)
def test_the_wishes_of_the_authors(html: str, wishes: tuple[bool, bool]) -> None:
    read = page(html + "<a href=/x>x</a>")
    assert (read.noindex, read.nofollow) == wishes
    assert read.hrefs == ([] if read.nofollow else ["/x"])


def test_a_nofollow_page_still_tells_its_links() -> None:
    read = page("<meta name=robots content=nofollow><a href=/x>x</a>")
    assert [link.href for link in read.links] == ["/x"]


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "text/plain", "application/rss+xml", "text/css"])
def test_what_is_not_html_has_no_references(kind: str) -> None:
    read = page("<title>t</title><a href=/x>x</a>", kind)
    assert (read.title, read.hrefs, read.links, read.canonical, read.base) == (None, [], [], None, URL)
    assert read.kind is not BodyKind.HTML


def test_text_has_a_charset_and_binaries_have_none() -> None:
    assert page("grün", "text/plain; charset=utf-8").charset == "utf-8"
    assert page("%PDF-1.7", "application/pdf").charset is None


def test_bytes_beyond_the_cap_are_not_read() -> None:
    body = b"<a href=/near>x</a>" + b" " * MAX_BYTES + b"<a href=/far>y</a>"
    read = extract(body, URL, "text/html; charset=utf-8")
    assert (read.hrefs, read.truncated) == (["/near"], True)
    assert not extract(body[:MAX_BYTES], URL, "text/html").truncated


def test_a_cap_inside_a_character_does_not_change_the_charset() -> None:
    body = b"a" + "ä".encode() * (MAX_BYTES // 2) + b"<a href=/far>y</a>"
    read = extract(body, URL, "text/html")
    assert (read.charset, read.truncated) == ("utf-8", True)


@pytest.mark.parametrize("body", [b"", b"\0", b"<", b"\xff\xfe", b"\xef\xbb\xbf", b"<a href=", b"\x80" * 99])
def test_no_input_raises(body: bytes) -> None:
    for content_type in (None, "", "text/html", "text/html; charset=nonsense", ";;;", "text/html; charset=utf-16"):
        assert extract(body, URL, content_type).hrefs == []


TOKENS = st.sampled_from(
    "<|>|/|=|\"|'|&|;| |\0|\x0c|é|\ud800|<a|<a href=|<p>|</p>|<table>|<td>|<b>|</b>|<template>|<svg>|<math>|<!--|-->"
    "|<script>|</script>|<title>|<meta |charset=|name=robots |content=|<base href=|<main>|<pre>|<ul><li>|<h2>"
    "|class=nav |itemscope |itemprop=|<noscript>|<select>|<form>|<html lang=|related|text".split("|")
)


@given(st.lists(TOKENS, max_size=40), st.sampled_from([None, "text/html", "text/html; charset=gbk", "text/xml"]))
def test_no_markup_raises_whatever_is_asked(tokens: list[str], content_type: str | None) -> None:
    read = extract("".join(tokens).encode("utf-8", "surrogatepass"), URL, content_type)
    names = [name for name, value in vars(ParsedPage).items() if isinstance(value, page_module.lazy)]
    assert len(names) == 14
    for name in names:
        getattr(read, name)


def test_url_that_is_no_base_gives_no_canonical() -> None:
    assert extract(b"<link rel=canonical href=/x>", "not a url", "text/html").canonical is None


def test_repr_names_the_page() -> None:
    assert repr(page("<a href=/x>x</a>")) == f"Page({URL!r}, html, 1 hrefs)"


def test_page_has_no_dict_so_that_a_misspelt_attribute_is_an_error() -> None:
    assert not hasattr(page("x"), "__dict__")
    assert page_module.ParsedPage.__doc__


def test_without_references_only_they_are_missing() -> None:
    body = b"<title>T</title><link rel=canonical href=/c><meta name=robots content=noindex><p>x<a href=/a>a</a>"
    with_them, without = (extract(body, "http://h.example/", references=wanted) for wanted in (True, False))
    assert with_them.hrefs == ["/c", "/a"]
    assert without.hrefs == []
    assert (without.title, without.canonical, without.noindex) == ("T", "http://h.example/c", True)
    assert [link.href for link in without.links] == ["/a"]
    assert without.main_text == with_them.main_text


def test_what_a_crawl_needs_of_a_page_is_read_without_its_main_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main_text, "content_of", lambda *_: pytest.fail("the main text was looked for"))
    read = extract(b"<title>T</title><main><p>Text <a href=/a>A</a></main>", URL, "text/html")
    assert (read.title, read.hrefs, [link.href for link in read.links]) == ("T", ["/a"], ["/a"])
