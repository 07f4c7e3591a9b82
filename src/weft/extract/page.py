"""The interface of this room: the bytes of a response become a Page.

`extract` computes at once what every crawled page needs (kind, charset, references, title, robots directives); all else
is computed on first use. Pure: no I/O, and it never raises on any input.

Invariant: time and memory are bounded whatever the input, by MAX_BYTES, by the parser's budget (see parse.py) and by
the caps in links.py; `truncated` and `capped` say that one of them cut something off.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast, overload

from weft import urls
from weft.errors import BadUrl
from weft.extract import links as _links
from weft.extract import metadata as _metadata
from weft.extract.charset import Source, decode
from weft.extract.kind import BodyKind, kind_of
from weft.extract.links import Link
from weft.extract.metadata import Json, Meta
from weft.extract.parse import parse
from weft.extract.text import full_text as _text
from weft.extract.text import language as _language
from weft.extract.text import main_text as _main
from weft.extract.text import markdown as _markdown
from weft.extract.text.main_text import Content
from weft.extract.text.markdown import Links
from weft.extract.text.page_kind import PageKind
from weft.extract.text.withheld import Withheld, is_wall, withheld
from weft.extract.turbo import Document, Element, without_templates

MAX_BYTES = 2 * 1024 * 1024

_T = TypeVar("_T")


class lazy(Generic[_T]):
    """An attribute of a page that is computed on first use, and kept."""

    def __init__(self, compute: Callable[[ParsedPage], _T]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, page: None, owner: type[ParsedPage]) -> lazy[_T]: ...
    @overload
    def __get__(self, page: ParsedPage, owner: type[ParsedPage]) -> _T: ...
    def __get__(self, page: ParsedPage | None, owner: type[ParsedPage]) -> lazy[_T] | _T:
        if page is None:
            return self
        kept = page._kept
        if self.name not in kept:
            kept[self.name] = self.compute(page)
        return cast(_T, kept[self.name])


class ParsedPage:
    """One fetched body.

    Computed at once, for every page:

    - `url`: as given; `base`: what its references are relative to.
    - `kind`: html, feed, xml, text or other. Only html has references, a title, and the rest below.
    - `charset` and `charset_source`: WHATWG's name of the encoding and how it was determined (bom, header, meta,
      detected, fallback); both None for `other`.
    - `title`: on one line, at most 500 characters; None when there is none.
    - `canonical`: the URL the page calls its own, resolved; `refresh`: the raw target of a meta refresh.
    - `noindex`, `nofollow`: what the page itself asks; X-Robots-Tag is the caller's to add (robots_meta.robots_tag).
    - `hrefs`: raw references to follow, in order, no two equal; empty when `nofollow`.
    - `truncated`: bytes beyond the cap were not read, or parsing was cut short; `capped`: there were more references.

    Computed on first use, and kept (they are not for the crawl's own loop): `links`, `text`, `main_text`,
    `markdown`, `language`, `meta`, `open_graph`, `json_ld`, `microdata`; `source` is the decoded body.
    """

    __slots__ = (
        "_document",
        "_kept",
        "_text",
        "base",
        "canonical",
        "capped",
        "charset",
        "charset_source",
        "hrefs",
        "kind",
        "nofollow",
        "noindex",
        "refresh",
        "title",
        "truncated",
        "url",
    )

    def __init__(self, url: str, kind: BodyKind) -> None:
        self.url = url
        self.kind = kind
        self.charset: str | None = None
        self.charset_source: Source | None = None
        self.title: str | None = None
        self.base = url
        self.canonical: str | None = None
        self.refresh: str | None = None
        self.noindex = False
        self.nofollow = False
        self.hrefs: list[str] = []
        self.truncated = False
        self.capped = False
        self._text = ""
        self._document: Document | None = None
        self._kept: dict[str, object] = {}

    def __repr__(self) -> str:
        return f"Page({self.url!r}, {self.kind}, {len(self.hrefs)} hrefs)"

    def let_go(self) -> None:
        """Frees the tree and the text; of what is computed when first asked for, only what was asked for stays."""
        self._document, self._text = None, ""

    @lazy
    def links(self) -> list[Link]:
        """Every link with its text and rel, nofollow ones and repeated ones too."""
        return _links.links(self._document) if self._document is not None else []

    @lazy
    def text(self) -> str:
        """All that a reader could read, from navigation to footer."""
        if self._document is not None:
            return _text.full_text(self._document)
        return _text.without_markup(self._text) if self.kind in (BodyKind.XML, BodyKind.FEED) else self._text

    @lazy
    def main_text(self) -> str:
        """The text the page is about, as plain lines; of what is no HTML, all its text."""
        if self._document is None:
            return self.text
        return "" if is_wall(self.content, self.offered_text) else self.offered_text

    @lazy
    def markdown(self) -> str:
        """The same as Markdown, references resolved, below the headline of an article."""
        return self.markdown_with(Links.KEEP)

    @property
    def markdown_text(self) -> str:
        """The Markdown with the text of its links alone."""
        return self.markdown_with(Links.TEXT)

    @property
    def markdown_drop(self) -> str:
        """The Markdown without its links and their text."""
        return self.markdown_with(Links.DROP)

    def markdown_with(self, links: Links) -> str:
        """The Markdown with its links, with their text alone, or with neither."""
        if self._document is None:
            return self.text
        if is_wall(self.content, self.offered_text):
            return ""
        headline = self.content.headline if self.content is not None else ""
        repeats = _main.repeats_of(self.content)
        written = _markdown.markdown(self.content_root, self.base, links, headline, self._document, repeats)
        return "\n\n".join(filter(None, (written, _markdown.escaped(self.stated))))

    @lazy
    def language(self) -> str | None:
        """The two letters (ISO 639-1) of the page's language."""
        return _language.language(self._document, self.offered_text or self.text)

    @lazy
    def meta(self) -> Meta:
        """Description, keywords, author, dates and the like."""
        return _metadata.meta(self._document, self.json_ld) if self._document is not None else Meta()

    @lazy
    def open_graph(self) -> dict[str, str]:
        """Open Graph properties by name without `og:`."""
        return _metadata.open_graph(self._document) if self._document is not None else {}

    @lazy
    def json_ld(self) -> list[Json]:
        """The decoded JSON-LD blocks."""
        return _metadata.json_ld(self._document) if self._document is not None else []

    @lazy
    def microdata(self) -> list[Json]:
        """The top-level microdata items as {type, id, properties}."""
        return _metadata.microdata(self._document, self.base) if self._document is not None else []

    @property
    def source(self) -> str:
        """The body as text, decoded by its charset; empty for `other`."""
        return self._text

    @property
    def document(self) -> Document | None:
        """The parser's tree, for extract/ alone; None for what is no HTML."""
        return self._document

    @lazy
    def searchable(self) -> Document | None:
        """The tree that selectors are searched in: without templates; None for what is no HTML."""
        return without_templates(self._document) if self._document is not None else None

    @lazy
    def content(self) -> Content | None:
        """What the page is about, as a pruned copy of its tree, for extract/ alone; None for what is no HTML."""
        return _main.content_of(self._document, self.url) if self._document is not None else None

    @lazy
    def visible_text(self) -> str:
        """The text of the content alone, as a reader sees it."""
        return _main.visible_text(self.content)

    @lazy
    def offered_text(self) -> str:
        """The main text, or the question for consent that a page has in its place."""
        return _main.main_text(self._document, self.visible_text, self.stated) if self._document is not None else ""

    @lazy
    def stated(self) -> str:
        """What the JSON-LD says beyond that, on a page that shows little of it."""
        return _main.stated_beside(self._document, self.visible_text) if self._document is not None else ""

    @property
    def content_root(self) -> Element | None:
        """The tree of the content."""
        return self.content.root if self.content is not None else None

    @property
    def comments(self) -> str:
        """What readers wrote below the page's own text; empty in a forum, where it is the main text."""
        if self._document is None or self.content is None:
            return ""
        return self.content.comments or _main.comments_beside(self._document, self.content)

    @property
    def page_kind(self) -> PageKind | None:
        """What the page is for: an article, a listing, ...; None for what is no HTML."""
        return self.content.kind.kind if self.content is not None else None

    @property
    def withheld(self) -> Withheld | None:
        """Why the page shows less than it has: a question for consent, or a payment; None where it does not say so."""
        return withheld(self._document, self.content, self.offered_text) if self._document is not None else None

    @property
    def described(self) -> dict[str, str | float | None]:
        """What filters need to know of a page, by name; names are those of DESCRIBED_COLUMNS."""
        meta = self.meta
        kind, why = self.page_kind, self.withheld
        values: dict[str, str | float | None] = {
            "page_kind": str(kind) if kind is not None else None,
            "page_kind_certainty": round(self.page_kind_certainty, 3),
            "withheld": str(why) if why is not None else None,
            "page_title": meta.title or self.title,
            "author": meta.author,
            "published": meta.published,
            "modified": meta.modified,
            "site_name": meta.site_name,
            "canonical": self.canonical or meta.url,
        }
        return values

    @property
    def page_kind_certainty(self) -> float:
        """How sure that is, 0 to 1."""
        return self.content.kind.certainty if self.content is not None else 0.0


def extract(body: bytes, url: str, content_type: str | None = None, *, references: bool = True) -> ParsedPage:
    """The Page of a fetched body. `url` is the final one, after redirects; `content_type` the header as received.
    Without `references`, for whoever follows none, `hrefs` stays empty.
    """
    page = ParsedPage(url, kind_of(body, content_type))
    if page.kind is BodyKind.OTHER:
        return page
    if len(body) > MAX_BYTES:
        body = body[:MAX_BYTES]
        page.truncated = True
    page._text, page.charset, page.charset_source = decode(body, content_type, url)
    if page.kind is BodyKind.HTML:
        _read(page, references)
    return page


def _read(page: ParsedPage, references: bool) -> None:
    """Parses an HTML page and fills in what every page needs."""
    page._document, cut = parse(page._text)
    found = _links.scan(page._document, references=references)
    page.truncated |= cut
    page.title, page.refresh, page.hrefs, page.capped = found.title, found.refresh, found.hrefs, found.capped
    page.noindex, page.nofollow = found.noindex, found.nofollow
    if found.base is not None:
        page.base = _resolved(page.url, found.base) or page.url
    if found.canonical is not None:
        page.canonical = _resolved(page.base, found.canonical)


def _resolved(base: str, href: str) -> str | None:
    try:
        return urls.join(base, href)
    except BadUrl:
        return None
