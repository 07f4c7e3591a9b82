"""The classes of ITEM_PIPELINES, which are given the committed items one after the other."""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from typing import Any

import msgspec
from scrapy.exceptions import DropItem, NotConfigured
from scrapy.utils.conf import build_component_list
from scrapy.utils.misc import build_from_crawler, load_object

from weft.engine.user_code.calls import CallResult, ProcessedItem
from weft.spiders.running_code import failed
from weft.spiders.scrapy.crawler import SUPPORTED, SpiderCrawler, SpiderLoop, SpiderSignals, finished
from weft.spiders.scrapy.values import decode_value

SLICE_S = 1.0  # after which what is left comes with another call
log = logging.getLogger("weft.scrapy")


class OpenPipelines:
    """The pipelines of one spider, opened."""

    def __init__(self, crawler: SpiderCrawler, loop: SpiderLoop) -> None:
        self._crawler, self._loop = crawler, loop
        self._signals: SpiderSignals = crawler.signals  # type: ignore[assignment]
        self._pipelines = [made for name in pipeline_names(crawler.settings) if (made := self._made(name)) is not None]
        for one in self._pipelines:
            if hasattr(one, "open_spider"):
                loop.run(finished(self._called(one.open_spider)))

    def close(self) -> None:
        """Calls `close_spider` of all; the first error is raised when all were called."""
        errors = list[Exception]()
        for one in self._pipelines:
            if hasattr(one, "close_spider"):
                try:
                    self._loop.run(finished(self._called(one.close_spider)))
                except Exception as error:
                    log.exception("close_spider of the pipeline %s has failed", type(one).__name__)
                    errors.append(error)
        if errors:
            raise errors[0]

    def process(self, items: list[bytes], result: CallResult) -> None:
        """As many of the items as there is time for, at least one."""
        until = time.monotonic() + SLICE_S
        for data in items:
            result.processed.append(self._loop.run(self._process(data)))
            if time.monotonic() >= until:
                break

    async def _process(self, data: bytes) -> ProcessedItem:
        from weft.spiders.scrapy.outputs import item_json  # its libraries are not needed to describe a spider

        item, stats = item_of(data), self._crawler.stats
        try:
            for one in self._pipelines:
                item = await finished(self._called(one.process_item, item))
            made = ProcessedItem(item_json(item))
        except DropItem as drop:
            log.warning("Dropped: %s", drop)
            stats.inc_value("item_dropped_count")
            stats.inc_value(f"item_dropped_reasons_count/{type(drop).__name__}")
            await self._signals.send(
                SUPPORTED["item_dropped"], item=item, response=None, exception=drop, spider=self._crawler.spider
            )
            return ProcessedItem(dropped=str(drop) or "dropped")
        except Exception as error:
            why = failed(error)
            log.error("Error processing %r\n%s", item, why.traceback)
            return ProcessedItem(error=why.error, traceback=why.traceback)
        stats.inc_value("item_scraped_count")
        await self._signals.send(SUPPORTED["item_scraped"], item=item, response=None, spider=self._crawler.spider)
        return made

    def _made(self, name: Any) -> Any:
        kind = load_object(name)
        try:
            return build_from_crawler(kind, self._crawler) if isinstance(kind, type) else kind
        except NotConfigured as why:
            log.warning("Disabled %s: %s", name, why)
            return None

    def _called(self, method: Callable[..., Any], *given: Any) -> Any:
        """Calls a method that may, or may not, have an argument for the spider."""
        parameters = inspect.signature(method).parameters.values()
        positional = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        takes_all = any(one.kind is one.VAR_POSITIONAL for one in parameters)
        takes_spider = takes_all or len(positional) > len(given)
        return method(*given, self._crawler.spider) if takes_spider else method(*given)


def pipeline_names(settings: Any) -> list[Any]:
    """The item pipelines (names or classes), in the order in which they are called."""
    return list(build_component_list(settings.getwithbase("ITEM_PIPELINES")))


def item_of(data: bytes) -> Any:
    """A committed item as its callback has yielded it; one from before there were pipelines as a mapping."""
    return msgspec.json.decode(data) if data[:1] == b"{" else decode_value(data)
