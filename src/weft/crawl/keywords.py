"""The settings that `weft.crawl` accepts as keywords, by key and by flag. Made by `make settings`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, TypedDict

from weft.logins import FormLogin

Path = str | os.PathLike[str]


class Settings(TypedDict, total=False):
    """Every setting; `data_dir`, which may be left out, and what names own code are parameters of their own."""

    scope: Literal["any", "domain", "host", "prefix"]
    seed_file: Path | None
    include: str | Sequence[str]
    exclude: str | Sequence[str]
    exclude_file: Path | None
    max_depth: int | None
    offsite_hops: int
    strip_query: str | Sequence[str]
    trap_rules: bool
    seeded_urls_only: bool
    politeness_delay_seconds: float
    delay: float
    per_domain_concurrency: int
    politeness_scope: Literal["domain", "host", "ip"]
    machine_clock: bool
    ignore_robots: bool
    robots_cache_ttl_seconds: float
    robots_patience_seconds: float
    max_retries: int
    retry_backoff_seconds: float
    max_retry_after_seconds: float
    breaker_failures: int
    breaker_reset_seconds: float
    breaker_max_probes: int
    lease_seconds: float
    request_log_days: float | None
    request_log_bytes: int | None
    email: str | None
    user_agent_template: str
    fetcher_workers: int | None
    parser_children: int
    accept: str | Sequence[str]
    max_body_bytes: int
    body_memory_bytes: int
    max_redirects: int
    connect_timeout: float
    first_connect_timeout: float
    read_timeout: float
    total_timeout: float
    cookies: Literal["jar", "off"]
    headers: Mapping[str, str]
    header: Mapping[str, str]
    auth: Mapping[str, str]
    tls_verify: bool
    resolve: Mapping[str, str]
    dns_servers: str | Sequence[str]
    dns_timeout: float
    allow_private: bool
    proxies: str | None
    proxy_sticky: bool
    proxy_apart: bool
    direct_fallback: bool
    workers: Literal["cluster", "local", "prefer-cluster"]
    render: Literal["always", "auto", "never"]
    render_wait_for: str | None
    render_scrolls: int
    render_screenshot: str
    render_viewport: str
    render_pdf: bool
    render_blocked: str | Sequence[str]
    render_mobile: bool
    render_actions: str | Sequence[str]
    max_browsers: int
    pages_per_browser: int
    browser_sandbox: bool
    proxy_sources: str | Sequence[str]
    proxy_test_url: str | None
    proxy_test_tls_url: str | None
    min_proxies: int
    proxy_refresh_seconds: float
    proxy_refresh_pause_seconds: float
    proxy_rest_seconds: float
    proxy_ban_seconds: float
    proxy_test_timeout: float
    proxy_chunk: int
    proxy_parallel_tests: int
    broker: str | None
    cluster_key_file: str | None
    cluster_key: str | None
    hand_in_flight: int
    hand_queue_seconds: float
    hand_slack_seconds: float
    cluster_bytes: int
    shared_dir: str | None
    celery_concurrency: int
    chunk_seconds: float
    wait_margin: float
    progress_poll_seconds: float
    unknown_timeout_seconds: float
    max_pages: int | None
    max_duration: float | None
    max_pages_per_domain: int | None
    login: Mapping[str, object] | FormLogin | Path
    login_failure: Literal["end", "pause"] | None
    logins: Mapping[str, object] | Path
    extract: Mapping[str, object] | Path
    scrapy: str | None
    scrapy_arguments: Mapping[str, str]
    scrapy_settings: Mapping[str, str]
    spider_workers: int | None
    callback_seconds: float
    callback_memory_mb: int
    max_callback_errors: int | None
    max_items: int | None
    data_dirs: Path | Sequence[Path]
    store: str | Sequence[str]
    log_dir: Path
    log_level: Literal["DEBUG", "ERROR", "INFO", "WARNING"]
    log_format: Literal["json", "text"] | None
    prometheus_port: int
    prometheus_host: str
    metrics_update_seconds: float
    pods: str | Sequence[str | Mapping[str, object]]
    num_pods: int
    only_pods: str | int | Sequence[str | int] | None
    fetchers_per_pod: int
    parsers_per_pod: int
    parser_workers: int
    enable_cpu_affinity: bool
    parse_queue_soft_limit: int
    parse_queue_hard_limit: int
    seen_filter: Literal["bloom", "exact"]
    bloom_filter_capacity: int
    bloom_filter_error_rate: float
    redis_db: int
    redis_password: str | None
    redis_socket_timeout: float
    redis_socket_connect_timeout: float
    redis_socket_keepalive: bool
    redis_max_connections: int
    resume: bool
    start_or_resume: bool
    fresh: bool
    retry_failed: bool
    recrawl: bool
