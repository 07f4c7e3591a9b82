"""Stored pages in formats, by parser children."""

from __future__ import annotations

from typing import Any

import pytest

from weft.engine.parsing.parsers import Parsers
from weft.engine.parsing.rendering import FormatReader, page_formats_of
from weft.engine.stored.stored_page import CrawledPage
from weft.errors import Unparsed
from weft.extract.rules.field_rules import BadRules
from weft.records import Row

HEADERS = (("Content-Type", "text/html; charset=utf-8"),)


def page(body: str) -> CrawledPage:
    url = "http://a.test/dir/"
    row = Row(1, 1, url, url, 200, 1.0, "text/html", "utf-8", "", "", 0, 0, "", len(body), "")
    return CrawledPage(row, HEADERS, body.encode())


def test_pages_are_rendered_by_one_order_and_one_that_kills_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_DEADLY_MARK", "kills-parsers")
    order = page_formats_of(["markdown", "links"], only_main_content=False, exclude_tags=[".ad"])
    bodies = ["<h1>A</h1><a href=x>y</a><p class=ad>no", "kills-parsers", "<h1>B</h1>"]
    with Parsers() as parsers:
        renderer = FormatReader(parsers, order)
        first, second, third = [renderer(page(body)) for body in bodies]
        assert first() == {"markdown": "# A\n\n[y](http://a.test/dir/x)", "links": ["http://a.test/dir/x"]}
        with pytest.raises(Unparsed):
            second()
        assert third() == {"markdown": "# B", "links": []}


@pytest.mark.parametrize(
    ("links", "says"), [("keep", "See [y](http://a.test/dir/x)"), ("text", "See y"), ("drop", "See")]
)
@pytest.mark.parametrize("shape", [{}, {"only_main_content": False}, {"exclude_tags": [".ad"]}])
def test_links_in_markdown_are_kept_or_not(links: str, says: str, shape: dict[str, Any]) -> None:
    with Parsers() as parsers:
        found = FormatReader(parsers, page_formats_of(["markdown"], links=links, **shape))(
            page("<p>See <a href=x>y</a></p>")
        )()
    assert found == {"markdown": says}


def test_the_same_in_process() -> None:
    assert page("<main><p>x</main>").formats(["text", "rawHtml"]) == {"text": "x", "rawHtml": "<main><p>x</main>"}


@pytest.mark.parametrize(
    ("formats", "options", "path"),
    [
        (["pdf"], {}, "formats"),
        (["text"], {"include_tags": ["a["]}, "include_tags"),
        (["text"], {"exclude_tags": [":hover"]}, "exclude_tags"),
        (["markdown"], {"links": "none"}, "links"),
    ],
)
def test_what_cannot_be_rendered_is_refused_by_name(formats: list[str], options: dict[str, Any], path: str) -> None:
    with pytest.raises(BadRules) as caught:
        page_formats_of(formats, **options)
    assert [at for at, _ in caught.value.found] == [path]
