"""A page and its selections as a callback has them, and the requests that it makes of them."""

from __future__ import annotations

import pytest

import weft
from weft.engine.user_code.page import Headers
from weft.errors import BadInput, BadUrl
from weft.extract.rules.selectors import BadSelector

HTML = """<!doctype html><title> Two  quotes </title><base href=/sub/><meta name=description content=About>
<div class=quote><span class=text>First <b>one</b></span><a class=tag href=a>A</a><a class=tag href=b>B</a></div>
<div class=quote><span class=text>Second</span><pre>  x
  y</pre><img src=pic.png></div>
<script type="application/ld+json">{"@type": "Product", "price": 3}</script>
<form id=f action=/send method=post><input type=hidden name=csrf value=t><input name=q value=old>
<input type=checkbox name=c checked><input type=checkbox name=d>
<select name=s><option value=1>1<option selected>2</select>
<textarea name=t>text</textarea><input type=submit name=go value=Go></form>
<form id=g><input name=q></form><a href="mailto:x@y">mail</a>"""


@pytest.fixture
def page() -> weft.Page:
    headers = [("Content-Type", "text/html; charset=utf-8"), ("X-A", "1"), ("x-a", "2")]
    return weft.Page("http://h.test/dir/page?x=1", HTML.encode(), headers=headers, meta={"n": 1}, depth=2)


def test_selections_are_sequences_of_elements(page: weft.Page) -> None:
    quotes = page.css("div.quote")
    assert len(quotes) == 2
    assert [quote.css("span.text").text for quote in quotes] == ["First one", "Second"]
    assert quotes[0].css("a.tag").texts == ["A", "B"]
    assert quotes[0].css("a.tag").attrs("href") == ["a", "b"]
    assert quotes[1].css("pre").code == "  x\n  y"
    assert quotes.css("a.tag").attr("href") == "a"
    assert quotes[1:][0].css("span").html == '<span class="text">Second</span>'
    assert page.css("div.quote a::attr(href)").texts == ["a", "b"]
    assert page.css("span.text::text").text == "First one"
    assert page.xpath("//a[@class='tag'][2]/@href").text == "b"
    assert page.xpath("count(//a)").text == "3"
    assert page.css("span.text").re(r"(\w)\w+$") == ["o", "S"]


def test_nothing_found_is_none_and_empty(page: weft.Page) -> None:
    nothing = page.css("table td")
    assert not nothing
    assert (nothing.text, nothing.html, nothing.code, nothing.first, nothing.attr("href")) == (None,) * 5
    assert (nothing.texts, nothing.attrs("href"), list(nothing.css("b"))) == ([], [], [])
    assert nothing.attr("href", "none") == "none"


def test_what_a_page_holds(page: weft.Page) -> None:
    assert page.title == "Two quotes"
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers.get_all("X-A") == ["1", "2"]
    assert page.headers.get("nothing") is None
    with pytest.raises(KeyError):
        page.headers["nothing"]
    assert Headers([("A", "b")])[0] == ("A", "b")
    assert page.jsonld == [{"@type": "Product", "price": 3}]
    assert page.metadata.description == "About"
    assert [link.href for link in page.links] == ["http://h.test/sub/a", "http://h.test/sub/b"]
    assert (page.meta, page.depth, page.parent, page.requested_url) == ({"n": 1}, 2, None, page.url)
    assert page.re(r"class=(\w+)") == ["quote", "text", "tag", "tag", "quote", "text"]
    assert "Second" in page.text
    assert page.html == page.text


def test_json_and_what_is_no_html() -> None:
    page = weft.Page("http://h.test/api", b'{"a": [1]}', headers=[("Content-Type", "application/json")])
    assert page.json() == {"a": [1]}
    with pytest.raises(BadInput, match=r"is no HTML .*use `page.json"):
        page.css("a")
    with pytest.raises(BadInput, match="is no JSON"):
        weft.Page("http://h.test/", b"<p>").json()


@pytest.mark.parametrize("selector", ["a:hover", "div..x", "", "a::attr()", "x" * 2000])
def test_a_wrong_selector_is_named(page: weft.Page, selector: str) -> None:
    with pytest.raises(BadSelector):
        page.css(selector)


def test_following(page: weft.Page) -> None:
    one = page.follow(page.css("a.tag")[1], "tag", meta={"a": 1}, priority=5)
    assert (one.url, one.callback, one.meta, one.priority, one.method) == (
        "http://h.test/sub/b",
        "tag",
        {"a": 1},
        5,
        "GET",
    )
    assert [request.url for request in page.follow_all("a")] == ["http://h.test/sub/a", "http://h.test/sub/b"]
    assert [request.url for request in page.follow_all(page.links)] == ["http://h.test/sub/a", "http://h.test/sub/b"]
    assert page.follow(page.css("img")[0]).url == "http://h.test/sub/pic.png"
    assert page.follow("/x#part").url == "http://h.test/x"
    with pytest.raises(BadInput, match="no href"):
        page.follow(page.css("div")[0])
    with pytest.raises(BadUrl):
        page.follow("javascript:x")


def test_submitting_a_form_sends_what_a_browser_would(page: weft.Page) -> None:
    sent = page.submit("#f", {"q": "new & odd"}, "found")
    assert (sent.url, sent.method, sent.callback) == ("http://h.test/send", "POST", "found")
    assert sent.body == b"csrf=t&c=on&s=2&t=text&q=new+%26+odd"
    assert sent.headers == {"Content-Type": "application/x-www-form-urlencoded"}
    assert not sent.idempotent
    assert page.submit("#g input", {"q": "a"}).url == "http://h.test/dir/page?q=a"
    with pytest.raises(BadInput, match="no form matches '#nothing'"):
        page.submit("#nothing")


def test_requests_say_what_they_cannot_be() -> None:
    assert weft.Request("http://h.test/", json={"a": 1}, method="PUT").body == b'{"a":1}'
    assert weft.Request("http://h.test/", form={"a": [1, 2]}, method="POST").body == b"a=1&a=2"
    assert weft.Request("http://h.test/", "parse").idempotent
    cases: list[tuple[dict[str, object], str]] = [
        ({"method": "TRACE"}, "method: 'TRACE' is not accepted"),
        ({"body": b"x"}, "a GET has no body"),
        ({"method": "POST", "body": b"x", "json": 1}, "one of them"),
        ({"method": "POST", "body": b"x" * (100 << 20)}, "a body of 104,857,600 bytes is too large"),
        ({"meta": {"page": object()}}, "meta: 'page' cannot be kept"),
        ({"meta": {1: 2}}, "meta: the key 1"),
        ({"headers": {"Host": "x"}}, "Host is set for each request"),
        ({"headers": {"A": "b\r\nC: d"}}, "is not a header that can be sent"),
        ({"callback": lambda page: page}, "a lambda would be lost"),
        ({"priority": 1.5}, "priority"),
    ]
    for given, message in cases:
        with pytest.raises(BadInput, match=message):
            weft.Request("http://h.test/", **given)  # type: ignore[arg-type]
