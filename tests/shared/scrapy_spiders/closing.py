"""A spider that ends its crawl, and what its object holds for the whole of it."""

import scrapy
from scrapy.exceptions import CloseSpider


class ClosingSpider(scrapy.Spider):
    name = "closing"
    custom_settings = {"DOWNLOAD_DELAY": 0}
    last = "3"

    async def start(self):
        for request in self.start_requests():
            yield request

    def start_requests(self):
        self.total = 0
        yield scrapy.Request(f"{self.site}level/0")

    def parse(self, response):
        level = response.css("h1::text").get()
        self.total += int(level)
        yield {"level": level, "total": self.total}
        if level == self.last:
            raise CloseSpider("enough")
        yield from response.follow_all(css="a")
