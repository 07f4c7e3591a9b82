"""A page as Markdown, text, HTML, source, links, metadata and images."""

from __future__ import annotations

import pytest

from weft.extract import formats
from weft.extract.formats import FORMATS, MAIN, WHOLE, Shape, render
from weft.extract.page import ParsedPage, extract
from weft.extract.rules.field_rules import BadRules
from weft.extract.text.page_kind import PageKind

HTML = """<html lang=en><head><title>The title</title><base href=/b/><meta name=author content=Ann>
<meta property=og:title content=OG><link rel=canonical href=/c></head><body><nav><a href=n>nav</a></nav><main>
<h1>Head <i>line</i></h1><p>Some <b>long</b> text with <a href=x onclick=y style=z>a link</a> and
<img src=i.png srcset=a alt=A>.</p><div class=ad>Ad <a href=ad>x</a><a href='javascript:alert(1)'>js</a></div>
<script>no()</script><svg><a href=s>t</a></svg><form><p>in a form<input name=q></form><table><tr><td>1<td>2</table>
</main><footer>foot <a href=x>again</a></footer></body></html>"""
URL = "https://e.org/p"


def page_of(html: str = HTML, kind: str = "text/html") -> ParsedPage:
    return extract(html.encode("utf-8", "surrogatepass"), URL, f"{kind}; charset=utf-8")


def test_the_main_content() -> None:
    found = render(page_of(), FORMATS)
    assert found["text"] == "Head line\n\nSome long text with a link and .\n\nAd xjs\n\n1 2"
    assert "# Head *line*" in str(found["markdown"])
    assert "[a link](https://e.org/b/x)" in str(found["markdown"])
    assert found["links"] == ["https://e.org/b/x", "https://e.org/b/ad"]
    assert found["images"] == ["https://e.org/b/i.png"]
    assert found["rawHtml"] == HTML
    described = dict(found["metadata"])  # type: ignore[arg-type]
    assert (described.pop("kind") in set(PageKind), 0 < float(described.pop("kind_certainty")) <= 1) == (True, True)  # type: ignore[arg-type]
    assert described == {
        "title": "The title", "language": "en", "canonical": "https://e.org/c", "charset": "utf-8",
        "open_graph": {"title": "OG"}, "author": "Ann",
    }  # fmt: skip


def test_html_is_cleaned_and_absolute() -> None:
    html = str(render(page_of(), ["html"])["html"])
    assert '<a href="https://e.org/b/x">a link</a>' in html
    assert '<img src="https://e.org/b/i.png" alt="A">' in html
    for gone in ("onclick", "style", "script", "javascript", "svg", "srcset", "<nav", "<body", "foot"):
        assert gone not in html


def test_the_whole_page() -> None:
    found = render(page_of(), ["text", "links", "html"], WHOLE)
    assert str(found["text"]).startswith("nav\n\nHead line")
    assert str(found["text"]).endswith("foot again")
    assert found["links"] == ["https://e.org/b/n", "https://e.org/b/x", "https://e.org/b/ad"]
    assert "<form>" in str(found["html"])
    assert "input" not in str(found["html"])


def test_what_is_included_is_the_page() -> None:
    found = render(page_of(), ["markdown", "links", "html"], Shape(include=("h1", "main", "tr", "footer a")))
    assert str(found["markdown"]).startswith("# Head *line*")
    assert "nav" not in str(found["html"])
    assert found["links"] == ["https://e.org/b/x", "https://e.org/b/ad"]
    rows = render(page_of(), ["html", "text"], Shape(include=("td",)))
    assert (
        rows["html"]
        == "<table><tbody><tr><td>1</td></tr></tbody></table><table><tbody><tr><td>2</td></tr></tbody></table>"
    )


@pytest.mark.parametrize("shape", [MAIN, WHOLE, Shape(include=("main",))])
def test_what_is_excluded_is_gone(shape: Shape) -> None:
    found = render(
        page_of(), ["markdown", "text", "html", "links"], Shape(shape.main_only, shape.include, (".ad", "i, table"))
    )
    for value in (found["markdown"], found["text"], found["html"]):
        assert "Ad" not in str(value)
        assert "line" not in str(value)
        assert "2" not in str(value)
    assert "https://e.org/b/ad" not in str(found["links"])


def test_rendering_leaves_the_page_as_it_was() -> None:
    page = page_of()
    before = render(page, FORMATS)
    render(page, FORMATS, Shape(False, ("p",), ("b",)))
    assert render(page, FORMATS) == before


def test_what_is_no_html_is_its_text() -> None:
    page = page_of("a < b", "text/plain")
    found = render(page, FORMATS)
    assert found == {
        "markdown": "a < b", "text": "a < b", "html": "", "rawHtml": "a < b", "links": [], "images": [],
        "metadata": {"charset": "utf-8"} | ({"language": page.language} if page.language else {}),
    }  # fmt: skip


def test_formats_and_selectors_are_checked_by_name() -> None:
    assert formats.check_formats(["html", "text", "html"]) == ("html", "text")
    with pytest.raises(BadRules) as caught:
        formats.check_formats(["text", "pdf"])
    assert caught.value.found[0][0] == "formats"
    with pytest.raises(BadRules) as caught:
        formats.check_shape(True, ["a["], ["b", ":hover"], ("include_tags", "exclude_tags"))
    assert [at for at, _ in caught.value.found] == ["include_tags", "exclude_tags"]
