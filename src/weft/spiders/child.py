"""The side of a spider that runs in a parser child: calls its methods and gathers what they yield.

Made by the engine from the entry point `weft.spiders.child:make`. What the code prints, and what it logs, is gathered
too: the parent writes it to the crawl's log. Nothing that the code does raises here; what it does to the process is for
the parent to see (time, memory, exit).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import islice
from types import FunctionType
from typing import Any

import msgspec

from weft.engine.user_code.calls import (
    CLOSED,
    DEFAULT_CALLBACK,
    FAILURE,
    MAX_OUTPUT_BYTES,
    START,
    Call,
    CallResult,
    Code,
    Description,
    MadeRequest,
    RequestSpec,
)
from weft.engine.user_code.page import Page
from weft.engine.user_code.request import Request, check_render
from weft.errors import BadInput
from weft.extract.page import ParsedPage
from weft.fetch.headers import Head
from weft.logins import FormLogin, absolute
from weft.spiders.loading import check_selectors, digest_of, find, made_spider
from weft.spiders.running_code import run_code
from weft.spiders.spider import RequestFailure, Spider


def make(code: Code) -> SpiderRunner:
    """The runner of a spider, or of a function that is given every page."""
    found = find(code)
    check_selectors(found)
    if isinstance(found, type):
        return SpiderRunner(made_spider(found), code)
    return SpiderRunner(_spider_of_function(found), code)


def _spider_of_function(function: FunctionType) -> Spider:
    """A spider that hands every page to a function, and follows links as a crawl does."""

    class OnPage(Spider):
        follow = True

        def parse(self, page: Page) -> Any:
            return function(page)

    return OnPage()


class SpiderRunner:
    """One spider object, called for one page at a time."""

    def __init__(self, spider: Spider, code: Code) -> None:
        self._spider = spider
        self._code = code
        if not hasattr(spider, "state"):  # its own __init__ has not called the base's
            spider.state = {}
        self._state = msgspec.json.encode(spider.state)
        self._started: Iterator[Any] | None = None
        self._position = 0  # requests that `start` has yielded so far

    def describe(self) -> Description:
        """What the engine has to know of the spider."""
        spider, kind = self._spider, type(self._spider)
        return Description(
            title=self._code.name or kind.__name__,
            start_urls=_check_texts(spider.start_urls, "start_urls"),
            has_start=_overrides_method(kind, "start"),
            allowed_domains=_check_texts(spider.allowed_domains, "allowed_domains"),
            settings=_settings_of_spider(spider) | _login_of_spider(spider.login),
            follows=bool(spider.follow),
            chooses_links=_overrides_method(kind, "should_follow"),
            hears_failures=_overrides_method(kind, "on_error"),
            hears_end=_overrides_method(kind, "closed"),
            callbacks=[name for name in dir(kind) if not name.startswith("__") and callable(getattr(kind, name))],
            digest=digest_of(self._code),
        )

    def restore(self, state: bytes) -> None:
        """The state that was saved last."""
        self._spider.state = msgspec.json.decode(state)
        self._state = state

    def run(self, call: Call, page: ParsedPage | None, body: bytes) -> CallResult:
        """Calls the method; an exception is the result's `error`."""

        def work(result: CallResult) -> None:
            self._run_call(call, page, body, result)
            result.state = self._changed_state()

        return run_code(work)

    def _run_call(self, call: Call, parsed: ParsedPage | None, body: bytes, result: CallResult) -> None:
        if call.kind == START:
            self._start(call, result)
        elif call.kind == CLOSED:
            self._spider.closed(call.reason)
        else:
            page = _page_of(call, parsed, body)
            gathered = Gathered(self._spider, call, result)
            if call.kind == FAILURE:
                gathered.collect(self._spider.on_error(_failure_of(call, page)))
                return
            gathered.collect(self._find_callback(call.spec.callback)(page))
            if self._spider.follow and _overrides_method(type(self._spider), "should_follow"):
                gathered.follow_links(page)

    def _find_callback(self, name: str) -> Any:
        method = getattr(self._spider, name or DEFAULT_CALLBACK, None)
        if not callable(method):
            raise BadInput(f"{type(self._spider).__name__} has no method {name!r}, the callback of this page")
        return method

    def _start(self, call: Call, result: CallResult) -> None:
        """The next requests; a process that has not given those before skips them."""
        if self._started is None or self._position != call.skip:
            self._started, self._position = iter(self._spider.start() or ()), 0
            for _ in islice(self._started, call.skip):
                self._position += 1
        gathered = Gathered(self._spider, call, result)
        for one in islice(self._started, call.most):
            if not isinstance(one, Request):
                raise BadInput(f"start() yielded {_type_name(one)}: it yields requests")
            gathered.add(one)
            self._position += 1
        result.is_over = len(result.requests) < call.most

    def _changed_state(self) -> bytes | None:
        state = msgspec.json.encode(self._spider.state)
        if state == self._state:
            return None
        self._state = state
        return state


class Gathered:
    """What a callback yields, as it goes to the parent."""

    def __init__(self, spider: Spider, call: Call, result: CallResult) -> None:
        self._spider = spider
        self._page_url = call.url
        self._result = result
        self._bytes = 0

    def collect(self, yielded: Any) -> None:
        """All that a callback gives: a generator, a list, one item or request, or nothing."""
        if yielded is None:
            return
        if is_async(yielded):
            raise BadInput("the callback is async: write it without `async`, it has a process of its own")
        for one in [yielded] if is_item(yielded) or isinstance(yielded, Request) else _iterate_yielded(yielded):
            self.add(one)

    def add(self, one: Any) -> None:
        """One item or request."""
        if isinstance(one, Request):
            self._result.requests.append(self._made_request(one))
        elif one is not None:
            if not is_item(one):
                raise BadInput(
                    f"{_type_name(one)} was yielded: yield items (mappings, dataclasses, msgspec "
                    f"structs, pydantic models) "
                    "or requests"
                )
            if (kept := self._spider.process_item(one)) is not None:
                self._result.items.append(self._check_size(encode_item(kept)))

    def follow_links(self, page: Page) -> None:
        """With `should_follow`: the links that the spider chooses."""
        for link in page.links:
            chosen = self._spider.should_follow(page, link) if "nofollow" not in link.rel else False
            if chosen is not False and chosen is not None:
                priority = 0 if chosen is True else int(chosen)
                self._result.requests.append(MadeRequest(link.href, RequestSpec(parent=page.url), priority, True, True))

    def _made_request(self, request: Request) -> MadeRequest:
        if request.callback and not callable(getattr(self._spider, request.callback, None)):
            raise BadInput(f"callback: {type(self._spider).__name__} has no method {request.callback!r}")
        callback = "" if request.callback == DEFAULT_CALLBACK else request.callback
        meta = self._check_size(msgspec.msgpack.encode(request.meta)) if request.meta else b""
        if request.body is not None:
            self._check_size(request.body)
        spec = RequestSpec(
            callback, request.method, request.body, request.headers, meta, self._page_url, request.idempotent,
            request.render, request.actions,
        )  # fmt: skip
        return MadeRequest(request.url, spec, request.priority, request.unique)

    def _check_size(self, data: bytes) -> bytes:
        self._bytes += len(data)
        if self._bytes > MAX_OUTPUT_BYTES:
            raise BadInput(f"the items and requests of a page have at most {MAX_OUTPUT_BYTES >> 20} MB")
        return data


def is_item(one: object) -> bool:
    """Whether something can be an item."""
    if isinstance(one, dict | msgspec.Struct):
        return True
    kind = type(one)
    return hasattr(kind, "__dataclass_fields__") or hasattr(kind, "__attrs_attrs__") or hasattr(kind, "model_dump")


def encode_item(item: Any) -> bytes:
    """An item as JSON; BadInput names the field that cannot be kept."""
    plain = item.model_dump(mode="json") if hasattr(type(item), "model_dump") else item
    try:
        return msgspec.json.encode(plain)
    except (TypeError, ValueError, OverflowError, RecursionError, UnicodeEncodeError) as error:
        raise BadInput(f"an item cannot be kept: {_find_wrong_field(plain) or error}") from None


def _find_wrong_field(item: Any) -> str:
    fields = item if isinstance(item, dict) else {}
    for name, value in fields.items():
        if not isinstance(name, str):
            return f"its key {name!r:.80} is no text"
        try:
            msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError, UnicodeEncodeError) as error:
            return f"{name!r}: {error}"
    return ""


def is_async(yielded: object) -> bool:
    """Whether a callback has given something that only an event loop can run."""
    return hasattr(yielded, "__await__") or hasattr(yielded, "__aiter__")


def _iterate_yielded(yielded: object) -> Iterable[Any]:
    if isinstance(yielded, str | bytes) or not isinstance(yielded, Iterable):
        raise BadInput(f"the callback returned {_type_name(yielded)}: it yields items and requests")
    return yielded


def _page_of(call: Call, parsed: ParsedPage | None, body: bytes) -> Page:
    page = Page(
        call.url, call.original if call.is_rendered else body,
        status=call.status, headers=tuple(Head(call.head).items()), requested_url=call.requested_url, depth=call.depth,
        parent=call.spec.parent or None, meta=meta_of(call.spec),
        fetched_at=datetime.fromtimestamp(call.fetched_at, UTC), rendered=body if call.is_rendered else b"",
        screenshot=call.screenshot,
    )  # fmt: skip
    page._parsed = parsed
    return page


def _failure_of(call: Call, page: Page) -> RequestFailure:
    answer = page if call.status else None
    callback = call.spec.callback or DEFAULT_CALLBACK
    return RequestFailure(call.url, call.error, call.detail, answer, callback, page.meta)


def meta_of(spec: RequestSpec) -> dict[str, Any]:
    """The `meta` of a request."""
    return msgspec.msgpack.decode(spec.meta) if spec.meta else {}


def _overrides_method(kind: type, name: str) -> bool:
    return getattr(kind, name) is not getattr(Spider, name)


def _check_texts(value: object, name: str) -> list[str]:
    texts: list[Any] = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    if not all(isinstance(one, str) for one in texts):
        raise BadInput(f"{name}: {value!r:.80} is not accepted; use a list of texts")
    return texts


def _settings_of_spider(spider: Spider) -> dict[str, object]:
    value, render = spider.settings, check_render(spider.render)
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BadInput(f"settings: {value!r:.80} is not accepted; use a mapping of a crawl's settings")
    own: dict[str, object] = {"render": render} if render else {}
    if spider.workers is not None:
        own["workers"] = spider.workers
    return own | value


def _login_of_spider(value: object) -> dict[str, object]:
    """As the setting of that name; a callback may be called `login` as well."""
    if value is None or callable(value):
        return {}
    if not isinstance(value, FormLogin | dict):
        raise BadInput(f"login: {type(value).__name__} is not accepted; use weft.FormLogin(url=..., fields=...)")
    return {"login": absolute(value)}


def _type_name(value: object) -> str:
    return f"a {type(value).__name__}" if not isinstance(value, str) else f"the text {value[:40]!r}"
