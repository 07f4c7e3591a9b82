"""What a page says about itself to machines, and its language."""

from __future__ import annotations

import pytest

from weft.extract.metadata import MAX_ITEMREFS, Meta
from weft.extract.page import ParsedPage, extract

URL = "https://site.test/dir/page"
ENGLISH = (
    "The quick brown fox jumps over the lazy dog, and then it runs away into the forest where nobody finds it. " * 6
)
POLISH = (
    "Każdy człowiek może wszystko, a życie jest źródłem świata; także dzień między środą a piątkiem bywa długi. " * 6
)


def page(html: str) -> ParsedPage:
    return extract(html.encode(), URL, "text/html; charset=utf-8")


def test_meta_tags_give_the_facts() -> None:
    read = page(
        """<meta name=Description content=" What it is
        about "><meta name=keywords content="a, b,,a , c"><meta name=author content="Ann">
        <meta property=article:published_time content=2024-05-06><meta property=og:updated_time content=2024-05-07>
        <meta property=og:site_name content=Site><meta property=og:image content=/i.png>
        <meta name=generator content=G>"""
    )
    assert read.meta == Meta(
        "What it is about", ("a", "b", "c"), "Ann", "2024-05-06", "2024-05-07", "Site", "/i.png", "G"
    )


def test_json_ld_counts_before_meta_tags() -> None:
    block = (
        '{"@graph": [{"@type": "Article", "author": [{"name": "Bob"}], "datePublished": "2020", "description": "D"}]}'
    )
    read = page(f"<meta name=author content=Ann><script type='application/ld+json'>{block}</script>")
    assert (read.meta.author, read.meta.published, read.meta.description) == ("Bob", "2020", "D")


def test_a_page_without_facts_has_none() -> None:
    assert page("<p>").meta == Meta()
    assert extract(b"text", URL, "text/plain").meta == Meta()


def test_open_graph_has_the_first_of_each_property() -> None:
    read = page(
        "<meta property=og:title content=T><meta property=og:image content=1><meta property=OG:image content=2>"
    )
    assert read.open_graph == {"title": "T", "image": "1"}


def test_json_ld_is_decoded_and_broken_blocks_are_left_out() -> None:
    blocks = ['{"a": 1}', "{broken", "[" * 100_000, '[1, "line\nbreak"]', '{"n": NaN}', ""]
    html = "".join(f"<script type='application/LD+JSON; charset=utf-8'>{block}</script>" for block in blocks)
    assert page(html + "<script>{}</script>").json_ld == [{"a": 1}, [1, "line\nbreak"], {"n": None}]


def test_microdata_items_are_plain_values() -> None:
    html = """<div itemscope itemtype="https://schema.org/Person"><b itemprop=name>Ann</b><a itemprop=url href=/x>u</a>
      <div itemprop=address itemscope><i itemprop=city>Town</i></div></div>"""
    address = {"type": None, "id": None, "properties": {"city": ["Town"]}}
    properties = {"name": ["Ann"], "url": ["https://site.test/x"], "address": [address]}
    assert page(html).microdata == [{"type": "https://schema.org/Person", "id": None, "properties": properties}]


def test_microdata_that_multiplies_is_left_out() -> None:
    html = "<div id=b>" + "<i itemprop=x>v</i>" * 9 + "</div>" + "<p itemscope itemref='b b'></p>" * MAX_ITEMREFS
    assert page(html).microdata == []
    assert page("<div itemscope itemprop=a>" * 2000).microdata is not None


@pytest.mark.parametrize(
    ("html", "language"),
    [
        ("<html lang=de-AT><p>kurz", "de"),
        ("<html lang=EN_us><p>short", "en"),
        ("<html lang=iw><p>x", "he"),
        ("<html lang=''><meta http-equiv=Content-Language content='fr, de'><p>x", "fr"),
        ("<meta property=og:locale content=pt_BR><p>x", "pt"),
        ("<html lang=x><p>y", None),
        ("<p>y", None),
        (f"<p>{ENGLISH}", "en"),
        (f"<p>{POLISH}", "pl"),
        (f"<html lang=en><p>{POLISH}", "pl"),
        (f"<html lang=mt><p>{POLISH}", "mt"),
        (f"<html lang=en><p>{POLISH[:100]}", "en"),
    ],
)
def test_language_is_the_declared_one_unless_the_text_says_otherwise(html: str, language: str | None) -> None:
    assert page(html).language == language


def test_the_language_of_plain_text_is_detected() -> None:
    assert extract(POLISH.encode(), URL, "text/plain").language == "pl"
    assert extract(b"", URL, "text/plain").language is None


def test_lazy_values_are_computed_once() -> None:
    read = page(f"<p>{ENGLISH}")
    for name in ("links", "json_ld", "microdata", "open_graph", "meta", "main_text", "markdown"):
        assert getattr(read, name) is getattr(read, name)
    assert ParsedPage.main_text.__doc__
