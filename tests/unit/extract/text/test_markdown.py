"""Main content as Markdown."""

from __future__ import annotations

import subprocess
import sys

import pytest

from weft.extract.page import extract
from weft.extract.text.markdown import Links

URL = "https://site.test/dir/page"
PROSE = "<p>" + "A sentence about the matter at hand, long enough to count as prose. " * 12 + "</p>"


def markdown(html: str) -> str:
    return extract(f"<main>{html}</main>".encode(), URL, "text/html; charset=utf-8").markdown


def test_headings_emphasis_and_lists() -> None:
    text = markdown(
        "<h1>Title</h1><h2>Part</h2><p>A <b>bold</b> <em>word</em></p><ol><li>one<li>two</ol><p>and</p><ul><li>x</ul>"
    )
    assert text == "# Title\n\n## Part\n\nA **bold** *word*\n\n1. one\n2. two\n\nand\n\n- x"


def test_links_and_images_are_resolved_against_the_base() -> None:
    text = markdown(
        "<base href=/b/><p>See <a href='x?a=1&amp;b=2'>this</a>, <a href=//o.test/>that</a></p><img src=i.png alt=I>"
    )
    assert "[this](https://site.test/b/x?a=1&b=2)" in text
    assert "[that](https://o.test/)" in text
    assert "![I](https://site.test/b/i.png)" in text


def test_a_reference_that_is_no_url_stays_as_written() -> None:
    assert markdown("<p><a href='http://[bad'>x</a> <a href='//[v1'>y</a></p>") == "[x](http://[bad) [y](//[v1)"


def test_a_fragment_is_kept() -> None:
    assert markdown("<p><a href='other#part'>x</a></p>") == "[x](https://site.test/dir/other#part)"


def test_links_that_lead_nowhere_leave_their_text() -> None:
    assert markdown("<p><a href='JavaScript:x()'>run</a> <a name=y>here</a></p>") == "run here"


def test_permalink_signs_and_inline_images_are_dropped() -> None:
    assert (
        markdown("<h2>Part<a class=headerlink href='#part'>¶</a></h2><img src='data:image/png;base64,AAAA'>")
        == "## Part"
    )


def test_tables_are_kept() -> None:
    html = "<table><thead><tr><th>A<th>B</thead><tr><td>1<td>x|y<tr><td>1<td>x|y</table>"
    assert markdown(html) == "| A | B |\n| --- | --- |\n| 1 | x\\|y |\n| 1 | x\\|y |"


def test_code_blocks_are_kept_to_the_letter() -> None:
    again = "    return x &lt; 1  # again, the same line\n"
    code = f"def f(x):\n    return x &lt; 1\n\n\n\n{again}{again}-"
    text = markdown(f"{PROSE}<pre><code class=language-python>{code}</code></pre><p>After</p>")
    assert "```python\n" + code.replace("&lt;", "<") + "\n```\n\nAfter" in text


def test_code_that_holds_a_fence_does_not_end_there() -> None:
    text = markdown("<pre>```\ninner, a line of some length\ninner, a line of some length\n```</pre>")
    assert text.count("inner, a line of some length") == 2


def test_repeated_prose_and_empty_items_stand_once_or_not_at_all() -> None:
    line = "<p>The same paragraph, for small screens.</p>"
    assert markdown(f"{PROSE}{line * 9}<ul><li></ul>{line}").count("The same paragraph") == 1


# In a process of its own: where the parser dies, it takes its process with it.
WRITE = """
from weft.extract import turbo
from weft.extract.text import markdown
for tag in ("span", "applet", "my-app"):
    print(markdown.markdown(turbo.parse_at_once(f"<{tag}><b>***</b></{tag}>").find(tag), "https://site.test/"))
"""


def test_emphasis_in_content_that_is_no_block() -> None:
    done = subprocess.run([sys.executable, "-c", WRITE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, r"**\*\*\***" "\n" * 3)


def test_boilerplate_is_not_in_it() -> None:
    assert "Share" not in markdown(f"{PROSE}<div class=share-bar>Share</div>")


def test_an_article_has_its_headline_above_its_text() -> None:
    html = f"<meta property=og:type content=article><article><h1>The *best* of all</h1><p>By A</p>{PROSE * 4}</article>"
    text = extract(html.encode(), URL, "text/html").markdown
    assert text.startswith(r"# The \*best\* of all")
    assert "By A" not in text


@pytest.mark.parametrize(
    "code",
    [
        "<div class='highlight-python notranslate'><div class=highlight><pre>x = 1</pre></div></div>",
        "<pre class='brush: python'>x = 1</pre>",
        "<pre data-lang=python><code>x = 1</code></pre>",
        "<div class='highlight highlight-source-python'><pre>x = 1</pre></div>",
        "<pre class='sourceCode python'><code>x = 1</code></pre>",
        "<pre><code class='lang-python'>x = 1</code></pre>",
    ],
)
def test_code_has_the_language_that_its_markup_says(code: str) -> None:
    assert "```python\nx = 1\n```" in markdown(f"{PROSE}{code}{PROSE}")


@pytest.mark.parametrize(
    ("links", "expected"), [(Links.KEEP, "See [this page](https://o.test/) now"), (Links.TEXT, "See this page now"),
                            (Links.DROP, "See  now")],
)  # fmt: skip
def test_links_are_kept_or_their_text_or_neither(links: Links, expected: str) -> None:
    html = "<main><p>See <a href=https://o.test/>this page</a> now</p></main>"
    written = extract(html.encode(), URL, "text/html").markdown_with(links)
    assert written.split() == expected.split()


def test_nested_lists_and_images_keep_their_place() -> None:
    text = markdown(f"{PROSE}<ul><li>a<ul><li>b</ul><li>c</ul><p><img src=/i.png alt='A map'></p>{PROSE}")
    assert "- a\n  - b\n- c" in text
    assert "![A map](https://site.test/i.png)" in text


def test_a_table_in_a_table_leaves_no_html() -> None:
    inner = "<table><tr><td>in</td></tr></table><ul><li>one<li>two</ul>"
    text = markdown(f"{PROSE}<table><tr><th>A<th>B</tr><tr><td>{inner}<td>x</table>")
    assert "<" not in text
    assert "in" in text
