"""Translates Firecrawl's request bodies into task specifications: crawl, batch, scrape and map, of both versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from weft.errors import BadUrl
from weft.jobs.api.webhook_bodies import webhook_of
from weft.jobs.checking import misfits
from weft.jobs.compat.fields import BodyFields, Denied, bad
from weft.jobs.compat.options import PageOptions, page_options
from weft.jobs.model import MAX_PATTERNS_CHARS, Lane, TaskSpec
from weft.jobs.targets import check_target
from weft.patterns import MAX_URL_INSTRUCTIONS, ON_PATH, ON_URL, BadPattern, compile_url_pattern
from weft.scraping import MAX_PATTERNS, Scope, WebhookOrder

CRAWL, BATCH, SCRAPE, MAP = "firecrawl crawl", "firecrawl batch", "firecrawl scrape", "firecrawl map"
HOURS_S = 7200.0  # The time limit of a crawl and of a batch: two hours.
MOST_URLS = 10_000
DEEPEST = 1000
LONGEST_SEARCH = 1000  # The longest search text in characters: each word is searched for in each link.
ROBOTS = "ignoreRobotsTxt is not followed: robots.txt is always obeyed"
_FIRECRAWL_EVENTS = ("started", "page", "completed", "failed")
_UNSUPPORTED_FIELDS = {
    "prompt": "it needs a language model, which Weft does not have",
    "robotsUserAgent": "robots.txt is read for the service's own user agent",
    "stopOnContent": "a crawl does not judge what pages say",
    "zeroDataRetention": "tasks are kept for as long as the service is set to",
}


class CompatRequest(Struct, frozen=True):
    """What a request body asks for."""

    urls: tuple[str, ...]
    spec: TaskSpec
    invalid: tuple[str, ...] = ()  # URLs that were rejected
    appends_to: str = ""


def crawl_request(body: Any, version: int, allow_private: bool, articles: int) -> CompatRequest:
    """Translates the body of POST /crawl."""
    fields = BodyFields(body)
    url = target(fields.text("url"), allow_private)
    warnings = []
    if fields.flag("ignoreRobotsTxt"):
        warnings.append(ROBOTS)
    on_full_url = fields.flag("regexOnFullURL")
    exclude = _path_patterns(fields, "excludePaths", on_full_url)
    include = _path_patterns(fields, "includePaths", on_full_url)
    if version == 1:
        exclude += _pattern_of_too_deep(url, fields.number("maxDepth", 10, 0, DEEPEST))
    depth = fields.number("maxDiscoveryDepth", None, 0, DEEPEST)
    limit = fields.number("limit", 10_000, 1, 1_000_000)
    scope = _read_scope(fields, url)
    _check_sitemap(fields, version)
    strip = ("*",) if fields.flag("ignoreQueryParameters") else ()
    delay_s = fields.number("delay", None, 0, 60, whole=False)
    flight = fields.number("maxConcurrency", articles, 1, 1000)
    hook = _read_webhook(fields, allow_private)
    inner = BodyFields(fields.pop("scrapeOptions", {}), "scrapeOptions")
    options = page_options(inner, version)
    inner.end()
    fields.harmless("deduplicateSimilarURLs", "origin", "integration")
    fields.lacking(_UNSUPPORTED_FIELDS)
    fields.end()
    spec = _task_spec(
        options, kind=CRAWL, max_depth=DEEPEST if depth is None else depth, max_pages=limit, include=tuple(include),
        exclude=tuple(exclude), scope=scope, strip_query=strip, delay_s=delay_s, webhook=hook,
        max_concurrent_articles=min(100, flight), timeout_s=HOURS_S, warnings=warnings,
    )  # fmt: skip
    return CompatRequest((url,), spec)


def batch_request(body: Any, version: int, allow_private: bool, articles: int) -> CompatRequest:
    """Translates the body of POST /batch/scrape."""
    fields = BodyFields(body)
    given = fields.texts("urls", MOST_URLS)
    is_lenient = fields.flag("ignoreInvalidURLs", version == 2)
    urls, invalid = _target_urls(given, allow_private, is_lenient)
    appends_to = fields.text("appendToId", "")
    flight = fields.number("maxConcurrency", articles, 1, 1000)
    hook = _read_webhook(fields, allow_private)
    options = page_options(fields, version)
    fields.end()
    spec = _task_spec(
        options, kind=BATCH, is_batch=True, webhook=hook, max_concurrent_articles=min(100, flight), timeout_s=HOURS_S,
        warnings=(),
    )  # fmt: skip
    return CompatRequest(tuple(urls), spec, tuple(invalid), appends_to)


def scrape_request(body: Any, version: int, allow_private: bool) -> CompatRequest:
    """Translates the body of POST /scrape: one page, synchronously."""
    fields = BodyFields(body)
    url = target(fields.text("url"), allow_private)
    timeout_ms = fields.number("timeout", 30_000, 1_000, 600_000)
    options = page_options(fields, version)
    fields.end()
    spec = _task_spec(
        options, kind=SCRAPE, is_batch=True, max_pages=1, lane=Lane.SCRAPE, retry_attempts=1,
        timeout_s=timeout_ms / 1000, warnings=(),
    )  # fmt: skip
    return CompatRequest((url,), spec)


def target(text: Any, allow_private: bool, at: str = "url") -> str:
    """The canonical URL to scrape; a missing scheme is added, as Firecrawl does."""
    if not isinstance(text, str) or not text.strip():
        raise bad(at, "is missing" if text is None else "must be a URL")
    text = text.strip()
    try:
        return check_target(text if "://" in text else f"https://{text}", allow_private)
    except BadUrl as error:
        raise bad(at, f"Invalid URL: {error}") from None


def _target_urls(given: Sequence[str], allow_private: bool, is_lenient: bool) -> tuple[list[str], list[str]]:
    valid, invalid = list[str](), list[str]()
    for number, text in enumerate(given):
        try:
            valid.append(target(text, allow_private, f"urls.{number}"))
        except Denied:
            if not is_lenient:
                raise
            invalid.append(text)
    if not valid:
        raise bad("urls", "give at least one URL that can be scraped")
    return list(dict.fromkeys(valid)), invalid


def _task_spec(options: PageOptions, *, warnings: Sequence[str], **more: Any) -> TaskSpec:
    extra: dict[str, Any] = {"warnings": list(warnings)}
    if options.attributes:
        extra["attributes"] = [list(pair) for pair in options.attributes]
    return TaskSpec(
        formats=options.formats,
        format_options=options.format_options,
        extract=options.extract,
        extra=extra,
        render=options.render,
        render_options=options.render_options,
        **more,
    )


def _path_patterns(fields: BodyFields, name: str, on_full_url: bool) -> list[str]:
    """The regular expressions of a field, checked for RE2; they match anywhere in a URL's path, or in the whole URL."""
    patterns = [(ON_URL if on_full_url else ON_PATH) + text for text in fields.texts(name, MAX_PATTERNS)]
    instructions = 0
    for number, pattern in enumerate(patterns):
        try:
            instructions += compile_url_pattern(pattern).instructions
        except BadPattern as error:
            raise bad(f"{name}.{number}", f"{pattern.partition(':')[2][:100]!r} cannot be used: {error}") from None
        if instructions > MAX_URL_INSTRUCTIONS:
            raise bad(name, "the patterns are too large together: use fewer, or shorter ones")
    if sum(map(len, patterns)) > MAX_PATTERNS_CHARS:
        raise bad(name, f"the patterns have more than {MAX_PATTERNS_CHARS:,} characters together")
    return patterns


def _pattern_of_too_deep(url: str, deepest: int) -> list[str]:
    """A pattern that excludes paths with more segments than `maxDepth` of version 1 allows, relative to the start
    URL."""
    parts = len([part for part in urlsplit(url).path.split("/") if part])
    return ["/*" * min(parts + deepest, 200) + "/?*"]


def _read_scope(fields: BodyFields, url: str) -> Scope:
    whole = fields.flag("crawlEntireDomain") | fields.flag("allowBackwardLinks")
    subdomains, external = fields.flag("allowSubdomains"), fields.flag("allowExternalLinks")
    if external:
        return "any"
    if subdomains:
        return "domain"
    return "host" if whole or urlsplit(url).path in ("", "/") else "prefix"


def _check_sitemap(fields: BodyFields, version: int) -> None:
    wanted = "include"
    if version == 2:
        wanted = fields.text("sitemap", "include", among=("skip", "include", "only"))
    elif fields.flag("ignoreSitemap"):
        wanted = "skip"
    if wanted != "include":
        name = "sitemap" if version == 2 else "ignoreSitemap"
        raise bad(name, f"{wanted!r} is not available: a crawl follows links and sitemaps")


def _read_webhook(fields: BodyFields, allow_private: bool) -> dict[str, Any] | None:
    given = fields.pop("webhook")
    if given is None:
        return None
    if isinstance(given, str):
        given = {"url": given}
    inner = BodyFields(given, "webhook")
    url, headers, metadata = inner.text("url", ""), inner.pop("headers", {}), inner.pop("metadata", {})
    events = inner.texts("events", 20, _FIRECRAWL_EVENTS)
    inner.end()
    if wrong := [one for one in events if one not in _FIRECRAWL_EVENTS]:
        raise bad("webhook.events", f"{wrong[0][:60]!r} is none of {', '.join(_FIRECRAWL_EVENTS)}")
    wanted = [*events, "cancelled"] if "completed" in events else events
    given = {"url": url, "headers": headers, "metadata": metadata, "events": wanted}
    for problem in misfits({"webhook": given}, {"webhook": WebhookOrder}, {}, str):
        raise bad(*problem)
    return webhook_of(given, allow_private, "firecrawl")


class MapRequest(Struct, frozen=True):
    """What a body of POST /map asks for."""

    url: str
    search: str
    reads_pages: bool
    reads_sitemaps: bool
    subdomains: bool
    strips_query: bool
    by_path: bool
    limit: int
    timeout_s: float


def map_request(body: Any, version: int, allow_private: bool) -> MapRequest:
    """Translates the body of POST /map."""
    fields = BodyFields(body)
    url = target(fields.text("url"), allow_private)
    if version == 2:
        sitemap = fields.text("sitemap", "include", among=("skip", "include", "only"))
    else:
        skips, alone = fields.flag("ignoreSitemap"), fields.flag("sitemapOnly")
        sitemap = "only" if alone else "skip" if skips else "include"
    search = fields.text("search", "")
    if len(search) > LONGEST_SEARCH:
        raise bad("search", f"must have at most {LONGEST_SEARCH:,} characters")
    wanted = MapRequest(
        url, search, sitemap != "only", sitemap != "skip", fields.flag("includeSubdomains", True),
        fields.flag("ignoreQueryParameters", True), fields.flag("filterByPath", True),
        fields.number("limit", 5000, 1, 100_000), fields.number("timeout", 60_000, 1_000, 600_000) / 1000,
    )  # fmt: skip
    fields.harmless("useIndex", "ignoreCache", "origin", "integration", "auditMetadata", "useMock")
    fields.lacking(
        {
            "headers": "pages are asked for with the service's own headers",
            "location": "pages are asked for from where the service is",
            "threatProtection": "addresses are guarded, contents are not judged",
            "zeroDataRetention": _UNSUPPORTED_FIELDS["zeroDataRetention"],
        }
    )
    fields.end()
    return wanted


def map_spec(timeout_s: float) -> TaskSpec:
    """The specification of the task that reads a site's front page and sitemaps: it fetches the given URLs and no
    others."""
    return TaskSpec(
        kind=MAP, is_batch=True, lane=Lane.SCRAPE, retry_attempts=1, timeout_s=timeout_s,
        formats=("rawHtml", "links", "metadata"), format_options={"only_main_content": False},
    )  # fmt: skip
