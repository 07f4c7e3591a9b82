"""A SitemapSpider: from robots.txt over an index to files, one of them compressed."""

from scrapy.spiders import SitemapSpider


class ShopSpider(SitemapSpider):
    name = "sitemap"
    sitemap_rules = [("/shop/", "parse_shop"), ("/news/", "parse_news")]
    custom_settings = {"DOWNLOAD_DELAY": 0}

    def __init__(self, *args, site, **kwargs):
        self.sitemap_urls = [f"{site}maps/robots.txt"]
        super().__init__(*args, **kwargs)

    def parse_shop(self, response):
        yield {"shop": response.css("h1::text").get()}

    def parse_news(self, response):
        yield {"news": response.css("h1::text").get()}
