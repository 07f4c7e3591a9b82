"""The side of a Scrapy spider that runs in a parser child: one crawler, one spider, and Scrapy's own classes around it.

Made by the engine from the entry point `weft.spiders.scrapy.runner:make`. All callbacks, errbacks, signals and
pipelines of a crawl are called here, one after the other, on an asyncio loop of the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any

from weft.errors import Missing

try:
    import scrapy as scrapy
except ImportError:
    raise Missing.of_extra("scrapy", "scrapy") from None

from scrapy import Spider
from scrapy.exceptions import CloseSpider
from scrapy.http import Request
from twisted.python.failure import Failure

from weft.engine.user_code.calls import CLOSED, ITEMS, START, Call, CallResult, Code, Description
from weft.errors import BadInput
from weft.extract.page import ParsedPage
from weft.references import resolve
from weft.spiders.loading import digest_of
from weft.spiders.running_code import run_code
from weft.spiders.scrapy.crawler import SUPPORTED, SpiderCrawler, SpiderLoop, SpiderSignals, finished
from weft.spiders.scrapy.finding import check_version, find_spider, settings_of
from weft.spiders.scrapy.item_pipelines import OpenPipelines, pipeline_names
from weft.spiders.scrapy.request_specs import RequestSpecs
from weft.spiders.scrapy.responses import StatusRule, failure_of, response_of, with_request
from weft.spiders.scrapy.scrapy_settings import POLITE_DELAY_S, crawl_settings, start_urls_of
from weft.spiders.scrapy.values import decode_value, encode_value

if TYPE_CHECKING:
    from weft.spiders.scrapy.outputs import CallbackOutput

# Why a crawl has ended, in Scrapy's words.
_REASONS = {
    "done": "finished", "max_pages": "closespider_pagecount", "max_items": "closespider_itemcount",
    "max_duration": "closespider_timeout", "callback_errors": "closespider_errorcount", "interrupted": "shutdown",
    "cancelled": "cancelled", "budget": "finished",
}  # fmt: skip


def make(code: Code) -> ScrapyRunner:
    """Makes the runner of a spider of Scrapy's."""
    check_version()
    settings = settings_of(code)
    return ScrapyRunner(find_spider(code), settings, code)


class ScrapyRunner:
    """One spider object, called for one page at a time."""

    def __init__(self, kind: type[Spider], settings: Any, code: Code) -> None:
        self._loop = SpiderLoop()
        arguments = {name: resolve(value, f"-a {name}") for name, value in code.arguments.items()}
        self._crawler = SpiderCrawler(kind, settings, arguments)
        self._signals: SpiderSignals = self._crawler.signals  # type: ignore[assignment]
        self._spider = self._crawler.the_spider
        self._code = code
        self._specs = RequestSpecs(self._spider, self._crawler.settings)
        self._statuses = StatusRule(self._spider, self._crawler.settings)
        self._has_pipelines = bool(pipeline_names(self._crawler.settings))
        self._pipelines: OpenPipelines | None = None
        self._state = b""
        self._is_open = False
        self._started: AsyncIterator[Any] | None = None
        self._position = 0  # requests that `start` has yielded so far
        self._stop = ""  # why a callback has ended the crawl

    def describe(self) -> Description:
        """What the engine has to know of the spider."""
        spider, kind = self._spider, type(self._spider)
        made = crawl_settings(self._crawler.settings, spider)
        return Description(
            title=self._code.name or kind.__name__,
            start_urls=start_urls_of(spider),
            has_start=True,
            allowed_domains=[one for one in getattr(spider, "allowed_domains", None) or () if one],
            settings=made.settings,
            hears_failures=True,
            hears_end=True,
            callbacks=[
                name for name in dir(spider) if not name.startswith("__") and callable(getattr(kind, name, None))
            ],
            digest=digest_of(self._code),
            has_pipelines=self._has_pipelines,
            reads_requests=True,
            least_public_delay_s=POLITE_DELAY_S,
            obeys_private_robots=made.obeys_private_robots,
            feeds=made.feeds,
            notes=made.notes,
        )

    def restore(self, state: bytes) -> None:
        """The state that was saved last, as text."""
        self._state = state
        self._spider.state = decode_value(bytes.fromhex(state.decode()))  # type: ignore[attr-defined]

    def run(self, call: Call, _page: ParsedPage | None, body: bytes) -> CallResult:
        """Calls the method; an exception is the result's `error`."""

        def work(result: CallResult) -> None:
            self._open()
            self._call(call, body, result)
            result.state = self._changed_state()
            result.stop = self._stop

        result = run_code(work)
        if call.kind == ITEMS and self._pipelines is None:
            result.is_over = True  # they cannot be opened
        return result

    def _open(self) -> None:
        if self._is_open:
            return
        self._is_open = True
        self._crawler.begin_stats()
        self._send("spider_opened", spider=self._spider)

    def _call(self, call: Call, body: bytes, result: CallResult) -> None:
        if call.kind == START:
            self._loop.run(self._start(call, result))
        elif call.kind == ITEMS:
            self._process(call, result)
        elif call.kind == CLOSED:
            self._close(call.reason)
        else:
            self._answer(call, body, result)

    # ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _answer(self, call: Call, body: bytes, result: CallResult) -> None:
        """Passes the result of a request to its callback or its errback."""
        request, output = self._specs.request_of(call), self._output(call.url, result)
        self._crawler.stats.inc_value("response_received_count", int(bool(call.status)))
        given: Any
        if call.status and not call.error:
            given = response_of(call, request, body)
            error = self._statuses.error_of(given)
            if error is not None:
                given = with_request(error, request)
        else:
            given = failure_of(call, request)
        try:
            if isinstance(given, Failure):
                if request.errback is not None:
                    self._loop.run(self._collect(output, request.errback, given))
            else:
                callback = request.callback or self._spider._parse
                self._loop.run(self._collect(output, callback, given, **request.cb_kwargs))
        except CloseSpider as close:
            self._stop = close.reason or "cancelled"
        except Exception as error:
            self._crawler.stats.inc_value(f"spider_exceptions/{type(error).__name__}")
            raise
        if not self._has_pipelines:
            for item in output.items:
                self._crawler.stats.inc_value("item_scraped_count")
                response = given if not isinstance(given, Failure) else None
                self._send("item_scraped", item=item, response=response, spider=self._spider)

    @staticmethod
    async def _collect(output: CallbackOutput, method: Callable[..., Any], given: Any, **more: Any) -> None:
        await output.collect(method(given, **more))

    def _output(self, parent: str, result: CallResult) -> CallbackOutput:
        from weft.spiders.scrapy.outputs import CallbackOutput  # its libraries are not needed to describe a spider

        return CallbackOutput(self._specs, result, parent, keeps_objects=self._has_pipelines)

    # ── begin and end ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _start(self, call: Call, result: CallResult) -> None:
        """The next requests; a process that has not given those before skips them."""
        output = self._output("", result)
        if self._started is None or self._position != call.skip:
            self._started, self._position = first_requests(self._spider), 0
        while len(result.requests) < call.most and not result.is_over:
            try:
                one = await anext(self._started)
            except StopAsyncIteration:
                result.is_over = True
            except CloseSpider as close:
                self._stop, result.is_over = close.reason or "cancelled", True
            else:
                self._position += 1
                if not isinstance(one, Request):
                    raise BadInput(f"start() yielded a {type(one).__name__}: in Weft it yields requests alone")
                if self._position > call.skip:
                    output.add(one)

    def _process(self, call: Call, result: CallResult) -> None:
        if self._pipelines is None:
            self._pipelines = OpenPipelines(self._crawler, self._loop)
        self._pipelines.process(call.items, result)

    def _close(self, reason: str) -> None:
        reason = self._stop or _REASONS.get(reason, reason)
        pipelines, self._pipelines = self._pipelines, None
        try:
            if pipelines is not None:
                pipelines.close()
        finally:
            self._send("spider_closed", spider=self._spider, reason=reason)
            self._crawler.end_stats(reason)
            self._is_open = False

    def _send(self, name: str, **values: Any) -> None:
        self._loop.run(self._signals.send(SUPPORTED[name], **values))

    def _changed_state(self) -> bytes | None:
        held = getattr(self._spider, "state", None)
        if not held and not self._state:
            return None
        state = encode_value(held, "state").hex().encode()
        if state == self._state:
            return None
        self._state = state
        return state


async def first_requests(spider: Spider) -> AsyncIterator[Any]:
    """What `start` of a spider yields, or `start_requests` of one that has that alone."""
    if _begins_with_start(type(spider)):
        async for one in spider.start():
            yield one
        return
    given = spider.start_requests()  # type: ignore[attr-defined]
    for one in await finished(given) or ():
        yield one


def _begins_with_start(kind: type) -> bool:
    """Whether `start` is what counts: the method that is defined nearer to the class."""
    definitions: Iterator[type] = (one for one in kind.__mro__ if {"start", "start_requests"} & set(vars(one)))
    return "start" in vars(next(definitions))
