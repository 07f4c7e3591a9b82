"""Pages that tell a reader nothing, and pages that look a little like them."""

from __future__ import annotations

import pytest

from weft.extract.missing_content import lack_of
from weft.extract.page import extract

REACT = '<noscript>You need to enable JavaScript to run this app.</noscript><div id="root"></div><script src="/m.js">'
PASSWORD = "<form action=/in><input name=user><input type=PASSWORD name=word><button>Go</button></form>"
FORM = f"<title>Sign in</title>{PASSWORD}"


@pytest.mark.parametrize(
    ("body", "url", "redirected", "lack"),
    [
        (REACT, "https://a.test/", False, "javascript"),
        ('<div id="app"></div><script>start()</script>', "https://a.test/", False, "javascript"),
        ("<app-root>Loading...</app-root><script src=m.js></script>", "https://a.test/", False, "javascript"),
        ("<p>Please turn on JavaScript<script>1</script>", "https://a.test/", False, "javascript"),
        ("<p>Opening hours: 9 to 5<script>track()</script>", "https://a.test/", False, None),
        (f"<p>{'JavaScript is a language. ' * 20}<script>1</script>", "https://a.test/", False, None),
        ("<a href=/next>next</a><script>1</script>", "https://a.test/", False, None),
        (FORM, "https://a.test/", False, "login"),
        (PASSWORD, "https://a.test/login?next=%2F", False, "login"),
        (PASSWORD, "https://a.test/x", True, "login"),
        (f"<h1>News</h1><p>Words.{PASSWORD}", "https://a.test/news", False, None),
        ("", "https://a.test/", False, "blank"),
        ("<!doctype html><title>T</title><body> </body>", "https://a.test/", False, "blank"),
        ("<img src=a.png>", "https://a.test/", False, None),
        ("<p>Hi", "https://a.test/", False, None),
    ],
)
def test_what_a_page_lacks(body: str, url: str, redirected: bool, lack: str | None) -> None:
    assert lack_of(extract(body.encode(), url, "text/html"), redirected=redirected) == lack


@pytest.mark.parametrize(
    ("body", "content_type", "lack"),
    [(b"GIF89a\x01\x00", "image/gif", None), (b"words", "text/plain", None), (b" \n", "text/plain", "blank")],
)
def test_what_is_no_html_lacks_nothing_but_words(body: bytes, content_type: str, lack: str | None) -> None:
    assert lack_of(extract(body, "https://a.test/x", content_type)) == lack
