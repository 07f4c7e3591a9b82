"""Parts of a page that look like boilerplate and are its text, and the reverse."""

from __future__ import annotations

import pytest

from weft.extract.page import ParsedPage, extract

PROSE = "A sentence about the matter at hand, long enough to count as prose on any page. "
STORY = "".join(f"<p>Paragraph {number}. {PROSE * 3}</p>" for number in range(6))
ARTICLE = "<meta property=og:type content=article>"


def page(html: str) -> ParsedPage:
    return extract(html.encode(), "https://site.test/dir/page", "text/html")


@pytest.mark.parametrize(
    "folded",
    [
        "<div class=faq__answer style='display: none'>{}</div>",
        "<div class='accordion-panel' style='display:none'>{}</div>",
        "<section role=tabpanel hidden>{}</section>",
        "<h3><button aria-controls=p id=b>Why?</button></h3><div id=p role=region aria-labelledby=b hidden>{}</div>",
        "<details><summary>Why?</summary>{}</details>",
    ],
)
def test_what_a_reader_unfolds_is_text(folded: str) -> None:
    assert "Unfolded" in page(f"<main>{STORY}{folded.format(f'<p>Unfolded. {PROSE}</p>')}</main>").main_text


@pytest.mark.parametrize(
    "hidden",
    [
        "<div hidden>{}</div>",
        "<div style='display:none'>{}</div>",
        "<div role=dialog class=collapse hidden>{}</div>",
        "<div class='panel modal' hidden>{}</div>",
    ],
)
def test_what_is_hidden_for_other_reasons_is_none(hidden: str) -> None:
    assert "Concealed" not in page(f"<main>{STORY}{hidden.format(f'<p>Concealed. {PROSE}</p>')}</main>").main_text


def test_a_button_that_is_a_heading_stays_and_others_go() -> None:
    text = page(f"<main>{STORY}<h3><button>How deep?</button></h3><p>{PROSE}</p><button>Buy</button></main>").main_text
    assert "How deep?" in text
    assert "Buy" not in text


def test_a_list_of_links_in_the_flow_of_a_text_stays() -> None:
    links = "<ul><li><a href=/a>Tidal tables</a><li><a href=/b>Harbours</a></ul>"
    others = links.replace("T", "Other t")
    text = page(f"<main>{STORY}<p>These first:</p>{links}<p>{PROSE * 2}</p><div>{others}</div></main>").main_text
    assert "Tidal tables" in text
    assert "Other tidal tables" not in text


def test_a_section_headed_more_stays_if_it_is_prose() -> None:
    prose = f"<section><h2>More on tides</h2><p>Twice a day. {PROSE}</p></section>"
    links = (
        "<section><h2>More on harbours</h2><p><a href=/h>All harbours in the north and in the south</a></p></section>"
    )
    text = page(f"<main>{STORY}{prose}{links}</main>").main_text
    assert "Twice a day" in text
    assert "harbours" not in text


def test_what_an_article_begins_with_stays_but_for_its_byline() -> None:
    before = "<h1>Bread</h1><p>By A. Baker</p><div>Monday</div><ul><li>Flour<li>Water</ul>"
    text = page(f"{ARTICLE}<article>{before}{STORY}</article>").main_text
    assert text.split()[:4] == ["-", "Flour", "-", "Water"]


def test_the_question_of_a_thread_stays_beside_its_answers() -> None:
    answer = f"<div class='post answer'><div class=postbody><p>Answer. {PROSE * 4}</p></div></div>"
    question = f"<div class='post question'><div class=postbody><p>The question. {PROSE * 2}</p></div></div>"
    html = f"<body><h1>Why?</h1><div>{question}</div><div>{answer * 12}</div>".encode()
    read = extract(html, "https://forum.site.test/questions/thread/why", "text/html")
    assert read.page_kind == "forum"
    assert "The question." in read.main_text


def test_parts_that_are_sent_late_are_read_in_their_place() -> None:
    late = f"<div hidden id='S:0'><p>Late. {PROSE}</p></div>"
    read = page(f"<main>{STORY}<template id='B:0'></template><p>The end. {PROSE}</p></main>{late}")
    text = read.main_text
    assert text.index("Paragraph 5") < text.index("Late.") < text.index("The end.")
    assert read.text.index("The end.") < read.text.index("Late.")  # the page is as it was


def test_lines_about_cookies_go_and_recipes_for_them_stay() -> None:
    notice = "<div><p>This site uses cookies to analyze traffic. By browsing you agree to that.</p></div>"
    recipe = f"<p>Our oat cookies are an experience of their own. {PROSE}</p>"
    text = page(f"<main>{STORY}{recipe}{notice}</main>").main_text
    assert "oat cookies" in text
    assert "analyze traffic" not in text


def test_a_refrain_stays_and_a_page_that_repeats_its_blocks_has_them_once() -> None:
    refrain = "<p>And the tide comes in again.</p>"
    song = page(f"{ARTICLE}<article>{refrain}{STORY}{refrain}<p>{PROSE}</p>{refrain}</article>")
    assert song.main_text.count("the tide comes in") == song.markdown.count("the tide comes in") >= 2
    assert page(f"{ARTICLE}<article>{STORY}{STORY}</article>").main_text.count("Paragraph 3") == 1
