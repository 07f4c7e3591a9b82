"""All sections together, the defaults that follow from other values, and properties of some keys."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from weft.config.cluster import ClusterSection
from weft.config.crawl import (
    ExtractSection,
    FetchSection,
    LimitsSection,
    LoginSection,
    LoginsSection,
    LogSection,
    PolitenessSection,
    RunSection,
    ScopeSection,
    SpiderSection,
    StoreSection,
)
from weft.config.pods import PodsSection, RedisSection
from weft.config.proxies import ProxySection
from weft.config.service import ServiceConfig


class Config(Struct, frozen=True, kw_only=True):
    """The whole configuration of a crawl; only the CLI has it, components get sections."""

    scope: ScopeSection
    politeness: PolitenessSection
    fetch: FetchSection
    proxy: ProxySection
    cluster: ClusterSection
    limits: LimitsSection
    login: LoginSection
    logins: LoginsSection
    extract: ExtractSection
    spider: SpiderSection
    store: StoreSection
    log: LogSection
    pods: PodsSection
    redis: RedisSection
    run: RunSection


BLOOM_KEYS = ("bloom_filter_capacity", "bloom_filter_error_rate")


def _goes_where_it_says(got: Mapping[str, Any]) -> bool:
    return bool(got.get("spider") or got.get("scrapy"))


Compute = Callable[[Mapping[str, Any], Mapping[str, str]], tuple[Any, str]]
# Defaults that follow from other values: key → function of the values so far and their origins, returning (value, why).
COMPUTED: dict[str, Compute] = {
    "scope": lambda got, _: (
        ("any", "a spider goes where it says")
        if _goes_where_it_says(got)
        else ("any", "from a seed file")
        if got.get("seed_file")
        else ("domain", "URLs on the command line")
    ),
    "politeness_delay_seconds": lambda got, _: (
        (1.0, "a spider")
        if _goes_where_it_says(got)
        else (70.0, "scope is any")
        if got["scope"] == "any"
        else (1.0, "within a scope")
    ),
    "per_domain_concurrency": lambda got, _: (
        (8, "the delay is 0") if got["politeness_delay_seconds"] == 0 else (1, "there is a delay")
    ),
    "num_pods": lambda got, _: (len(got["pods"]), "as many as pods") if got["pods"] else (1, "one embedded pod"),
    "fetchers_per_pod": lambda got, _: (6, "with Redis pods") if got["pods"] else (1, "an embedded pod is one process"),
    "parsers_per_pod": lambda got, _: (2, "with Redis pods") if got["pods"] else (0, "an embedded pod is one process"),
    "seen_filter": lambda got, origins: (
        ("bloom", "a bloom key is given")
        if got["pods"] and was_given(origins, *BLOOM_KEYS)
        else ("exact", "no bloom key")
    ),
    "log_dir": lambda got, _: (os.path.join(got["data_dirs"][0], "logs"), "in the first data dir"),  # noqa: PTH118
}
# The same defaults as text, for the help and docs/settings.md.
COMPUTED_WORDS = {
    "scope": "domain; any with a seed file or a spider",
    "politeness_delay_seconds": "1; 70 when scope is any and there is no spider",
    "per_domain_concurrency": "1; 8 when the delay is 0",
    "num_pods": "as many as are listed, else 1",
    "fetchers_per_pod": "6 with Redis pods, else 1",
    "parsers_per_pod": "2 with Redis pods, else 0",
    "seen_filter": "exact; bloom when a bloom key is given",
    "log_dir": "logs in the first data dir",
}
SHORT_FLAGS = {"politeness_delay_seconds": "--delay", "data_dirs": "--data-dir", "headers": "--header"}
LETTERS = {"scrapy_arguments": "-a", "scrapy_settings": "-s"}
# Settings of a single run, which are not recorded with a crawl: its duration, its configuration file and its intent.
NOT_KEPT = frozenset(
    {
        "max_duration",
        "seed_file",
        "resume",
        "start_or_resume",
        "fresh",
        "retry_failed",
        "recrawl",
        "data_dirs",
        "log_format",
        "prometheus_host",
        "cluster_key",
    }
)
# Recorded only if a user has set them. Their defaults follow from the data dirs, which may have been moved, and from
# the list of pods, whose length is fixed for a crawl.
KEPT_IF_GIVEN = frozenset({"log_dir", "num_pods"})
IN_FILES = frozenset({"extract", "login", "logins"})  # mappings that may be in a file
PATTERNS = frozenset({"include", "exclude"})
SECRET_KEYS = frozenset(
    {"auth", "headers", "redis_password", "pods", "proxy_sources", "cluster_key", "scrapy_arguments", "scrapy_settings"}
)


@dataclass(frozen=True)
class Product:
    """The configuration of one product: its sections, and its defaults that follow from other values."""

    name: str
    tree: type[Struct]
    command: str
    computed: Mapping[str, Compute] = field(hash=False)
    computed_words: Mapping[str, str] = field(hash=False)


CRAWL = Product("crawl", Config, "weft crawl", COMPUTED, COMPUTED_WORDS)
SERVICE = Product(
    "service",
    ServiceConfig,
    "weft serve",
    {
        # One caller's page may crash its parser: that must not affect another caller's page.
        "parser_children": lambda _got, _: (1, "the service"),
        "log_dir": lambda got, _: (os.path.join(got["data_dir"], "logs"), "in the data dir"),  # noqa: PTH118
    },
    {"parser_children": "1", "log_dir": "logs in the data dir"},
)
PRODUCTS = (CRAWL, SERVICE)


def product_named(name: str) -> Product:
    """The product with that name."""
    return next(product for product in PRODUCTS if product.name == name)


def was_given(origins: Mapping[str, str], *keys: str) -> bool:
    """Whether one of these keys was set: it is not a default."""
    return any(not origins[key].startswith("default") for key in keys)
