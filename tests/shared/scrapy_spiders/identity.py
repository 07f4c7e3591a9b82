"""Which requests are made, and how often: duplicates, dont_filter, domains, depth."""

import scrapy


class IdentitySpider(scrapy.Spider):
    name = "identity"
    allowed_domains = ["127.0.0.1"]
    custom_settings = {"DOWNLOAD_DELAY": 0, "DEPTH_LIMIT": 3, "URLLENGTH_LIMIT": 500}

    @property
    def start_urls(self):
        return [f"{self.site}level/0"]

    def parse(self, response):
        level = int(response.css("h1::text").get())
        yield {"level": level, "depth": response.meta["depth"]}
        yield from response.follow_all(css="a")
        if level == 0:
            for _ in range(3):
                yield response.follow("/other", self.once, cb_kwargs={"kind": "filtered"})
                yield response.follow("/other", self.once, cb_kwargs={"kind": "again"}, dont_filter=True)
            yield scrapy.Request("http://offsite.test/", self.once, cb_kwargs={"kind": "offsite"})
            port = self.site.rsplit(":", 1)[1]
            yield scrapy.Request(f"http://localhost:{port}other", self.once, cb_kwargs={"kind": "other host"})
            yield scrapy.Request(
                f"http://localhost:{port}other", self.once, cb_kwargs={"kind": "allowed"}, meta={"allow_offsite": True}
            )

    def once(self, response, kind):
        yield {"kind": kind}
