"""`weft.Page`: a page for the user's code, in a spider's callback and from `weft.crawl`.

Values are computed when they are first read. Nothing here sends a request: `follow` and `submit` create the `Request`
that a callback yields.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, SupportsIndex, overload

import msgspec

from weft import urls
from weft.engine.user_code.request import FORM, Callback, Request
from weft.engine.user_code.selected import Selected, found_by_css, found_by_xpath, matches
from weft.errors import BadInput, BadUrl
from weft.extract import page as parsed
from weft.extract.charset import as_text
from weft.extract.forms import NoForm, find_form, read_form, urlencoded
from weft.extract.links import Link
from weft.extract.metadata import Json, Meta
from weft.extract.turbo import Document


class Headers(tuple[tuple[str, str], ...]):
    """The headers of a response in order; `headers["content-type"]` and `headers.get(...)` find one by its name."""

    __slots__ = ()

    def get(self, name: str, default: str | None = None) -> str | None:
        """The first value of a header, whatever its case."""
        return next((value for key, value in self if key.lower() == name.lower()), default)

    def get_all(self, name: str) -> list[str]:
        """Every value of a header."""
        return [value for key, value in self if key.lower() == name.lower()]

    @overload
    def __getitem__(self, at: str) -> str: ...
    @overload
    def __getitem__(self, at: SupportsIndex) -> tuple[str, str]: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[tuple[str, str], ...]: ...
    def __getitem__(self, at: Any) -> Any:
        if not isinstance(at, str):
            return super().__getitem__(at)
        value = self.get(at)
        if value is None:
            raise KeyError(at)
        return value


class Page:
    """A fetched page.

    `url` is where it was found, `requested_url` what was asked for before redirects led here; `status`, `headers` and
    `body` are the response. `depth` counts the links from a seed, `parent` is the URL of the page that led here (None
    for a seed), `meta` is what the request carried, `fetched_at` the time of the request, in UTC.
    """

    def __init__(
        self,
        url: str,
        body: bytes,
        *,
        status: int = 200,
        headers: Sequence[tuple[str, str]] = (),
        requested_url: str | None = None,
        depth: int = 0,
        parent: str | None = None,
        meta: Mapping[str, Any] | None = None,
        fetched_at: datetime | None = None,
        rendered: bytes = b"",
        screenshot: bytes = b"",
    ) -> None:
        self.url = url
        self.requested_url = requested_url or url
        self.status = status
        self.headers = Headers(headers)
        self.body = body
        self.depth = depth
        self.parent = parent
        self.meta: dict[str, Any] = dict(meta or {})
        self.fetched_at = fetched_at or datetime.now(UTC)
        self.rendered = rendered  # the page after rendering, UTF-8; empty if not rendered
        self.screenshot = screenshot  # a PNG, if one was requested
        self._parsed: parsed.ParsedPage | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.status} {self.url} {len(self.body)} bytes>"

    # ── what it holds ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def page(self) -> parsed.ParsedPage:
        """The parsed page, with all its computed attributes (weft.extract.page.ParsedPage)."""
        if self._parsed is None:
            self._parsed = parsed.extract(self.readable, self.url, self.readable_type)
        return self._parsed

    @property
    def readable(self) -> bytes:
        """The bytes that text, links and other values are read from: the rendered page, or else the response."""
        return self.rendered or self.body

    @property
    def readable_type(self) -> str | None:
        """The content type of `readable`."""
        return "text/html; charset=utf-8" if self.rendered else self.headers.get("content-type")

    @property
    def title(self) -> str:
        """The page's title on one line; empty if it has none."""
        return self.page.title or ""

    @property
    def text(self) -> str:
        """The body as text, decoded by its charset: HTML, JSON or any other text."""
        return self.page.source if len(self.body) <= parsed.MAX_BYTES else as_text(self.body, self.page.charset)

    html = text

    @property
    def main_text(self) -> str:
        """The main text of the page, without navigation and footer."""
        return self.page.main_text

    @property
    def markdown(self) -> str:
        """The main text as Markdown, with absolute links."""
        return self.page.markdown

    @property
    def links(self) -> list[Link]:
        """Every link of the page with its absolute URL (`href`), its text and its rel; nofollow ones too."""
        found = []
        for link in self.page.links:
            try:
                found.append(link._replace(href=self.urljoin(link.href)))
            except BadUrl:  # mailto:, javascript: and the like
                continue
        return found

    @property
    def metadata(self) -> Meta:
        """Description, keywords, author, dates and other metadata of the page."""
        return self.page.meta

    @property
    def jsonld(self) -> list[Json]:
        """The decoded JSON-LD blocks."""
        return self.page.json_ld

    def json(self) -> Any:
        """The body, decoded as JSON; BadInput if it is not JSON."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadInput(f"{self.url} is no JSON: {error}") from None

    # ── what is found in it ────────────────────────────────────────────────────────────────────────────────────────

    def css(self, selector: str) -> Selected:
        """The elements that match a CSS selector; with `::text` or `::attr(NAME)` at its end, their texts."""
        return found_by_css([self._document_for("css")], selector)

    def xpath(self, path: str) -> Selected:
        """The result of an XPath: elements, attributes or texts."""
        return found_by_xpath([self._document_for("xpath")], path)

    def re(self, pattern: str) -> list[str]:
        """The matches of a regular expression in the body: its first group, or the whole match."""
        return matches(pattern, self.text)

    def _document_for(self, what: str) -> Document:
        document = self.page.searchable
        if document is None:
            kind = self.headers.get("content-type") or self.page.kind
            raise BadInput(f"{self.url} is no HTML ({kind}): `page.{what}` has nothing to search; use `page.json()`, "
                           "`page.text` or `page.re()`")  # fmt: skip
        return document

    # ── where it leads ─────────────────────────────────────────────────────────────────────────────────────────────

    def urljoin(self, reference: str) -> str:
        """A reference of the page as an absolute URL, as Weft stores it; BadUrl if it is invalid."""
        return urls.join(self.page.base, reference, self.page.charset or "utf-8")

    def follow(self, target: str | Link | Selected, callback: Callback = None, **request: Any) -> Request:
        """A request for a link: a URL, one of `page.links`, or a selected element (its href or src)."""
        return Request(self.urljoin(_reference_of(target)), callback, **request)

    def follow_all(
        self, targets: str | Sequence[str | Link] | Selected, callback: Callback = None, **request: Any
    ) -> Iterator[Request]:
        """Requests for all links that a CSS selector matches, or for the given ones; other schemes than http and https
        are left out.
        """
        found = self.css(targets) if isinstance(targets, str) else targets
        for target in found:
            try:
                yield self.follow(target, callback, **request)
            except BadUrl:
                continue

    def submit(
        self, form: str, data: Mapping[str, str | list[str]] | None = None, callback: Callback = None, **request: Any
    ) -> Request:
        """A request that sends a form, with its hidden fields and what is filled in already; `data` replaces fields.

        `form` is a CSS selector of the form, or of something in it.
        """
        try:
            found = read_form(find_form(self._document_for("submit"), form))
        except NoForm as error:
            raise BadInput(f"{self.url}: {error}") from None
        charset = self.page.charset or "utf-8"
        url = self.urljoin(found.action) if found.action else self.url
        if found.encoding not in (FORM, "text/plain"):
            raise BadInput(f"{self.url}: the form {form!r:.80} is sent as {found.encoding}, which is not supported")
        sent = urlencoded(found.filled(data or {}), charset)
        if found.method == "GET":
            return Request(f"{url.partition('?')[0]}?{sent}", callback, **request)
        headers = {"Content-Type": FORM} | dict(request.pop("headers", None) or {})
        return Request(url, callback, method="POST", body=sent, headers=headers, **request)


def _reference_of(target: str | Link | Selected) -> str:
    if isinstance(target, str):
        return target
    if isinstance(target, Link):
        return target.href
    if not isinstance(target, Selected):
        raise BadInput(f"follow: {type(target).__name__} is not accepted; use a URL, a link or a selected element")
    if not target.reference:
        raise BadInput("follow: what was selected has no href and no src")
    return target.reference
