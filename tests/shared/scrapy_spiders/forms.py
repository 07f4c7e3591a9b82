"""Requests of all kinds: forms, JSON, other methods, headers, and the request that an answer belongs to."""

import json

import scrapy
from scrapy.http import FormRequest, JsonRequest


class FormsSpider(scrapy.Spider):
    name = "forms"
    custom_settings = {"DOWNLOAD_DELAY": 0, "DEFAULT_REQUEST_HEADERS": {"X-Default": "yes"}}
    http_user, http_pass = "ada", "lovelace"

    @property
    def http_auth_domain(self):
        return self.site.split("/")[2]

    async def start(self):
        yield scrapy.Request(f"{self.site}form", self.form)
        yield FormRequest(f"{self.site}echo?form", self.echoed, formdata={"a": "1", "b": ["x", "y"]})
        yield JsonRequest(f"{self.site}echo?json", self.echoed, data={"q": [1, None]}, headers={"X-One": "first"})
        yield scrapy.Request(f"{self.site}echo?put", self.echoed, method="PUT", body="grüße", flags=["put"])
        for page in (1, 2):
            yield scrapy.Request(f"{self.site}echo", self.echoed, method="POST", body=json.dumps({"page": page}))

    def form(self, response):
        yield FormRequest.from_response(response, formid="f", formdata={"q": "lamps"}, callback=self.sent)

    def sent(self, response):
        yield {"sent": sorted(response.css("p::text").getall()), "method": response.request.method}

    def echoed(self, response):
        data = response.json()
        yield {
            "method": data["method"], "path": data["path"], "body": data["body"], "headers": data["headers"],
            "same": response.request.body.decode() == data["body"], "type": type(response.request).__name__,
            "flags": response.flags,
        }  # fmt: skip
