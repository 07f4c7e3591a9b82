"""The site that the Scrapy spiders of the tests crawl: the site of quotes, with feeds, forms, cookies and failures."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from quotes_site import Asked, QuotesSite, quotes_site

HTML, XML = {"Content-Type": "text/html; charset=utf-8"}, {"Content-Type": "application/xml"}
TABLE = "id;name;price\n1;Lamp;9.50\n2;'Desk; oak';80\n3;Pen;1\n"
RSS = "<rss><channel>{}</channel></rss>"
SLOW_S = 30.0  # longer than a spider waits; the end of the site ends it


def _echo(asked: Asked) -> tuple[int, dict[str, str], str]:
    """What was asked, as JSON."""
    kept = {name: value for name, value in asked.headers.items() if name.startswith("X-") or name == "Authorization"}
    held = {"method": asked.method, "path": asked.path, "body": asked.body, "headers": kept}
    return 200, {"Content-Type": "application/json"}, json.dumps(held)


def _bag(asked: Asked) -> tuple[int, dict[str, str], str]:
    """The cookies that came, and one more for each visit."""
    sent = dict(one.strip().partition("=")[::2] for one in asked.headers.get("Cookie", "").split(";") if one.strip())
    visits = int(sent.get("visits", "0")) + 1
    text = "".join(f"<li>{name}={value}" for name, value in sorted(sent.items()))
    return 200, HTML | {"Set-Cookie": f"visits={visits}; Path=/"}, f"<ul>{text}</ul>"


def _search(asked: Asked) -> tuple[int, dict[str, str], str]:
    fields = dict(parse_qsl(asked.body or urlsplit(asked.path).query))
    inputs = "".join(f"<p>{name}={value}" for name, value in sorted(fields.items()))
    form = (
        "<form id=f action=/form method=post><input type=hidden name=token value=t7><input name=q value=none>"
        "<select name=o><option value=a>a<option value=b selected>b</select><button name=go value=1>go</button></form>"
    )
    return 200, HTML, f"{form}<div>{inputs}</div>"


def _links(*paths: str, more: str = "") -> tuple[int, dict[str, str], str]:
    return 200, HTML, f"<title>{more}</title>{more}" + "".join(f"<a href='{path}'>{path}</a> " for path in paths)


def _level(asked: Asked) -> tuple[int, dict[str, str], str]:
    level = int(urlsplit(asked.path).path.rpartition("/")[2])
    return _links(f"/level/{level + 1}", more=f"<h1>{level}</h1>")


def _sitemaps(url: str) -> dict[str, Any]:
    index = f"<sitemapindex><sitemap><loc>{url}map-1.xml</loc></sitemap><sitemap><loc>{url}map-2.xml.gz</loc></sitemap>"
    one = f"<urlset><url><loc>{url}shop/1</loc></url><url><loc>{url}news/1</loc></url></urlset>"
    two = f"<urlset><url><loc>{url}shop/2</loc></url><url><loc>{url}other</loc></url></urlset>"
    return {
        "/maps/robots.txt": (200, {"Content-Type": "text/plain"}, f"User-agent: *\nSitemap: {url}index.xml\n"),
        "/index.xml": (200, XML, f"{index}</sitemapindex>"),
        "/map-1.xml": (200, XML, one),
        "/map-2.xml.gz": (200, {"Content-Type": "application/gzip"}, gzip.compress(two.encode())),
        "/shop/1": _links(more="<h1>Lamp</h1>"),
        "/shop/2": _links(more="<h1>Desk</h1>"),
        "/news/1": _links(more="<h1>Opened</h1>"),
    }


def _catalogue() -> dict[str, Any]:
    pages = {
        f"/list/{n}": _links(*(f"/thing/{n}{k}" for k in "ab"), f"/list/{n + 1}", more=f"<h1>{n}</h1>") for n in (1, 2)
    }
    things = {
        f"/thing/{n}{k}": _links("/skip/1", "/list/1", more=f"<h1>thing {n}{k}</h1>") for n in (1, 2) for k in "ab"
    }
    return {**pages, **things, "/list/3": _links(more="<h1>3</h1>"), "/skip/1": _links(more="<h1>skip</h1>")}


@contextmanager
def scrapy_site() -> Iterator[QuotesSite]:
    """The site, while the block runs."""
    over = threading.Event()

    def slow(_: Asked) -> tuple[int, dict[str, str], str]:
        over.wait(SLOW_S)
        return 200, HTML, "late"

    with quotes_site(4) as site:
        site.answers |= {
            "/robots.txt": (200, {"Content-Type": "text/plain"}, "User-agent: *\nDisallow: /secret\n"),
            "/echo": _echo, "/bag": _bag, "/form": _search, "/slow": slow,
            "/moved": (302, {"Location": "/hop"}, ""), "/hop": (301, {"Location": "/page/2"}, ""),
            "/gone": (410, HTML, "<h1>gone</h1>"), "/missing": (404, HTML, "<h1>missing</h1>"),
            "/teapot": (418, HTML, "<h1>teapot</h1>"),
            "/feed.xml": (200, XML, RSS.format("".join(
                f"<item id='{n}'><title>Item {n}</title><price>{n}.50</price></item>" for n in range(1, 4)))),
            "/table.csv": (200, {"Content-Type": "text/csv"}, TABLE),
            "/other": _links(more="<h1>other</h1>"),
            **{f"/level/{n}": _level for n in range(10)}, **_sitemaps(site.url), **_catalogue(),
        }  # fmt: skip
        try:
            yield site
        finally:
            over.set()
