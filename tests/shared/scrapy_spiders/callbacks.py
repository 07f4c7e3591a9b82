"""Callbacks of every kind, and what meta and cb_kwargs carry."""

import asyncio
import dataclasses
import datetime
from decimal import Decimal

import attrs
import scrapy


class Book(scrapy.Item):
    title = scrapy.Field()
    price = scrapy.Field(serializer=str)


@dataclasses.dataclass
class Place:
    shelf: int
    tags: set


@attrs.define
class Owner:
    name: str


class CallbacksSpider(scrapy.Spider):
    name = "callbacks"
    custom_settings = {"DOWNLOAD_DELAY": 0}

    def __init__(self, site, kinds="one,many,made,waited,streamed", **kwargs):
        super().__init__(**kwargs)
        self.site = site
        self.kinds = kinds.split(",")
        self.seen = []

    async def start(self):
        await asyncio.sleep(0)
        for number, kind in enumerate(self.kinds, 1):
            yield scrapy.Request(
                f"{self.site}page/1?{kind}",
                getattr(self, kind),
                meta={
                    "raw": b"\x00\xff",
                    "pair": (1, "zwei"),
                    "kinds": {kind},
                    "day": datetime.date(2024, 2, 29),
                    "at": datetime.datetime(2024, 2, 29, 12, 30),
                    "price": Decimal("1.10"),
                    3: "three",
                },  # fmt: skip
                cb_kwargs={
                    "book": Book(title=f"Book {number}"),
                    "place": Place(number, {"a"}),
                    "owner": Owner(kind),
                    "number": number,
                },  # fmt: skip
            )

    def described(self, response, book, place, owner, number):
        meta = response.meta
        self.seen.append(owner.name)
        assert isinstance(book, Book) and isinstance(place, Place) and isinstance(owner, Owner)
        return {
            "title": book["title"], "shelf": place.shelf, "owner": owner.name, "number": number,
            "raw": meta["raw"].hex(), "pair": list(meta["pair"]), "is_tuple": isinstance(meta["pair"], tuple),
            "kinds": sorted(meta["kinds"]), "day": meta["day"], "at": meta["at"], "price": meta["price"], "three": meta[3],
            "depth": meta.get("depth", 0), "status": response.status, "type": type(response).__name__, "ip": str(response.ip_address),
            "first": response.css("span.text::text").get(),
        }  # fmt: skip

    def one(self, response, **carried):
        return self.described(response, **carried)

    def many(self, response, **carried):
        return [self.described(response, **carried), Book(title="second", price=Decimal("2.50"))]

    def made(self, response, **carried):
        yield self.described(response, **carried)
        yield Place(9, {"only"})
        yield Owner("attrs")

    async def waited(self, response, **carried):
        await asyncio.sleep(0.01)
        return [self.described(response, **carried)]

    async def streamed(self, response, **carried):
        yield self.described(response, **carried)
        await asyncio.sleep(0.01)
        yield response.follow("/other", self.last, cb_kwargs={"kinds": carried["number"]})

    def last(self, response, kinds):
        yield {"last": response.xpath("//h1/text()").get(), "kinds": kinds, "depth": response.meta["depth"]}
