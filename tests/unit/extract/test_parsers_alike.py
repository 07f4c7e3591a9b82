"""Generated pages: both parsers give the same trees, fields and formats; selectors find what another engine finds."""

from __future__ import annotations

import json
from typing import Any

from generated_pages import pages, paths, selectors
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from turbohtml import Element

from weft.extract import css, parse, turbo, xpath
from weft.extract.budget import Budget
from weft.extract.formats import WHOLE, Shape, render
from weft.extract.page import Page, extract
from weft.extract.parse import parse as tree_of
from weft.extract.rules import compile_rules
from weft.extract.tree import NO_ELEMENT, Tree

_GENERATED = settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.filter_too_much],
)
_sources = st.one_of(
    selectors.map(lambda css: {"css": css}), paths.map(lambda path: {"xpath": path}), st.just({"regex": r"\d+"})
)
_types = st.sampled_from(["text", "number", "date", "url", "html"])


def page_of(html: str) -> Page:
    return extract(html.encode("utf-8", "surrogatepass"), "https://e.org/d/p", "text/html; charset=utf-8")


def tree(html: str) -> Tree:
    return Tree(tree_of(html)[0])


def _texts(html: str, path: str) -> list[str]:
    made = tree(html)
    found = xpath.parse(path).find(made, NO_ELEMENT, Budget(len(html)))
    return [node if isinstance(node, str) else made.text(node) for node in found]


@_GENERATED
@given(html=pages, source=_sources, kind=_types, many=st.booleans())
def test_both_parsers_give_the_same_fields(html: str, source: dict[str, str], kind: str, many: bool) -> None:
    rules = compile_rules(
        {
            "one": {**source, "type": kind, "many": many},
            "inner": {"css": "div", "many": True, "fields": {"x": {**source, "many": True}}},
        }
    )
    found = []
    for parser in parse.PARSERS:
        parse.choose(parser)
        found.append(rules.apply(page_of(html)))
    assert found[0] == found[1]
    json.dumps(found[0].values).encode()
    if kind == "number" and not many and found[0].values["one"] is None:
        nothing = compile_rules({"one": source}).apply(page_of(html)).values["one"] is None
        assert nothing or "one" in found[0].errors


@_GENERATED
@given(html=pages, include=selectors, exclude=selectors)
def test_both_parsers_give_the_same_html_links_and_images(html: str, include: str, exclude: str) -> None:
    found = []
    for parser in parse.PARSERS:
        parse.choose(parser)
        page = page_of(html)
        shapes = (
            WHOLE,
            Shape(False, (), (exclude,)),
            Shape(include=(include,)),
            Shape(include=(include,), exclude=(exclude,)),
        )
        found.append([render(page, ["html", "links", "images", "rawHtml"], shape) for shape in shapes])
    assert found[0] == found[1]


@_GENERATED
@given(html=pages, selector=selectors)
def test_selectors_find_what_another_engine_finds(html: str, selector: str) -> None:
    assume("template" not in html)  # whose content is no part of the page here
    theirs: Any = turbo.parse_at_once(html)
    made = tree(html)
    everything = theirs.select("*")
    wanted = [everything.index(one) for one in theirs.select(selector)]
    assert css.parse(selector).find(made, Budget(len(html))) == wanted


@_GENERATED
@given(html=pages, path=paths)
def test_paths_find_what_another_engine_finds(html: str, path: str) -> None:
    assume("template" not in html)
    theirs: Any = turbo.parse_at_once(html)
    found = [one.text if isinstance(one, Element) else str(getattr(one, "text", one)) for one in theirs.xpath(path)]
    assert _texts(html, path) == found


def test_both_parsers_make_the_same_tree_of_a_page_with_all_kinds_of_nodes() -> None:
    html = (
        "<template><p>T</template><div>x<template shadowrootmode=open>w<p>S</p></template>after<br>z</div>"
        "<svg><linearGradient/><![CDATA[c]]></svg><!-- no --><script>s</script><select><option>o</select>"
    )
    made = []
    for parser in parse.PARSERS:
        parse.choose(parser)
        one = tree(html)
        made.append((one.tags, one.parents, one.ends, list(one.nodes(0)), one.words(0)))
    assert made[0] == made[1]
    assert made[0][4] == "xw S after z c o"
