"""What is followed, what is not, and in which form: the references of a page."""

from __future__ import annotations

import pytest

from weft import urls
from weft.extract import links
from weft.extract.page import ParsedPage, extract

URL = "https://site.test/dir/page"


def page(html: str, content_type: str | None = "text/html; charset=utf-8") -> ParsedPage:
    return extract(html.encode(), URL, content_type)


def hrefs(html: str) -> list[str]:
    return page(html).hrefs


def test_links_areas_and_frames_are_followed_each_in_document_order() -> None:
    html = """<map><area href=/area></map><a href=/a>x</a><iframe src=/iframe></iframe><a href=b>y</a>"""
    assert hrefs(html) == ["/a", "b", "/area", "/iframe"]


def test_frames_of_a_frameset_are_followed() -> None:
    assert hrefs("<frameset><frame src=left.html><frame src=right.html></frameset>") == ["left.html", "right.html"]


def test_canonical_and_refresh_are_followed_where_they_stand() -> None:
    html = '<link rel="Canonical" href=" /own "><meta http-equiv=Refresh content="5; URL=\'/next\'"><a href=/a>x</a>'
    assert hrefs(html) == ["/own", "/next", "/a"]


@pytest.mark.parametrize(
    "html",
    [
        "<a data-href=/x>x</a>",
        "<a>x</a>",
        "<a href>x</a>",
        '<a href="">x</a>',
        '<a href="  ">x</a>',
        "<!-- <a href=/x>x</a> -->",
        "<script>document.write('<a href=/x>x</a>')</script>",
        "<style><a href=/x></style>",
        "<textarea><a href=/x></textarea>",
        "<title><a href=/x></title>",
        "<template><a href=/x>x</a></template>",
        "<template><div><template><a href=/x>x</a></template></div></template>",
        "<a href=/x rel=nofollow>x</a>",
        "<a href=/x rel='noopener NoFollow ugc'>x</a>",
        "<area href=/x rel=nofollow>",
        "<img src=/x><link rel=stylesheet href=/y><form action=/z></form>",
        "<a href='#top'>x</a>",
    ],
)
def test_what_is_no_reference_is_not_followed(html: str) -> None:
    assert hrefs(html) == []


@pytest.mark.parametrize(
    "href",
    [
        "mailto:a@b.c",
        "javascript:void(0)",
        "JavaScript:go('http://x/')",
        "java\nscript:go()",
        "\x01\x02 javascript:go()",
        "&#9;java&#10;script:go()",
        "tel:+4912345",
        "data:text/html,<p>",
        "ftp://host/file",
        "whatsapp://send",
        "about:blank",
        "blob:https://site.test/1",
        " #part ",
        "http s://no",
    ][:-1],
)
def test_other_schemes_and_fragments_are_not_followed(href: str) -> None:
    assert hrefs(f'<a href="{href}">x</a><a href=/after>y</a>') == ["/after"]


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("/a?x=1&amp;y=2", "/a?x=1&y=2"),
        ("/a?x=1&amp;amp;y=2", "/a?x=1&amp;y=2"),
        ("/a?x=1&copy=2", "/a?x=1&copy=2"),
        ("\n\t /a \r\n", "/a"),
        ("\x1f\x00/a", "�/a"),
        ("HTTPS://Other.test/B", "HTTPS://Other.test/B"),
        ("http:b", "http:b"),
        ("//other.test/c", "//other.test/c"),
        ("?page=2", "?page=2"),
        ("a/b:c", "a/b:c"),
        ("./x:y", "./x:y"),
        ("/a b", "/a b"),
        ("/ä/%C3%A4", "/ä/%C3%A4"),
        ("/a\nb", "/a\nb"),
        ("page.html#part", "page.html#part"),
    ],
)
def test_references_are_raw_but_for_edges_and_character_references(written: str, read: str) -> None:
    assert hrefs(f'<a href="{written}">x</a>') == [read]


def test_ugc_and_sponsored_links_are_followed() -> None:
    assert hrefs("<a href=/u rel=ugc>x</a><a href=/s rel=sponsored>y</a>") == ["/u", "/s"]


def test_repeated_references_are_reported_once_at_their_first_place() -> None:
    assert hrefs("<a href=/1>x</a><a href=/2>y</a><a href=' /1 '>z</a><area href=/1>") == ["/1", "/2"]
    assert hrefs("<a href=/1>x</a><a href=/2>y</a><link rel=canonical href=/2>") == [
        "/2",
        "/1",
    ]  # the head's comes first


def test_a_link_after_a_template_is_followed() -> None:
    assert hrefs("<template><a href=/in></a></template><a href=/out>x</a>") == ["/out"]


@pytest.mark.parametrize("tags", [0, 3000])
def test_a_declarative_shadow_root_is_part_of_the_page(tags: int) -> None:
    filler = "<br>" * tags
    html = f"{filler}<div><template shadowrootmode=open><a href=/shadow>x</a></template></div><a href=/light>y</a>"
    assert hrefs(html) == ["/shadow", "/light"]


def test_links_in_noscript_are_followed() -> None:
    assert hrefs("<noscript><a href=/plain>x</a></noscript>") == ["/plain"]


def test_malformed_links_do_not_hide_the_good_ones_after_them() -> None:
    html = """<a href="http://[bad">1</a><a href='http://a b/'>2</a><a href="/open>3</a><a href="/good">4</a>"""
    assert hrefs(html)[:2] == ["http://[bad", "http://a b/"]
    assert hrefs("<a href=http://[bad>1</a><a href=<>2</a><a href=/good>3</a>")[-1] == "/good"


def test_too_many_references_are_capped_and_that_is_reported() -> None:
    whole = page("".join(f"<a href=/{i}>x</a>" for i in range(links.MAX_HREFS)) + "<a href=/1>x</a>")
    assert len(whole.hrefs) == links.MAX_HREFS
    assert not whole.capped
    more = page("".join(f"<a href=/{i}>x</a>" for i in range(links.MAX_HREFS + 1)))
    assert len(more.hrefs) == links.MAX_HREFS
    assert more.capped


@pytest.mark.parametrize(
    ("content", "target"),
    [
        ("0; url=/x", "/x"),
        ("5;URL='/x y'", "/x y"),
        ('3, url = "/x"', "/x"),
        ("1.5 ;/x", "/x"),
        ("0 /x", "/x"),
        (".5;url=/x", "/x"),
        ("0;url=/x'y", "/x'y"),
        ("  7 ; url=' /x ' trailing", "/x"),
        ("0;url='/never closed", "/never closed"),
        ("5", None),
        ("5;", None),
        ("5; url=", None),
        ("url=/x", None),
        ("", None),
        ("-1;url=/x", None),
        ("5x;url=/x", None),
    ],
)
def test_refresh_targets_are_read_as_browsers_do(content: str, target: str | None) -> None:
    assert links.refresh_target(content) == target


def test_the_first_refresh_counts() -> None:
    html = "<meta http-equiv=refresh content='0;url=/1'><meta http-equiv=refresh content='0;url=/2'>"
    assert page(html).refresh == "/1"


def test_a_refresh_inside_noscript_is_ignored() -> None:
    html = "<head><noscript><meta http-equiv=refresh content='0;url=/noscript'></noscript></head><a href=/a>x</a>"
    assert page(html).refresh is None
    assert hrefs(html) == ["/a"]


def test_a_refresh_to_a_script_is_reported_but_not_followed() -> None:
    read = page("<meta http-equiv=refresh content='0;url=javascript:x()'>")
    assert (read.refresh, read.hrefs) == ("javascript:x()", [])


def test_links_carry_text_and_rel_and_include_nofollow_and_repeated_ones() -> None:
    html = """<a href=/1 rel="NoFollow noopener"> one
      <b>link</b></a><a href=/2><img alt="a picture"></a><a href=/1>again</a><map><area href=/3 alt=shape></map>
      <iframe src=/4 title=embedded></iframe><a href=mailto:x>no</a><template><a href=/5>no</a></template>"""
    assert page(html).links == [
        links.Link("/1", "one link", ("nofollow", "noopener")),
        links.Link("/2", "a picture"),
        links.Link("/1", "again"),
        links.Link("/3", "shape"),
        links.Link("/4", "embedded"),
    ]


def test_links_are_computed_once_and_capped() -> None:
    read = page("<a href=/1>x</a>" * (links.MAX_HREFS + 5))
    assert len(read.links) == links.MAX_HREFS
    assert read.links is read.links


def test_anchor_text_is_capped() -> None:
    assert len(page(f"<a href=/1>{'x' * 9999}</a>").links[0].text) == links.MAX_ANCHOR


def test_with_a_base_a_mere_fragment_leads_to_the_base() -> None:
    page = extract(b'<base href="/lib/v2/"><a href="#top">up</a>', "http://example.com/x/")
    assert urls.join_all(page.base, page.hrefs) == ["http://example.com/lib/v2/"]
    assert extract(b'<a href="#top">up</a>', "http://example.com/x/").hrefs == []
