"""Converts a page to formats: Markdown, text, HTML, its source, links, metadata, images. Pure.

`Shape` says which part of the page counts: the main content or all of it, with or without what some selectors match. It
concerns markdown, text, html, links and images; the source and the metadata are always those of the whole page. Where
`include` is given, what it matches is the page, main content or not.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from weft import urls
from weft.errors import BadUrl
from weft.extract.html_writer import cleaned, written
from weft.extract.links import MAX_HREFS, followable
from weft.extract.metadata import Json
from weft.extract.page import ParsedPage
from weft.extract.parse import parse
from weft.extract.rules import selectors
from weft.extract.rules.rule import BadRules
from weft.extract.text.lines import without_repeats
from weft.extract.text.markdown import Links, markdown
from weft.extract.turbo import LAYOUT, Document, Element

FORMATS = ("markdown", "text", "html", "rawHtml", "links", "metadata", "images")
MAX_SELECTORS = 50
MAX_IMAGES = 1000
_UNREAD = "script, style, template, noscript, iframe, object, svg, select, textarea"
_OF_TABLES = frozenset("caption colgroup thead tbody tfoot tr td th".split())
_OF_A_PART = frozenset(("markdown", "text", "html", "links", "images"))


@dataclass(frozen=True, slots=True)
class Shape:
    """Which part of a page counts; `include` and `exclude` are CSS selectors. `links`: what becomes of them in
    Markdown."""

    main_only: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    links: Links = Links.KEEP


WHOLE = Shape(main_only=False)
MAIN = Shape()


def check_formats(names: Iterable[str], at: str = "formats") -> tuple[str, ...]:
    """The formats, each once, in their order; BadRules names one that there is not."""
    names = tuple(dict.fromkeys(names))
    if wrong := [name for name in names if name not in FORMATS]:
        raise BadRules([(at, f"{name!r:.80} is not a format; these are: {', '.join(FORMATS)}") for name in wrong])
    return names


def check_shape(main_only: bool, include: Iterable[str], exclude: Iterable[str], at: tuple[str, str]) -> Shape:
    """A shape; BadRules names the selectors that cannot be used, under the names of the two settings."""
    shape = Shape(main_only, tuple(include), tuple(exclude))
    found: list[tuple[str, str]] = []
    for name, given in zip(at, (shape.include, shape.exclude), strict=True):
        if len(given) > MAX_SELECTORS:
            found.append((name, f"there are at most {MAX_SELECTORS} selectors"))
        for selector in given[:MAX_SELECTORS]:
            try:
                selectors.selector(selector)
            except selectors.BadSelector as error:
                found.append((name, str(error)))
    if found:
        raise BadRules(found)
    return shape


def check_links(name: str, at: str = "links") -> str:
    """What becomes of links in Markdown; BadRules where that is not known."""
    if name not in tuple(Links):
        raise BadRules([(at, f"{name!r:.80} is not known; use one of {', '.join(Links)}")])
    return name


def render(page: ParsedPage, names: Iterable[str], shape: Shape = MAIN) -> dict[str, Json]:
    """A page in the formats that are asked for. Of what is no HTML, text and Markdown are its text."""
    names = tuple(names)
    part = _Part(page, shape) if not _OF_A_PART.isdisjoint(names) else None
    found: dict[str, Json] = {}
    for name in names:
        if name == "rawHtml":
            found[name] = page.source
        elif name == "metadata":
            found[name] = metadata(page)
        elif part is not None and name in _OF_A_PART:
            found[name] = getattr(part, name)()
    return found


def metadata(page: ParsedPage) -> dict[str, Json]:
    """The metadata that a page states; missing values are left out."""
    meta = page.meta
    facts: dict[str, Json] = {
        "title": page.title,
        "language": page.language,
        "canonical": page.canonical,
        "kind": page.page_kind,
        "kind_certainty": round(page.page_kind_certainty, 3) if page.page_kind is not None else None,
        "withheld": page.withheld,
        "charset": page.charset,
        "keywords": list(meta.keywords) or None,
        "open_graph": dict(page.open_graph) or None,
    }
    for name in ("description", "author", "published", "modified", "site_name", "image", "generator"):
        facts[name] = getattr(meta, name)
    return {name: fact for name, fact in facts.items() if fact is not None}


class _Part:
    """The part of a page that counts, as a copy: the page itself is not changed."""

    def __init__(self, page: ParsedPage, shape: Shape) -> None:
        self._page, self._shape = page, shape
        self._is_content = page.document is None or (shape.main_only and not shape.include and not shape.exclude)
        self._root = _root(page, shape)

    def markdown(self) -> str:
        links = self._shape.links
        if self._is_content:
            return self._page.markdown_with(links)
        return markdown(self._root, self._page.base, links, whole=self._whole())

    def _whole(self) -> Document | Element | None:
        """Where the notes of the part are: in it, or, of the main content, in what is not excluded of the page."""
        if self._shape.include or not self._shape.main_only or self._page.searchable is None:
            return self._root
        whole: Document = copy.deepcopy(self._page.searchable)
        _exclude(whole, self._shape.exclude)
        return whole

    def text(self) -> str:
        if self._is_content:
            return self._page.main_text
        return without_repeats(self._root.to_text(LAYOUT)) if self._root is not None else ""

    def html(self) -> str:
        if self._root is None:
            return ""
        return cleaned(self._root, self._page.base).strip()

    def links(self) -> list[Json]:
        """Absolute, each once."""
        return list(islice(self._references("a[href], area[href]", "href"), MAX_HREFS))

    def images(self) -> list[Json]:
        """Absolute, each once; of several sizes the one in `src`."""
        return list(islice(self._references("img[src]", "src"), MAX_IMAGES))

    def _references(self, selector: str, name: str) -> Iterator[str]:
        elements = self._root.select(selector) if self._root is not None else []
        return _absolute((element.attr(name) for element in elements), self._page.base)


def _root(page: ParsedPage, shape: Shape) -> Element | None:
    document = page.searchable
    if document is None:
        return None
    if shape.include:
        document, _ = parse("".join(_sources(document, shape.include)))
    root = page.content_root if shape.main_only and not shape.include else document.find("body")
    if root is None:
        return None
    root = copy.deepcopy(root)
    if shape.include or not shape.main_only:
        root.remove(_UNREAD)
    _exclude(root, shape.exclude)
    return root


def _exclude(root: Document | Element, exclude: tuple[str, ...]) -> None:
    for selector in exclude:
        for element in selectors.selector(selector).find(root):
            element.decompose()


def _sources(document: Document, include: tuple[str, ...]) -> Iterator[str]:
    """What is included, as HTML to be parsed again: the outermost elements, in document order."""
    wanted = {element for selector in include for element in selectors.selector(selector).find(document)}
    for element in document.select("*"):
        if element in wanted and wanted.isdisjoint(element.ancestors):
            source = written(element)
            yield f"<table>{source}</table>" if element.tag in _OF_TABLES else source


def _absolute(raws: Iterable[str | None], base: str) -> Iterator[str]:
    seen: set[str] = set()
    for raw in raws:
        if raw is None or (href := followable(raw)) is None:
            continue
        try:
            url = urls.join(base, href)
        except BadUrl:
            continue
        if url not in seen:
            seen.add(url)
            yield url
