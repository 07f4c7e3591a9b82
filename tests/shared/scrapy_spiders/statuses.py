"""Answers that are no pages, and redirects."""

from urllib.parse import urlsplit

import scrapy


class StatusesSpider(scrapy.Spider):
    name = "statuses"
    handle_httpstatus_list = [404]
    custom_settings = {"DOWNLOAD_DELAY": 0, "HTTPERROR_ALLOWED_CODES": [410]}

    async def start(self):
        for name, meta in (
            ("missing", {}), ("gone", {}), ("gone?listed", {"handle_httpstatus_list": [410]}),
            ("teapot", {}), ("teapot?all", {"handle_httpstatus_all": True}),
            ("moved", {}), ("moved?kept", {"dont_redirect": True, "handle_httpstatus_list": [302]}),
        ):  # fmt: skip
            yield scrapy.Request(f"{self.site}{name}", meta=meta, cb_kwargs={"name": name})

    def parse(self, response, name):
        yield {
            "name": name, "status": response.status, "path": urlsplit(response.url).path,
            "redirects": [urlsplit(url).path for url in response.meta.get("redirect_urls", [])],
            "location": response.headers.get("Location", b"").decode(), "heading": response.css("h1::text").get(),
        }  # fmt: skip
