"""Rules over odd pages, over generated ones, and over hostile ones: each field is right, or in `errors`."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_pages import BASE, PAGES, Odd
from pace import patience

from weft import patterns
from weft.engine.parsing.extracted import TOO_SLOW
from weft.engine.parsing.parsers import Parsers
from weft.errors import Missing
from weft.extract.page import ParsedPage, extract
from weft.extract.rules.field_rules import MAX_CHARS, MAX_RESULTS, BadRules, ExtractedFields, compile_rules


def page_of(html: str) -> ParsedPage:
    return extract(html.encode("utf-8", "surrogatepass"), BASE, "text/html; charset=utf-8")


def fields_of(html: str, **rules: Any) -> ExtractedFields:
    return compile_rules(rules).apply(page_of(html))


def test_there_are_forty_pages() -> None:
    assert len(PAGES) >= 40


@pytest.mark.parametrize("odd", PAGES, ids=lambda odd: odd.name)
def test_each_field_is_right_or_in_error(odd: Odd) -> None:
    fields = compile_rules(odd.rules).apply(page_of(odd.html))
    assert fields.values == odd.values
    assert tuple(fields.errors) == odd.errors


def test_code_keeps_its_white_space() -> None:
    page = "<pre>\n  if a:\n    <b>go</b>()\n</pre><pre> \n </pre><p title=' t '>x</p>"
    code = {"css": "pre", "type": "code"}
    fields = fields_of(
        page, first=code, all={**code, "many": True}, inside={"xpath": "//pre/text()", "type": "code"},
        attribute={"css": "p", "attr": "title", "type": "code"}, none={"css": "i", "type": "code"},
    )  # fmt: skip
    assert fields.values == {
        "first": "  if a:\n    go()\n", "all": ["  if a:\n    go()\n"], "inside": "  if a:\n    ", "attribute": "t",
        "none": None,
    }  # fmt: skip
    assert not fields.errors


# ── mistakes ───────────────────────────────────────────────────────────────────────────────────────────────────────


_junk = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.sampled_from(["css", "a", "//a", "text"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.text(max_size=5),
                st.sampled_from(["css", "xpath", "regex", "jsonld", "fields", "type", "attr", "many", "default"]),
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(spec=_junk)
def test_whatever_is_given_is_refused_by_name_or_applied(spec: Any) -> None:
    said: list[tuple[str, str]] = []
    try:
        rules = compile_rules(spec)
    except BadRules as error:
        said = error.found
    if said:
        assert all(path.startswith("extract") for path, _ in said)
    else:
        assert set(rules.apply(page_of("<a href=x>1</a>")).values) == set(spec)


@pytest.mark.parametrize(
    ("spec", "path", "said"),
    [
        ({"price": {"css": "a["}}, "extract.price.css", "not understood"),
        ({"price": "a:hover"}, "extract.price.css", ":hover is not supported"),
        ({"price": {"xpath": "//a[foo()]"}}, "extract.price.xpath", "not supported"),
        ({"price": {"regex": "(?=a)"}}, "extract.price.regex", "(?="),
        ({"price": {"jsonld": "a..b"}}, "extract.price.jsonld", "Product.offers.price"),
        ({"price": {"css": "a", "typ": "text"}}, "extract.price", "did you mean 'type'?"),
        ({"price": {"css": "a", "type": "int"}}, "extract.price.type", "use text, code, number, date, url, html"),
        ({"price": {"css": "a", "many": "yes"}}, "extract.price.many", "true or false"),
        ({"price": {"css": "a", "xpath": "//a"}}, "extract.price", "one of them is enough"),
        ({"price": {"type": "text"}}, "extract.price", "missing"),
        ({"price": {"css": "a", "attr": "a b"}}, "extract.price.attr", "attribute's name"),
        ({"price": {"xpath": "//a/@b", "attr": "c"}}, "extract.price.attr", "no attributes"),
        ({"price": {"css": "a", "required": True, "default": 1}}, "extract.price.default", "required"),
        ({"price": {"css": "a", "default": {}}}, "extract.price.default", "a short text"),
        ({"price": {"css": "a", "default": float("nan")}}, "extract.price.default", "a number"),
        ({"price": {"css": "a", "fields": {}}}, "extract.price.fields", "none"),
        ({"price": {"css": "a", "fields": {"x": 1}}}, "extract.price.fields.x", "a number is not accepted"),
        ({"price": {"css": "a", "type": "text", "fields": {"x": "b"}}}, "extract.price.type", "object"),
        ({"price": {"jsonld": "A", "fields": {"x": {"css": "b"}}}}, "extract.price.fields.x", "jsonld"),
        ({"9": "a"}, "extract", "not a field's name"),
        ({"a.b": "a"}, "extract", "not a field's name"),
        ("a", "extract", "a text is not accepted"),
        ({f"f{n}": "a" for n in range(201)}, "extract", "at most 200 rules"),
        (
            {
                "a": {
                    "css": "a",
                    "fields": {
                        "b": {
                            "css": "a",
                            "fields": {"c": {"css": "a", "fields": {"d": {"css": "a", "fields": {"e": "a"}}}}},
                        }
                    },
                }
            },
            "extract.a.fields.b.fields.c.fields.d.fields",
            "at most 4 deep",
        ),
        ({"a": "a" * 1001}, "extract.a.css", "at most 1,000 characters"),
        ({"a": {"regex": "a" * 501}}, "extract.a.regex", "at most 500 characters"),
    ],
)
def test_a_mistake_is_named_by_its_path(spec: Any, path: str, said: str) -> None:
    with pytest.raises(BadRules) as caught:
        compile_rules(spec)
    assert [(at, said in what) for at, what in caught.value.found] == [(path, True)]
    assert str(caught.value).startswith(path + ": ")


def test_all_mistakes_are_named_at_once() -> None:
    with pytest.raises(BadRules) as caught:
        compile_rules({"a": "[", "b": {"xpath": "//"}, "c": 3}, "sites.shop.extract")
    assert [at for at, _ in caught.value.found] == [
        "sites.shop.extract.a.css", "sites.shop.extract.b.xpath", "sites.shop.extract.c",
    ]  # fmt: skip


def test_a_pattern_without_re2_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    patterns.compile_pattern.cache_clear()
    monkeypatch.setitem(sys.modules, "re2", None)
    with pytest.raises(Missing, match=r"weft\[patterns\]"):
        compile_rules({"a": {"regex": "b"}})


# ── bounds ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_more_results_than_a_field_may_have_are_cut_and_said() -> None:
    fields = fields_of(
        "<i>1</i>" * (MAX_RESULTS + 1), n={"css": "i", "many": True}, exact={"css": "i:nth-child(n+2)", "many": True}
    )
    assert len(fields.values["n"]) == len(fields.values["exact"]) == MAX_RESULTS
    assert list(fields.errors) == ["n"]


def test_a_long_value_is_cut_and_said() -> None:
    fields = fields_of("<p>" + "x" * 60_000, t="p")
    assert len(fields.values["t"]) == 50_000
    assert "60,000" in fields.errors["t"]


def test_all_values_of_a_page_together_are_bounded() -> None:
    fields = fields_of("<p>" + "x" * 49_000, **{f"f{n}": "p" for n in range(100)})
    assert sum(len(value or "") for value in fields.values.values()) <= MAX_CHARS
    assert "characters" in fields.errors["f99"]


DEEP = "<div>" * 400 + "x"
HOSTILE: dict[str, tuple[str, dict[str, Any]]] = {
    "descendants in descendants": ("<div>" * 500, {"css": " ".join(["div"] * 60)}),
    "siblings": ("<i></i>" * 20_000, {"css": " ~ ".join(["i"] * 30), "many": True}),
    "has in has": (("<div>" * 400 + "</div>" * 400) * 20, {"css": "div:has(div:has(div:has(div)))", "many": True}),
    "nth of nothing": ("<p>" * 20_000, {"css": ":nth-last-of-type(99999999999999999999n-5)", "many": True}),
    "following siblings of siblings": (
        "<i></i>" * 5_000,
        {"xpath": "//i/following-sibling::i/following-sibling::i", "many": True},
    ),
    "texts of nested elements": (DEEP + "y" * 100_000, {"xpath": "//*[contains(., 'z')]", "many": True}),
    "paths in predicates": ("<div>" * 3_000, {"xpath": "//div[.//div[.//div[.//b]]]", "many": True}),
    "comparing all with all": ("<i>a</i>" * 3_000, {"xpath": "//*[//i = //b | //i[. = 'b']]", "many": True}),
    "every element's text": (DEEP * 10 + "z" * 50_000, {"css": "*", "many": True}),
    "every element's html": (DEEP * 10 + "z" * 50_000, {"css": "*", "many": True, "type": "html"}),
    "a pattern that rescans": ("<p>" + "a" * 200_000, {"regex": "a.*b|a", "many": True}),
    "items in items": (
        DEEP,
        {
            "css": "div",
            "many": True,
            "fields": {"a": {"css": "div", "many": True, "fields": {"b": {"css": "div", "many": True}}}},
        },
    ),
    "json-ld": ("<script type=application/ld+json>" + "[" * 900 + "]" * 900 + "</script>", {"jsonld": "*.a.b"}),
    "many json-ld": (
        "<script type=application/ld+json>[" + '{"@type":"A","a":[1,2]},' * 20_000 + "1]</script>",
        {"jsonld": "A.a", "many": True},
    ),
}


def test_hostile_rules_on_hostile_pages_cost_themselves_alone() -> None:
    """In a parser process each ends in time: with its values, or with the reason why there are none."""
    with Parsers(2, limit_s=patience(20)) as parsers:
        sent = {}
        for name, (html, rule) in HOSTILE.items():
            rules = json.dumps({"f": rule}).encode()
            sent[name] = parsers.submit(html.encode(), BASE, "text/html", ("hrefs", "fields"), rules=rules)
        read = {name: json.loads(parsers.result(pending).fields) for name, pending in sent.items()}
    for name, fields in read.items():
        assert "f" in fields["fields"], name
        if not fields["fields"]["f"]:
            assert fields["field_errors"] in ({}, {"f": TOO_SLOW}), name
    assert read["paths in predicates"] == {"fields": {"f": []}, "field_errors": {"f": TOO_SLOW}}
