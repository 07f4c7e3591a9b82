"""One pass over a page's tree for all that a crawl needs: references, title, base, and robots directives.

References are raw: character references are decoded (by the parser), surrounding whitespace is removed, nothing is
joined; `weft.urls` does that. The content of a `<template>` is no part of the page, except where the template is a
declarative shadow root, which readers see.

Invariant: `hrefs` holds nothing that cannot lead to a page over http, no two equal, at most MAX_HREFS of them.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

from weft.extract.robots_meta import PRODUCT, directives
from weft.extract.turbo import Document, Element

MAX_HREFS = 10_000
MAX_TITLE = 500
MAX_ANCHOR = 500

_LINKS = "a[href]:not([rel~=nofollow i])"
_AREAS = "area[href]:not([rel~=nofollow i])"
_TAGS = ("a", "area", "iframe", "frame")
_INERT = "template:not([shadowrootmode], [data-shadowrootmode])"
_EDGES = "".join(map(chr, range(0x21)))
_INVISIBLE = str.maketrans("", "", "\t\n\r")
# A fragment, or a scheme other than http and https.
_UNFOLLOWED = re.compile(r"#|(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE).match
_REFRESH = re.compile(
    r"\s*(?:\d[\d.]*|\.[\d.]*)(?:\s*[;,]|\s)\s*(?:url\s*=\s*)?+(?:\"([^\"]*)|'([^']*)|(\S.*))",
    re.IGNORECASE | re.DOTALL,
).match


class Link(NamedTuple):
    """One link as the page has it: the reference as written, its text, its `rel` words."""

    href: str
    text: str
    rel: tuple[str, ...] = ()


class Scan:
    """The result of one pass."""

    __slots__ = ("base", "canonical", "capped", "fragments", "hrefs", "nofollow", "noindex", "refresh", "title")

    def __init__(self) -> None:
        self.title: str | None = None
        self.base: str | None = None
        self.canonical: str | None = None
        self.refresh: str | None = None
        self.noindex = False
        self.nofollow = False
        self.capped = False
        self.fragments = False  # there are links within the page, or, with a base, to the base
        self.hrefs: list[str] = []


def scan(document: Document, *, references: bool = True) -> Scan:
    """All that the crawl needs: the head's elements, then the links in document order, then areas and frames; without
    `references`, the facts of the head alone.

    The parser has an index by tag: one query for each tag is faster than one for all.
    """
    found = Scan()
    hrefs: dict[str, None] = {}
    select = document.select
    inert = bool(select("template"))

    def live(elements: list[Element]) -> list[Element]:
        return [element for element in elements if not element.closest(_INERT)] if inert else elements

    for tag in ("base", "title", "link", "meta"):
        for element in live(select(tag)):
            raw = _head_fact(found, element, tag)
            if raw is not None and (href := followable(raw)) is not None:
                hrefs[href] = None
    if not references:
        return found
    raws = [element.attr("href") or "" for element in live(select(_LINKS))]
    raws += [element.attr("href") or "" for element in live(select(_AREAS))]
    raws += [element.attr("src") or "" for tag in ("iframe", "frame") for element in live(select(tag))]
    together = "".join(raws)
    clean = " " not in together and together.isprintable()  # no reference needs stripping
    for raw in raws:
        if clean and raw[:1] == "/":  # most references
            hrefs[raw] = None
        elif (href := followable(raw)) is not None:
            hrefs[href] = None
        elif raw.lstrip(_EDGES)[:1] == "#":
            found.fragments = True
    found.capped = len(hrefs) > MAX_HREFS
    if not found.nofollow:
        found.hrefs = list(islice(hrefs, MAX_HREFS))
        # With a `<base href>` a mere fragment leads to the base, which is another page.
        if found.base is not None and found.fragments:
            found.hrefs.append("")
    return found


def followable(raw: str) -> str | None:
    """A reference without surrounding whitespace; None for a fragment, or a scheme other than http."""
    href = raw.strip(_EDGES)
    if not href:
        return None
    # The URL parser drops tabs and newlines anywhere in a URL: `java\nscript:` is a script.
    judged = href if href.isprintable() else href.translate(_INVISIBLE)
    return None if _UNFOLLOWED(judged) else href


def links(document: Document) -> list[Link]:
    """Every link that leads somewhere, nofollow ones and repeated ones too, with its text."""
    found: list[Link] = []
    inert = bool(document.select("template"))
    for element in document.iter_elements(_TAGS):
        raw = element.attr("src" if element.tag in ("iframe", "frame") else "href")
        if raw is None or (href := followable(raw)) is None or (inert and element.closest(_INERT)):
            continue
        found.append(Link(href, _anchor(element), tuple((element.attr("rel") or "").lower().split())))
        if len(found) == MAX_HREFS:
            break
    return found


def refresh_target(content: str) -> str | None:
    """The raw URL in the content of a `<meta http-equiv=refresh>`; None when it only reloads."""
    match = _REFRESH(content)
    if not match:
        return None
    return (match[1] or match[2] or match[3] or "").strip() or None


def _head_fact(found: Scan, element: Element, tag: str) -> str | None:
    """Records a base, link, meta or title; returns the reference in it, if it is one to follow."""
    if tag == "meta":
        return _meta(found, element)
    if tag == "link":
        rel = element.attr("rel")
        if found.canonical is None and rel and "canonical" in rel.lower().split():
            found.canonical = _stripped(element.attr("href"))
            return found.canonical
    elif tag == "title":
        if found.title is None and element.closest("svg, math") is None:
            found.title = collapse(element.text, MAX_TITLE) or None
    elif found.base is None:
        found.base = _stripped(element.attr("href"))
    return None


def _meta(found: Scan, element: Element) -> str | None:
    name = element.attr("name")
    if name is not None:
        if name.strip().lower() in ("robots", PRODUCT):
            noindex, nofollow = directives(element.attr("content") or "")
            found.noindex |= noindex
            found.nofollow |= nofollow
    elif found.refresh is None and _is_refresh(element):
        found.refresh = refresh_target(element.attr("content") or "")
        return found.refresh
    return None


def _is_refresh(element: Element) -> bool:
    """Whether a meta is a refresh; one inside noscript is for browsers without scripts."""
    equiv = element.attr("http-equiv")
    return equiv is not None and equiv.strip().lower() == "refresh" and element.closest("noscript") is None


def _anchor(element: Element) -> str:
    """A link's text; if it has none, a substitute: an image's or area's alt text, a title, a label."""
    text = collapse(element.text, MAX_ANCHOR)
    if not text and (image := element.find("img")):
        text = collapse(image.attr("alt") or "", MAX_ANCHOR)
    return text or collapse(
        element.attr("alt") or element.attr("aria-label") or element.attr("title") or "", MAX_ANCHOR
    )


def collapse(text: str, limit: int) -> str:
    """A text on one line, its whitespace single, cut at `limit` characters."""
    return " ".join(text[: limit * 20].split())[:limit].rstrip()


def _stripped(value: str | None) -> str | None:
    return (value.strip(_EDGES) or None) if value is not None else None
