"""Cookies: those that requests bring along, and several sessions at one site."""

import scrapy
from scrapy.http import FormRequest


class CookiesSpider(scrapy.Spider):
    name = "cookies"
    custom_settings = {"DOWNLOAD_DELAY": 0}

    async def start(self):
        for jar in range(3):
            yield scrapy.Request(
                f"{self.site}bag?{jar}", self.first, cookies={"who": f"user{jar}", "n": jar}, meta={"cookiejar": jar}
            )
        yield scrapy.Request(f"{self.site}login", self.login, meta={"cookiejar": "login"})

    def first(self, response):
        yield {"first": response.css("li::text").getall(), "jar": response.meta["cookiejar"]}
        jar = response.meta["cookiejar"]
        yield response.follow(f"/bag?{jar}-again", self.second, meta={"cookiejar": jar})

    def second(self, response):
        yield {"second": response.css("li::text").getall(), "jar": response.meta["cookiejar"]}

    def login(self, response):
        yield FormRequest.from_response(
            response, formdata={"user": "ada", "password": "s3cret-pass"}, callback=self.inside,
            meta={"cookiejar": response.meta["cookiejar"]},
        )  # fmt: skip

    def inside(self, response):
        yield {"secret": response.css("p.secret::text").get(), "came_by": len(response.meta["redirect_urls"])}
        for link in response.css("a.next"):
            yield response.follow(link, self.further, meta={"cookiejar": response.meta["cookiejar"]})

    def further(self, response):
        yield {"secret": response.css("p.secret::text").get()}
