"""The text of an article: what lies between its first paragraph and its last, in the element that holds them.

Narrows the pruned tree of main_text.py further. Paragraphs are what has the length of a sentence or two and few links;
the element that holds nearly all of them is the article. What precedes the first of them (headline, byline, date, share
bar) and what is not text behind the last (teasers, tags) is not part of it, nor are captions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from weft.extract.text.names import MAX_NAME_CHARS
from weft.extract.turbo import Element, Node, is_comment, is_text

PARAGRAPH_CHARS = 80
LEAD_CHARS = 45
# Links have at most this share of a paragraph's text.
LINK_SHARE = 0.45
# The article is the smallest element that has this share of the paragraphs' text.
CORE_SHARE = 0.8
# Of a thread it has nearly all of it: the question may be a small part, and stand apart from the answers.
THREAD_SHARE = 0.99
# Where paragraphs that are marked as such have less of the text than this, texts directly in blocks count too.
MARKED_SHARE = 0.4
MAX_PARAGRAPHS = 3000
# A line that asks for something, or names its photographer, is no longer than this.
ASIDE_CHARS = 300
# What calls itself a caption and has more of the text than this is none.
CAPTION_SHARE = 0.2

_MARKED = ("p", "li", "dd", "pre", "blockquote", "td")
_BLOCKS = ("div", "section", "article", "main", "font", "span", "center", "td")
_LEADING = "ul, ol, dl, table, pre, blockquote, h2, h3, h4"
_MATTER = f"{_LEADING}, p"
_CAPTION = re.compile("caption|credit|gallery|slideshow|pull-?quote", re.IGNORECASE).search
# How a line begins that is not of the matter, in the languages that most pages are in.
_ASIDE = re.compile(
    r"\W*(?:"
    # advertisements
    r"advert(?:isement)?s?\b|sponsored\b|publicidad|publicité|anzeige|werbung|pubblicità|реклама|スポンサードリンク"
    # other articles
    r"|related(?: (?:article|stor|post|content|coverage|video|reading|news|link)\w*)?\s*:|also read\b|read also\b"
    r"|read (?:more|next|also)\b|see also\b|more:\s|watch:\s|recommended\b|leia (?:mais|também)|lee (?:más|también)"
    r"|lire aussi|leggi anche|lesen sie auch|mehr (?:zum thema|dazu)|lees ook|читайте также|baca juga"
    r"|czytaj (?:też|także)|関連記事"
    # pictures and rights
    r"|image \d+ of \d+|(?:image|photo|picture)s?(?: credits?)?\s*[:(©]"
    r"|(?:image|photo|picture)s? (?:credit|by|courtesy)"
    r"|(?:media|image) caption|credit\s*:|getty images|copyright\b|©|all rights reserved"
    # calls to do something
    r"|sign ?-?up\b|subscribe\b|click here to\b|get (?:the latest|more|our)\b.{0,80}(?:inbox|newsletter|email|app)"
    r"|(?:want|need|looking for) more\b|(?:have|got) a (?:tip|story|question)|follow (?:us|me|him|her|them|\S+ on)\b"
    r"|(?:e-?mail|contact|write to|reach|you can reach)\b.{0,60}(?:@| at )|(?:download|get) (?:the|our) app"
    r"|tell us what you think|leave a (?:comment|reply)|(?:\d+ )?comments?\W*$|join the (?:conversation|discussion)"
    r"|support (?:our|us)\b|donate\b|share (?:this|on|via)\b|thanks for (?:visiting|reading)"
    # dates, tags, ways about the page
    r"|this (?:article|story|post) (?:was|first|originally)|(?:first |originally )?(?:published|posted|updated)"
    r"(?: on| at|:)|last (?:updated|modified)|(?:tags|topics|categories|filed under|category)\s*:"
    r"|back to (?:top|gallery)|(?:skip|continue) (?:to|reading)"
    r")",
    re.IGNORECASE,
).match
_LINES = ("p", "div", "h2", "h3", "h4", "h5", "h6", "li", "span", "em", "strong", "section")
_MARKUP = frozenset(("span", "em", "strong"))


class Paragraph(NamedTuple):
    """An element that is a paragraph, and how many characters it has."""

    element: Element
    chars: int


def paragraphs(root: Element) -> list[Paragraph]:
    """The paragraphs of a tree, in document order where they are marked as such."""
    found = list(islice(_marked(root), MAX_PARAGRAPHS))
    if sum(one.chars for one in found) < MARKED_SHARE * len(root.text):
        found += islice(_unmarked(root), MAX_PARAGRAPHS)
    return found


def _marked(root: Element) -> Iterator[Paragraph]:
    for element in root.find_all(list(_MARKED)):
        chars = len(element.text.strip())
        if chars >= PARAGRAPH_CHARS and _has_few_links(element, chars) and not _is_linked(element):
            yield Paragraph(element, chars)


def _unmarked(root: Element) -> Iterator[Paragraph]:
    """Blocks with text of their own, as on pages whose paragraphs are set apart by line breaks."""
    for element in root.find_all(list(_BLOCKS)):
        chars = sum(len(node.text.strip()) for node in element.children if is_text(node))
        if chars >= PARAGRAPH_CHARS and _has_few_links(element, len(element.text)):
            yield Paragraph(element, chars)


def _is_linked(element: Element) -> bool:
    """Whether an element is inside a link: the text of a teaser is."""
    return element.closest("a") is not None


def _has_few_links(element: Element, chars: int) -> bool:
    links = element.find_all("a")
    return not links or sum(len(link.text) for link in links) < LINK_SHARE * chars


def core_of(root: Element, found: list[Paragraph], share: float) -> Element:
    """The smallest element that holds a share of the paragraphs' text."""
    weights: dict[Element, int] = {}
    for element, chars in found:
        node: Node | None = element
        while isinstance(node, Element):
            weights[node] = weights.get(node, 0) + chars
            if node == root:
                break
            node = node.parent
    limit = share * sum(one.chars for one in found)
    best = root
    while True:
        inner = [e for e in best.children if isinstance(e, Element) and weights.get(e, 0) >= limit]
        if not inner or inner[0].tag in _MARKED:
            return best
        best = inner[0]


def narrowed(root: Element, found: list[Paragraph], share: float = CORE_SHARE) -> Element:
    """The article in a tree: what remains of the tree is changed."""
    core = core_of(root, found, share)
    inside = [one.element for one in found if one.element == core or core in one.element.ancestors]
    if inside:
        _drop_before(inside[0], core)
        _drop_behind(inside[-1], core)
    _drop_captions(core)
    _drop_asides(core)
    return core


def _drop_before(first: Element, core: Element) -> None:
    for sibling in list(_around(first, core, "previous_siblings")):
        if not isinstance(sibling, Element) or not (_is_matter(sibling, _LEADING) or _is_lead(sibling)):
            sibling.extract()


def _is_lead(element: Element) -> bool:
    """Whether an element is a line or two before the first paragraph, longer than who wrote it and when."""
    return element.tag == "p" and len(element.text.strip()) >= LEAD_CHARS and _has_few_links(element, len(element.text))


def _drop_behind(last: Element, core: Element) -> None:
    for sibling in _around(last, core, "next_siblings"):
        if isinstance(sibling, Element) and not _is_matter(sibling, _MATTER):
            sibling.decompose()


def _is_matter(element: Element, matter: str) -> bool:
    """Whether an element without a paragraph is text none the less: lists, tables, sections, with few links."""
    has_text = element.matches(matter) or element.select_one(matter) is not None
    return has_text and _has_few_links(element, len(element.text.strip()))


def _around(element: Element, core: Element, side: str) -> Iterator[Node]:
    """The nodes with text before or behind an element, on each level up to the core."""
    node: Node | None = element
    while isinstance(node, Element) and node != core:
        yield from [one for one in getattr(node, side) if not is_comment(one) and one.text.strip()]
        node = node.parent


def _drop_captions(core: Element) -> None:
    limit = CAPTION_SHARE * len(core.text)
    for element in core.select("figcaption, [class]"):
        if (element.tag == "figcaption" or _is_caption(element.attr("class") or "")) and len(element.text) < limit:
            element.decompose()


@lru_cache(maxsize=20_000)
def _is_caption(classes: str) -> bool:
    return _CAPTION(classes[:MAX_NAME_CHARS]) is not None


def _drop_asides(core: Element) -> None:
    """Lines that are not of the matter: advertisements, links to other articles, calls to subscribe, credits."""
    for element in core.find_all(list(_LINES)):
        text = element.text
        if 0 < len(text) <= ASIDE_CHARS and _ASIDE(text) and _is_line(element, len(text)):
            element.decompose()


def _is_line(element: Element, chars: int) -> bool:
    """Whether an element is a line of its own, not some words in one."""
    if element.tag not in _MARKUP:
        return True
    return isinstance(parent := element.parent, Element) and len(parent.text) - chars < 3
