"""Spiders of the integration tests: written to files, as users have them."""

from __future__ import annotations

from pathlib import Path

QUOTES = """
import weft


class Quotes(weft.Spider):
    start_urls = ["{url}"]
    settings = {{"delay": 0, "allow_private": True, "prometheus_port": 0}}

    def parse(self, page):
        for quote in page.css("div.quote"):
            yield {{
                "text": quote.css("span.text").text,
                "author": quote.css("small.author").text,
                "tags": quote.css("a.tag").texts,
            }}
        yield from page.follow_all("li.next a")
        yield from page.follow_all("small.author + a", self.author)
        if page.depth == 0:
            yield page.follow("/search", self.search)

    def author(self, page):
        yield {{"name": page.css("h3").text, "born": page.css(".born").text}}

    def search(self, page):
        yield page.submit("#search", {{"author": "Alan Turing"}}, self.found)

    def found(self, page):
        yield {{"found": len(page.css("div.quote")), "from": page.parent}}
"""


def spider_file(folder: Path, text: str, name: str = "spider.py") -> Path:
    """A spider in a file of its own."""
    path = folder / name
    path.write_text(text)
    return path
