"""What Firecrawl's bodies become, and which of their fields are refused, by name."""

from __future__ import annotations

import re
from fnmatch import translate
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.frontier.admission import expression
from weft.jobs.compat.fields import Denied
from weft.jobs.compat.orders import batch_order, crawl_order, map_order, scrape_order
from weft.jobs.compat.paths import Untranslatable, globs

SITE = "https://example.com/"


def crawl(version: int = 2, **body: Any) -> Any:
    return crawl_order({"url": SITE, **body}, version, False, 10)


def test_what_clients_send_by_themselves_is_accepted() -> None:
    options = {
        "formats": ["markdown", {"type": "links"}], "onlyMainContent": True, "mobile": False,
        "skipTlsVerification": True, "removeBase64Images": True, "fastMode": False, "blockAds": True,
        "maxAge": 14400000, "storeInCache": True,
        "waitFor": 0, "headers": {}, "actions": [], "parsers": ["pdf"], "proxy": "auto", "timeout": 30000,
        "location": None,
    }  # fmt: skip
    order = crawl(scrapeOptions=options, origin="python-sdk@4", integration=None, zeroDataRetention=False)
    spec = order.spec
    assert (spec.formats, spec.max_pages, spec.timeout_s) == (("markdown", "links", "metadata"), 10_000, 7200.0)
    old = crawl(1, scrapeOptions={"formats": ["rawHtml"], "parsePDF": True, "proxy": "basic"}, maxDepth=2)
    assert old.spec.formats == ("rawHtml", "metadata") and old.spec.exclude == ("/*/*/?*",)


@pytest.mark.parametrize(
    ("body", "scope"),
    [
        ({}, "host"),
        ({"url": f"{SITE}docs/a"}, "prefix"),
        ({"url": f"{SITE}docs/a", "crawlEntireDomain": True}, "host"),
        ({"allowSubdomains": True}, "domain"),
        ({"allowExternalLinks": True}, "any"),
    ],
)
def test_where_a_crawl_may_go(body: dict[str, Any], scope: str) -> None:
    assert crawl(**body).spec.scope == scope


def test_a_crawls_own_fields() -> None:
    spec = crawl(
        limit=7, maxDiscoveryDepth=2, ignoreQueryParameters=True, delay=1.5, maxConcurrency=3, ignoreRobotsTxt=True,
        includePaths=["^/blog/.*"], excludePaths=[r"\.pdf$"], webhook="https://hooks.example/",
        scrapeOptions={"formats": [{"type": "attributes", "selectors": [{"selector": "a", "attribute": "href"}]}]},
    ).spec  # fmt: skip
    assert (spec.max_pages, spec.max_depth, spec.strip_query, spec.delay_s) == (7, 2, ("*",), 1.5)
    assert (spec.include, spec.exclude, spec.max_concurrent_articles) == (("/blog/*",), ("/*.pdf",), 3)
    assert spec.extra["warnings"] == ["ignoreRobotsTxt is not followed: robots.txt is always obeyed"]
    assert spec.webhook is not None and spec.webhook["form"] == "firecrawl"
    assert spec.extract == {"a0": {"css": "a", "attr": "href", "many": True}}
    assert spec.extra["attributes"] == [["a", "href"]]


@pytest.mark.parametrize(
    ("body", "path", "said"),
    [
        ({"nonsense": 1}, "nonsense", "Unrecognized key in body"),
        ({"limits": 5}, "limits", "did you mean 'limit'?"),
        ({"limit": "5"}, "limit", "must be a whole number from 1"),
        ({"limit": True}, "limit", "must be a whole number"),
        ({"prompt": "all prices"}, "prompt", "needs a language model"),
        ({"sitemap": "only"}, "sitemap", "is not available"),
        ({"sitemap": "none"}, "sitemap", "use one of skip, include, only"),
        ({"robotsUserAgent": "x"}, "robotsUserAgent", "the service's own user agent"),
        ({"zeroDataRetention": True}, "zeroDataRetention", "tasks are kept"),
        ({"maxDepth": 3}, "maxDepth", "Unrecognized key"),
        ({"includePaths": ["(a+)+$"]}, "includePaths.0", "'(a+)+$' repeats something else than '.'"),
        ({"includePaths": ["("]}, "includePaths.0", "is no regular expression"),
        ({"includePaths": "x"}, "includePaths", "must be a list of texts"),
        ({"scrapeOptions": []}, "scrapeOptions", "must be an object"),
        ({"scrapeOptions": {"formats": ["summary"]}}, "scrapeOptions.formats.0", "'summary' is not available"),
        ({"scrapeOptions": {"formats": [{"type": "json"}]}}, "scrapeOptions.formats.0", "'json' is not available"),
        ({"scrapeOptions": {"formats": ["screenshot"]}}, "scrapeOptions.formats.0", "not loaded in a browser"),
        ({"scrapeOptions": {"formats": ["markup"]}}, "scrapeOptions.formats.0", "'markup' is no format"),
        ({"scrapeOptions": {"formats": [7]}}, "scrapeOptions.formats.0", "must be a text"),
        ({"scrapeOptions": {"waitFor": 100}}, "scrapeOptions.waitFor", "not loaded in a browser"),
        ({"scrapeOptions": {"actions": [{"type": "wait"}]}}, "scrapeOptions.actions", "not loaded in a browser"),
        ({"scrapeOptions": {"headers": {"A": "b"}}}, "scrapeOptions.headers", "the service's own headers"),
        ({"scrapeOptions": {"proxy": "stealth"}}, "scrapeOptions.proxy", "'stealth' is not available: use basic"),
        ({"scrapeOptions": {"includeTags": ["a[["]}}, "scrapeOptions.includeTags", "not understood"),
        ({"scrapeOptions": {"onlymaincontent": 1}}, "scrapeOptions.onlymaincontent", "'onlyMainContent'?"),
        ({"webhook": "http://10.0.0.1/"}, "webhook", "private address"),
        ({"webhook": {"url": SITE, "events": ["all"]}}, "webhook.events", "'all' is none of started"),
        ({"webhook": {"url": SITE, "headers": [1]}}, "webhook.headers", "dictionary"),
        ({"url": "http://169.254.169.254/"}, "url", "cloud metadata"),
        ({"url": None}, "url", "is missing"),
        ({"url": 7}, "url", "must be a text"),
    ],
)
def test_a_field_that_is_refused_is_named(body: dict[str, Any], path: str, said: str) -> None:
    with pytest.raises(Exception) as refused:
        crawl(**body)
    refusal: Any = refused.value
    assert refusal.status in (400, 422) and refusal.errors[0][0] == path and said in refusal.errors[0][1]


def test_version_1_has_its_own_fields() -> None:
    for name, value in (("maxDepth", 3), ("allowBackwardLinks", True), ("ignoreSitemap", False)):
        crawl(1, **{name: value})
        with pytest.raises(Denied, match=name):
            crawl(2, **{name: value} if name != "allowBackwardLinks" else {"ignoreSitemap": False, name: 1})
    for name in ("jsonOptions", "extract", "agent"):
        with pytest.raises(Denied, match="language model"):
            scrape_order({"url": SITE, name: {"prompt": "x"}}, 1, False)


def test_a_batch_says_which_urls_it_leaves_out() -> None:
    urls = [SITE, "nonsense url", SITE, "http://127.0.0.1/", "example.org/a"]
    order = batch_order({"urls": urls}, 2, False, 10)
    assert order.urls == (SITE, "https://example.org/a")
    assert order.invalid == ("nonsense url", "http://127.0.0.1/")
    with pytest.raises(Denied, match=r"urls\.1: Invalid URL"):
        batch_order({"urls": urls}, 1, False, 10)
    with pytest.raises(Denied, match="at least one URL"):
        batch_order({"urls": ["nonsense url"]}, 2, False, 10)


def test_a_scrape_has_its_own_time_and_a_map_its_own_fields() -> None:
    assert scrape_order({"url": SITE, "timeout": 5000}, 2, False).spec.timeout_s == 5.0
    with pytest.raises(Denied, match="timeout"):
        scrape_order({"url": SITE, "timeout": 10}, 2, False)
    found = map_order({"url": SITE, "sitemap": "only", "search": "blog", "limit": 5, "origin": "x"}, 2, False)
    assert (found.reads_pages, found.reads_sitemaps, found.limit) == (False, True, 5)
    assert map_order({"url": SITE, "ignoreSitemap": True}, 1, False).reads_sitemaps is False
    with pytest.raises(Denied, match="location"):
        map_order({"url": SITE, "location": {"country": "DE"}}, 2, False)


PATTERNS = ["blog/.*", "/blog/.*", "^/docs/.*$", "^/a$", "blog", "/(a|b)/.+", r"\.pdf$", "x?y", r"p/\d+", "a/[^/]+",
            "blog/*", "/a.c", "[ab]c", "^/(en|de)?/x", "a{2}", "é"]  # fmt: skip


@given(st.text(alphabet="/abcdoglx.yp1pdfneé-", max_size=14))
def test_a_glob_matches_what_its_pattern_does(path: str) -> None:
    url = f"https://example.com/{path}"
    path = urlsplit(url).path
    for pattern in PATTERNS:
        expected = re.search(pattern, path) is not None
        found = [re.search(expression(glob), url) is not None for glob in globs(pattern, False)]
        assert any(found) == expected, (pattern, path, globs(pattern, False))
        whole = [re.search(r"\A" + translate(glob), url) is not None for glob in globs(pattern.lstrip("^"), True)]
        assert any(whole) == (re.search(pattern.lstrip("^"), url) is not None), (pattern, url)


@pytest.mark.parametrize(
    "pattern", [r"(?=a)b", r"(a)\1", "[^/]+/x", "a*b", r"\w+x", "^docs", "(aa|bb|cc|dd|ee|ff)" * 2]
)
def test_what_no_glob_says_is_refused(pattern: str) -> None:
    with pytest.raises(Untranslatable):
        globs(pattern, False)
