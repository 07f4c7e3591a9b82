"""CSS and XPath as rules use them: what they find, and what is refused before a page is fetched."""

from __future__ import annotations

import pytest

from weft.extract.page import extract
from weft.extract.rules import selectors
from weft.extract.rules.selectors import BadSelector
from weft.extract.text.full_text import one_line
from weft.extract.turbo import Document, Element

LIST = "<ul id=l><li class='a b'>1<li class=b>2<li lang=en-GB>3</ul><p title=Zoo>x<p>y"


def document(html: str) -> Document:
    searchable = extract(html.encode(), "https://e.org/", "text/html; charset=utf-8").searchable
    assert searchable is not None
    return searchable


def by_css(html: str, selector: str) -> list[str]:
    return [one_line(element) for element in selectors.selector(selector).find(document(html))]


def by_path(scope: Document | Element, path: str) -> list[str]:
    return [node if isinstance(node, str) else node.text for node in selectors.path(path).find(scope)]


@pytest.mark.parametrize(
    ("selector", "texts"),
    [
        ("li", "123"), ("#l > .b", "12"), ("li.a.b", "1"), ("li:nth-child(odd)", "13"), ("li:nth-child(-n+2)", "12"),
        ("li:nth-last-child(1)", "3"), ("li + li", "23"), (".a ~ li", "23"), ("[lang|=en]", "3"), ("[title^=Z]", "x"),
        ("[title$=oo]", "x"), ("[title*=o]", "x"), ("[title=zoo]", ""), ("[title=zoo i]", "x"), ("[title^='']", ""),
        ("li:not(.b, :last-child)", ""), ("li:not(.a)", "23"), ("ul:has(.a) li:last-child", "3"), ("p:has(+ p)", "x"),
        (":is(p, .a)", "1xy"), ("li , p", "123xy"), ("LI", "123"), ("p:only-of-type", ""),
        ("ul:only-of-type li:first-of-type", "1"), ("html:root > body > p", "xy"), ("[title=':hover']", ""),
    ],
)  # fmt: skip
def test_selectors(selector: str, texts: str) -> None:
    assert "".join(by_css(LIST, selector)) == texts


@pytest.mark.parametrize(
    "text",
    ["", " ", "a >", "a,,b", "a,", "a::text", "[x", ":nth-child(x)", "a[x==y]", ":not(a", "a)", "..", "a||b",
     "*a", "a:hover", "a:VISITED", "p:contains(x)", "a" * 1001, ":is(" * 300 + "a" + ")" * 300],
)  # fmt: skip
def test_selectors_that_are_refused(text: str) -> None:
    with pytest.raises(BadSelector):
        selectors.selector(text)


@pytest.mark.parametrize(
    ("path", "texts"),
    [
        ("//li", "123"), ("/html/body/ul/li[2]", "2"), ("//li[last()-1]", "2"), ("//li[position()>1]", "23"),
        ("//li[contains(@class, 'a')]", "1"), ("//ul/@id", "l"), ("//p[2]/preceding-sibling::p[1]/@title", "Zoo"),
        ("//li[. > 1 and . < 3]", "2"), ("//li[not(@class)]", "3"), ("//li[@class='b' or @lang]", "23"),
        ("(//li | //p)[4]", "x"), ("//*[name()='p'][2]", "y"), ("//ul[count(li)=3]/@id", "l"), ("//@title", "Zoo"),
        ("//li[starts-with(@lang, 'en')]/text()", "3"), ("//p[string-length(@title)=3]", "x"), ("/nothing", ""),
        ("//li[1]/../@id", "l"), ("//ul/descendant::li[3]", "3"), ("//li[@class != 'b']", "1"),
        ("//p[normalize-space() = 'y']", "y"), ("//li[2]/self::li", "2"), ("//li[2]/ancestor-or-self::ul/@id", "l"),
        ("count(//li)", "3"), ("string(//p[1]/@title)", "Zoo"), ("boolean(//li)", "true"), ("//p/following::p", "y"),
        ("//p[@title='foo($x)' or .='y']", "y"),
    ],
)  # fmt: skip
def test_paths(path: str, texts: str) -> None:
    assert "".join(by_path(document(LIST), path)) == texts


def test_searches_from_an_element_stay_in_it_unless_a_path_is_absolute() -> None:
    page = document("<div><b>1</b></div><div><b>2</b></div>")
    second = page.select("div")[1]
    assert by_path(second, ".//b") == by_path(second, "b") == ["2"]
    assert by_path(second, "//b") == ["1", "2"]
    assert [one.text for one in selectors.selector("body b").find(second)] == ["2"]


@pytest.mark.parametrize(
    "text",
    ["", "//", "a[", "a[]", "//a[@", "foo::a", "//a[foo()]", "$x", "//a[$x]", "//a]", "a b", "((((((((((a",
     "re:test(., 'x')", "document('file:///etc/passwd')", "a" * 1001],
)  # fmt: skip
def test_paths_that_are_refused(text: str) -> None:
    with pytest.raises(BadSelector):
        selectors.path(text)


@pytest.mark.parametrize(
    ("path", "gives_texts"),
    [("//a/@href", True), ("//a/text()", True), ("//a[@href]", False), ("//a[text()='x']", False), ("//a", False),
     ("(//a/@href)[1]", True), ("//p/text()[2]", True)],
)  # fmt: skip
def test_a_path_shows_whether_it_gives_texts(path: str, gives_texts: bool) -> None:
    assert selectors.path(path).gives_texts is gives_texts


def test_templates_are_no_part_of_a_page_but_shadow_roots_are() -> None:
    html = (
        "<template><p>T</template><div>x<template shadowrootmode=open>w<p>S</p></template>after<br>z</div>"
        "<svg><linearGradient/><![CDATA[c]]></svg><!-- no --><script>s</script><select><option>o</select>"
    )
    page = document(html)
    assert page.root is not None
    assert one_line(page.root) == "xw S after z c o"
    assert by_css(html, "p") == ["S"]
    assert by_css(html, "div > p") == ["S"]
    assert by_path(page, "//p") == ["S"]
