"""What is taken for a page's main content, and what is pruned from it."""

from __future__ import annotations

import pytest

from weft.extract.page import ParsedPage, extract
from weft.extract.text.lines import without_repeats

URL = "https://site.test/dir/page"
PROSE = "A sentence about the matter at hand, long enough to count as prose on any page. "
AN_ARTICLE = "<html><head><meta property=og:type content=article></head>"
STORY = "".join(f"<p>Paragraph {number}. {PROSE * 3}</p>" for number in range(6))


def page(html: str) -> ParsedPage:
    return extract(html.encode(), URL, "text/html; charset=utf-8")


def main(html: str) -> str:
    return page(html).main_text


def test_chrome_around_an_article_is_dropped() -> None:
    read = page(
        f"""<header><a href=/>Site name</a></header><nav><a href=/a>Section</a></nav>
        <main><h1>The headline</h1>{STORY}<aside>Beside it</aside></main><footer>Imprint</footer>
        <script>var x = 1</script><style>p {{}}</style><div role=search>Search here</div>"""
    )
    text = read.main_text
    assert read.markdown.startswith("# The headline")
    assert text.count("Paragraph") == 6
    for chrome in ("Site name", "Section", "Beside it", "Imprint", "var x", "Search here"):
        assert chrome not in text


@pytest.mark.parametrize(
    "holder",
    [
        "<main>{}</main>",
        "<div role=main>{}</div>",
        "<div id=content>{}</div>",
        "<div id=main>{}</div>",
        "<article>{}</article>",
    ],
)
def test_the_element_that_calls_itself_the_content_is_it(holder: str) -> None:
    text = main("<div>Outside of it</div>" + holder.format(STORY) + "<p>Below it</p>")
    assert text.startswith("Paragraph 0.")
    assert "Outside" not in text
    assert "Below" not in text


def test_without_such_an_element_the_body_is_the_content() -> None:
    assert main(f"<div>{STORY}</div>").count("Paragraph") == 6
    assert main(f"<main>Too short</main><div>{STORY}</div>").count("Paragraph") == 6


def test_several_articles_are_a_list_and_all_kept() -> None:
    text = main(f"<article><p>One {PROSE}</p>{STORY}</article><article><p>Two {PROSE}</p>{STORY}</article>")
    assert "One" in text
    assert "Two" in text


@pytest.mark.parametrize(
    "name",
    [
        "class=sidebar", "class=site-sidebar", "class='x social-share y'", "id=newsletter", "class=relatedPosts",
        "class=RelatedPosts", "class=post_meta", "class='cookie-banner'", "id=onetrust-consent-sdk",
        "class=breadcrumbs", "class=sr-only", "class=message-cell--user", "class=userInfo", "hidden", "role=dialog",
    ],
)  # fmt: skip
def test_what_names_itself_boilerplate_is_dropped(name: str) -> None:
    text = main(f"<main>{STORY}<div {name}>Not of the matter</div></main>")
    assert "Not of the matter" not in text
    assert text.count("Paragraph") == 6


@pytest.mark.parametrize("name", ["class=sidebar-layout", "class=with-menu", "id=footer", "hidden", "class=navigation"])
def test_what_names_itself_so_but_is_the_page_is_kept(name: str) -> None:
    assert main(f"<body><div {name}>{STORY}</div>").count("Paragraph") == 6


def test_a_form_that_asks_is_dropped_and_one_that_holds_the_page_is_kept() -> None:
    assert "Your name" not in main(f"<main>{STORY}<form>Your name <input name=n></form></main>")
    assert main(f"<form><input type=hidden name=state>{STORY}</form>").count("Paragraph") == 6


def test_comments_below_an_article_are_dropped_and_those_of_a_forum_kept() -> None:
    comments = "".join(f"<div class=comment>Reply {number}: {PROSE}</div>" for number in range(5))
    assert "Reply" not in main(f"<main>{STORY}<div id=comments>{comments}</div></main>")
    assert main(f"<main><h1>Question</h1>{comments * 4}</main>").count("Reply") >= 5


def test_a_section_headed_as_beside_the_point_is_dropped() -> None:
    more = "<section><h2>You may also like</h2><p>Another story of ours</p></section>"
    text = main(f"<main>{STORY}{more}<section><h2>Method</h2><p>How it was done</p></section></main>")
    assert "Another story" not in text
    assert "How it was done" in text


def test_small_blocks_of_links_are_dropped_beside_prose_and_kept_in_a_list_of_links() -> None:
    block = "<ul><li><a href=/1>First link of a list</a><li><a href=/2>Second link of a list</a></ul>"
    assert "First link" not in main(f"<main>{STORY}<div>{block}</div></main>")
    assert "First link" in main(f"<main><h1>All our pages</h1>{block}</main>")


def test_links_inside_prose_are_kept() -> None:
    assert "a linked word" in main(f"<main>{STORY}<p>{PROSE}<a href=/x>a linked word</a> {PROSE}</p></main>")


def test_a_named_word_in_a_paragraph_stays() -> None:
    assert "one or more pods in" in main(
        f"<main>{STORY}<p>one or more <a class=tooltip href=/p>pods</a> in it</p></main>"
    )


def test_list_items_and_lines_without_text_are_left_out() -> None:
    assert without_repeats("-\na\n - \n12.\t\n\n•\nb\n1. c\n-\n|") == "a\n\nb\n1. c"
    assert without_repeats("-") == without_repeats("\n \n") == ""


def test_a_repeated_block_stands_once() -> None:
    assert main(f"<main>{STORY}<div>{STORY}</div></main>").count("Paragraph 3") == 1
    assert (
        without_repeats("a\nshort\nshort\n" + "long enough to count\n" * 3) == "a\nshort\nshort\nlong enough to count"
    )


def test_content_inside_noscript_is_used_when_there_is_no_other() -> None:
    assert main(f"<script>{'x' * 9000}</script><noscript>{STORY}</noscript>").count("Paragraph") == 6
    assert "Enable" not in main(f"<main>{STORY}</main><noscript>{'Enable scripts. ' * 80}</noscript>")


def test_a_page_drawn_by_scripts_gives_its_own_excerpt_when_that_is_long() -> None:
    shell = "<meta property='og:description' content='{}'><body><div id=app></div><script>draw()</script>"
    assert main(shell.format(PROSE * 5)) == (PROSE * 5)
    assert main(shell.format("Short and for search engines.")) == ""


def test_lists_tables_and_code_are_laid_out_as_lines() -> None:
    text = main(f"<main>{STORY}<ul><li>one<li>two<li></ul><table><tr><td>a<td>b</table><pre>x\n  y</pre></main>")
    assert "- one\n- two" in text
    assert "a b" in text
    assert "x\n  y" in text
    assert "\n- \n" not in text


def test_the_page_itself_is_not_changed() -> None:
    read = page(f"<nav><a href=/n>Navigation</a></nav><main>{STORY}</main>")
    assert "Navigation" not in read.main_text
    assert "Navigation" in read.text
    assert [link.href for link in read.links] == ["/n"]


@pytest.mark.parametrize("html", ["", "<frameset><frame src=x></frameset>", "<p>", "<main></main>", "<body class=nav>"])
def test_pages_without_text_have_none(html: str) -> None:
    assert main(html) == ""
    assert page(html).markdown == ""


def test_the_main_text_of_what_is_no_html_is_its_text() -> None:
    assert extract(b"just\nwords", URL, "text/plain").main_text == "just\nwords"
    assert extract(b"%PDF-1.4", URL, "application/pdf").main_text == ""
    feed = b"<rss><item><title>A &amp; B</title><!-- no --><d><![CDATA[<c>]]></d></item></rss>"
    assert extract(feed, URL, "application/rss+xml").text.split() == ["A", "&", "B", "<c>"]


def test_an_article_is_the_text_between_its_first_paragraph_and_its_last() -> None:
    figure = "<figure><img src=a.jpg><figcaption>A street at night</figcaption></figure>"
    text = main(
        f"""{AN_ARTICLE}<main><article><h1>The headline</h1><p>By A. Writer</p><div>Tuesday</div>{STORY}{figure}
        <p>{PROSE}It ended there.</p><p>Related: What else happened</p><div>Tags: night</div></article></main>"""
    )
    assert text.startswith("Paragraph 0.")
    assert text.endswith("It ended there.")
    assert "A street at night" not in text


def test_a_list_a_table_and_code_behind_the_last_paragraph_stay() -> None:
    rest = "<ul><li>one<li>two</ul><table><tr><td>cell</table><pre>make all</pre>"
    text = main(f"{AN_ARTICLE}<article>{STORY}{rest}</article>")
    assert "one" in text
    assert "cell" in text
    assert "make all" in text


def test_teasers_whose_text_is_a_link_are_not_the_article() -> None:
    teaser = f"<div><a href=/other><h4>Something else</h4><p>{PROSE * 2}</p></a></div>"
    text = main(f"{AN_ARTICLE}<body><div><div>{STORY}</div><div>{teaser * 8}</div></div>")
    assert "Something else" not in text
    assert text.count("Paragraph") == 6


def test_comments_are_a_part_of_their_own() -> None:
    comments = "".join(f"<div class=comment>Reply {number}: {PROSE * 3}</div>" for number in range(20))
    read = page(f"{AN_ARTICLE}<main><h1>News</h1>{STORY}<div id=comments>{comments}</div></main>")
    assert "Reply" not in read.main_text
    assert "Reply 3" in read.comments
    assert page(f"<main>{STORY}</main>").comments == ""
    beside = page(
        f"{AN_ARTICLE}<article>{STORY}</article><div id=comments>{comments}<form><input name=a>Say</form></div>"
    )
    assert "Reply" not in beside.main_text
    assert beside.comments.count("Reply") == 20
    assert "Say" not in beside.comments


POST = f"<div class='message post'><span class=username>a</span><div class=postbody>{PROSE}</div></div>"
CARD = "<div class='card product'><img src=a><a href=/l>Lamp</a><span class=price>12</span></div>"
KINDS = {
    "article": ("blog/2024/05/12/how-it-was-all-done", f"{AN_ARTICLE}<article><h1>How</h1>{STORY}</article>"),
    "documentation": ("docs/api", "<main class=sphinx><h1>f()</h1>" + f"<h2>Use</h2><p>{PROSE}<pre>f(x)</pre>" * 8),
    "forum": ("forum/t/why", f"<h1>Why?</h1>{POST * 8}"),
    "product": (
        "product/lamp",
        '<script type=application/ld+json>{"@type": "Product"}</script><meta property=og:type content=product>'
        "<h1>Lamp</h1><span class=price>12</span><div class=cart><p class=quantity>1</div><p>It shines.</p>",
    ),
    "listing": ("collections/lamps", f"<h1>Lamps</h1><div class=filters>Sort</div>{CARD * 40}"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_page_is_known_by_its_structure(kind: str) -> None:
    path, html = KINDS[kind]
    read = extract(html.encode(), f"https://site.test/{path}", "text/html")
    assert read.page_kind == kind
    assert 0.4 < read.page_kind_certainty <= 1


def test_what_is_no_html_has_no_kind() -> None:
    read = extract(b"just\nwords", URL, "text/plain")
    assert (read.page_kind, read.page_kind_certainty, read.comments) == (None, 0.0, "")
