"""Item pipelines, signals, stats and feeds."""

import scrapy
from itemadapter import ItemAdapter
from scrapy import signals
from scrapy.exceptions import DropItem


class Quote(scrapy.Item):
    text = scrapy.Field()
    author = scrapy.Field()
    number = scrapy.Field()


class NoAda:
    def process_item(self, item, spider):
        if ItemAdapter(item)["author"] == "Ada Lovelace":
            raise DropItem("no Ada")
        return item


class Counted:
    @classmethod
    def from_crawler(cls, crawler):
        pipeline = cls()
        pipeline.stats = crawler.stats
        pipeline.prefix = crawler.settings.get("PREFIX")
        return pipeline

    def open_spider(self, spider):
        self.count = spider.first

    async def process_item(self, item):
        self.count += 1
        self.stats.inc_value("counted")
        item["number"] = f"{self.prefix}{self.count}"
        return item

    def close_spider(self, spider):
        spider.counted = self.count


class PipelinesSpider(scrapy.Spider):
    name = "pipelines"
    custom_settings = {
        "DOWNLOAD_DELAY": 0,
        "PREFIX": "no. ",
        "ITEM_PIPELINES": {NoAda: 100, Counted: 200},
        "FEEDS": {"%(name)s-%(first)s.csv": {"format": "csv", "overwrite": True, "fields": ["number", "author"]}},
    }

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        spider.first, spider.told = 10, []
        crawler.signals.connect(spider.opened, signal=signals.spider_opened)
        crawler.signals.connect(spider.scraped, signal=signals.item_scraped)
        crawler.signals.connect(spider.dropped, signal=signals.item_dropped)
        return spider

    async def start(self):
        yield scrapy.Request(f"{self.site}page/1")

    def parse(self, response):
        for quote in response.css("div.quote"):
            yield Quote(text=quote.css("span.text::text").get(), author=quote.css("small::text").get())
        yield from response.follow_all(css="li.next a")

    def opened(self, spider):
        self.told.append("opened")

    def scraped(self, item):
        self.told.append("scraped")

    async def dropped(self, item, exception):
        self.told.append(str(exception))

    def closed(self, reason):
        stats = self.crawler.stats
        told = {name: self.told.count(name) for name in sorted(set(self.told))}
        with open("closed.txt", "w") as file:
            file.write(
                f"{reason} {told} {self.counted} {stats.get_value('counted')} {stats.get_value('item_dropped_count')}"
            )
