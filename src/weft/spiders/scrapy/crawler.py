"""The crawler that a spider has in Weft: Scrapy's own class with settings, stats and signals, without an engine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from inspect import Parameter, isawaitable, signature
from typing import Any, NoReturn

from pydispatch import dispatcher
from pydispatch.robustapply import robustApply
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.utils.misc import build_from_crawler, load_object
from twisted.internet.defer import Deferred

from weft.errors import BadInput

log = logging.getLogger("weft.scrapy")
SUPPORTED = {
    "spider_opened": signals.spider_opened, "spider_closed": signals.spider_closed,
    "item_scraped": signals.item_scraped, "item_dropped": signals.item_dropped,
}  # fmt: skip
_NAMES = {value: name for name, value in vars(signals).items() if not name.startswith("_")}
NO_DEFERRED = "Deferreds are not supported, as no reactor runs: use asyncio, or yield a request with a callback"


class SpiderSignals(SignalManager):
    """The four signals that there are; another one is refused where it is connected."""

    def connect(self, receiver: Any, signal: Any, **kwargs: Any) -> None:
        """Connects a receiver as Scrapy's manager does; raises BadInput for a signal that is never sent."""
        if signal in _NAMES and signal not in SUPPORTED.values():
            raise BadInput(
                f"the signal {_NAMES[signal]} is not supported; there are {', '.join(SUPPORTED)} (docs/from-scrapy.md)"
            )
        super().connect(receiver, signal, **kwargs)

    async def send(self, signal: object, **values: Any) -> None:
        """Calls all receivers; what one raises is logged, as Scrapy does it."""
        for receiver in dispatcher.liveReceivers(dispatcher.getAllReceivers(self.sender, signal)):
            try:
                await finished(robustApply(receiver, signal=signal, sender=self.sender, **values))
            except Exception:
                log.exception("a receiver of the signal %s has failed", _NAMES.get(signal, signal))


class MissingEngine:
    """Replaces Scrapy's engine, which does not run here."""

    def __getattr__(self, name: str) -> NoReturn:
        raise BadInput(f"crawler.engine.{name} is not supported: Weft has no engine of Scrapy's; yield requests")


class SpiderCrawler(Crawler):
    """One crawler with one spider, in the process that calls it."""

    def __init__(self, kind: type[Spider], settings: Settings, arguments: dict[str, str]) -> None:
        super().__init__(kind, settings)
        self.signals = SpiderSignals(self)
        self.stats = load_object(self.settings["STATS_CLASS"])(self)
        self.logformatter = build_from_crawler(load_object(self.settings["LOG_FORMATTER"]), self)
        self.request_fingerprinter = build_from_crawler(load_object(self.settings["REQUEST_FINGERPRINTER_CLASS"]), self)
        self.engine = MissingEngine()  # type: ignore[assignment]
        self.crawling = True
        self.spider = kind.from_crawler(self, **arguments)
        if not hasattr(self.spider, "state"):
            self.spider.state = {}  # type: ignore[attr-defined]
        self.settings.freeze()

    def begin_stats(self) -> None:
        """Opens the statistics of the spider."""
        self.stats.open_spider(**self._named(self.stats.open_spider))

    def end_stats(self, reason: str) -> None:
        """Closes the statistics of the spider, which Scrapy then logs."""
        self.stats.close_spider(**self._named(self.stats.close_spider), reason=reason)

    def _named(self, method: Callable[..., Any]) -> dict[str, Any]:
        """The argument for the spider, where a version of Scrapy, or a class of the user's, needs it."""
        parameter = signature(method).parameters.get("spider")
        return {"spider": self.spider} if parameter is not None and parameter.default is Parameter.empty else {}

    @property
    def the_spider(self) -> Spider:
        """The crawler's spider, which is never None here."""
        assert self.spider is not None
        return self.spider


async def finished(result: Any) -> Any:
    """A method's result, where it may be a coroutine; BadInput for a Deferred that has not fired."""
    if isinstance(result, Deferred):
        if result.called and not isinstance(result.result, Deferred):
            return _value_of(result)
        raise BadInput(NO_DEFERRED)
    return await result if isawaitable(result) else result


def _value_of(fired: Deferred[Any]) -> Any:
    values, errors = list[Any](), list[Any]()
    fired.addCallbacks(values.append, errors.append)
    if errors:
        errors[0].raiseException()
    return values[0]


class SpiderLoop:
    """The asyncio loop of the process; no reactor runs in it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def run(self, work: Awaitable[Any]) -> Any:
        """Runs a coroutine to its end, and returns its result."""

        async def main() -> Any:
            return await work

        try:
            return self._loop.run_until_complete(main())
        except RuntimeError as error:
            if "Task got bad yield" in str(error) and "Deferred" in str(error):
                raise BadInput(NO_DEFERRED) from None
            raise
