"""Two parsers, any markup: neither raises, and both find the same links and title.

`make test` tries 300 pages; `make chaos` goes on for ten minutes.
"""

from __future__ import annotations

import os
import random
import re
import time

import pytest

from weft.extract import parse
from weft.extract.page import Page, extract

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


def read(html: str, parser: str) -> Page:
    parse.choose(parser)
    page = extract(html.encode("utf-8", "replace"), "https://site.test/", "text/html; charset=utf-8")
    for name in ("links", "text", "main_text", "markdown", "meta", "microdata", "language"):
        getattr(page, name)
    return page


def test_both_parsers_read_any_markup_alike() -> None:
    seed = random.SystemRandom().randrange(1 << 40) if FULL else 7
    chance, until, tried = random.Random(seed), time.monotonic() + SECONDS, 0
    try:
        while tried < PAGES and time.monotonic() < until:
            tried += 1
            html = markup(chance)
            if FRAMES_AFTER_A_TEMPLATE(html):
                continue
            first, second = (read(html, parser) for parser in parse.PARSERS)
            for name in ("hrefs", "title", "base", "canonical", "noindex", "nofollow", "refresh"):
                assert getattr(first, name) == getattr(second, name), (name, html)
    finally:
        parse.choose(parse.PARSERS[0])
        print(f"seed {seed}: {tried} pages")
