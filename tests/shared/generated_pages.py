"""Pages, selectors and paths that hypothesis makes: odd, small, and with a good chance to match one another."""

from __future__ import annotations

from hypothesis import strategies as st

_texts = st.text(st.characters(codec="utf-8", exclude_characters="<>&\0\r"), max_size=12)
_tags = st.sampled_from("div p a b i ul li table tr td span h1 template svg select pre br img section".split())
_attributes = st.lists(
    st.sampled_from(["class=x", "class='x y'", "id=q", "href=/a", "src=b", "title='12,5'", "datetime=2024-01-02"]),
    max_size=2,
).map(" ".join)


def _element(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    kids = st.lists(inner, max_size=4).map("".join)
    return st.builds(
        lambda tag, attributes, content, closed: f"<{tag} {attributes}>{content}" + f"</{tag}>" * closed,
        _tags, _attributes, kids, st.booleans(),
    )  # fmt: skip


pages = st.lists(st.recursive(_texts, _element, max_leaves=25), max_size=6).map("".join)
_compounds = st.sampled_from(
    ["p", "*", ".x", "#q", "a[href]", "li:nth-child(2n+1)", "b:first-child", "td:last-of-type", ":not(p)", "div:has(b)",
     "[class~=y]", "span:only-child", ":is(i, b)", "p:empty", "div:has(> a)", "h1:nth-last-child(2)"]
)  # fmt: skip
selectors = st.lists(_compounds, min_size=1, max_size=3).flatmap(
    lambda parts: st.lists(st.sampled_from([" ", " > ", " + ", " ~ ", ", "]), min_size=len(parts), max_size=len(parts))
    .map(lambda joins: "".join(part + join for part, join in zip(parts, [*joins[1:], ""], strict=True)))
)  # fmt: skip
paths = st.sampled_from(
    ["//p", "//a/@href", "//li[2]", "//div//text()", "//*[@class='x']/..", "//td[last()]", "(//b)[2]", "//p[.//b]",
     "//*[contains(., '1')]", "//i/following-sibling::*[1]", "//b/ancestor::div", "//p | //a", "//*[count(*)=2]"]
)  # fmt: skip
