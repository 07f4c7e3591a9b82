"""Sitemaps of every kind, and what is left of broken and hostile ones."""

from __future__ import annotations

import gzip
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pace import patience

from weft.fetch.sitemaps import MAX_ENTRIES, Sitemap, parse, timestamp

NAMESPACE = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def at(*date: int) -> float:
    return datetime(*date, tzinfo=UTC).timestamp()  # type: ignore[arg-type, misc]


def locs(body: str | bytes) -> list[str]:
    return [loc for loc, _ in parse(body.encode() if isinstance(body, str) else body).urls]


URLSET = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- made by hand -->
<urlset {NAMESPACE} xmlns:image="http://www.google.com/schemas/sitemap-image/1.1">
  <url>
    <loc>https://shop.example/</loc>
    <lastmod>2024-05-06</lastmod>
    <changefreq>daily</changefreq>
  </url>
  <url>
    <loc> https://shop.example/tea?a=1&amp;b=2
    </loc>
    <image:image><image:loc>https://shop.example/tea.jpg</image:loc></image:image>
  </url>
  <url><priority>0.5</priority><lastmod>2024-05-06T10:00:00+02:00</lastmod><loc>https://shop.example/c</loc></url>
</urlset>"""


def test_a_url_set_lists_pages_with_their_last_change() -> None:
    assert parse(URLSET.encode()) == Sitemap(
        urls=[
            ("https://shop.example/", at(2024, 5, 6)),
            ("https://shop.example/tea?a=1&b=2", None),
            ("https://shop.example/c", at(2024, 5, 6, 8)),
        ]
    )


def test_an_index_lists_sitemaps() -> None:
    body = f"<sitemapindex {NAMESPACE}><sitemap><loc>https://a.example/1.xml.gz</loc><lastmod>2024</lastmod></sitemap>"
    body += "<sitemap><loc>https://a.example/2.xml</loc></sitemap></sitemapindex>"
    assert parse(body.encode()) == Sitemap(sitemaps=["https://a.example/1.xml.gz", "https://a.example/2.xml"])


def test_a_packed_sitemap_is_unpacked() -> None:
    assert parse(gzip.compress(URLSET.encode())) == parse(URLSET.encode())


def test_a_cut_packed_sitemap_gives_what_could_be_read() -> None:
    body = (
        "<urlset>" + "".join(f"<url><loc>https://a.example/{n * 7919}</loc></url>" for n in range(5000)) + "</urlset>"
    )
    packed = gzip.compress(body.encode())
    result = parse(packed[: len(packed) // 2])
    assert result.truncated and result.error == "gzip: ends early"
    assert result.urls == parse(body.encode()).urls[: len(result.urls)] and len(result.urls) > 1000


def test_a_plain_list_has_a_url_in_each_line() -> None:
    body = "\ufeffhttps://a.example/1\r\n\n  HTTP://a.example/2 \nnot a url\nftp://a.example/3\nhttps://a.example/é"
    assert locs(body) == ["https://a.example/1", "HTTP://a.example/2", "https://a.example/é"]


def test_an_rss_feed_lists_its_items() -> None:
    body = """<rss version="2.0" xmlns:atom="http://www.w3.org/2005/Atom"><channel>
      <title>News</title><link>https://n.example/</link><atom:link rel="self" href="https://n.example/rss"/>
      <pubDate>Sat, 04 May 2024 00:00:00 GMT</pubDate>
      <item><title>A</title><link>https://n.example/a</link><pubDate>Mon, 06 May 2024 12:00:00 +0200</pubDate></item>
      <item><guid>https://n.example/b</guid><description><![CDATA[<link>https://x.example/</link>]]></description></item>
      <item><guid isPermaLink="false">17</guid><title>no address</title></item>
      <item><link><![CDATA[https://n.example/c?a=1&b=2]]></link><dc:date>2024-05-06T01:00:00Z</dc:date></item>
    </channel></rss>"""
    assert parse(body.encode()).urls == [
        ("https://n.example/a", at(2024, 5, 6, 10)),
        ("https://n.example/b", None),
        ("https://n.example/c?a=1&b=2", at(2024, 5, 6, 1)),
    ]


def test_an_rdf_feed_lists_its_items() -> None:
    body = """<rdf:RDF xmlns:rdf="x" xmlns="http://purl.org/rss/1.0/"><channel><link>https://n.example/</link></channel>
      <item rdf:about="https://n.example/a"><link>https://n.example/a</link></item></rdf:RDF>"""
    assert locs(body) == ["https://n.example/a"]


def test_an_atom_feed_lists_its_entries() -> None:
    body = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://n.example/"/><updated>2024-01-01</updated>
      <entry><link rel="edit" href="https://n.example/edit"/><link rel='alternate' href='https://n.example/a?x=1&amp;y=2'/>
        <published>2023-01-01T00:00:00Z</published><updated>2024-05-06T00:00:00Z</updated></entry>
      <entry><updated>2024-05-06T00:00:00Z</updated><published>2023-01-01T00:00:00Z</published>
        <link type="text/html" href="https://n.example/b"></link></entry>
      <entry><link rel="enclosure" href="https://n.example/c.mp3"/></entry></feed>"""
    assert parse(body.encode()).urls == [
        ("https://n.example/a?x=1&y=2", at(2024, 5, 6)),
        ("https://n.example/b", at(2024, 5, 6)),
    ]


# ── tolerance


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("<sm:urlset><sm:url><sm:loc>https://a/1</sm:loc></sm:url></sm:urlset>", ["https://a/1"]),
        ("<URLSET><URL><LOC>https://a/1</LOC></URL></URLSET>", ["https://a/1"]),
        ("<urlset><url><loc><![CDATA[https://a/1?x&y]]></loc></url></urlset>", ["https://a/1?x&y"]),
        ("<urlset><url><loc>https://a/<![CDATA[1]]>/2</loc></url></urlset>", ["https://a/1/2"]),
        ("<urlset><url><loc>https://a/1<!-- no --></loc></url></urlset>", ["https://a/1"]),
        ("<urlset><url><loc>https://a/?x=1&y=2&copy=3</loc></url></urlset>", ["https://a/?x=1&y=2&copy=3"]),
        ("<urlset><url><loc>https://a/&#233;&#xE9;&lt;&apos;</loc></url></urlset>", ["https://a/éé<'"]),
        ("<urlset><url><loc>https://a/&#0;&#xD800;&#x110000;</loc></url></urlset>", ["https://a/&#0;&#xD800;&#x110000;"]),
        ("<urlset><url><loc lang='en'>https://a/1</loc></url></urlset>", ["https://a/1"]),
        ("<urlset><url><loc/></url><url><loc></loc></url><url></url><url/></urlset>", []),
        ("<urlset><url><loc>https://a/1</loc><image><loc>https://a/i</loc></image></url></urlset>", ["https://a/1"]),
        ("<urlset><!-- <url><loc>https://a/1</loc></url> --></urlset>", []),
        ("\n\n <urlset><url><loc>https://a/1</loc></url></urlset>", ["https://a/1"]),
        ("<urlset><url><loc>https://a/1</url><url><loc>https://a/2</url>", ["https://a/1", "https://a/2"]),
        ("<urlset><url><loc>https://a/1</loc><url><loc>https://a/2</loc>", ["https://a/1", "https://a/2"]),
        ("<urlset><loc>https://a/1</loc><loc>https://a/2</loc></urlset>", ["https://a/1", "https://a/2"]),
        ("<url><loc>https://a/1</loc></url>", ["https://a/1"]),
        ("<urlset><url><loc>https://a/1</loc></url><url><loc>https://a/ha", ["https://a/1"]),
        ("<urlset><url><loc>https://a/1</loc></url></wrong><<>>&<url><loc>https://a/2</loc></url>", ["https://a/1", "https://a/2"]),
        ("<urlset><url><location>https://a/1</location><locs>https://a/2</locs></url></urlset>", []),
        ("<html><body><a><loc>https://a/1</loc></a></body></html>", []),
        ("<!DOCTYPE html><html><head><link href='/x'></head></html>", []),
        ("<?xml version='1.0'?><!DOCTYPE urlset [<!ELEMENT a (b)>]><urlset><url><loc>https://a/1</loc></url></urlset>", ["https://a/1"]),
        ("", []),
        ("Not found", []),
        ("<", []),
    ],
)  # fmt: skip
def test_what_is_written_loosely_is_read(body: str, wanted: list[str]) -> None:
    assert locs(body) == wanted


def test_an_index_may_hold_pages_and_a_set_sitemaps() -> None:
    result = parse(b"<urlset><sitemap><loc>https://a/s.xml</loc></sitemap><url><loc>https://a/1</loc></url></urlset>")
    assert result == Sitemap(urls=[("https://a/1", None)], sitemaps=["https://a/s.xml"])


def test_an_index_without_its_inner_elements_lists_sitemaps() -> None:
    assert parse(b"<sitemapindex><loc>https://a/s.xml</loc></sitemapindex>").sitemaps == ["https://a/s.xml"]


@pytest.mark.parametrize(
    ("encoding", "declared"),
    [
        ("utf-8", "UTF-8"),
        ("iso-8859-1", "ISO-8859-1"),
        ("windows-1252", "windows-1252"),
        ("utf-8", "nonsense"),
        ("utf-8", "utf-7"),
    ],
)
def test_the_declared_encoding_is_used_if_it_is_a_plain_one(encoding: str, declared: str) -> None:
    body = f"<?xml version='1.0' encoding='{declared}'?><urlset><url><loc>https://a/é</loc></url></urlset>"
    assert locs(body.encode(encoding)) == ["https://a/é"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_wide_and_marked_files_are_read(encoding: str) -> None:
    assert locs("<urlset><url><loc>https://a/é</loc></url></urlset>".encode(encoding)) == ["https://a/é"]


# ── hostile


def test_entities_are_never_expanded() -> None:
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 20))
    body = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY l0 "ha">{laughs}<!ENTITY f SYSTEM "file:///etc/passwd">]>'
    body += "<urlset><url><loc>https://a/&l19;&f;</loc></url></urlset>"
    assert locs(body) == ["https://a/&l19;&f;"]


def test_entries_beyond_the_limit_are_left_off() -> None:
    body = b"<urlset>" + b"".join(b"<url><loc>https://a/%d</loc></url>" % n for n in range(20)) + b"</urlset>"
    result = parse(body, limit=7)
    assert len(result.urls) == 7 and result.truncated
    assert not parse(body, limit=20).truncated
    index = body.replace(b"url>", b"sitemap>")
    assert len(parse(index, limit=7).sitemaps) == 7 and parse(index, limit=7).truncated
    assert parse(b"https://a/\n" * 20, limit=7).truncated and not parse(b"https://a/\n" * 7, limit=7).truncated


def test_an_address_too_long_is_left_out() -> None:
    long = b"https://a/" + b"x" * 5000
    assert locs(b"<urlset><url><loc>" + long + b"</loc></url><url><loc>https://a/1</loc></url></urlset>") == [
        "https://a/1"
    ]
    assert locs(long + b"\nhttps://a/1\n") == ["https://a/1"]


def test_a_bomb_stops_at_the_limit() -> None:
    bomb = gzip.compress(b"<urlset>" + b" " * (60 * 1024 * 1024), 1)
    assert parse(bomb).truncated


MILLION = 1_000_000


@pytest.mark.parametrize(
    "body",
    [
        b"<urlset>" + b"<loc><![CDATA[" * (MILLION // 8),
        b"<urlset>" + b"<!--" * (MILLION // 2),
        b"<urlset>" + b"<loc" * (MILLION // 2),
        b"<urlset>" + b"<loc>" * (MILLION // 4),
        b"<urlset>" + b"<a:" * (MILLION // 2),
        b"<urlset><" + b"a" * MILLION,
        b"<!DOCTYPE x [" * (MILLION // 8),
        b"<!DOCTYPE x [" + b"] " * MILLION,
        b"<?" * MILLION,
        b"<" * MILLION,
        b"<feed><entry><link " + b'a="b" ' * (MILLION // 4) + b"/>",
        b"<feed><entry>" + b"<link a='" * (MILLION // 8),
        b"<urlset><loc>" + b"<![CDATA[a]]>" * (MILLION // 8) + b"</loc>",
        b"http://" + b"a" * MILLION,
        b"http://" * MILLION,
        b" \r\n" * MILLION,
    ],
    ids=range(16),
)
def test_a_hostile_file_takes_linear_time(body: bytes) -> None:
    start = time.process_time()
    parse(body)
    assert time.process_time() - start < patience(3)


@settings(max_examples=300)
@given(
    st.lists(
        st.sampled_from(
            ["<url>", "</url>", "<loc>", "</loc>", "<!--", "-->", "<![CDATA[", "]]>", "&amp;", "http://a/", "<", ">"]
        )
    )
)
def test_any_heap_of_tags_gives_an_answer(parts: list[str]) -> None:
    for body in ("".join(parts), "<urlset>" + "".join(parts)):
        result = parse(body.encode())
        assert all(loc == loc.strip() and loc for loc, _ in result.urls)


@given(st.binary(max_size=200))
def test_any_bytes_give_an_answer(body: bytes) -> None:
    for whole in (body, b"<urlset><url><loc>" + body, b"\x1f\x8b" + body, b"\xff\xfe" + body):
        parse(whole)


# ── dates


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2024", at(2024, 1, 1)),
        ("2024-05", at(2024, 5, 1)),
        ("2024-05-06", at(2024, 5, 6)),
        (" 2024-05-06 ", at(2024, 5, 6)),
        ("2024-05-06T07:08Z", at(2024, 5, 6, 7, 8)),
        ("2024-05-06T07:08:09Z", at(2024, 5, 6, 7, 8, 9)),
        ("2024-05-06T07:08:09+02:00", at(2024, 5, 6, 5, 8, 9)),
        ("2024-05-06T07:08:09-0330", at(2024, 5, 6, 10, 38, 9)),
        ("2024-05-06T07:08:09.5Z", at(2024, 5, 6, 7, 8, 9) + 0.5),
        ("2024-05-06 07:08:09", at(2024, 5, 6, 7, 8, 9)),
        ("Mon, 06 May 2024 07:08:09 GMT", at(2024, 5, 6, 7, 8, 9)),
        ("6 May 2024 07:08:09 -0500", at(2024, 5, 6, 12, 8, 9)),
    ]
    + [
        (bad, None)
        for bad in ("", "now", "2024-13", "2024-05-32", "2024-05-06T25:00Z", "06/05/2024", "0000", "x" * 99, "9" * 30)
    ],
)
def test_a_date_is_read_as_utc(text: str, wanted: float | None) -> None:
    assert timestamp(text) == wanted


@given(st.text(max_size=70))
def test_any_text_is_a_date_or_none(text: str) -> None:
    timestamp(text)


def test_a_full_sitemap_is_read_whole() -> None:
    entry = b"<url><loc>https://shop.example/some/path/%d.html?a=1&amp;b=2</loc><lastmod>2024-05-06</lastmod></url>\n"
    body = b"<urlset>" + b"".join(entry % n for n in range(MAX_ENTRIES)) + b"</urlset>"
    start = time.process_time()
    result = parse(body)
    assert len(result.urls) == MAX_ENTRIES and not result.truncated
    assert time.process_time() - start < patience(3)
