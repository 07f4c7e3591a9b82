"""An XMLFeedSpider."""

import scrapy
from scrapy.spiders import XMLFeedSpider


class FeedSpider(XMLFeedSpider):
    name = "xml_feed"
    itertag = "item"
    custom_settings = {"DOWNLOAD_DELAY": 0}

    def __init__(self, *args, site, **kwargs):
        super().__init__(*args, **kwargs)
        self.start_urls = [f"{site}feed.xml"]

    def parse_node(self, response, node):
        yield {"id": node.attrib["id"], "title": node.xpath("title/text()").get(), "type": type(response).__name__}
        if node.attrib["id"] == "2":
            yield scrapy.Request(response.urljoin("/other"), self.other)

    def other(self, response):
        return {"other": response.css("h1::text").get()}
