"""What Scrapy's settings mean for a crawl of Weft's. Each one that is given is mapped, has no effect on what is
collected, or is refused by its name; settings that Scrapy does not know are the spider's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from scrapy import Spider
from scrapy.pipelines.media import MediaPipeline
from scrapy.settings import BaseSettings, Settings, default_settings
from scrapy.utils.misc import load_object

from weft.engine.user_code.calls import FeedSpec
from weft.errors import BadInput
from weft.fetch.guard import is_private_host
from weft.spiders.scrapy.item_pipelines import pipeline_names

POLITE_DELAY_S = 1.0  # at least, to a host that is not private
_COMPONENTS = ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS", "DOWNLOAD_HANDLERS")
_REPLACED = (
    "ADDONS", "DOWNLOADER", "DUPEFILTER_CLASS", "FEED_EXPORTERS", "FEED_STORAGES", "HTTPCACHE_ENABLED",
    "ITEM_PROCESSOR", "REQUEST_FINGERPRINTER_CLASS", "SCHEDULER",
)  # fmt: skip
_ADVICE = {
    "DUPEFILTER_CLASS": "a request with dont_filter=True is made again",
    "HTTPCACHE_ENABLED": "stored pages are read again with `weft extract`",
}
# What is read by this package.
_READ = {
    "CLOSESPIDER_ERRORCOUNT", "CLOSESPIDER_ITEMCOUNT", "CLOSESPIDER_PAGECOUNT", "CLOSESPIDER_TIMEOUT",
    "CONCURRENT_REQUESTS", "CONCURRENT_REQUESTS_PER_DOMAIN", "COOKIES_ENABLED", "CRAWLSPIDER_FOLLOW_LINKS",
    "DEFAULT_REQUEST_HEADERS", "DEPTH_LIMIT", "DOWNLOAD_DELAY", "DOWNLOAD_MAXSIZE", "DOWNLOAD_TIMEOUT", "FEEDS",
    "FEED_EXPORT_FIELDS", "FEED_FORMAT", "FEED_URI", "HTTPAUTH_DOMAIN", "HTTPAUTH_PASS", "HTTPAUTH_USER",
    "HTTPERROR_ALLOWED_CODES", "HTTPERROR_ALLOW_ALL", "ITEM_PIPELINES", "LOG_FORMATTER", "REDIRECT_ENABLED",
    "REDIRECT_MAX_TIMES", "RETRY_ENABLED", "RETRY_TIMES", "ROBOTSTXT_OBEY", "STATS_CLASS", "USER_AGENT",
}  # fmt: skip
# What means nothing here and is missed by nobody: logs, consoles, names, what guards Scrapy's own process.
_SILENT = re.compile(
    "LOG_|LOGSTATS_|TELNETCONSOLE_|REMOTE_CONTROL_|MEMUSAGE_|MEMDEBUG_|MAIL_|STATS_DUMP|STATSMAILER_|TWISTED_|ASYNCIO_|"
    "REACTOR_|BOT_NAME|SPIDER_MODULES|NEWSPIDER_MODULE|SPIDER_LOADER|SPIDER_CONTRACTS|COMMANDS_MODULE|EDITOR|TEMPLATES_DIR|"
    "DNS|COOKIES_DEBUG|DUPEFILTER_DEBUG|SCHEDULER_DEBUG|DEPTH_STATS|DOWNLOAD_WARNSIZE|DOWNLOADER_STATS|CONCURRENT_ITEMS|"
    "HTTPCACHE_|AWS_|GCS_|FTP_|DEFAULT_ITEM_CLASS|DEFAULT_DROPITEM|WARN_ON|FORCE_CRAWLER|REQUEST_FINGERPRINTER_IMPL|"
    "PERIODIC_LOG|SCRAPER_SLOT|FILES_|IMAGES_|URLLENGTH_|HTTPPROXY_|AJAXCRAWL_|HTTP2_|DOWNLOADER_CLIENT|"
    "FEED_STORE_EMPTY|FEED_STORAGE_|FEED_TEMPDIR|FEED_URI_PARAMS|ROBOTSTXT_PARSER|.*_BASE"
).match
# What has no effect, and somebody may miss.
_NO_EFFECT = re.compile(
    "AUTOTHROTTLE_ENABLED|JOBDIR|RANDOMIZE_DOWNLOAD_DELAY|DOWNLOAD_DELAY_JITTER|RETRY_|DEPTH_PRIORITY|SCHEDULER_|REFERER_|"
    "REFERRER_|REDIRECT_PRIORITY|METAREFRESH_|COMPRESSION_ENABLED|FEED_EXPORT_ENCODING|FEED_EXPORT_INDENT|"
    "CONCURRENT_REQUESTS_PER_IP|ROBOTSTXT_USER_AGENT|DOWNLOAD_FAIL_ON|DOWNLOAD_TLS_|DOWNLOAD_VERIFY"
).match
_FORMATS = {"jsonlines": "jsonl", "jsonl": "jsonl", "jl": "jsonl", "json": "json", "csv": "csv"}
_FEED_OPTIONS = {"format", "overwrite", "fields", "encoding", "indent", "store_empty", "uri_params"}


class CrawlSettings(NamedTuple):
    """The settings of a crawl that follow from Scrapy's settings."""

    settings: dict[str, object]  # of the crawl, by key
    feeds: list[FeedSpec]
    notes: list[str]
    obeys_private_robots: bool


def crawl_settings(settings: Settings, spider: Spider) -> CrawlSettings:
    """Maps the settings of a spider; BadInput names all that are refused."""
    hosts = hosts_of(spider)
    is_private = bool(hosts) and all(map(is_private_host, hosts))
    given = [name for name in settings if isinstance(name, str) and (settings.getpriority(name) or 0) > 0]
    problems = [*_refusals(settings, given), *_pipeline_refusals(settings)]
    if "ROBOTSTXT_OBEY" in given and not settings.getbool("ROBOTSTXT_OBEY") and hosts and not is_private:
        host = next(host for host in hosts if not is_private_host(host))
        problems.append(
            f"ROBOTSTXT_OBEY=False is refused: {host} is no private host, and its robots.txt is obeyed "
            "(-s ROBOTSTXT_OBEY=True)"
        )
    feeds = _feeds(settings, spider, problems)
    if problems:
        raise BadInput("; ".join(problems) + " (docs/from-scrapy.md says what is supported)")
    notes = [name for name in given if _NO_EFFECT(name) and name not in _READ and _differs(settings, name)]
    return CrawlSettings(
        {"accept": ["*/*"], **_mapped(settings, set(given), spider)},
        feeds,
        [f"without effect in Weft: {', '.join(sorted(notes))} (docs/from-scrapy.md)"] if notes else [],
        "ROBOTSTXT_OBEY" not in given or settings.getbool("ROBOTSTXT_OBEY"),
    )


def hosts_of(spider: Spider) -> list[str]:
    """The hosts that a spider names."""
    named = [urlsplit(url).hostname or "" for url in start_urls_of(spider)]
    return list(dict.fromkeys(filter(None, [*named, *_texts(getattr(spider, "allowed_domains", None) or ())])))


def start_urls_of(spider: Spider) -> list[str]:
    """The URLs that a spider begins with, as far as it says so."""
    named = [*_texts(getattr(spider, "start_urls", ())), *_texts(getattr(spider, "sitemap_urls", ()))]
    return [url for url in named if urlsplit(url).scheme in ("http", "https") and urlsplit(url).hostname]


def _mapped(settings: Settings, given: set[str], spider: Spider) -> dict[str, object]:
    made: dict[str, object] = {}
    delay = (
        settings.getfloat("DOWNLOAD_DELAY") if "DOWNLOAD_DELAY" in given else getattr(spider, "download_delay", None)
    )
    if delay is not None:
        made["delay"] = float(delay)  # `POLITE_DELAY_S` holds for hosts that are not private
    timeout = (
        settings.getfloat("DOWNLOAD_TIMEOUT")
        if "DOWNLOAD_TIMEOUT" in given
        else float(getattr(spider, "download_timeout", 0))
    )
    if timeout:
        made |= {"total_timeout": timeout, "read_timeout": timeout, "lease_seconds": max(90.0, timeout + 30)}
    if "USER_AGENT" in given and settings["USER_AGENT"]:
        made["user_agent_template"] = str(settings["USER_AGENT"]).replace("{", "{{").replace("}", "}}")
    if not settings.getbool("COOKIES_ENABLED"):
        made["cookies"] = "off"
    if not settings.getbool("RETRY_ENABLED"):
        made["max_retries"] = 0
    elif "RETRY_TIMES" in given:
        made["max_retries"] = max(0, settings.getint("RETRY_TIMES"))
    for name, key in (
        ("CONCURRENT_REQUESTS_PER_DOMAIN", "per_domain_concurrency"), ("CONCURRENT_REQUESTS", "fetcher_workers"),
        ("DEPTH_LIMIT", "max_depth"), ("DOWNLOAD_MAXSIZE", "max_body_bytes"), ("REDIRECT_MAX_TIMES", "max_redirects"),
        ("CLOSESPIDER_PAGECOUNT", "max_pages"), ("CLOSESPIDER_ITEMCOUNT", "max_items"),
        ("CLOSESPIDER_ERRORCOUNT", "max_callback_errors"), ("CLOSESPIDER_TIMEOUT", "max_duration"),
    ):  # fmt: skip
        if name in given and settings.getfloat(name) > 0:
            made[key] = settings.getfloat(name) if key == "max_duration" else settings.getint(name)
    return made


def _refusals(settings: Settings, given: Iterable[str]) -> list[str]:
    problems = []
    for name in _COMPONENTS:
        usual = getattr(default_settings, f"{name}_BASE", {})
        for path, value in settings.getdict(name).items():
            text = path if isinstance(path, str) else f"{path.__module__}.{path.__qualname__}"
            if value is not None and text not in usual:
                problems.append(f"{name}: {text} is not supported")
            elif name == "DOWNLOAD_HANDLERS" and value is not None:
                problems.append(f"{name}: a handler for {text} is not supported")
    for name in _REPLACED:
        if _differs(settings, name) and not (
            name in ("FEED_EXPORTERS", "FEED_STORAGES", "ADDONS") and not settings[name]
        ):
            problems.append(f"{name} is not supported" + (f": {_ADVICE[name]}" if name in _ADVICE else ""))
    handled = {*_READ, *_COMPONENTS, *_REPLACED}
    for name in given:
        is_harmless = name in handled or _SILENT(name) or _NO_EFFECT(name)
        is_scrapys = hasattr(default_settings, name) or name.startswith("CLOSESPIDER_")  # older ones lack those
        if is_scrapys and not is_harmless and _differs(settings, name):
            problems.append(f"{name} is not supported")
    return problems


def _pipeline_refusals(settings: Settings) -> list[str]:
    problems = []
    for name in pipeline_names(settings):
        try:
            kind = load_object(name)
        except Exception as error:  # whatever the import of a user's module raises
            problems.append(f"ITEM_PIPELINES: {name} cannot be imported: {type(error).__name__}: {error}")
            continue
        if isinstance(kind, type) and issubclass(kind, MediaPipeline):
            problems.append(f"ITEM_PIPELINES: {kind.__name__} is not supported, as it downloads files itself")
    return problems


def _differs(settings: Settings, name: str) -> bool:
    """Whether a setting differs from Scrapy's default."""
    value, usual = settings.get(name), getattr(default_settings, name, None)
    if isinstance(value, BaseSettings):
        value = value.copy_to_dict()
    if name == "FEED_EXPORT_ENCODING" and str(value).lower().replace("-", "") == "utf8":
        return False
    if isinstance(usual, bool):
        return settings.getbool(name) is not usual
    return bool(value != usual and str(value) != str(usual))


def _feeds(settings: Settings, spider: Spider, problems: list[str]) -> list[FeedSpec]:
    given: dict[Any, Any] = settings.getdict("FEEDS")
    if settings.get("FEED_URI"):
        given = {settings["FEED_URI"]: {"format": settings.get("FEED_FORMAT")}, **given}
    feeds = []
    for uri, options in given.items():
        try:
            feeds.append(_feed(str(uri), dict(options or {}), settings, spider))
        except BadInput as error:
            problems.append(f"FEEDS: {uri}: {error}")
    return feeds


def _feed(uri: str, options: Mapping[str, Any], settings: Settings, spider: Spider) -> FeedSpec:
    parts = urlsplit(uri)
    if parts.scheme not in ("", "file"):
        raise BadInput(f"only local files are supported, not {parts.scheme}")
    if more := sorted(set(options) - _FEED_OPTIONS):
        raise BadInput(f"the option {more[0]!r} is not supported")
    path = parts.path if parts.scheme else uri
    try:
        path = path % {**vars(spider), "name": spider.name, "time": "%(time)s", "batch_id": 1}
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"its name cannot be made: {type(error).__name__}: {error}") from None
    named = str(options.get("format") or Path(uri).suffix.removeprefix("."))
    if named not in _FORMATS:
        raise BadInput(f"the format {named!r} is not supported; there are {', '.join(sorted(set(_FORMATS)))}")
    fields = options.get("fields") or settings.getdictorlist("FEED_EXPORT_FIELDS") or []
    if isinstance(fields, dict):
        raise BadInput("fields: other names for columns are not supported; give a list")
    return FeedSpec(path, _FORMATS[named], options.get("overwrite"), [str(one) for one in fields])


def _texts(values: Any) -> list[str]:
    listed = [values] if isinstance(values, str) else values if isinstance(values, Iterable) else ()
    return [one for one in listed if isinstance(one, str)]
