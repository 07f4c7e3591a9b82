# ruff: noqa: E501 - pages are easier to read on one line
"""Forty pages with odd markup: each with rules, the values that they give, and the fields that are in error."""

from __future__ import annotations

from typing import Any, NamedTuple

BASE = "https://shop.example/goods/page.html"


class Odd(NamedTuple):
    """A page."""

    name: str
    html: str
    rules: dict[str, Any]
    values: dict[str, Any]
    errors: tuple[str, ...] = ()


def _price(of: str = ".price") -> dict[str, Any]:
    return {"css": of, "type": "number"}


PAGES = [
    Odd(
        "no quotes, no end tags",
        "<h1>Lamp<p class=price>12,50 €<p>more",
        {"t": "h1", "p": _price()},
        {"t": "Lamp 12,50 € more", "p": 12.5},
    ),
    Odd("nothing at all", "", {"t": "h1", "all": {"css": "a", "many": True}}, {"t": None, "all": []}),
    Odd("text alone", "only words", {"t": "body", "w": {"regex": r"o(\w+) w"}}, {"t": "only words", "w": "nly"}),
    Odd(
        "upper case",
        "<!doctype html><H1 CLASS=Big>A</H1><P ID=X>b</P>",
        {"t": "h1.Big", "x": "p#X", "no": "h1.big"},
        {"t": "A", "x": "b", "no": None},
    ),
    Odd(
        "misnested formatting",
        "<p><b>one<i>two</b>three</i>",
        {"b": "b", "i": {"css": "i", "many": True}},
        {"b": "onetwo", "i": ["two", "three"]},
    ),
    Odd(
        "list without ends",
        "<ul><li>1<li>2<li>3</ul>",
        {"l": {"css": "ul > li", "many": True, "type": "number"}},
        {"l": [1, 2, 3]},
    ),
    Odd(
        "table without tbody",
        "<table><tr><td>a<td>1<tr><td>b<td>x</table>",
        {
            "r": {
                "css": "table > tbody > tr",
                "many": True,
                "fields": {"k": "td:first-child", "v": {"css": "td + td", "type": "number"}},
            }
        },
        {"r": [{"k": "a", "v": 1}, {"k": "b", "v": None}]},
        ("r[1].v",),
    ),
    Odd(
        "text moved out of a table",
        "<table><tr>stray<td>in</table>",
        {"t": "body", "c": "td"},
        {"t": "stray in", "c": "in"},
    ),
    Odd("entities", "<p class=price>&euro;&nbsp;1&#46;234,00&#x20;</p>", {"p": _price()}, {"p": 1234.0}),
    Odd(
        "comments and scripts inside",
        "<p>a<!-- b --><script>c</script><style>d</style>e</p>",
        {"t": "p", "s": {"css": "p script"}},
        {"t": "ae", "s": "c"},
    ),
    Odd(
        "line breaks",
        "<p>a<br>b<br/>c</p><div>d<div>e</div>f</div>",
        {"t": "p", "d": "div"},
        {"t": "a b c", "d": "d e f"},
    ),
    Odd("white space", "<p>\n  a \t b&nbsp;&nbsp;c\n</p>", {"t": "p"}, {"t": "a b c"}),
    Odd(
        "empty first match",
        "<h2></h2><h2> &nbsp; </h2><h2>third</h2>",
        {"t": "h2", "all": {"css": "h2", "many": True}},
        {"t": "third", "all": ["third"]},
    ),
    Odd(
        "template",
        "<template><p>no</p></template><p>yes</p>",
        {"p": {"css": "p", "many": True}, "t": "body"},
        {"p": ["yes"], "t": "yes"},
    ),
    Odd(
        "shadow root",
        "<div><template shadowrootmode=open><p>in</p></template></div>",
        {"p": "div > p", "t": "div"},
        {"p": "in", "t": "in"},
    ),
    Odd(
        "svg",
        "<svg viewBox='0 0 1 1'><title>no</title><a href=x>s</a><linearGradient id=g></linearGradient></svg>",
        {"g": "lineargradient::attr(id)", "a": "svg > a", "x": {"xpath": "//linearGradient/@id"}},
        {"g": "g", "a": "s", "x": "g"},
    ),
    Odd(
        "base",
        "<base href=/other/><a href=x>x</a><img src=//cdn.example/i.png>",
        {"a": {"css": "a", "type": "url"}, "i": {"css": "img", "type": "url"}},
        {"a": "https://shop.example/other/x", "i": "https://cdn.example/i.png"},
    ),
    Odd(
        "bad references",
        "<a class=a href='javascript:alert(1)'>x</a><a class=b href='http://['>y</a><a class=c href=''>z</a>",
        {"a": {"css": ".a", "type": "url"}, "b": {"css": ".b", "type": "url"}, "c": {"css": ".c", "type": "url"}},
        {"a": None, "b": None, "c": None},
        ("a", "b"),
    ),
    Odd("an attribute twice", "<p id=one id=two>x", {"i": "p::attr(id)"}, {"i": "one"}),
    Odd(
        "an attribute without value",
        "<input disabled value=''><input value=v checked>",
        {"d": "input[disabled]", "v": {"css": "input", "many": True}, "c": {"css": "input[checked]", "attr": "VALUE"}},
        {"d": None, "v": ["v"], "c": "v"},
    ),
    Odd(
        "names that need escapes",
        "<p class='md:flex 2x'>a</p><p id='a.b'>b</p>",
        {"a": r".md\:flex", "n": r".\32 x", "b": r"#a\.b"},
        {"a": "a", "n": "a", "b": "b"},
    ),
    Odd(
        "quotes in attributes",
        """<p title='say "hi"'>a</p><p title="it's">b</p>""",
        {"a": """[title='say "hi"']""", "b": """[title="it's"]"""},
        {"a": "a", "b": "b"},
    ),
    Odd(
        "labels beside values",
        "<dl><dt>Size<dd>3<dt>Price<dd>USD 7.25<dd>old</dl>",
        {
            "p": {"xpath": "//dt[.='Price']/following-sibling::dd[1]", "type": "number"},
            "s": {"xpath": "//dd[preceding-sibling::dt[1]='Size']"},
        },
        {"p": 7.25, "s": "3"},
    ),
    Odd(
        "bold labels",
        "<p><b>By:</b> Ann <i>x</i></p>",
        {"a": {"xpath": "//b[.='By:']/following-sibling::i"}, "t": {"xpath": "//p/text()"}},
        {"a": "x", "t": "Ann"},
    ),
    Odd(
        "several numbers",
        "<p class=price>was 1,299.00 now 999</p><p class=v>1.2.3</p>",
        {"p": _price(), "v": _price(".v")},
        {"p": 1299.0, "v": None},
        ("v",),
    ),
    Odd(
        "numbers in many hands",
        "<ul><li>1.234,5<li>1,234.5<li>1 234,5<li>1’234.5<li>−3<li>٤٢<li>1,23,456<li>5e3<li>none</ul>",
        {"n": {"css": "li", "many": True, "type": "number"}},
        {"n": [1234.5, 1234.5, 1234.5, 1234.5, -3, 42, 123456, 5000.0, None]},
        ("n[8]",),
    ),
    Odd(
        "dates in many hands",
        "<ul><li>2024-03-01<li>1 March 2024<li>Mar 1st, 2024<li>01.03.2024<li>2024年3月1日<li>03/04/2024<li>13/04/2024<li>30 Feb 2024</ul>",
        {"d": {"css": "li", "many": True, "type": "date"}},
        {"d": ["2024-03-01"] * 5 + [None, "2024-04-13", None]},
        ("d[5]", "d[7]"),
    ),
    Odd(
        "time elements",
        "<time datetime='2024-03-01T10:00:00+01:00'>today</time><time class=b>2024-03-02 08:15</time>",
        {"a": {"css": "time", "type": "date"}, "b": {"css": ".b", "type": "date"}},
        {"a": "2024-03-01T10:00:00+01:00", "b": "2024-03-02T08:15:00"},
    ),
    Odd(
        "meta tags",
        "<meta name=author content=' Ann  B '><meta property=og:price content='12'>",
        {"a": "meta[name=author]", "p": {"css": "meta[property='og:price']", "type": "number"}},
        {"a": "Ann  B", "p": 12},
    ),
    Odd(
        "json-ld in a graph",
        """<script type=application/ld+json>{"@graph":[{"@type":"WebPage"},{"@type":["Thing","Product"],"offers":[{"price":"9,99"},{"price":5}]}]}</script>""",
        {
            "p": {"jsonld": "Product.offers.price", "many": True, "type": "number"},
            "first": {"jsonld": "Product.offers.price"},
        },
        {"p": [9.99, 5], "first": "9,99"},
    ),
    Odd(
        "json-ld that is broken, and one that is not",
        """<script type=application/ld+json>{"@type":</script><script type='application/ld+json; x'>[{"@type":"http://schema.org/Book","isbn":123,"ok":true,"at":null}]</script>""",
        {"i": {"jsonld": "Book.isbn"}, "ok": {"jsonld": "Book.ok"}, "at": {"jsonld": "Book.at", "required": True}},
        {"i": "123", "ok": "true", "at": None},
        ("at",),
    ),
    Odd(
        "json-ld with objects",
        """<script type=application/ld+json>{"@type":"Recipe","author":{"name":"Ann"},"step":[{"text":"a"},{"text":"b"},3]}</script>""",
        {"a": {"jsonld": "Recipe.author"}, "s": {"jsonld": "Recipe.step", "many": True, "fields": {"t": "text"}}},
        {"a": None, "s": [{"t": "a"}, {"t": "b"}, None]},
        ("a", "s[2]"),
    ),
    Odd(
        "json-ld numbers",
        """<script type=application/ld+json>{"@type":"X","a":1e400,"b":123456789012345678901234567890,"c":-0.5,"d":[]}</script>""",
        {
            "a": {"jsonld": "X.a", "type": "number"},
            "b": {"jsonld": "*.b", "type": "number"},
            "c": {"jsonld": "X.c", "type": "number"},
            "d": {"jsonld": "X.d", "default": 0},
        },
        {"a": None, "b": 123456789012345678901234567890.0, "c": -0.5, "d": 0},
        ("a",),
    ),
    Odd(
        "a value in a script",
        "<script>var a = 1;</script><script>window.sku='A-7';</script>",
        {"s": {"css": "script", "regex": "sku='([^']+)'"}},
        {"s": "A-7"},
    ),
    Odd(
        "a pattern over the page",
        "<p>Ref. <b>AB</b>-12, Ref. CD-3",
        {"r": {"regex": r"[A-Z]{2}-\d+", "many": True}, "n": {"regex": r"nowhere", "required": True}},
        {"r": ["AB-12", "CD-3"], "n": None},
        ("n",),
    ),
    Odd(
        "items in items",
        "<div class=i><h3>a</h3><div class=i><h3>b</h3></div></div>",
        {"i": {"css": ".i", "many": True, "fields": {"t": "h3", "all": {"css": "h3", "many": True}}}},
        {"i": [{"t": "a", "all": ["a", "b"]}, {"t": "b", "all": ["b"]}]},
    ),
    Odd(
        "the item itself",
        "<a class=i href=/1 data-id=7>one</a><a class=i>two</a>",
        {
            "i": {
                "css": ".i",
                "many": True,
                "fields": {
                    "t": {},
                    "u": {"type": "url", "attr": "href"},
                    "n": {"attr": "data-id", "type": "number", "required": True},
                },
            }
        },
        {"i": [{"t": "one", "u": "https://shop.example/1", "n": 7}, {"t": "two", "u": None, "n": None}]},
        ("i[1].n",),
    ),
    Odd(
        "as html",
        "<div class=d><p>a &amp; b<br><!-- c --><img src=x alt='\"'><pre>\n\nz</pre></div>",
        {"h": {"css": ".d", "type": "html"}},
        {"h": '<div class="d"><p>a &amp; b<br><img src="x" alt="&quot;"></p><pre>\n\nz</pre></div>'},
    ),
    Odd(
        "frames in place of a body",
        "<html><frameset cols=*><frame src=a.html></frameset></html>",
        {"f": {"css": "frame", "type": "url"}},
        {"f": "https://shop.example/goods/a.html"},
    ),
    Odd(
        "defaults",
        "<p>x",
        {
            "a": {"css": "h1", "default": "none"},
            "b": {"css": "h2", "many": True, "default": ["z"]},
            "c": {"css": "p", "type": "number", "default": 1},
        },
        {"a": "none", "b": ["z"], "c": None},
        ("c",),
    ),
    Odd("half a surrogate pair", "<p>a&#xD83D;b</p>", {"t": "p"}, {"t": "a\ufffdb"}),
]
