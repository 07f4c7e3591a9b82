"""The main content of a page: what it is about, its text, and what readers wrote below it.

A copy of the tree is pruned (pruning.py), the kind of the page is judged (page_kind.py), and of articles,
documentation and threads what holds their paragraphs is taken (article.py). Comments are a part of their own, except
in a forum, where they are the page.

Invariant: the document itself is never changed; what remains is in document order; a page that has text keeps some.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.extract.text.article import CORE_SHARE, THREAD_SHARE, narrowed, paragraphs
from weft.extract.text.lines import without_repeats
from weft.extract.text.page_kind import Judgement, PageKind, judged
from weft.extract.text.pruning import Pruned, pruned_content, size_of
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
_NARROWED = frozenset((PageKind.ARTICLE, PageKind.DOCUMENTATION, PageKind.FORUM))


@dataclass(frozen=True, slots=True)
class Content:
    """The main content of a page."""

    root: Element
    kind: Judgement
    comments: str  # what readers wrote; empty where that is the page itself
    headline: str  # of an article, whose text begins with its first paragraph
    consent_chars: int  # of questions for consent, which were removed


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
    return Content(root, kind, comments, headline, pruned.consent_chars)


def _headline(root: Element) -> str:
    """The only headline of the first order; empty where there are none or several."""
    found = root.find_all("h1")
    return " ".join(found[0].text.split()) if len(found) == 1 else ""


def _without_comments(pruned: Pruned, kind: Judgement) -> str:
    """Takes the comments out of a tree: their text; in a forum they stay."""
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


def main_text(document: Document, root: Element | None) -> str:
    """The text of a pruned tree; for a page that shows nothing without scripts, the excerpt in its metadata."""
    text = without_repeats(root.to_text(LAYOUT)) if root is not None else ""
    return text if len(text) >= EMPTY_CHARS else _excerpt(document) or text


def _excerpt(document: Document) -> str:
    """The longest description of a page that has the length of a text."""
    found = document.select("meta[name=description], meta[property='og:description']")
    longest = max((meta.attr("content") or "" for meta in found), key=len, default="")
    return longest if len(longest) >= EXCERPT_CHARS else ""
