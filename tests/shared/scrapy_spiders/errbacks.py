"""Errbacks, with each kind of failure."""

import scrapy
from scrapy import exceptions
from scrapy.spidermiddlewares.httperror import HttpError
from twisted.internet.error import DNSLookupError, TCPTimedOutError, TimeoutError

KINDS = {
    "http": (HttpError,),
    "timeout": (TimeoutError, TCPTimedOutError, getattr(exceptions, "DownloadTimeoutError", TimeoutError)),
    "dns": (DNSLookupError, getattr(exceptions, "CannotResolveHostError", DNSLookupError)),
    "ignored": (exceptions.IgnoreRequest,),
}


class ErrbacksSpider(scrapy.Spider):
    name = "errbacks"
    custom_settings = {"DOWNLOAD_DELAY": 0, "RETRY_ENABLED": False, "ROBOTSTXT_OBEY": True}

    async def start(self):
        yield scrapy.Request(f"{self.site}page/1", self.first)

    def first(self, response):
        for name, url, meta in (
            ("missing", f"{self.site}missing", {}),
            ("slow", f"{self.site}slow", {"download_timeout": 1}),
            ("secret", f"{self.site}secret/1", {}),
            ("nowhere", "http://nowhere.invalid/", {}),
            ("fine", f"{self.site}page/2", {}),
        ):
            yield scrapy.Request(url, self.parse, errback=self.failed, meta=meta, cb_kwargs={"name": name})

    def parse(self, response, name):
        yield {"name": name, "status": response.status}

    def failed(self, failure):
        kind = next(kind for kind, classes in KINDS.items() if failure.check(*classes))
        status = failure.value.response.status if kind == "http" else None
        yield {"name": failure.request.cb_kwargs["name"], "kind": kind, "status": status}
        if kind == "http":
            yield scrapy.Request(f"{self.site}other", self.parse, cb_kwargs={"name": "instead"})
