"""A CrawlSpider: rules with callbacks, arguments, and links that are left out."""

from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule


class RulesSpider(CrawlSpider):
    name = "rules"
    custom_settings = {"DOWNLOAD_DELAY": 0}
    rules = (
        Rule(LinkExtractor(allow=r"/thing/"), callback="parse_thing", cb_kwargs={"kind": "thing"}, follow=True),
        Rule(LinkExtractor(allow=r"/list/"), process_links="some"),
        Rule(LinkExtractor(allow=r"/missing"), callback="parse_thing", errback="failed"),
    )

    def __init__(self, *args, site, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [f"{site}list/1"]

    def parse_start_url(self, response):
        return {"start": response.css("h1::text").get()}

    def some(self, links):
        return [link for link in links if not link.url.endswith("/3")]

    def parse_thing(self, response, kind):
        yield {"kind": kind, "heading": response.css("h1::text").get(), "link": response.meta["link_text"]}

    def failed(self, failure):
        yield {"failed": failure.value.response.status}
