"""CSS and XPath over a Tree find what turbohtml's own engines find, on both parsers."""

from __future__ import annotations

import pytest

from weft.extract import css, xpath
from weft.extract.budget import Budget
from weft.extract.parse import parse as tree_of
from weft.extract.tree import NO_ELEMENT, Tree


def tree(html: str) -> Tree:
    return Tree(tree_of(html)[0])


def by_css(html: str, selector: str) -> list[str]:
    made = tree(html)
    return [made.words(number) for number in css.parse(selector).find(made, Budget(len(html)))]


def by_path(html: str, path: str, start: int = NO_ELEMENT) -> list[str]:
    made = tree(html)
    found = xpath.parse(path).find(made, start, Budget(len(html)))
    return [node if isinstance(node, str) else made.text(node) for node in found]


LIST = "<ul id=l><li class='a b'>1<li class=b>2<li lang=en-GB>3</ul><p title=Zoo>x<p>y"


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("li", "123"), ("*|*", None), ("#l > .b", "12"), ("li.a.b", "1"), ("li:nth-child(odd)", "13"),
        ("li:nth-child(-n+2)", "12"), ("li:nth-last-child(1)", "3"), ("li + li", "23"), (".a ~ li", "23"),
        ("[lang|=en]", "3"), ("[title^=Z]", "x"), ("[title$=oo]", "x"), ("[title*=o]", "x"), ("[title=zoo]", ""),
        ("[title=zoo i]", "x"), ("[title^='']", ""), ("li:not(.b, :last-child)", ""), ("li:not(.a)", "23"),
        ("ul:has(.a) li:last-child", "3"), ("p:has(+ p)", "x"), (":is(p, .a)", "1xy"), ("li , p", "123xy"),
        ("LI", "123"), ("p:only-of-type", ""), ("ul:only-of-type li:first-of-type", "1"),
        ("html:root > body > p", "xy"),
    ],
)  # fmt: skip
def test_selectors(selector: str, found: str | None) -> None:
    if found is None:
        with pytest.raises(css.BadSelector):
            css.parse(selector)
    else:
        assert "".join(by_css(LIST, selector)) == found


@pytest.mark.parametrize(
    "text",
    ["", " ", "a >", "> a", "a,,b", "a,", "a::text", "[x", ":nth-child(x)", "a[x==y]", ":not()", ":not(a", "a)", "1a",
     "..", "a||b", "a\\", "*a", ":is(" * 6 + "a" + ")" * 6, "[" + "é" * 400 + "(", "[" + "\\111111" * 100 + "("],
)  # fmt: skip
def test_selectors_that_are_refused(text: str) -> None:
    with pytest.raises(css.BadSelector):
        css.parse(text)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("//li", "123"), ("/html/body/ul/li[2]", "2"), ("//li[last()-1]", "2"), ("//li[position()>1]", "23"),
        ("//li[contains(@class, 'a')]", "1"), ("//ul/@id", "l"), ("//p[2]/preceding-sibling::p[1]/@title", "Zoo"),
        ("//li[. > 1 and . < 3]", "2"), ("//li[not(@class)]", "3"), ("//li[@class='b' or @lang]", "23"),
        ("(//li | //p)[4]", "x"), ("//*[name()='p'][2]", "y"), ("//ul[count(li)=3]/@id", "l"), ("//@title", "Zoo"),
        ("//li[starts-with(@lang, 'en')]/text()", "3"), ("//p[string-length(@title)=3]", "x"), ("/nothing", ""),
        ("//li[1]/../@id", "l"), ("//ul/descendant::li[3]", "3"), ("//LI[2]", "2"), ("//li[@class != 'b']", "1"),
        ("//p[normalize-space() = 'y']", "y"), ("//li[2]/self::li", "2"), ("//li[2]/ancestor-or-self::ul/@id", "l"),
    ],
)  # fmt: skip
def test_paths(path: str, found: str) -> None:
    assert "".join(by_path(LIST, path)) == found


def test_a_path_from_an_element_stays_in_it_unless_it_is_absolute() -> None:
    html = "<div><b>1</b></div><div><b>2</b></div>"
    second = tree(html).tags.index("div") + 2
    assert by_path(html, ".//b", second) == by_path(html, "b", second) == ["2"]
    assert by_path(html, "//b", second) == ["1", "2"]


@pytest.mark.parametrize(
    "text",
    ["", "//", "/", "a[", "a[]", "//a[@", "foo::a", "//a[foo()]", "$x", "a/@b/c", "count(a)", "//a]", "a[contains(a)]",
     "a[" * 20, "1", "'x'", "a b", "//@*", "a[@b[1]]", "id('x')", "//a/text()/b", "a[1 * 2]",
     "following::a", "((((((((((a"],
)  # fmt: skip
def test_paths_that_are_refused(text: str) -> None:
    with pytest.raises(xpath.BadPath):
        xpath.parse(text)
