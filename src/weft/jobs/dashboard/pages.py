"""Renders pages from templates, and serves their static files: one style sheet, one script, one image.

Templates escape every value. Answers are compressed if the browser accepts it. The URL of a static file has a digest of
its content, so that a browser caches it forever.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from weft import __version__
from weft.jobs.api.access.api_key import KeyScope
from weft.jobs.api.access.gate import Caller
from weft.jobs.api.problems import Refusal, phrase
from weft.jobs.dashboard import text
from weft.jobs.dashboard.door import Visitor

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_STATIC_FILES = ("dash.css", "dash.js", "icon.svg")
_TEMPLATE_FILES = files("weft.jobs.dashboard")
_LEAST_COMPRESSED_BYTES = 1000  # Answers with fewer bytes are not compressed.


class DashboardPages:
    """Renders the pages, and serves the static files."""

    def __init__(self, has_keys: Any) -> None:
        """`has_keys()`: whether visitors sign in."""
        self._has_keys = has_keys
        self._static = {name: (_TEMPLATE_FILES / "static" / name).read_bytes() for name in _STATIC_FILES}
        self._compressed_files = {name: gzip.compress(body, 9, mtime=0) for name, body in self._static.items()}
        self._tags = {name: sha256(body).hexdigest()[:12] for name, body in self._static.items()}
        self._templates = Environment(
            loader=FunctionLoader(lambda name: (_TEMPLATE_FILES / "templates" / name).read_text("utf-8")),
            autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, auto_reload=False,
        )  # fmt: skip
        self._templates.globals |= {"version": __version__, "static": self._static_address, "scopes": KeyScope}
        self._templates.filters |= {
            "count": text.count, "size": text.size, "duration": text.duration, "percent": text.percent,
            "decimal": text.decimal, "one_line": text.one_line, "clock": text.clock, "machine_time": text.machine_time,
            "coded": _format_backticks,
        }  # fmt: skip

    def page(
        self,
        name: str,
        visitor: Caller | None,
        values: Mapping[str, Any],
        status: int = 200,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """The response with a rendered page."""
        own = {"Cache-Control": "no-store", "Vary": "Accept-Encoding", **(headers or {})}
        return Response(self.html(name, visitor, values), status, own, "text/html")

    def html(self, name: str, visitor: Caller | None, values: Mapping[str, Any]) -> bytes:
        """The HTML of a page."""
        may = visitor.scopes if visitor is not None else frozenset()
        more = {"visitor": visitor, "may": may, "has_keys": self._has_keys()}
        return self._templates.get_template(name).render(**values, **more).encode("utf-8", "replace")

    def error(self, refusal: Refusal, visitor: Visitor | None) -> Response:
        """The response with an error page."""
        values = {"status": refusal.status, "title": phrase(refusal.status), "detail": refusal.detail, "nav": ""}
        return self.page("error.html", visitor, values, refusal.status, refusal.headers)

    def static(self, request: Request) -> Response:
        """The response with a static file."""
        name = request.path_params["name"]
        if name not in self._static:
            raise Refusal(404, "there is no such file")
        kept = (
            "public, max-age=31536000, immutable" if request.query_params.get("v") == self._tags[name] else "no-cache"
        )
        headers = {"Cache-Control": kept, "Vary": "Accept-Encoding", "ETag": f'"{self._tags[name]}"'}
        if request.headers.get("if-none-match") == headers["ETag"]:
            return Response(status_code=304, headers=headers)
        body = self._static[name]
        if accepts_gzip(request):
            body, headers["Content-Encoding"] = self._compressed_files[name], "gzip"
        return Response(body, 200, headers, _TYPES[name.rpartition(".")[2]])

    def _static_address(self, name: str) -> str:
        return f"/static/{name}?v={self._tags[name]}"


def _format_backticks(text: str) -> Markup:
    """Escaped text, with `<code>` for what is in backticks."""
    pieces = [escape(piece) for piece in text.split("`")]
    if len(pieces) % 2 == 0:  # an unbalanced backtick
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if number % 2 else piece for number, piece in enumerate(pieces)
    )


def accepts_gzip(request: Request) -> bool:
    """Whether the browser accepts gzip."""
    return "gzip" in request.headers.get("accept-encoding", "")


def compressed(response: Response, request: Request) -> Response:
    """The response, compressed if that is worthwhile and the browser accepts it."""
    body = bytes(response.body)
    if len(body) < _LEAST_COMPRESSED_BYTES or not accepts_gzip(request) or "content-encoding" in response.headers:
        return response
    smaller = gzip.compress(body, 5, mtime=0)
    response.body = smaller
    response.headers["content-length"] = str(len(smaller))
    response.headers["content-encoding"] = "gzip"
    return response
