"""The keys of a crawl: scope, politeness, fetching, limits, storage and logging."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from weft import __version__
from weft.config.section import Count, Help, Port, Positive, Seconds, Section, Texts, Timeout, Tuning

Scope = Literal["any", "domain", "host", "prefix"]
VIEWPORT = "1280x800"


class ScopeSection(Section, frozen=True, kw_only=True):
    """Which URLs a crawl may visit."""

    scope: Annotated[Scope, Help("where links may lead, seen from the seeds")]
    seed_file: Annotated[str | None, Help("file of seed URLs, one a line")] = None
    include: Annotated[
        Texts, Help("only URLs that match one of these: a glob (/PATH for the path alone) or re:REGEX")
    ] = ()
    exclude: Annotated[
        Texts, Help("no URL that matches one of these: a glob (/PATH for the path alone) or re:REGEX")
    ] = ()
    exclude_file: Annotated[str | None, Help("file of domains never to request, one a line")] = None
    max_depth: Annotated[Count | None, Help("links from a seed, at most")] = None
    offsite_hops: Annotated[Count, Help("hops out of the scope, at most")] = 0
    strip_query: Annotated[Texts, Help("query parameters to drop from URLs: globs, '*' for all")] = ()
    trap_rules: Annotated[bool, Tuning("leave out links that seem to be part of an endless space")] = True
    seeded_urls_only: Annotated[bool, Help("fetch the seeds alone, and follow no link")] = False


class PolitenessSection(Section, frozen=True, kw_only=True):
    """How requests to a site are limited, and how failures are handled."""

    delay_s: Annotated[Seconds, Help("least seconds between two requests to one site")] = field(
        name="politeness_delay_seconds"
    )
    places: Annotated[Positive, Help("requests in flight to one site")] = field(name="per_domain_concurrency")
    key_scope: Annotated[Literal["domain", "host", "ip"], Tuning("what counts as one site")] = field(
        default="domain", name="politeness_scope"
    )
    machine_clock: Annotated[
        bool, Tuning("wait for your other crawls on this machine, too, where they ask the same site")
    ] = True
    ignore_robots: Annotated[
        bool, Tuning("do not apply the robots.txt of servers of your own: loopback and private addresses alone")
    ] = False
    robots_ttl_s: Annotated[Timeout, Tuning("seconds a robots.txt is kept")] = field(
        default=86400.0, name="robots_cache_ttl_seconds"
    )
    robots_patience_s: Annotated[
        Seconds, Tuning("how long, in seconds, a robots.txt that fails (5xx, 429) is retried while its pages wait")
    ] = field(default=120.0, name="robots_patience_seconds")
    max_retries: Annotated[Count, Help("retries of a request that may succeed later")] = 3
    retry_backoff_s: Annotated[Seconds, Tuning("seconds before the first retry; they double, to at most 60")] = field(
        default=1.0, name="retry_backoff_seconds"
    )
    max_retry_after_s: Annotated[Seconds, Tuning("seconds of Retry-After that are waited for, at most")] = field(
        default=600.0, name="max_retry_after_seconds"
    )
    breaker_failures: Annotated[Positive, Tuning("failures in a row that open the breaker of a host and port")] = 5
    breaker_reset_s: Annotated[Timeout, Tuning("seconds an open breaker waits before a probe")] = field(
        default=300.0, name="breaker_reset_seconds"
    )
    breaker_max_probes: Annotated[
        Positive, Tuning("failed probes after which the URLs queued behind a breaker are rejected")
    ] = 3
    lease_s: Annotated[Timeout, Tuning("seconds a fetcher may hold a URL; more than total_timeout")] = field(
        default=90.0, name="lease_seconds"
    )
    log_days: Annotated[Timeout | None, Tuning("days that requests are kept in the request log; none: for good")] = (
        field(default=None, name="request_log_days")
    )
    log_bytes: Annotated[
        Positive | None,
        Tuning("bytes of closed files of a request log, at most; older ones are deleted; none: no limit"),
    ] = field(default=None, name="request_log_bytes")


class FetchSection(Section, frozen=True, kw_only=True):
    """How pages are requested."""

    email: Annotated[str | None, Help("your address, sent in the user agent; required beyond loopback")] = None
    user_agent_template: Annotated[str, Tuning("the user agent, with {version} and {email}")] = (
        "Weft/{version} (+{email})"
    )
    workers: Annotated[
        Annotated[int, Meta(ge=1, le=10_000)] | None,
        Tuning("transfers in flight in a fetcher process, at most; by default what memory and descriptors allow"),
    ] = field(default=None, name="fetcher_workers")
    parser_children: Annotated[
        Annotated[int, Meta(ge=0, le=64)],
        Tuning("processes that parse pages for a fetcher process; a page that kills one then costs itself alone"),
    ] = 0
    accept: Annotated[
        Texts,
        Meta(min_length=1),
        Tuning("content types to store: text, html, xml, json, pdf, or globs; */* for all; others end at their head"),
    ] = ("text", "html", "xml", "json", "pdf")
    max_body_bytes: Annotated[Positive, Help("bytes of a body, at most; after decompression, too")] = 10 * 1024 * 1024
    body_memory_bytes: Annotated[
        Annotated[int, Meta(ge=1 << 20, le=1 << 40)],
        Tuning("bytes of bodies that a fetcher process holds in memory while they arrive; more goes to files"),
    ] = 128 * 1024 * 1024
    max_redirects: Annotated[Count, Tuning("redirects in a chain, at most")] = 5
    connect_timeout_s: Annotated[Timeout, Tuning("seconds to connect")] = field(default=10.0, name="connect_timeout")
    first_connect_s: Annotated[
        Timeout, Tuning("seconds for the first connection to a site; a second attempt has connect_timeout")
    ] = field(default=3.0, name="first_connect_timeout")
    read_timeout_s: Annotated[Timeout, Tuning("seconds without a byte")] = field(default=15.0, name="read_timeout")
    total_timeout_s: Annotated[Timeout, Help("seconds for a whole transfer")] = field(
        default=60.0, name="total_timeout"
    )
    cookies: Annotated[Literal["jar", "off"], Help("keep the crawl's cookies (jar), or send none (off)")] = "jar"
    headers: Annotated[dict[str, str], Help("header; credentials go to the seeds' hosts alone")] = field(
        default_factory=dict
    )
    auth: Annotated[dict[str, str], Help("login for a host, sent when it asks")] = field(default_factory=dict)
    tls_verify: Annotated[bool, Help("refuse certificates that do not verify")] = True
    resolve: Annotated[dict[str, str], Tuning("address of a host, instead of asking DNS; *.HOST for all under it")] = (
        field(default_factory=dict)
    )
    dns_servers: Annotated[
        Texts, Tuning("name servers to ask, ADDRESS or ADDRESS:PORT; system for the C library's resolver")
    ] = ()
    dns_timeout_s: Annotated[
        Annotated[float, Meta(ge=0.25, le=60)], Tuning("seconds for a name server to answer the first of three tries")
    ] = field(default=2.0, name="dns_timeout")
    allow_private: Annotated[bool, Help("crawl loopback and private addresses, too")] = False
    proxies: Annotated[
        str | None,
        Help("file of proxies, for a crawl, or tasks with `proxies: true`"),
    ] = None
    proxy_sticky: Annotated[bool, Tuning("keep using one proxy for a site as long as it works")] = False
    proxy_apart: Annotated[bool, Tuning("never use one proxy for two sites")] = False
    direct_fallback: Annotated[bool, Tuning("request sites directly while no proxy is free")] = False
    hands: Annotated[
        Literal["local", "cluster", "prefer-cluster"],
        Tuning("who requests pages: this machine, workers on others (cluster), or these while there are some"),
    ] = field(default="local", name="workers")
    render: Annotated[
        Literal["never", "auto", "always"],
        Help("render pages in a browser: never, auto (if needed) or always"),
    ] = "never"
    render_wait_for: Annotated[
        str | None, Tuning("what to wait for before a rendered page is read: a CSS selector, or seconds")
    ] = None
    render_scrolls: Annotated[
        Annotated[int, Meta(ge=0, le=100)], Tuning("how often a page is scrolled to its end while it grows")
    ] = 0
    render_screenshot: Annotated[
        str,
        Tuning(
            "store a screenshot of each rendered page: the visible part, the full page, or an element (css:SELECTOR)"
        ),
    ] = "none"
    render_viewport: Annotated[str, Tuning("width and height of what is in view, in pixels")] = VIEWPORT
    render_pdf: Annotated[bool, Tuning("keep each rendered page as a PDF, too, of 200 sheets at most")] = False
    render_blocked: Annotated[
        tuple[Literal["media", "font", "tracker", "image", "stylesheet"], ...],
        Tuning("resources that a browser does not load"),
    ] = ("media", "font", "tracker")
    render_mobile: Annotated[bool, Tuning("render pages as a mobile phone does")] = False
    render_actions: Annotated[
        tuple[dict[str, Any], ...],
        Tuning("actions on a page before it is read: click, write, press, scroll, wait, select, screenshot, pdf"),
    ] = ()
    max_browsers: Annotated[Annotated[int, Meta(ge=1, le=64)], Tuning("browsers that run at a time")] = 2
    pages_per_browser: Annotated[
        Annotated[int, Meta(ge=1, le=64)], Tuning("pages that a browser renders at a time")
    ] = 4
    browser_sandbox: Annotated[bool, Tuning("run browsers in their sandbox; off only where it cannot be had")] = True

    def user_agent(self) -> str:
        """The user agent that is sent with each request."""
        return self.user_agent_template.format(version=__version__, email=self.email or "loopback-only")


# What else a new limit needs: the recipe "A limit of a crawl" in CONTRIBUTING.md.
class LimitsSection(Section, frozen=True, kw_only=True):
    """Limits that end a crawl before every URL is fetched."""

    max_pages: Annotated[Positive | None, Help("pages to store, at most")] = None
    max_duration_s: Annotated[Timeout | None, Help("seconds to run, at most")] = field(
        default=None, name="max_duration"
    )
    max_pages_per_domain: Annotated[Positive | None, Help("pages of one domain, at most")] = None


class StoreSection(Section, frozen=True, kw_only=True):
    """Where and in which formats pages are stored."""

    data_dirs: Annotated[
        Texts,
        Meta(min_length=1),
        Help("folder of the crawl; of several, the first has its state, all share its pages"),
    ] = ("./weft-data",)
    store: Annotated[
        tuple[Literal["warc", "text"], ...], Meta(min_length=1), Help("raw pages (warc), their text, or both")
    ] = ("warc",)


class ExtractSection(Section, frozen=True, kw_only=True):
    """What is extracted from pages in addition to their links."""

    extract: Annotated[
        dict[str, Any], Help("rules for the fields of a page: a file of JSON or YAML (see docs/extraction.md)")
    ] = field(default_factory=dict)


class SpiderSection(Section, frozen=True, kw_only=True):
    """The user's own code."""

    spider: Annotated[str | None, Help("the spider to run: FILE.py[:CLASS] or MODULE:CLASS")] = None
    on_page: Annotated[
        str | None, Help("function called with each page, which may yield items and requests: FILE.py:NAME")
    ] = None
    scrapy: Annotated[str | None, Tuning("a spider of Scrapy's to run as it is: FILE.py[:CLASS] or MODULE[:CLASS]")] = (
        None
    )
    scrapy_arguments: Annotated[dict[str, str], Tuning("argument of the Scrapy spider")] = field(default_factory=dict)
    scrapy_settings: Annotated[dict[str, str], Tuning("setting of Scrapy, before those of the spider")] = field(
        default_factory=dict
    )
    spider_workers: Annotated[
        Annotated[int, Meta(ge=1, le=64)] | None,
        Tuning("processes that run the user's code; by default one less than there are cores, for Scrapy's spiders 1"),
    ] = None
    callback_s: Annotated[Timeout, Tuning("time limit of a callback for a page, in seconds")] = field(
        default=30.0, name="callback_seconds"
    )
    callback_memory_mb: Annotated[Positive, Tuning("memory limit of a callback, in megabytes")] = 500
    max_callback_errors: Annotated[Positive | None, Tuning("callback errors after which the crawl ends")] = None
    max_items: Annotated[Positive | None, Tuning("items after which the crawl ends")] = None

    @property
    def is_given(self) -> bool:
        """Whether the settings name user code."""
        return bool(self.spider or self.on_page or self.scrapy)


class LoginSection(Section, frozen=True, kw_only=True):
    """Login through a form."""

    login: Annotated[
        dict[str, Any],
        Help("login by a form: a mapping, or a YAML file with one"),
    ] = field(default_factory=dict)
    login_failure: Annotated[
        Literal["pause", "end"] | None,
        Tuning("what a failed login does: pause, until `weft resume`, or end; none: pause where a terminal shows it"),
    ] = None


class LoginsSection(Section, frozen=True, kw_only=True):
    """Logins that crawls select by name."""

    logins: Annotated[
        dict[str, dict[str, Any]], Tuning("logins by name, as `login` has one; `login: {name: NAME}` uses one of them")
    ] = field(default_factory=dict)


class LogSection(Section, frozen=True, kw_only=True):
    """What a crawl logs while it runs."""

    log_dir: Annotated[str, Tuning("folder of the log files")]
    log_level: Annotated[
        Literal["DEBUG", "INFO", "WARNING", "ERROR"],
        Help("lowest level in the log files: DEBUG, INFO, WARNING or ERROR"),
    ] = "INFO"
    log_format: Annotated[
        Literal["text", "json"] | None,
        Tuning("also write log lines to standard output, as text or json; none: to the log files alone"),
    ] = None
    prometheus_port: Annotated[Port, Help("port of the metrics endpoint; 0 for none")] = 8001
    prometheus_host: Annotated[
        str, Tuning("address of the metrics endpoint; beyond loopback anyone who can reach it can read them")
    ] = "127.0.0.1"
    metrics_update_s: Annotated[Timeout, Tuning("seconds between two updates of the metrics")] = field(
        default=10.0, name="metrics_update_seconds"
    )


class RunSection(Section, frozen=True, kw_only=True):
    """What to do with a crawl that exists in the data dir."""

    resume: Annotated[bool, Help("continue the crawl in the data dir")] = False
    start_or_resume: Annotated[
        bool, Tuning("resume the crawl in the data dir if there is one, else start it: for systemd and containers")
    ] = False
    fresh: Annotated[bool, Help("delete the crawl in the data dir, and start over")] = False
    retry_failed: Annotated[bool, Help("on resume, try failed URLs again")] = False
    recrawl: Annotated[bool, Help("on resume, visit known pages again; cheap if unchanged")] = False
