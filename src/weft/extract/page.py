"""The face of the room: bytes of a response to a Page.

`extract` does at once what every crawled page needs (kind, charset, references, title, the authors' wishes) and leaves
all else for the first time somebody asks. Pure: no I/O, no clock that matters, and it never raises on any input.

Invariant: time and memory are bounded whatever the input, by MAX_BYTES, by the parser's budget (see parse.py) and by
the caps in links.py; `truncated` and `capped` tell when one of them cut something off.
"""

from __future__ import annotations

from turbohtml import Document

from weft import urls
from weft.errors import BadUrl
from weft.extract import links as _links
from weft.extract.charset import Source, decode
from weft.extract.kind import Kind, kind_of
from weft.extract.links import Link
from weft.extract.parse import parse

MAX_BYTES = 2 * 1024 * 1024


class Page:
    """What is known about one fetched body.

    Read at once, for every page:

    - `url`: as given; `base`: what its references are relative to.
    - `kind`: html, feed, xml, text or other. Only html has references, a title, and the rest below.
    - `charset` and `charset_source`: WHATWG's name of the encoding and what told it (bom, header, meta, detected,
      fallback); both None for `other`.
    - `title`: on one line, at most 500 characters; None when there is none.
    - `canonical`: the URL the page calls its own, resolved; `refresh`: the raw target of a meta refresh.
    - `noindex`, `nofollow`: what the page itself asks; X-Robots-Tag is the caller's to add (robots_meta.robots_tag).
    - `hrefs`: raw references to follow, in order, no two equal; empty when `nofollow`.
    - `truncated`: bytes beyond the cap were not read, or parsing was cut short; `capped`: there were more references.

    Computed when first asked for, and kept: `links`.
    """

    __slots__ = (
        "_document",
        "_links",
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

    def __init__(self, url: str, kind: Kind) -> None:
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
        self._links: list[Link] | None = None

    def __repr__(self) -> str:
        return f"Page({self.url!r}, {self.kind}, {len(self.hrefs)} hrefs)"

    @property
    def links(self) -> list[Link]:
        """Every link with its text and rel, nofollow ones and repeated ones too."""
        if self._links is None:
            self._links = _links.links(self._document) if self._document is not None else []
        return self._links


def extract(body: bytes, url: str, content_type: str | None = None) -> Page:
    """A fetched body's page. `url` is where it was found at last; `content_type` the header as it came."""
    page = Page(url, kind_of(body, content_type))
    if page.kind is Kind.OTHER:
        return page
    if len(body) > MAX_BYTES:
        body = body[:MAX_BYTES]
        page.truncated = True
    page._text, page.charset, page.charset_source = decode(body, content_type, url)
    if page.kind is Kind.HTML:
        _read(page)
    return page


def _read(page: Page) -> None:
    """Parses an HTML page and takes from it what every page needs."""
    page._document, cut = parse(page._text)
    found = _links.scan(page._document)
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
