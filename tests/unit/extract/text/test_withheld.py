"""Pages that hold their text back, and pages that are hard to read."""

from __future__ import annotations

import pytest

from weft.extract.page import ParsedPage, extract

PROSE = "A sentence about the matter at hand, long enough to count as prose on any page. "
STORY = "".join(f"<p>Paragraph {number}. {PROSE * 3}</p>" for number in range(6))
CONSENT = "We value your privacy. We use cookies; accept all cookies or manage your consent to cookies here. " * 4


def page(html: str) -> ParsedPage:
    return extract(html.encode(), "https://site.test/2024/05/a-story-about-it", "text/html; charset=utf-8")


@pytest.mark.parametrize("wall", [f"<div id=cookie-consent>{CONSENT}</div>", f"<main><p>{CONSENT}</p></main>"])
def test_a_cookie_wall_is_reported_as_such(wall: str) -> None:
    read = page(f"<body>{wall}<div>Site</div>")
    assert (read.withheld, read.main_text, read.markdown) == ("consent", "", "")


@pytest.mark.parametrize(
    "stub",
    [
        '<script type=application/ld+json>{"@type": "NewsArticle", "isAccessibleForFree": false}</script>',
        "<div class='article-paywall'>Only for subscribers.</div>",
        "<p>Subscribe to continue reading this story.</p>",
        "<p>Article réservé aux abonnés</p>",
    ],
)
def test_a_paywall_stub_is_reported_as_such(stub: str) -> None:
    assert page(f"<article><h1>News</h1><p>{PROSE * 2}</p>{stub}</article>").withheld == "paywall"


@pytest.mark.parametrize(
    "html",
    [
        "",
        f"<article>{STORY}</article>",
        f"<div id=cookie-banner>Cookies? <a href=/c>Yes</a></div><article>{STORY}</article>",
    ],
)
def test_a_page_that_shows_what_it_has_withholds_nothing(html: str) -> None:
    assert page(html).withheld is None


LONG = 2 << 20
BAD = {
    "one line of prose": f"<body><p>{'word ' * (LONG // 5)}",
    "one line without a space": f"<body><p>{'x' * LONG}",
    "100,000 paragraphs": "<body>" + "<p>Short one" * 100_000,
    "100,000 long enough": "<body>" + f"<p>{PROSE}" * 20_000,
    "all links": "<body>" + "<a href=/a>a link of some words</a> " * 40_000,
    "all comments": "<body>" + f"<div class=comment>{PROSE}</div>" * 15_000,
    "nested comments": "<body>" + "<div class=comment>" * 500 + PROSE + "</div>" * 500,
    "nested articles": "<body>" + f"<article><p>{PROSE}" * 5_000,
    "text in attributes": f"<body><div title='{PROSE * 20_000}' data-text='{PROSE}'>Short</div>",
    "many headings": "<body>" + f"<h2>Related</h2><p>{PROSE}" * 10_000,
    "lines beside the matter": "<body>" + "<p>Read more: <span>" * 20_000,
    "code": "<body>" + "<pre><code>x = 1\n</code></pre>" * 20_000,
    "frames": "<frameset><frame src=a><noframes><p>Old</noframes></frameset>",
    "an infinite scroll stub": "<body><div id=app></div><div class=loader>Loading…</div><script>load()</script>",
}


@pytest.mark.parametrize("name", BAD)
def test_pages_that_are_hard_to_read_have_a_text_a_kind_and_markdown(name: str) -> None:
    read = page(BAD[name])
    assert len(read.main_text) <= len(BAD[name]) + 200_000
    assert isinstance(read.markdown, str)
    assert read.withheld in (None, "consent", "paywall")
    assert 0 <= read.page_kind_certainty <= 1
    assert "data-text" not in read.main_text


def test_hidden_text_is_not_the_text() -> None:
    hidden = f"<div hidden><p>Concealed {PROSE}</p></div><div style='display:none'><p>Unseen {PROSE}</p></div>"
    text = page(f"<article>{STORY}{hidden}</article>").main_text
    assert "Concealed" not in text
    assert "Unseen" not in text


@pytest.mark.parametrize("shape", ["<html amp><body><article>{}</article>", "<body class=print><div id=print>{}</div>"])
def test_amp_pages_and_print_views_are_read_as_any_other(shape: str) -> None:
    assert page(shape.format(STORY)).main_text.count("Paragraph") == 6


def test_a_question_for_consent_has_a_language() -> None:
    read = page(
        "<div class=cookie-consent><p>We use cookies for what we do. You can accept all cookies or go away.</p></div>"
    )
    assert (read.withheld, read.main_text, read.language) == ("consent", "", "en")
