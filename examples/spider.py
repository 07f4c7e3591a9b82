"""A spider of one's own: what it takes from each page, and which links it follows, is Python.

    WEFT_EMAIL=you@example.com python examples/spider.py https://example.com > pages.jsonl

`weft run examples/spider.py -o pages.jsonl` does the same with START=https://example.com in the environment, and goes
on after a kill with --resume. docs/spiders.md has the rest: forms, logins, errors, tests.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import weft


class Headings(weft.Spider):
    """The headings of a site's pages, and how many links each has."""

    settings = {"scope": "any", "max_depth": 2}  # noqa: RUF012

    def start(self) -> Iterator[weft.Request]:
        yield weft.Request(os.environ["START"])

    def parse(self, page: weft.Page) -> Iterator[Any]:
        yield {
            "url": page.url,
            "title": page.title,
            "headings": page.css("h1, h2").texts,
            "links": len(page.links),
            "from": page.parent,
        }
        yield from page.follow_all("a[href]")


def main(url: str) -> None:
    os.environ["START"] = url  # the spider runs in processes of its own, which inherit this
    count = 0
    for item in weft.run(Headings):
        count += 1
        print(json.dumps(item), flush=True)
    print(f"{count} items", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
