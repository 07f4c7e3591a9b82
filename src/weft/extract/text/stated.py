"""The text that a page states in its JSON-LD: what it has where a script draws the page.

Articles, products, recipes, questions with their answers and threads with their posts, in document order. Bounded in
depth, in the number of texts and in their size; malformed data is ignored.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from weft.extract.metadata import Json
from weft.extract.parse import parse
from weft.extract.turbo import LAYOUT, unescape

MAX_DEPTH = 8
MAX_TEXTS = 2000
MAX_CHARS = 200_000
LEAST_CHARS = 80  # of a description that is more than a slogan

# What an object of a type says itself, in this order, and what it contains.
_POST = ("text", "articleBody", "acceptedAnswer", "suggestedAnswer", "comment", "mainEntity")
_ARTICLE = ("articleBody", "text", "mainEntity")
_THING = ("description", "mainEntity")
_TEXTS = {
    **dict.fromkeys(("DiscussionForumPosting", "SocialMediaPosting", "Question", "Answer", "Comment"), _POST),
    **dict.fromkeys(("Article", "NewsArticle", "BlogPosting", "TechArticle", "ScholarlyArticle", "Report"), _ARTICLE),
    **dict.fromkeys(("QAPage", "FAQPage", "WebPage", "ItemPage", "ProfilePage", "AboutPage"), ("mainEntity",)),
    **dict.fromkeys(("Product", "ProductGroup", "JobPosting", "Event", "Course", "Book", "Movie", "Place"), _THING),
    "Recipe": ("description", "recipeIngredient", "recipeInstructions"),
    "HowTo": ("description", "step"),
    "HowToSection": ("name", "itemListElement"),
    "HowToStep": ("text",),
}
# Fields that have objects; a text there is an address.
_OBJECTS = frozenset(("mainEntity", "acceptedAnswer", "suggestedAnswer", "comment", "itemListElement"))
_NAMED = frozenset(("Question",))  # whose name is a part of the text


def stated_text(values: list[Json]) -> str:
    """The texts of JSON-LD blocks, a paragraph each; empty where they have none."""
    paragraphs: dict[str, None] = {}
    chars = 0
    for text in islice(_texts(values, 0), MAX_TEXTS):
        plain = _plain(text[: MAX_CHARS - chars])
        chars += len(plain)
        if plain:
            paragraphs[plain] = None
        if chars >= MAX_CHARS:
            break
    return "\n\n".join(paragraphs)


def _texts(value: Json, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH:
        return
    if isinstance(value, list):
        for one in value:
            yield from _texts(one, depth + 1)
    elif isinstance(value, dict):
        yield from _of_object(value, depth)


def _of_object(item: dict[str, Json], depth: int) -> Iterator[str]:
    if "@graph" in item:
        yield from _texts(item["@graph"], depth + 1)
    kinds = item.get("@type")
    names = (one for one in (kinds if isinstance(kinds, list) else [kinds]) if isinstance(one, str))
    kind = next((name for name in names if name in _TEXTS), None)
    if kind is None:
        return
    if kind in _NAMED and isinstance(name := item.get("name"), str):
        yield name
    for field in _TEXTS[kind]:
        value = item.get(field)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, str):
                if field not in _OBJECTS and (field != "description" or len(one) >= LEAST_CHARS):
                    yield one
            elif isinstance(one, dict):
                yield from _of_object(one, depth + 1) if depth < MAX_DEPTH else ()


def _plain(text: str) -> str:
    """A text without the markup that some pages leave in it."""
    text = unescape(text)
    if "<" not in text:
        return text.strip()
    document, _ = parse(text)
    body = document.find("body")
    return body.to_text(LAYOUT).strip() if body is not None else ""
