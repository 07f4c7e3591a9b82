"""A request that a user's code makes: `weft.Request`, and the checks before it is queued."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from weft.credentials import wrong_header
from weft.errors import BadInput

MAX_BODY_BYTES = 1 << 20
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
FORM, JSON = "application/x-www-form-urlencoded", "application/json"
MOST_PRIORITY = 1000
Callback = str | Callable[..., Any] | None


class Request:
    """What is to be asked for, and the method that gets the page.

    `callback` is a method of the spider, or its name; None is `parse`. `meta` holds plain values, which the page has
    as `page.meta`. `body` is bytes or text, `json` any value, `form` a mapping: one of the three. `priority`: the
    higher ones of a site come first. A request that was made before is made once; `unique=False` makes it again.
    A request other than GET, HEAD and OPTIONS that may have been sent when the crawl was killed is not sent again,
    unless it is `idempotent`. `render` has a browser draw the page of a GET (`auto`: where scripts must), `actions` are
    what it does there first (docs/rendering.md).
    """

    __slots__ = (
        "actions", "body", "callback", "headers", "idempotent", "meta", "method", "priority", "render", "unique", "url",
    )  # fmt: skip

    def __init__(
        self,
        url: str,
        callback: Callback = None,
        *,
        method: str = "GET",
        body: bytes | str | None = None,
        json: Any = None,
        form: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        meta: Mapping[str, Any] | None = None,
        priority: int = 0,
        unique: bool = True,
        idempotent: bool | None = None,
        render: str | bool | None = None,
        actions: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.url = _check_text("url", url)
        self.callback = callback_name(callback)
        self.method = _check_method(method)
        self.headers = _check_headers(headers or {})
        self.body = self._set_body(body, json, form)
        if self.body is not None and self.method == "GET":
            raise BadInput("a GET has no body: give the request `method='POST'`, or another that has one")
        self.meta = _check_meta(meta or {})
        if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > MOST_PRIORITY:
            raise BadInput(f"priority: {priority!r:.40} is not accepted; use a whole number from -1,000 to 1,000")
        self.priority = priority
        self.unique = unique
        self.idempotent = self.method in SAFE_METHODS if idempotent is None else idempotent
        self.actions = _check_actions(actions)
        self.render = check_render(render) or ("always" if self.actions else "")
        if self.render not in ("", "never") and self.method != "GET":
            raise BadInput(f"render: only a page that is asked for with GET is rendered, not with {self.method}")
        if self.actions and self.render == "never":
            raise BadInput("actions: the page is not rendered: leave `render` out, or use auto or always")

    def __repr__(self) -> str:
        callback = f" → {self.callback}" if self.callback else ""
        return f"<Request {self.method} {self.url}{callback}>"

    def _set_body(self, body: bytes | str | None, json: Any, form: Mapping[str, Any] | None) -> bytes | None:
        if sum(one is not None for one in (body, json, form)) > 1:
            raise BadInput("body, json and form: a request has one of them")
        made = _encode_body(body, json, form)
        if made is not None and len(made) > MAX_BODY_BYTES:
            raise BadInput(f"a body of {len(made):,} bytes is too large: a request has at most {MAX_BODY_BYTES:,}")
        kind = JSON if json is not None else FORM if form is not None else ""
        if kind and "content-type" not in {name.lower() for name in self.headers}:
            self.headers["Content-Type"] = kind
        return made


def callback_name(callback: Callback) -> str:
    """The name of a callback; empty for the default."""
    if callback is None or isinstance(callback, str):
        return callback or ""
    name = getattr(callback, "__name__", "")
    if name == "<lambda>" or not name:
        raise BadInput(
            "a callback is a method of the spider, or its name: a lambda would be lost when the crawl resumes"
        )
    return str(name)


def _encode_body(body: bytes | str | None, json: Any, form: Mapping[str, Any] | None) -> bytes | None:
    if json is not None:
        try:
            return msgspec.json.encode(json)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(f"json: cannot be encoded: {error}") from None
    if form is not None:
        return urlencode(form, doseq=True).encode()
    if isinstance(body, str):
        return body.encode()
    if body is not None and not isinstance(body, bytes):
        raise BadInput(f"body: {type(body).__name__} is not accepted; use bytes or text, or `json=` or `form=`")
    return body


def check_render(value: object) -> str:
    """Checks the `render` of a request: never, auto or always; empty for the default."""
    if value is None or isinstance(value, bool):
        return "" if value is None else "always" if value else "never"
    if value not in ("never", "auto", "always"):
        raise BadInput(f"render: {value!r:.40} is not accepted; use never, auto or always")
    return str(value)


def _check_actions(actions: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    from weft.config.contradictions import MOST_ACTIONS, wrong_action

    if not isinstance(actions, list | tuple) or not all(isinstance(one, Mapping) for one in actions):
        raise BadInput("actions: use a list of mappings, each with a `type`")
    for number, action in enumerate(actions, 1):
        if why := wrong_action(action):
            raise BadInput(f"actions: action {number}: {why}")
    if len(actions) > MOST_ACTIONS:
        raise BadInput(f"actions: {len(actions)} are too many: {MOST_ACTIONS} at most")
    return tuple(dict(one) for one in actions)


def _check_text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise BadInput(f"{name}: {value!r:.80} is not accepted; use a text")
    return value


def _check_method(method: str) -> str:
    name = method.upper() if isinstance(method, str) else ""
    if name not in METHODS:
        raise BadInput(f"method: {method!r:.40} is not accepted; use one of {', '.join(METHODS)}")
    return name


def _check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise BadInput(f"headers: {name!r:.80} is not accepted; names and values are texts")
        if ":" in name or (wrong := wrong_header(name, value)):
            raise BadInput(f"headers: {wrong if ':' not in name else f'{name!r} is not a header that can be sent'}")
    return dict(headers)


def _check_meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in meta.items():
        if not isinstance(key, str):
            raise BadInput(f"meta: the key {key!r:.80} is not accepted; use texts")
        try:
            msgspec.msgpack.encode(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadInput(
                f"meta: {key!r} cannot be kept ({error}): use plain values (texts, numbers, lists, mappings)"
            ) from None
    return dict(meta)
