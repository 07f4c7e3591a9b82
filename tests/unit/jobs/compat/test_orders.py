"""What Firecrawl's bodies become, and which of their fields are refused, by name."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.engine.admission.rules import Patterns
from weft.jobs.api.problems import Refusal
from weft.jobs.compat.compat_requests import batch_request, crawl_request, map_request, scrape_request
from weft.jobs.compat.fields import Denied

SITE = "https://example.com/"


def crawl(version: int = 2, **body: Any) -> Any:
    return crawl_request({"url": SITE, **body}, version, False, 10)


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
    assert (spec.include, spec.exclude, spec.max_concurrent_articles) == (
        (r"re2-path:^/blog/.*",),
        (r"re2-path:\.pdf$",),
        3,
    )
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
        ({"includePaths": ["("]}, "includePaths.0", "'(' cannot be used: missing )"),
        ({"includePaths": "x"}, "includePaths", "must be a list of texts"),
        ({"scrapeOptions": []}, "scrapeOptions", "must be an object"),
        ({"scrapeOptions": {"formats": ["summary"]}}, "scrapeOptions.formats.0", "'summary' is not available"),
        ({"scrapeOptions": {"formats": [{"type": "json"}]}}, "scrapeOptions.formats.0", "'json' is not available"),
        ({"scrapeOptions": {"formats": ["branding"]}}, "scrapeOptions.formats.0", "it is not taken from pages"),
        ({"scrapeOptions": {"formats": ["markup"]}}, "scrapeOptions.formats.0", "'markup' is not a format"),
        ({"scrapeOptions": {"formats": [7]}}, "scrapeOptions.formats.0", "must be a text"),
        ({"scrapeOptions": {"waitFor": 100_000}}, "scrapeOptions.waitFor", "60,000"),
        ({"scrapeOptions": {"actions": [{"type": "wait"}]}}, "scrapeOptions.actions.0", "needs `milliseconds`"),
        ({"scrapeOptions": {"actions": [{"type": "scrape"}]}}, "scrapeOptions.actions.0", "'scrape' is not available"),
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
            scrape_request({"url": SITE, name: {"prompt": "x"}}, 1, False)


def test_a_batch_says_which_urls_it_leaves_out() -> None:
    urls = [SITE, "nonsense url", SITE, "http://127.0.0.1/", "example.org/a"]
    order = batch_request({"urls": urls}, 2, False, 10)
    assert order.urls == (SITE, "https://example.org/a")
    assert order.invalid == ("nonsense url", "http://127.0.0.1/")
    with pytest.raises(Denied, match=r"urls\.1: Invalid URL"):
        batch_request({"urls": urls}, 1, False, 10)
    with pytest.raises(Denied, match="at least one URL"):
        batch_request({"urls": ["nonsense url"]}, 2, False, 10)


def test_a_scrape_has_its_own_time_and_a_map_its_own_fields() -> None:
    assert scrape_request({"url": SITE, "timeout": 5000}, 2, False).spec.timeout_s == 5.0
    with pytest.raises(Denied, match="timeout"):
        scrape_request({"url": SITE, "timeout": 10}, 2, False)
    found = map_request({"url": SITE, "sitemap": "only", "search": "blog", "limit": 5, "origin": "x"}, 2, False)
    assert (found.reads_pages, found.reads_sitemaps, found.limit) == (False, True, 5)
    assert map_request({"url": SITE, "ignoreSitemap": True}, 1, False).reads_sitemaps is False
    with pytest.raises(Denied, match="location"):
        map_request({"url": SITE, "location": {"country": "DE"}}, 2, False)


PATTERNS = ["blog/.*", "/blog/.*", "^/docs/.*$", "^/a$", "blog", "/(a|b)/.+", r"\.pdf$", "x?y", r"p/\d+", "a/[^/]+",
            "blog/*", "/a.c", "[ab]c", "^/(en|de)?/x", "a{2}", "é", "", "[^/]+/x", "a*b", r"\w+x", "^docs",
            "(?i)BLOG|DOC", "(aa|bb|cc|dd|ee|ff)(aa|bb|cc|dd|ee|ff)", r"\/b", "(a+)+$"]  # fmt: skip


@given(st.text(alphabet="/abcdoglx.yp1pdfneé-?", max_size=14))
def test_a_pattern_is_found_anywhere_in_the_path_or_the_whole_url(path: str) -> None:
    url = f"https://example.com/{path}"
    for pattern in PATTERNS:
        spec = crawl(includePaths=[pattern]).spec
        expected = re.search(pattern, urlsplit(url).path, re.ASCII) is not None
        assert Patterns("include", spec.include).match(url, set()) == expected, (pattern, url)
        spec = crawl(excludePaths=[pattern], regexOnFullURL=True).spec
        expected = re.search(pattern, url, re.ASCII) is not None
        assert Patterns("exclude", spec.exclude).match(url, set()) == expected, (pattern, url)


@pytest.mark.parametrize(
    ("patterns", "at", "said"),
    [
        (["/a", "((((((((((a{5}){5}){5}){5}){5}){5}){5}){5}){5}){5})"], "includePaths.1", "invalid repetition size"),
        (["(a{100}){100}"], "includePaths.0", "invalid repetition size"),
        (["(?:.{500}){2}"], "includePaths.0", "pattern too large"),
        (["(?=a)b"], "includePaths.0", "invalid perl operator"),
        ([r"(a)\1"], "includePaths.0", "invalid escape sequence"),
        (["a" * 1001], "includePaths.0", "at most 1,000 characters"),
        ([f"x.{{200}}{number}" for number in range(100)], "includePaths", "too large together"),
        (["(?:)" * 250] * 100, "includePaths", "more than 10,000 characters together"),
        (["a"] * 101, "includePaths", "at most 100"),
        (["/a", "b\0"], "includePaths.1", "no control characters"),
    ],
)
def test_patterns_that_would_cost_much_are_refused_by_name(patterns: list[str], at: str, said: str) -> None:
    with pytest.raises(Denied) as caught:
        crawl(includePaths=patterns)
    assert caught.value.status == 400 and caught.value.errors[0][0] == at and said in caught.value.detail


@pytest.mark.parametrize(
    ("formats", "at"),
    [
        ([{"type": []}], "formats.0.type"),
        ([{"type": {}}], "formats.0.type"),
        ([{"type": "attributes", "selectors": 5}], "formats.0.selectors"),
        ([{"type": "attributes", "selectors": "abc"}], "formats.0.selectors"),
        ([{"type": "attributes", "selectors": [{"selector": "a", "attribute": "b"}] * 101}], "formats.0.selectors"),
        (["markdown"] * 51, "formats"),
    ],
)
def test_formats_of_a_wrong_type_are_refused_by_name(formats: list[Any], at: str) -> None:
    with pytest.raises(Denied) as caught:
        scrape_request({"url": SITE, "formats": formats}, 2, False)
    assert caught.value.status == 400 and caught.value.errors[0][0] == at


def test_what_is_searched_for_in_a_map_is_bounded() -> None:
    with pytest.raises(Denied, match="search: must have at most"):
        map_request({"url": SITE, "search": "word " * 1000}, 2, False)


def test_metadata_of_a_webhook_can_be_stored_and_sent() -> None:
    hook = {"url": "https://hooks.example/", "metadata": {"number": 2**64 - 1, "list": [[[]]]}}
    assert crawl(webhook=hook).spec.webhook["metadata"] == hook["metadata"]
    with pytest.raises(Refusal, match=r"webhook.metadata: whole numbers must fit into 64 bits"):
        crawl(webhook=hook | {"metadata": {"number": 2**64}})
    nested: list[Any] = []
    for _ in range(500):
        nested = [nested]
    with pytest.raises(Refusal, match=r"webhook.metadata: is nested more than 32 deep"):
        crawl(webhook=hook | {"metadata": {"nested": nested}})
