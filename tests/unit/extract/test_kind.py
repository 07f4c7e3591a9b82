"""What a body is taken for."""

from __future__ import annotations

import pytest

from weft.extract.kind import BodyKind, kind_of

RSS = b'<?xml version="1.0"?>\n<!-- made by x -->\n<rss version="2.0"><channel></channel></rss>'
XHTML = b'<?xml version="1.0"?><!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "x.dtd"><html xmlns="x"></html>'
USELESS = [None, "", "unknown/unknown", "*/*", "html", "text", "; charset=utf-8", "a b/c"]


@pytest.mark.parametrize(
    ("content_type", "kind"),
    [
        ("text/html", BodyKind.HTML),
        ("TEXT/HTML;charset=x", BodyKind.HTML),
        (" text/html ; x", BodyKind.HTML),
        ("application/xhtml+xml", BodyKind.HTML),
        ("application/rss+xml", BodyKind.FEED),
        ("application/atom+xml; charset=utf-8", BodyKind.FEED),
        ("application/xml", BodyKind.XML),
        ("text/xml", BodyKind.XML),
        ("application/mathml+xml", BodyKind.XML),
        ("image/svg+xml", BodyKind.OTHER),
        ("text/plain", BodyKind.TEXT),
        ("text/markdown", BodyKind.TEXT),
        ("application/json", BodyKind.TEXT),
        ("application/vnd.api+json", BodyKind.TEXT),
        ("application/pdf", BodyKind.OTHER),
        ("image/jpeg", BodyKind.OTHER),
        ("video/mp4", BodyKind.OTHER),
    ],
)
def test_a_content_type_that_says_something_is_believed(content_type: str, kind: BodyKind) -> None:
    assert kind_of(b"<p>anything", content_type) is kind


@pytest.mark.parametrize("content_type", USELESS)
@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<!DOCTYPE html><p>", BodyKind.HTML),
        (b"\n\t <!doctype HTML>", BodyKind.HTML),
        (b"\xef\xbb\xbf<html>", BodyKind.HTML),
        (b"<!-- note --><html>", BodyKind.HTML),
        (b"<!-- note", BodyKind.HTML),
        (b"<HeAd><title>", BodyKind.HTML),
        (b"<a href=x>", BodyKind.HTML),
        (b"<body>", BodyKind.HTML),
        (b"Not found <a href='/'>home</a>", BodyKind.HTML),
        (b"\xff\xfe" + "<html>".encode("utf-16-le"), BodyKind.HTML),
        ("<html>".encode("utf-16-be"), BodyKind.HTML),
        (XHTML, BodyKind.HTML),
        (RSS, BodyKind.FEED),
        (b"<rss></rss>", BodyKind.FEED),
        (b'<feed xmlns="http://www.w3.org/2005/Atom">', BodyKind.FEED),
        (b"<?xml version='1.0'?><rdf:RDF>", BodyKind.FEED),
        (b"<?xml version='1.0'?><urlset>", BodyKind.XML),
        (b"plain words, a < b and b > c", BodyKind.TEXT),
        (b"<abbr>", BodyKind.TEXT),
        (b"<bold move", BodyKind.TEXT),
        (b'{"json": true}', BodyKind.TEXT),
        (b"", BodyKind.TEXT),
        (b"%PDF-1.4 <html>", BodyKind.OTHER),
        (b"\x89PNG\r\n\x1a\n", BodyKind.OTHER),
        (b"GIF89a", BodyKind.OTHER),
        (b"PK\x03\x04", BodyKind.OTHER),
        (b"abc\x00\x01\x02def", BodyKind.OTHER),
    ],
)
def test_without_a_useful_content_type_the_first_bytes_decide(
    body: bytes, kind: BodyKind, content_type: str | None
) -> None:
    assert kind_of(body, content_type) is kind


@pytest.mark.parametrize("body", [b"%PDF-1.4", b"\x89PNG\r\n", b"\xff\xd8\xff\xe0", b"PK\x03\x04"])
@pytest.mark.parametrize("content_type", ["text/html", "text/plain"])
def test_a_file_served_as_a_page_is_not_read_as_one(body: bytes, content_type: str) -> None:
    assert kind_of(body, content_type) is BodyKind.OTHER


def test_a_feed_served_as_html_or_xml_is_a_feed() -> None:
    assert kind_of(RSS, "text/html") is BodyKind.FEED
    assert kind_of(RSS, "text/xml") is BodyKind.FEED
    assert kind_of(XHTML, "text/xml") is BodyKind.HTML
    assert kind_of(XHTML, "text/html") is BodyKind.HTML
