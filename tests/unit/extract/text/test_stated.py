"""Text that a page has in its JSON-LD alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from weft.extract.page import ParsedPage, extract
from weft.extract.text.stated import MAX_CHARS, MAX_DEPTH, stated_text

SENTENCE = "A sentence about the matter at hand, long enough to count as prose on any page. "
THREAD = {
    "@type": "DiscussionForumPosting",
    "headline": "Why?",
    "text": f"<p>Why is that *so*? {SENTENCE}</p>",
    "comment": [{"@type": "Comment", "text": f"First &amp; best. {SENTENCE}"}, {"@type": "Comment", "text": "Second."}],
}
QUESTION = {
    "@type": "QAPage",
    "mainEntity": {
        "@type": "Question",
        "name": "How deep is it?",
        "acceptedAnswer": {"@type": "Answer", "text": "Nine metres."},
        "suggestedAnswer": [{"@type": "Answer", "text": "Ten."}, "no object"],
    },
}
RECIPE = {
    "@type": ["Recipe", "Thing"],
    "recipeIngredient": ["Flour", "Water"],
    "recipeInstructions": [{"@type": "HowToStep", "text": "Stir."}],
}


def page(stated: Any, body: str) -> ParsedPage:
    script = f"<script type='application/ld+json'>{json.dumps(stated)}</script>"
    return extract(f"<head>{script}</head><body>{body}".encode(), "https://site.test/t/why", "text/html")


def test_a_page_that_scripts_draw_has_the_text_of_its_json_ld() -> None:
    read = page(THREAD, "<h1>Why?</h1>")
    assert [line[:12] for line in read.main_text.split("\n\n")] == ["Why?", "Why is that ", "First & best", "Second."]
    assert r"Why is that \*so\*?" in read.markdown
    assert read.markdown.endswith("Second.")


@pytest.mark.parametrize(
    ("stated", "texts"),
    [
        (QUESTION, ["How deep is it?", "Nine metres.", "Ten."]),
        (RECIPE, ["Flour", "Water", "Stir."]),
        (
            {"@graph": [{"@type": "WebSite", "text": "no"}, {"@type": "NewsArticle", "articleBody": "It is."}]},
            ["It is."],
        ),
        ({"@type": "Product", "description": "Short"}, []),
        ([{"@type": "Product", "description": SENTENCE}, 3, None, {"@type": {"no": "type"}}], [SENTENCE.strip()]),
    ],
)
def test_the_texts_are_those_of_the_pages_matter(stated: Any, texts: list[str]) -> None:
    assert stated_text([stated]) == "\n\n".join(texts)


def test_text_that_the_page_has_is_not_repeated() -> None:
    product = {"@type": "Product", "description": SENTENCE}
    assert page(product, f"<h1>Lamp</h1><p>{SENTENCE}</p>").main_text.count("matter at hand") == 1
    story = f"<article>{f'<p>{SENTENCE * 3}</p>' * 5}</article>"
    other = {
        "@type": "Product",
        "description": "Something else altogether, and long enough to be a description of it all.",
    }
    assert "altogether" not in page(other, story).main_text


def test_what_is_stated_is_bounded() -> None:
    deep: Any = {"@type": "Answer", "text": "bottom"}
    for _ in range(MAX_DEPTH + 1):
        deep = {"@type": "Comment", "comment": deep}
    assert stated_text([deep]) == ""
    assert len(stated_text([{"@type": "Article", "articleBody": "a" * (2 * MAX_CHARS)}])) == MAX_CHARS
