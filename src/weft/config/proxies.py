"""The keys of proxies: their sources, their tests, and the required number."""

from typing import Annotated

from msgspec import Meta, field

from weft.config.section import Count, Seconds, Section, Texts, Timeout, Tuning


class ProxySection(Section, frozen=True, kw_only=True):
    """Where proxies come from, and how they are tested. Whether a crawl uses them is decided by `proxies`
    (FetchSection)."""

    sources: Annotated[
        Texts, Tuning("where proxies come from besides `proxies`: files, URLs of lists, or proxies themselves")
    ] = field(default=(), name="proxy_sources")
    test_url: Annotated[
        str | None,
        Tuning("page that proxies are tested with, best one that shows the request; none: they are not tested"),
    ] = field(default=None, name="proxy_test_url")
    tls_url: Annotated[str | None, Tuning("https page to test whether a proxy supports TLS")] = field(
        default=None, name="proxy_test_tls_url"
    )
    least: Annotated[Count, Tuning("proxies that must be usable; with fewer all are tested again")] = field(
        default=10, name="min_proxies"
    )
    refresh_s: Annotated[Timeout, Tuning("seconds after which proxies are collected and tested again")] = field(
        default=3600.0, name="proxy_refresh_seconds"
    )
    pause_s: Annotated[
        Seconds, Tuning("least seconds between two tests of all proxies, also if too few are usable")
    ] = field(default=60.0, name="proxy_refresh_pause_seconds")
    rest_s: Annotated[
        Timeout, Tuning("seconds that a proxy is not used after a failure, doubled each time, up to an hour")
    ] = field(default=30.0, name="proxy_rest_seconds")
    ban_s: Annotated[
        Timeout,
        Tuning("seconds that a proxy is not used at a site that blocks it, doubled each time, up to 6 hours"),
    ] = field(default=300.0, name="proxy_ban_seconds")
    timeout_s: Annotated[Timeout, Tuning("time limit of a proxy test, in seconds")] = field(
        default=10.0, name="proxy_test_timeout"
    )
    chunk: Annotated[Annotated[int, Meta(ge=1, le=100_000)], Tuning("proxies in a chunk of tests")] = field(
        default=100, name="proxy_chunk"
    )
    parallel: Annotated[Annotated[int, Meta(ge=1, le=5000)], Tuning("proxies that are tested at a time")] = field(
        default=200, name="proxy_parallel_tests"
    )
