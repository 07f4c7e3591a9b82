"""What a body is taken for."""

from __future__ import annotations

import pytest

from weft.extract.kind import Kind, kind_of

RSS = b'<?xml version="1.0"?>\n<!-- made by x -->\n<rss version="2.0"><channel></channel></rss>'
XHTML = b'<?xml version="1.0"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x.dtd"><html xmlns="x"></html>'
USELESS = [None, "", "unknown/unknown", "*/*", "html", "text", "; charset=utf-8", "a b/c"]


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html", Kind.HTML),
        ("TEXT/HTML;charset=x", Kind.HTML),
        (" text/html ; x", Kind.HTML),
        ("application/xhtml+xml", Kind.HTML),
        ("application/rss+xml", Kind.FEED),
        ("application/atom+xml; charset=utf-8", Kind.FEED),
        ("application/xml", Kind.XML),
        ("text/xml", Kind.XML),
        ("application/mathml+xml", Kind.XML),
        ("image/svg+xml", Kind.OTHER),
        ("text/plain", Kind.TEXT),
        ("text/markdown", Kind.TEXT),
        ("application/json", Kind.TEXT),
        ("application/vnd.api+json", Kind.TEXT),
        ("application/pdf", Kind.OTHER),
        ("image/jpeg", Kind.OTHER),
        ("video/mp4", Kind.OTHER),
    ],
)
def test_a_content_type_that_says_something_is_believed(content_type: str, kind: Kind) -> None:
    assert kind_of(b"<p>anything", content_type) is kind


@pytest.mark.parametrize("content_type", USELESS)
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<!DOCTYPE html><p>", Kind.HTML),
        (b"\n\t <!doctype HTML>", Kind.HTML),
        (b"\xef\xbb\xbf<html>", Kind.HTML),
        (b"<!-- note --><html>", Kind.HTML),
        (b"<!-- note", Kind.HTML),
        (b"<HeAd><title>", Kind.HTML),
        (b"<a href=x>", Kind.HTML),
        (b"<body>", Kind.HTML),
        (b"Not found <a href='/'>home</a>", Kind.HTML),
        (b"\xff\xfe" + "<html>".encode("utf-16-le"), Kind.HTML),
        ("<html>".encode("utf-16-be"), Kind.HTML),
        (XHTML, Kind.HTML),
        (RSS, Kind.FEED),
        (b"<rss></rss>", Kind.FEED),
        (b'<feed xmlns="http://www.w3.org/2005/Atom">', Kind.FEED),
        (b"<?xml version='1.0'?><rdf:RDF>", Kind.FEED),
        (b"<?xml version='1.0'?><urlset>", Kind.XML),
        (b"plain words, a < b and b > c", Kind.TEXT),
        (b"<abbr>", Kind.TEXT),
        (b"<bold move", Kind.TEXT),
        (b'{"json": true}', Kind.TEXT),
        (b"", Kind.TEXT),
        (b"%PDF-1.4 <html>", Kind.OTHER),
        (b"\x89PNG\r\n\x1a\n", Kind.OTHER),
        (b"GIF89a", Kind.OTHER),
        (b"PK\x03\x04", Kind.OTHER),
        (b"abc\x00\x01\x02def", Kind.OTHER),
    ],
)
def test_without_a_useful_content_type_the_first_bytes_decide(
    body: bytes, kind: Kind, content_type: str | None
) -> None:
    assert kind_of(body, content_type) is kind


@pytest.mark.parametrize("body", [b"%PDF-1.4", b"\x89PNG\r\n", b"\xff\xd8\xff\xe0", b"PK\x03\x04"])
@pytest.mark.parametrize("content_type", ["text/html", "text/plain"])
def test_a_file_served_as_a_page_is_not_read_as_one(body: bytes, content_type: str) -> None:
    assert kind_of(body, content_type) is Kind.OTHER


def test_a_feed_served_as_html_or_xml_is_a_feed() -> None:
    assert kind_of(RSS, "text/html") is Kind.FEED
    assert kind_of(RSS, "text/xml") is Kind.FEED
    assert kind_of(XHTML, "text/xml") is Kind.HTML
    assert kind_of(XHTML, "text/html") is Kind.HTML
