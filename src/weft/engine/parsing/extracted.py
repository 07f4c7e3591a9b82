"""The messages between a process and its parser children: a page's bytes to the child, the extracted values back.

A frame (weft/frames.py) is a msgpack array. `Extracted` has the attributes of a `ParsedPage` (of extract/page.py) as
plain values: those that every page has, and those others that were requested. Rules and formats are imported with the
first page that needs them: most processes never get one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from weft import frames
from weft.extract.charset import Source, as_text
from weft.extract.kind import BodyKind
from weft.extract.links import Link
from weft.extract.metadata import Json, Meta
from weft.extract.missing_content import may_be_shell
from weft.extract.page import ParsedPage, extract

if TYPE_CHECKING:
    from weft.engine.user_code.calls import Runner
    from weft.extract.rules.field_rules import FieldRules

TOO_SLOW = "the rules took too long on this page"
_T = TypeVar("_T")
_MIME_BY_KIND = {
    BodyKind.HTML: "text/html",
    BodyKind.FEED: "application/xml",
    BodyKind.XML: "application/xml",
    BodyKind.TEXT: "text/plain",
}


class ParseRequest(msgspec.Struct, array_like=True, gc=False):
    """A page to be read. `wanted` are names of `Asked`."""

    number: int
    url: str
    content_type: str | None
    wanted: tuple[str, ...]
    body: bytes
    rules: bytes = b""  # JSON, for `fields`
    order: bytes = b""  # JSON of a `PageFormats`, for `in_formats`
    without_rules: bool = False  # the rules took too long on this page: `fields` records that
    call: bytes = b""  # a `calls.Call`, for `called`: only for a child with the user's code


class PageFormats(msgspec.Struct, frozen=True):
    """The formats that a page is wanted in, the part of the page, and the form of links in Markdown."""

    formats: tuple[str, ...]
    main_only: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    links: str = "keep"


class Asked(msgspec.Struct, gc=False):
    """Attributes that are computed only on request; the others are UNSET."""

    hrefs: list[str] | UnsetType = UNSET
    links: list[Link] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    main_text: str | UnsetType = UNSET
    comments: str | UnsetType = UNSET
    described: dict[str, str | float | None] | UnsetType = UNSET
    markdown_text: str | UnsetType = UNSET
    markdown_drop: str | UnsetType = UNSET
    markdown: str | UnsetType = UNSET
    language: str | UnsetType | None = UNSET
    meta: Meta | UnsetType = UNSET
    open_graph: dict[str, str] | UnsetType = UNSET
    json_ld: list[Any] | UnsetType = UNSET
    microdata: list[Any] | UnsetType = UNSET
    fields: str | UnsetType = UNSET
    in_formats: dict[str, Any] | UnsetType = UNSET
    called: bytes | UnsetType = UNSET


NAMES = frozenset(Asked.__struct_fields__) - {"called"}  # that a child without the user's code cannot compute


class Extracted(msgspec.Struct, array_like=True, gc=False):
    """A page as a parser child has read it; its attributes are those of a `ParsedPage`.

    An attribute that was not requested raises LookupError, so that a caller never takes it for an empty value.
    """

    url: str
    kind: BodyKind
    charset: str | None
    charset_source: Source | None
    title: str | None
    base: str
    canonical: str | None
    refresh: str | None
    noindex: bool
    nofollow: bool
    truncated: bool
    capped: bool
    asked: Asked
    is_shell: bool = False  # whether scripts must draw it; of a page whose links are wanted
    body: bytes = b""  # set by the parent that wants `html`; it never crosses

    @property
    def html(self) -> str:
        """The body as text, as far as it was read."""
        return as_text(self.body, self.charset)

    @property
    def mime(self) -> str | None:
        """The type of the body by its content; None if it holds no text."""
        return _MIME_BY_KIND.get(self.kind)

    @property
    def hrefs(self) -> list[str]:
        """The raw references of the page that may be followed."""
        return _require_set(self.asked.hrefs, "hrefs")

    @property
    def links(self) -> list[Link]:
        """Every link with its text and rel."""
        return _require_set(self.asked.links, "links")

    @property
    def text(self) -> str:
        """All readable text."""
        return _require_set(self.asked.text, "text")

    @property
    def main_text(self) -> str:
        """The main text of the page."""
        return _require_set(self.asked.main_text, "main_text")

    @property
    def comments(self) -> str:
        """The readers' comments below the main text."""
        return _require_set(self.asked.comments, "comments")

    @property
    def described(self) -> dict[str, str | float | None]:
        """The values that filters use, by name."""
        return _require_set(self.asked.described, "described")

    @property
    def markdown_text(self) -> str:
        """The Markdown, with links replaced by their text."""
        return _require_set(self.asked.markdown_text, "markdown_text")

    @property
    def markdown_drop(self) -> str:
        """The Markdown without links and their text."""
        return _require_set(self.asked.markdown_drop, "markdown_drop")

    @property
    def markdown(self) -> str:
        """The main text as Markdown."""
        return _require_set(self.asked.markdown, "markdown")

    @property
    def language(self) -> str | None:
        """The two-letter code of the page's language."""
        return _require_set(self.asked.language, "language")

    @property
    def meta(self) -> Meta:
        """Description, keywords, author, dates and the like."""
        return _require_set(self.asked.meta, "meta")

    @property
    def open_graph(self) -> dict[str, str]:
        """Open Graph properties."""
        return _require_set(self.asked.open_graph, "open_graph")

    @property
    def json_ld(self) -> list[Json]:
        """The decoded JSON-LD blocks."""
        return _require_set(self.asked.json_ld, "json_ld")

    @property
    def microdata(self) -> list[Json]:
        """The top-level microdata items."""
        return _require_set(self.asked.microdata, "microdata")

    @property
    def fields(self) -> str:
        """The extracted fields, as a row stores them."""
        return _require_set(self.asked.fields, "fields")

    @property
    def in_formats(self) -> dict[str, Any]:
        """The page in the requested formats, by format."""
        return _require_set(self.asked.in_formats, "in_formats")

    @property
    def called(self) -> bytes:
        """The result of the user's code: a `calls.CallResult`."""
        return _require_set(self.asked.called, "called")


class Reply(msgspec.Struct, array_like=True, gc=False):
    """The answer to a request. A child that is ready sends one with number 0.

    `error` is the class and text of the exception.
    """

    number: int
    page: Extracted | None = None
    error: tuple[str, str] | None = None
    spent_s: float = 0.0


def read_page(request: ParseRequest, runner: Runner | None = None) -> Extracted:
    """Reads a page in the calling process; `called` needs the `runner`."""
    page = extract(request.body, request.url, request.content_type)
    asked = Asked()
    for name in request.wanted:
        if name != "called":
            setattr(asked, name, _compute_attribute(name, page, request))
    if request.call and runner is not None:  # last: the user's code may change the page
        from weft.engine.user_code.calls import decode_call, encode

        asked.called = encode(runner.run(decode_call(request.call), page, request.body))
    return Extracted(
        page.url, page.kind, page.charset, page.charset_source, page.title, page.base, page.canonical, page.refresh,
        page.noindex, page.nofollow, page.truncated, page.capped, asked,
        "hrefs" in request.wanted and may_be_shell(page),
    )  # fmt: skip


def _compute_attribute(name: str, page: ParsedPage, request: ParseRequest) -> Any:
    if name == "fields":
        rules = _decode_rules(request.rules)
        return (rules.unread(TOO_SLOW) if request.without_rules else rules.apply(page)).encoded()
    if name == "in_formats":
        from weft.extract.formats import Shape, render
        from weft.extract.text.markdown import Links

        order = _decode_formats(request.order)
        shape = Shape(order.main_only, order.include, order.exclude, Links(order.links))
        return render(page, order.formats, shape)
    return getattr(page, name)


@lru_cache(maxsize=200)
def _decode_rules(encoded: bytes) -> FieldRules:
    from weft.extract.rules.field_rules import compile_rules

    return compile_rules(msgspec.json.decode(encoded))


@lru_cache(maxsize=200)
def _decode_formats(encoded: bytes) -> PageFormats:
    return msgspec.json.decode(encoded, type=PageFormats)


def framed(value: ParseRequest | Reply) -> bytes:
    """A value encoded for the socket."""
    try:
        body = _encode(value)
    except UnicodeEncodeError:  # half a surrogate pair, which UTF-8 cannot encode
        body = _encode(_without_surrogates(msgspec.to_builtins(value, builtin_types=(bytes,))))
    return frames.framed(body)


_encode = msgspec.msgpack.Encoder().encode
request_of = msgspec.msgpack.Decoder(ParseRequest).decode
reply_of = msgspec.msgpack.Decoder(Reply).decode


def _require_set(value: _T | UnsetType, name: str) -> _T:
    if isinstance(value, UnsetType):
        raise LookupError(f"{name} was not asked for")
    return value


def _without_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, list | tuple):
        return [_without_surrogates(one) for one in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(one) for key, one in value.items()}
    return value
