"""Footnotes in Markdown."""

from __future__ import annotations

import pytest

from weft.extract.page import ParsedPage, extract
from weft.extract.text.markdown import Links

URL = "https://site.test/dir/page"
PROSE = "<p>" + "A sentence about the matter at hand, long enough to count as prose. " * 12 + "</p>"


def page(html: str) -> ParsedPage:
    return extract(f"<main>{PROSE}{html}</main>".encode(), URL, "text/html; charset=utf-8")


def markdown(html: str, links: Links = Links.KEEP) -> str:
    """The Markdown behind the prose."""
    return page(html).markdown_with(links).partition("\n\n")[2]


ENCYCLOPEDIA = (
    "<p>Tea<sup id=cite_ref-1 class=reference><a href='#cite_note-1'>[1]</a></sup> is drunk"
    "<sup id=cite_ref-b_2-0 class=reference><a href='#cite_note-b-2'><span>[</span>2<span>]</span></a></sup> hot."
    "<sup id=cite_ref-b_2-1 class=reference><a href='#cite_note-b-2'>[2]</a></sup></p>"
    "<div class='reflist'><ol class='references'>"
    "<li id=cite_note-1><span class=mw-cite-backlink><b><a href='#cite_ref-1'>^</a></b></span> "
    "<span class=reference-text><style>.x{}</style>Lu, <a href='/wiki/Tea'><i>Tea</i></a>, p. 3.</span></li>"
    "<li id=cite_note-b-2><span class=mw-cite-backlink>^ <a href='#cite_ref-b_2-0'><sup><i><b>a</b></i></sup></a> "
    "<a href='#cite_ref-b_2-1'><sup><i><b>b</b></i></sup></a></span> <span class=reference-text>Anon.</span></li>"
    "</ol></div>"
)


def test_notes_of_an_encyclopedia() -> None:
    assert markdown(ENCYCLOPEDIA) == (
        "Tea[^1] is drunk[^2] hot.[^2]\n\n[^1]: Lu, [*Tea*](https://site.test/wiki/Tea), p. 3.\n\n[^2]: Anon."
    )


def test_without_links_footnotes_keep_their_text_or_go_with_them() -> None:
    assert markdown(ENCYCLOPEDIA, Links.TEXT).endswith("[^1]: Lu, *Tea*, p. 3.\n\n[^2]: Anon.")
    assert markdown(ENCYCLOPEDIA, Links.DROP) == "Tea is drunk hot."


def test_roles_of_publishing() -> None:
    text = markdown(
        "<p>One<a href='#fn1' id=fnref1 role=doc-noteref><sup>1</sup></a> and two<a href='#fn2' id=fnref2 "
        "role=doc-noteref><sup>2</sup></a>.</p><section id=footnotes role=doc-endnotes><hr><ol>"
        "<li id=fn1><p>First.</p><p>More.</p><pre><code>a\n\nb</code></pre>"
        "<p><a href='#fnref1' role=doc-backlink>↩︎</a></p></li>"
        "<li id=fn2><p>Second.<a href='#fnref2' role=doc-backlink>↩︎</a></p></li></ol></section>"
    )
    assert text == (
        "One[^1] and two[^2].\n\n[^1]: First.\n\n    More.\n\n    ```\n    a\n\n    b\n    ```\n\n[^2]: Second."
    )


@pytest.mark.parametrize(
    ("reference", "notes"),
    [
        (
            "<sup id='fnref:1'><a href='#fn:1'>1</a></sup>",
            "<div class=footnote><hr><ol><li id='fn:1'><p>Note.&#160;<a href='#fnref:1'>&#8617;</a></p></ol></div>",
        ),
        (
            "<a href='#id2' id=id1 role=doc-noteref><span>[</span>1<span>]</span></a>",
            "<aside role=doc-footnote id=id2><span class=label><span>[</span><a role=doc-backlink href='#id1'>1</a>"
            "<span>]</span></span><p>Note.</p></aside>",
        ),
        (
            "<sup>[<a href='/dir/page#n%C3%A9' name=r>1</a>]</sup>",
            "<ul><li><a name='né'></a>^ <a href='page#r'>up</a> Note.</li></ul>",
        ),
    ],
)
def test_notes_of_generators(reference: str, notes: str) -> None:
    assert markdown(f"<p>Word{reference}, next.</p>{notes}<p>After.</p>").replace("After.\n\n", "") == (
        "Word[^1], next.\n\n[^1]: Note."
    )


def test_a_note_may_refer_to_another_and_numbers_follow_the_text() -> None:
    text = markdown(
        "<ol><li>Item<sup id=r9><a href='#n9'>9</a></sup></ol><p>Text<sup><a id=r1 href='#n1'>a</a>, "
        "<a id=r2 href='#n2'>b</a></sup></p><ol><li id=n1>One.<a href='#r1'>^</a><li id=n2>Two<sup id=r3>"
        "<a href='#n3'>1</a></sup>.<a href='#r2'>^</a><li id=n9>Nine.<a href='#r9'>^</a></ol>"
        "<ol><li id=n3>Three.<a href='#r3'>^</a><li id=n4>Nobody's.</ol>"
    )
    assert text == (
        "1. Item[^1]\n\nText[^2][^3]\n\n1. Nobody's.\n\n[^1]: Nine.\n\n[^2]: One.\n\n[^3]: Two[^4].\n\n[^4]: Three."
    )


@pytest.mark.parametrize(
    "html",
    [
        "<p>See<sup><a id=r href='#n'>1</a></sup></p><ol><li id=n>A step that links nowhere.</ol>",
        "<p>See <a id=r href='#n'>step 1</a></p><ol><li id=n>A step. <a href='#r'>back</a></ol>",
        "<p>See<sup><a id=r href='other#n'>1</a></sup></p><ol><li id=n>A step. <a href='#r'>back</a></ol>",
        "<p>See<sup><a id=r href='#n'>1</a></sup></p><p id=n>No list. <a href='#r'>back</a></p>",
        "<p>See<sup><a id=r href='#gone'>1</a></sup></p>",
        "<ol><li id=n>A step. <a href='#r'>back</a></ol><p>See<sup><a id=r href='#n'>1</a></sup></p>",
    ],
)
def test_what_only_looks_like_a_footnote_is_a_link(html: str) -> None:
    text = markdown(html)
    assert "[^" not in text
    assert "https://site.test/dir/" in text


def test_signs_of_the_page_itself_are_left_alone() -> None:
    note = "<ol><li id=n>Note \ue0017\ue001 [^3].<a href='#r'>^</a></ol>"
    text = markdown(f"<p>\ue0005\ue000 word<sup id=r><a href='#n'>1</a></sup></p><img src=x alt='\ue0029\ue002'>{note}")
    assert text.startswith("\ue0005\ue000 word[^1]")
    assert "\ue0029\ue002" in text
    assert "[^1]: Note \ue0017\ue001 \\[^3\\]." in text


def test_notes_within_notes_and_many_of_them() -> None:
    links = "".join(f"<sup><a id=r{n} href='#n{n}'>{n}</a></sup> follows some words " for n in range(400))
    deep = "".join(f"<ol><li id=n{n}><a href='#r{n}'>^</a>" for n in range(400)) + "end " * 20_000
    text = markdown(f"<p>{links}</p>{deep}")
    assert text.count("end ") <= 20_000
    flat = "".join(f"<li id=n{n}>Note {n}.<a href='#r{n}'>^</a>" for n in range(400))
    assert markdown(f"<p>{links}</p><ol>{flat}</ol>").endswith("[^400]: Note 399.")


def test_the_page_and_its_main_text_are_unchanged() -> None:
    one, other = page(ENCYCLOPEDIA), page(ENCYCLOPEDIA)
    assert one.markdown == one.markdown_with(Links.KEEP)
    assert one.main_text == other.main_text
