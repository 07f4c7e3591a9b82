"""The machine-readable metadata of a page: meta tags, Open Graph, JSON-LD, microdata.

Invariant: malformed data is ignored, never raised, and no list grows beyond MAX_VALUES.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from weft.extract.links import collapse
from weft.extract.turbo import Document, MicrodataItem

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

MAX_VALUES = 1000
MAX_CHARS = 5000
MAX_FACT_CHARS = 200  # of a name or a date in the markup
# Each copies what it refers to, and many may refer to the same.
MAX_ITEMREFS = 20

# Names of the meta tags that have each field, best first. `_JSON_LD` is read before them, `_JSON_LD_LAST` after.
_META_TAGS = {
    "description": ("description", "og:description", "twitter:description", "dc.description"),
    "author": ("author", "article:author", "dc.creator", "parsely-author", "sailthru.author", "twitter:creator"),
    "published": (
        "article:published_time", "datepublished", "date", "dc.date", "dc.date.issued", "dcterms.created", "pubdate",
        "publishdate", "publish-date", "parsely-pub-date", "sailthru.date", "citation_publication_date",
    ),
    "modified": ("article:modified_time", "og:updated_time", "datemodified", "last-modified", "dcterms.modified"),
    "title": ("og:title", "twitter:title", "dc.title", "citation_title", "headline"),
    "url": ("og:url",),
    "site_name": ("og:site_name", "application-name", "apple-mobile-web-app-title"),
    "image": ("og:image", "og:image:url", "twitter:image", "twitter:image:src"),
    "generator": ("generator",),
}  # fmt: skip
# Of these JSON-LD and microdata count before meta tags: they are about the page's own item.
_JSON_LD = {"author": "author", "published": "datePublished", "modified": "dateModified"}
_JSON_LD_LAST = {"description": "description", "title": "headline", "image": "image", "url": "url"}
_PAGE_TYPES = re.compile(r"(?:Article|Posting|Page|Report|Recipe|HowTo|Product|QAPage|Event|Book|Movie|VideoObject)$")


@dataclass(frozen=True, slots=True)
class Meta:
    """Metadata as written in the page: dates are not interpreted, URLs not resolved."""

    description: str | None = None
    keywords: tuple[str, ...] = ()
    author: str | None = None
    published: str | None = None
    modified: str | None = None
    site_name: str | None = None
    image: str | None = None
    generator: str | None = None
    title: str | None = None
    url: str | None = None


def meta(document: Document, linked_data: list[Json]) -> Meta:
    """The metadata of a page: its JSON-LD and microdata first, then meta tags, then its markup."""
    tags = _tags(document)
    items = [item for item in _items(linked_data) if _is_of_the_page(item)]
    facts: dict[str, str | None] = dict.fromkeys(_META_TAGS)
    for item in items:
        for fact, key in _JSON_LD.items():
            facts[fact] = facts[fact] or _name(item.get(key))
    for fact, key in _JSON_LD.items():
        facts[fact] = facts[fact] or _of_itemprop(document, key)
    facts |= {fact: facts[fact] or _first(tags, names) for fact, names in _META_TAGS.items()}
    for item in items:
        for fact, key in _JSON_LD_LAST.items():
            facts[fact] = facts[fact] or _name(item.get(key))
    facts["author"] = facts["author"] or _of_markup(document)
    words = (word.strip() for word in (tags.get("keywords") or tags.get("news_keywords") or "").split(","))
    return Meta(keywords=tuple(islice(dict.fromkeys(filter(None, words)), MAX_VALUES)), **facts)


def open_graph(document: Document) -> dict[str, str]:
    """The Open Graph properties by their name without `og:`; of several values the first."""
    return {name.removeprefix("og:"): value for name, value in _tags(document).items() if name.startswith("og:")}


def json_ld(document: Document) -> list[Json]:
    """The page's JSON-LD blocks, decoded; broken ones are left out."""
    found: list[Json] = []
    for script in islice(document.find_all("script"), MAX_VALUES):
        if (script.attr("type") or "").partition(";")[0].strip().lower() == "application/ld+json":
            try:
                found.append(json.loads(script.text, strict=False, parse_constant=lambda _: None))
            except (ValueError, RecursionError):
                continue
    return found


def microdata(document: Document, base: str) -> list[Json]:
    """The page's top-level microdata items, each as {type, id, properties}."""
    references = sum(len((element.attr("itemref") or "").split()) for element in document.select("[itemref]"))
    if references > MAX_ITEMREFS:
        return []
    try:
        return [_plain(item) for item in islice(document.microdata(base), MAX_VALUES)]
    except (ValueError, RecursionError):
        return []


def _tags(document: Document) -> dict[str, str]:
    """Content by name of all meta tags, names in lower case; the first of each name counts."""
    tags: dict[str, str] = {}
    for tag in islice(document.find_all("meta"), MAX_VALUES):
        name = tag.attr("name") or tag.attr("property") or tag.attr("itemprop") or tag.attr("http-equiv")
        content = collapse(tag.attr("content") or "", MAX_CHARS) if name else ""
        if name and content:
            tags.setdefault(name.strip().lower(), content)
    return tags


def _is_of_the_page(item: dict[str, Json]) -> bool:
    """Whether a JSON-LD object is what the page is about, not its publisher or its search box."""
    given = item.get("@type")
    kinds = given if isinstance(given, list) else [given]
    return any(isinstance(kind, str) and _PAGE_TYPES.search(kind) for kind in kinds) or given is None


def _of_itemprop(document: Document, name: str) -> str | None:
    """The first value of a microdata property: a date of its attribute, a name of its text."""
    element = document.select_one(f"[itemprop~={name}]:not(meta)")
    if element is None:
        return None
    named = element.select_one("[itemprop~=name]") or element
    value = named.attr("datetime") or named.attr("content") or named.text
    return collapse(value, MAX_FACT_CHARS) or None if len(value) <= MAX_FACT_CHARS else None


def _of_markup(document: Document) -> str | None:
    """The author in a link or an address that is marked as such."""
    element = document.select_one("[rel~=author], address .author, .byline [class*=author i], [class~=author-name]")
    text = collapse(element.text, MAX_FACT_CHARS) if element is not None else ""
    return text if 2 < len(text) < MAX_FACT_CHARS else None


def _first(tags: dict[str, str], names: tuple[str, ...]) -> str | None:
    return next((tags[name] for name in names if name in tags), None)


def _items(values: list[Json]) -> Iterator[dict[str, Json]]:
    """The objects of JSON-LD blocks, those of lists and graphs too."""
    for value in values:
        if isinstance(value, list):
            yield from (item for item in value if isinstance(item, dict))
        elif isinstance(value, dict):
            yield value
            graph = value.get("@graph")
            if isinstance(graph, list):
                yield from (item for item in graph if isinstance(item, dict))


def _name(value: Json) -> str | None:
    """A text, the name of a thing, or the first of several."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, dict):
        value = value.get("name")
    return (collapse(value, MAX_CHARS) or None) if isinstance(value, str) else None


def _plain(item: MicrodataItem) -> Json:
    return {
        "type": item.type,
        "id": item.id,
        "properties": {
            name: [value if isinstance(value, str) else _plain(value) for value in values]
            for name, values in item.properties.items()
        },
    }
