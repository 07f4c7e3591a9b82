"""Scrapy's requests as Weft queues them, and back: what `Request.to_dict(spider=...)` has, in a `RequestSpec`."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
from scrapy import Spider
from scrapy.http import FormRequest, JsonRequest, Request
from scrapy.settings import BaseSettings
from w3lib.http import basic_auth_header

from weft.credentials import OURS, wrong_header
from weft.engine.user_code.calls import Call, MadeRequest, RequestSpec
from weft.engine.user_code.request import MAX_BODY_BYTES, METHODS, MOST_PRIORITY, SAFE_METHODS
from weft.errors import BadInput
from weft.spiders.scrapy.values import decode_value, encode_value

log = logging.getLogger("weft.scrapy")
_CLASSES: Mapping[str, type[Request]] = {"FormRequest": FormRequest, "JsonRequest": JsonRequest}
_DROPPED_META = frozenset({
    "depth", "download_latency", "redirect_times", "redirect_ttl", "redirect_urls", "redirect_reasons", "retry_times",
})  # fmt: skip
# Keys of meta that other software reads, or that would do what Weft does not: without them a page is not the one meant.
_REFUSED_META = {
    "proxy": "give Weft a file of proxies, `proxies=FILE`",
    "bindaddress": "Weft does not choose the address that it asks from",
    "dont_obey_robotstxt": "robots.txt is always obeyed",
    "playwright": "Weft draws pages itself: `render='auto'`",
    "splash": "Weft draws pages itself: `render='auto'`",
    "selenium": "Weft draws pages itself: `render='auto'`",
    "zyte_api": "it needs a download handler, which Weft does not have",
    "impersonate": "it needs a download handler, which Weft does not have",
}
_NOT_SENT = OURS | {"accept-encoding"}  # they are the transport's


class _Kept(msgspec.Struct, array_like=True, omit_defaults=True):
    """What a request has that only Scrapy's side reads: `RequestSpec.meta`."""

    kind: str = ""
    meta: bytes = b""
    cb_kwargs: bytes = b""
    flags: list[str] = []
    encoding: str = "utf-8"
    dont_filter: bool = False
    priority: int = 0
    cookies: bytes = b""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Kept).decode


class RequestSpecs:
    """Translates the requests of one spider."""

    def __init__(self, spider: Spider, settings: BaseSettings) -> None:
        self._spider = spider
        self._follows_redirects = settings.getbool("REDIRECT_ENABLED")
        given = settings.getpriority("DEFAULT_REQUEST_HEADERS") or 0
        self._headers: Mapping[str, Any] = settings.getdict("DEFAULT_REQUEST_HEADERS") if given else {}
        self._agent: str = getattr(spider, "user_agent", None) or ""
        self._authorization = _authorization(spider, settings)
        self._names: dict[Any, str] = {}
        self._told: set[str] = set()

    def made(self, request: Request, parent: str) -> MadeRequest:
        """A request as it goes to the engine; BadInput names what in it cannot be kept."""
        self._check(request)
        meta = {key: value for key, value in request.meta.items() if key not in _DROPPED_META}
        spec = RequestSpec(
            "" if request.callback is None else self._name_of("callback", request.callback),
            request.method, request.body or None, self._headers_of(request), _encode(self._kept(request, meta)), parent,
            request.method in SAFE_METHODS,
            errback="" if request.errback is None else self._name_of("errback", request.errback),
            redirects=self._follows_redirects and not _keeps_redirects(meta, self._spider),
            offsite=request.dont_filter or bool(meta.get("allow_offsite")),
            jar=str(meta["cookiejar"]) if meta.get("cookiejar") is not None else "",
            cookies=_cookies(request), timeout_s=_timeout(meta),
        )  # fmt: skip
        priority = max(-MOST_PRIORITY, min(MOST_PRIORITY, request.priority))
        return MadeRequest(request.url, spec, priority, not request.dont_filter)

    def request_of(self, call: Call) -> Request:
        """The request of an answer, as it was yielded; after a redirect, as Scrapy's middleware makes it."""
        spec = call.spec
        kept = _decode(spec.meta) if spec.meta else _Kept()
        meta = decode_value(kept.meta) if kept.meta else {}
        meta["depth"] = call.depth
        if call.redirected:
            meta["redirect_urls"], meta["redirect_times"] = list(call.redirected), len(call.redirected)
        return _CLASSES.get(kept.kind, Request)(
            call.url,
            callback=getattr(self._spider, spec.callback) if spec.callback else None,
            method=spec.method,
            headers=spec.headers,
            body=spec.body or b"",
            cookies=decode_value(kept.cookies) if kept.cookies else None,
            meta=meta,
            encoding=kept.encoding,
            priority=kept.priority,
            dont_filter=kept.dont_filter,
            errback=getattr(self._spider, spec.errback) if spec.errback else None,
            flags=list(kept.flags),
            cb_kwargs=decode_value(kept.cb_kwargs) if kept.cb_kwargs else {},
        )

    def _check(self, request: Request) -> None:
        if request.method not in METHODS:
            raise BadInput(f"method: {request.method!r:.40} is not accepted; use one of {', '.join(METHODS)}")
        if request.body and request.method == "GET":
            raise BadInput(f"{request.url}: a GET has no body: give the request `method='POST'`")
        if len(request.body) > MAX_BODY_BYTES:
            raise BadInput(f"a body of {len(request.body):,} bytes is too large: at most {MAX_BODY_BYTES:,}")
        for key, advice in _REFUSED_META.items():
            if request.meta.get(key):
                raise BadInput(f"meta[{key!r}] is not supported: {advice}")
        if more := set(type(request).attributes) - set(Request.attributes) - {"dumps_kwargs"}:
            raise BadInput(f"a {type(request).__name__} is not supported: it has {', '.join(sorted(more))}")

    def _name_of(self, what: str, function: Callable[..., Any]) -> str:
        """The name of the spider's method that is a callback."""
        owner, inner = getattr(function, "__self__", None), getattr(function, "__func__", None)
        name = getattr(function, "__name__", "")
        if owner is self._spider and inner is not None:
            if getattr(getattr(self._spider, name, None), "__func__", None) is inner:
                return name
            for other, method in inspect.getmembers(self._spider, inspect.ismethod):
                if method.__func__ is inner:
                    return other
        if getattr(inspect.getmodule(function), "__name__", "").startswith("inline_requests"):
            raise BadInput("inline_requests is not supported: use a callback for each request")
        raise BadInput(
            f"{what}: {name or function!r} is no method of {type(self._spider).__name__}: a lambda or another function "
            "would be lost when the crawl resumes"
        )

    def _kept(self, request: Request, meta: dict[str, Any]) -> _Kept:
        kind = type(request).__name__
        return _Kept(
            kind if kind in _CLASSES else "",
            _encoded(meta, "meta"), _encoded(request.cb_kwargs, "cb_kwargs"), list(request.flags), request.encoding,
            request.dont_filter, request.priority, encode_value(request.cookies, "cookies") if request.cookies else b"",
        )  # fmt: skip

    def _headers_of(self, request: Request) -> dict[str, str]:
        headers = request.headers.copy()
        for name, value in self._headers.items():
            headers.setdefault(name, value)
        if self._agent:
            headers.setdefault("User-Agent", self._agent)
        if self._authorization and _is_within(request.url, self._authorization[0]):
            headers.setdefault("Authorization", self._authorization[1])
        texts: dict[str, str] = {}
        for raw, values in headers.items():
            name = raw.decode("latin-1")
            text = ("; " if name.lower() == "cookie" else ", ").join(value.decode("latin-1") for value in values)
            if not values or name.lower() in _NOT_SENT:
                self._tell_once(name)
            elif wrong := wrong_header(name, text):
                raise BadInput(f"headers: {wrong}")
            else:
                texts[name] = text
        return texts

    def _tell_once(self, name: str) -> None:
        if name not in self._told:
            self._told.add(name)
            log.info("the header %s of requests is left out: it is Weft's to send", name)


def _encoded(values: dict[str, Any], name: str) -> bytes:
    return encode_value(values, name) if values else b""


def _keeps_redirects(meta: Mapping[str, Any], spider: Spider) -> bool:
    """Whether answers that redirect go to the callback, as Scrapy's middleware decides it."""
    listed = [*meta.get("handle_httpstatus_list", ()), *getattr(spider, "handle_httpstatus_list", ())]
    redirects = {301, 302, 303, 307, 308}
    return bool(meta.get("dont_redirect") or meta.get("handle_httpstatus_all") or redirects.intersection(listed))


def _timeout(meta: Mapping[str, Any]) -> float:
    value = meta.get("download_timeout") or 0.0
    if not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise BadInput(f"meta['download_timeout']: {value!r:.40} is not accepted; use a number of seconds")
    return float(value)


def _cookies(request: Request) -> tuple[str, ...]:
    """What the request puts into its jar, each as Set-Cookie has it."""
    given = request.cookies
    if not given:
        return ()
    listed: list[Any] = (
        [{"name": name, "value": value} for name, value in given.items()] if isinstance(given, dict) else list(given)
    )
    made = []
    for one in listed:
        name, value = _text(one.get("name")), _text(one.get("value"))
        if not name or any(mark in name + value for mark in ";\r\n\0"):
            raise BadInput(f"cookies: {name!r:.40} cannot be sent: names and values have no semicolon and no line end")
        domain = f"; Domain={one['domain']}" if one.get("domain") else ""
        made.append(f"{name}={value}; Path={one.get('path') or '/'}{domain}{'; Secure' if one.get('secure') else ''}")
    return tuple(made)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None else str(value)


def _authorization(spider: Spider, settings: BaseSettings) -> tuple[str, str] | None:
    """The domain that a spider's login is for, and the header."""
    user = getattr(spider, "http_user", "") or settings.get("HTTPAUTH_USER") or ""
    password = getattr(spider, "http_pass", "") or settings.get("HTTPAUTH_PASS") or ""
    domain = getattr(spider, "http_auth_domain", None) or settings.get("HTTPAUTH_DOMAIN")
    if not (user or password):
        return None
    if not domain:
        raise BadInput("HTTPAUTH_DOMAIN: name the domain that the login is for: it is not sent to all hosts")
    return str(domain), basic_auth_header(user, password).decode("latin-1")


def _is_within(url: str, domain: str) -> bool:
    host = urlsplit(url).netloc.lower()  # with its port, as Scrapy has it
    return host == domain or host.endswith(f".{domain}")
