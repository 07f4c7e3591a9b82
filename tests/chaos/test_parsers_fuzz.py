"""Any markup: the parser makes the tree that another one, lexbor, makes of it, and reading the page never raises.

`make test` tries 300 pages; `make chaos` tries more for ten minutes.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator

import pytest
from selectolax.lexbor import LexborHTMLParser, LexborNode

from weft.extract import turbo
from weft.extract.page import extract
from weft.extract.turbo import Document, Element

FULL = bool(os.environ.get("WEFT_TEST_CHAOS"))
PAGES, SECONDS = (10**9, 600.0) if FULL else (300, 3600.0)
pytestmark = pytest.mark.timeout(3600)
# A template forbids a later <frameset> to replace the body (13.2.6.4.4, "frameset-ok"); turbohtml lets it.
FRAMES_AFTER_A_TEMPLATE = re.compile(r"<template.*<frameset", re.DOTALL).search

TAGS = (
    "a b i p div span table tr td th tbody ul ol li h1 h2 form select option button svg math title foreignObject desc "
    "template noscript iframe frameset frame base link meta area map script style textarea xmp body html head main nav "
    "article pre code br img input hr em strong font nobr marquee object applet caption colgroup col dl dt dd ruby rt"
).split()
ATTRIBUTES = (
    "href=/a", "href='b?c=1&amp;d'", 'href="//e.test/"', "href", "rel=nofollow", "rel='NoFollow x'", "name=robots",
    "content='noindex, nofollow'", "http-equiv=refresh", "content='0; url=/r'", "class=nav", "id=main", "hidden",
    "shadowrootmode=open", "src=/f", "=", "\"", "a='", "itemscope", "itemprop=x", "type=hidden", "xlink:href=/x",
)  # fmt: skip
TEXTS = (
    "text", " ", "\n", "&amp;", "&#x0;", "&notit;", "<", ">", "</", "<!--", "-->", "<!", "<?", "<![CDATA[", "]]>", "\0",
    "é", "\ufffd", "\x0c", "'", '"', "<!doctype html>",
)  # fmt: skip


def markup(chance: random.Random) -> str:
    """A page of pieces that mean something to a parser, in no order."""
    pieces = []
    for _ in range(chance.randrange(1, 120)):
        kind = chance.random()
        if kind < 0.45:
            attributes = " ".join(chance.choices(ATTRIBUTES, k=chance.randrange(3)))
            pieces.append(
                f"<{chance.choice(TAGS)}{' ' + attributes if attributes else ''}{chance.choice(('>', '>', '/>'))}"
            )
        elif kind < 0.7:
            pieces.append(f"</{chance.choice(TAGS)}>")
        else:
            pieces.append(chance.choice(TEXTS))
    return "".join(pieces)


def read(html: str) -> None:
    page = extract(html.encode("utf-8", "replace"), "https://site.test/", "text/html; charset=utf-8")
    for name in ("links", "text", "main_text", "markdown", "meta", "microdata", "language"):
        getattr(page, name)


def elements(html: str) -> list[tuple[int, str, dict[str, str]]]:
    """The elements in document order, with their depths and attributes; those in templates left out."""
    return list(_below(turbo.without_templates(turbo.parse_at_once(html)), 0))


def _below(node: Document | Element, depth: int) -> Iterator[tuple[int, str, dict[str, str]]]:
    for child in node.children:
        if isinstance(child, Element):
            yield depth, child.tag, {name: child.attr(name) or "" for name in child.attrs}
            yield from _below(child, depth + 1)


def by_lexbor(html: str) -> list[tuple[int, str, dict[str, str]]]:
    return list(_beside(LexborHTMLParser(html).root, 0))


def _beside(node: LexborNode | None, depth: int) -> Iterator[tuple[int, str, dict[str, str]]]:
    while node is not None:
        if node.is_element_node and node.tag != "template":
            yield depth, node.tag or "", {name: value or "" for name, value in node.attributes.items()}
            # lexbor reopens links inside a textarea, where HTML has text alone (13.2.6.4.8), and Chromium reads text.
            if node.tag != "textarea":
                yield from _beside(node.first_child, depth + 1)
        node = node.next


def test_any_markup_becomes_the_tree_that_another_parser_makes_of_it() -> None:
    seed = random.SystemRandom().randrange(1 << 40) if FULL else 7
    chance, until, tried = random.Random(seed), time.monotonic() + SECONDS, 0
    try:
        while tried < PAGES and time.monotonic() < until:
            tried += 1
            html = markup(chance)
            read(html)
            if not FRAMES_AFTER_A_TEMPLATE(html) and "shadowrootmode" not in html:
                assert elements(html) == by_lexbor(html), html
    finally:
        print(f"seed {seed}: {tried} pages")
