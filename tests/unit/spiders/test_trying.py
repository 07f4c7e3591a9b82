"""`weft.try_spider`: a spider over pages that a test gives it, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

import weft
from weft.errors import BadInput

PAGES: dict[str, str | bytes | weft.Page] = {
    "http://h.test/": "<p class=q>one<p class=q>drop<p><a class=next href=/2>next</a><a class=by href=/ada>Ada</a>",
    "http://h.test/2": "<p class=q>two</p><a class=next href=/3>next</a><a class=by href=/ada>Ada</a>",
    "http://h.test/ada": "<h1>Ada</h1>",
    "http://h.test/api": '{"n": 7}',
}


@dataclass
class Author:
    name: str


class Number(msgspec.Struct):
    n: int


class Quotes(weft.Spider):
    start_urls = ("http://h.test/", "http://h.test/api")

    def parse(self, page: weft.Page) -> Iterator[Any]:
        if page.url.endswith("/api"):
            yield Number(page.json()["n"])
            return
        for quote in page.css("p.q"):
            yield {"text": quote.text, "depth": page.depth, "parent": page.parent}
        yield from page.follow_all("a.next")
        yield from page.follow_all("a.by", self.author, meta={"from": page.url})

    def author(self, page: weft.Page) -> Author:
        return Author(f"{page.css('h1').text} from {page.meta['from']}")

    def process_item(self, item: Any) -> Any:
        return None if isinstance(item, dict) and item["text"] == "drop" else item


def test_a_spider_runs_over_given_pages() -> None:
    tried = weft.try_spider(Quotes, PAGES)
    assert tried.items == [
        {"text": "one", "depth": 0, "parent": None},
        {"n": 7},
        {"text": "two", "depth": 1, "parent": "http://h.test/"},
        {"name": "Ada from http://h.test/"},
    ]
    assert tried.visited == ["http://h.test/", "http://h.test/api", "http://h.test/2", "http://h.test/ada"]
    assert [request.url for request in tried.missing] == ["http://h.test/3"]


def test_what_a_callback_may_not_yield_is_named() -> None:
    class Wrong(weft.Spider):
        start_urls = ("http://h.test/",)

        def parse(self, page: weft.Page) -> Iterator[Any]:
            yield {"ok": 1}
            yield page.title

    with pytest.raises(BadInput, match="a str was yielded"):
        weft.try_spider(Wrong, PAGES)


def test_a_start_that_is_no_method_is_refused() -> None:
    class Wrong(weft.Spider):
        start = "http://h.test/"  # type: ignore[assignment]

    with pytest.raises(BadInput, match=r"Wrong\.start is a str, not a method: write the first URLs as `start_urls"):
        weft.try_spider(Wrong, PAGES)


def test_an_item_that_cannot_be_kept_names_its_field() -> None:
    class Wrong(weft.Spider):
        start_urls = ("http://h.test/",)

        def parse(self, page: weft.Page) -> Iterator[Any]:
            yield {"page": page}

    with pytest.raises(BadInput, match="an item cannot be kept: 'page'"):
        weft.try_spider(Wrong, PAGES)
