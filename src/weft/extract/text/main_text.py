"""The main content of a page: what it is about, its text, and what readers wrote below it.

A copy of the tree is pruned (pruning.py), the kind of the page is judged (page_kind.py), and articles, documentation
and threads are narrowed to the element with their paragraphs (article.py). Comments are a part of their own, except in
a forum, where they are the page.

Invariant: the document itself is never changed; what remains is in document order; a page that has text keeps some.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.extract.metadata import json_ld
from weft.extract.text.article import CORE_SHARE, THREAD_SHARE, narrowed, paragraphs
from weft.extract.text.lines import without_repeats
from weft.extract.text.page_kind import Judgement, PageKind, judged
from weft.extract.text.pruning import Pruned, comments_in, pruned_content, size_of
from weft.extract.text.stated import stated_text
from weft.extract.turbo import LAYOUT, Document, Element

# A page whose text needs scripts may have an excerpt in its metadata, which is used if it is long enough.
EMPTY_CHARS = 100
EXCERPT_CHARS = 300
# Comments are removed from what is no article if so much other text is left, and they are not most of the page.
TEXT_BESIDE_COMMENTS = 1500
COMMENTS_SHARE = 0.6
# From an article they are if at least this is left.
ARTICLE_CHARS = 250
LIKELY = 0.45
# A text shorter than this is completed by the page's JSON-LD; a longer one if the JSON-LD is several times as long.
SHORT_CHARS = 600
STATED_FACTOR = 3
# Prose may have this share of its text in lines that are repeated; a page with more shows its blocks twice.
PROSE_REPEATS = 0.1
_PROSE = frozenset((PageKind.ARTICLE, PageKind.DOCUMENTATION))
_LINKED_DATA = "script[type*='ld+json' i]"
_NARROWED = frozenset((PageKind.ARTICLE, PageKind.DOCUMENTATION, PageKind.FORUM))


@dataclass(frozen=True, slots=True)
class Content:
    """The main content of a page."""

    root: Element
    kind: Judgement
    comments: str  # what readers wrote; empty where that is the page itself
    headline: str  # of an article, whose text begins with its first paragraph
    consent_chars: int  # of questions for consent, which were removed
    has_comments: bool  # in the tree, be they taken out or kept as the page itself


def content_of(document: Document, url: str) -> Content | None:
    """The main content of a page; None for one without a body."""
    pruned = pruned_content(document)
    if pruned is None:
        return None
    found = paragraphs(pruned.root)
    kind = judged(document, url, pruned.root, found)
    comments = _without_comments(pruned, kind)
    if comments:
        found = paragraphs(pruned.root)
    root, headline = pruned.root, ""
    if found and kind.kind in _NARROWED and kind.certainty >= LIKELY:
        headline = _headline(root)
        root = narrowed(root, found, THREAD_SHARE if kind.kind is PageKind.FORUM else CORE_SHARE)
    return Content(root, kind, comments, headline, pruned.consent_chars, bool(pruned.comments))


def _headline(root: Element) -> str:
    """The only headline of the first order; empty where there are none or several."""
    found = root.find_all("h1")
    return " ".join(found[0].text.split()) if len(found) == 1 else ""


def _without_comments(pruned: Pruned, kind: Judgement) -> str:
    """Removes the comments from a tree and returns their text; in a forum they remain."""
    if not pruned.comments:
        return ""
    size, total = sum(map(size_of, pruned.comments)), size_of(pruned.root)
    if kind.kind is PageKind.ARTICLE and kind.certainty >= LIKELY:
        are_beside = total - size > ARTICLE_CHARS
    else:
        are_beside = total - size > TEXT_BESIDE_COMMENTS and size < COMMENTS_SHARE * total
    if not are_beside:
        return ""
    texts = [element.to_text(LAYOUT) for element in pruned.comments]
    for element in pruned.comments:
        if element.tag not in ("html", "body", "main", "article"):
            element.decompose()
    return without_repeats("\n\n".join(texts))


def comments_beside(document: Document, content: Content) -> str:
    """What readers wrote outside the element that holds the content; empty where the content has the comments."""
    if content.has_comments or content.kind.kind is PageKind.FORUM:
        return ""
    body = document.find("body")
    elements = comments_in(body) if body is not None else []
    return without_repeats("\n\n".join(element.to_text(LAYOUT) for element in elements))


def visible_text(content: Content | None) -> str:
    """The text of a page's content, as a reader sees it."""
    return without_repeats(content.root.to_text(LAYOUT), repeats_of(content)) if content is not None else ""


def main_text(document: Document, visible: str, stated: str) -> str:
    """The text that a page shows and states; the excerpt in its metadata where it has next to none."""
    text = "\n\n".join(filter(None, (visible, stated)))
    return text if len(text) >= EMPTY_CHARS else _excerpt(document) or text


def repeats_of(content: Content | None) -> float:
    """The share of a text that may be lines it has already: code and refrains repeat some, blocks for phones many."""
    return PROSE_REPEATS if content is not None and content.kind.kind in _PROSE else 0.0


def stated_beside(document: Document, text: str) -> str:
    """What a page's JSON-LD has beyond a text; empty where the text is as long."""
    stated = sum(len(script.text) for script in document.select(_LINKED_DATA))
    if not stated or (len(text) >= SHORT_CHARS and stated < STATED_FACTOR * len(text)):
        return ""
    texts = stated_text(json_ld(document))
    if len(text) >= SHORT_CHARS and len(texts) < STATED_FACTOR * len(text):
        return ""
    visible = " ".join(text.split())
    return "\n\n".join(one for one in texts.split("\n\n") if " ".join(one.split()) not in visible)


def _excerpt(document: Document) -> str:
    """The longest description of a page that has the length of a text."""
    found = document.select("meta[name=description], meta[property='og:description']")
    longest = max((meta.attr("content") or "" for meta in found), key=len, default="")
    return longest if len(longest) >= EXCERPT_CHARS else ""
