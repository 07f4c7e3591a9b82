"""The names of settings, and what the error message for an unknown name suggests.

A setting has a key (`politeness_delay_seconds`) and the name of its flag (`--delay`, so `delay`). Flags, `WEFT_*`
variables and keywords of `weft.crawl` accept both; a file accepts keys alone, so that there is one way to write it. For
an unknown name the corresponding key is suggested if it is another crawler's, else one that is spelt nearly so, else
none: a wrong suggestion costs more than none. The suggestion is the same for every source; only its spelling differs,
for which a function is passed in. Pure: so are the keys.

A message names a setting in backticks, as a program writes it (`` `allow_private=True` ``), and never by its flag:
callers in Python have none. The command line makes flags of them where it prints a message
(`weft.cli.terminal.messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

_ROBOTS = "robots.txt is always obeyed: leave it out"
_DEBUG_PODS = "it is the variable WEFT_DEBUG_POD_ASSIGNMENT"
# Names in other crawlers' configurations: name -> (the key with that meaning, further advice).
FOREIGN: dict[str, tuple[str | None, str]] = {
    "global_coordination_redis_pod": (None, "pod 0 always coordinates: leave it out"),
    "global_metrics_update_interval": ("metrics_update_seconds", ""),
    "http_timeout_seconds": ("total_timeout", ""),
    "http_max_retries": ("max_retries", ""),
    "max_content_length": ("max_body_bytes", ""),
    "extract_text": ("store", "write store: [text] to keep the pages' text"),
    "store_raw_html": ("store", "write store: [warc] to keep the pages as they came"),
    "enable_prometheus": ("prometheus_port", "0 turns the endpoint off"),
    "cores_per_pod": (None, "it is computed, as fetchers_per_pod + parsers_per_pod: leave it out"),
    "redis_pods": ("pods", "a Redis URL for each pod"),
    "redis_host": ("pods", "a Redis URL for each pod"),
    "redis_port": ("pods", "a Redis URL for each pod"),
    "num_fetcher_processes": ("fetchers_per_pod", ""),
    "num_parser_processes": ("parsers_per_pod", ""),
    # Scrapy's
    "download_delay": ("politeness_delay_seconds", ""),
    "download_timeout": ("total_timeout", ""),
    "download_maxsize": ("max_body_bytes", ""),
    "concurrent_requests": ("fetcher_workers", ""),
    "concurrent_requests_per_domain": ("per_domain_concurrency", ""),
    "depth_limit": ("max_depth", ""),
    "retry_times": ("max_retries", ""),
    "closespider_pagecount": ("max_pages", ""),
    "closespider_timeout": ("max_duration", ""),
    "robotstxt_obey": (None, _ROBOTS),
    "allowed_domains": ("scope", "it keeps a crawl to its seeds' domains, and include takes patterns"),
    # Names of settings that a plan for a large crawl may have
    "frontier_batch_size": (None, "a fetcher claims as many URLs as it has room for: leave it out"),
    "fetcher_memory_limit": ("body_memory_bytes", "of bodies that arrive; the process as a whole has no limit"),
    "parser_memory_limit": (None, "a parser takes parser_workers pages of max_body_bytes at a time: leave it out"),
    "test_mode": (None, "limit a crawl by max_pages, with a data dir of its own; `weft demo` needs no network"),
    "crawler_debug_pod_assignment": (None, _DEBUG_PODS),
    "debug_pod_assignment": (None, _DEBUG_PODS),
    # Names that are in use for one of ours, and near it neither in spelling nor in length
    "respect_robots": (None, _ROBOTS),
    "respect_robots_txt": (None, _ROBOTS),
    "obey_robots": (None, _ROBOTS),
    "timeout": ("total_timeout", ""),
    "request_timeout": ("total_timeout", ""),
    "page_timeout": ("total_timeout", ""),
    "concurrency": ("fetcher_workers", "per_domain_concurrency is for one site"),
    "max_concurrency": ("fetcher_workers", "per_domain_concurrency is for one site"),
    "threads": ("fetcher_workers", "per_domain_concurrency is for one site"),
    "workers": ("fetcher_workers", "per_domain_concurrency is for one site"),
    "user_agent": ("user_agent_template", ""),
    "useragent": ("user_agent_template", ""),
    "proxy": ("proxies", "a file of proxies"),
    "http_proxy": ("proxies", "a file of proxies"),
    "depth": ("max_depth", ""),
    "limit": ("max_pages", ""),
    "retries": ("max_retries", ""),
    "rate_limit": ("politeness_delay_seconds", "seconds between two requests to one site"),
    "cookie": ("headers", "as the header Cookie"),
    "password": ("auth", ""),
    "username": ("auth", ""),
    "verify_ssl": ("tls_verify", ""),
    "ssl_verify": ("tls_verify", ""),
    "insecure": ("tls_verify", "turn it off"),
    "output": ("data_dirs", "`weft export` writes the pages to a file"),
    "output_dir": ("data_dirs", ""),
    "redis": ("pods", "a Redis URL for each pod"),
    "render_js": ("render", ""),
    "javascript": ("render", ""),
    "headless": ("render", ""),
    "browser": ("render", ""),
    # Other names of the delay, which the nearest name would answer with another setting
    "delay": ("politeness_delay_seconds", ""),
    "delay_seconds": ("politeness_delay_seconds", ""),
    "politeness_delay": ("politeness_delay_seconds", ""),
    "crawl_delay": ("politeness_delay_seconds", ""),
    "request_delay": ("politeness_delay_seconds", ""),
    "wait": ("politeness_delay_seconds", ""),
    # What is no key here, and may be looked for
    "config": (None, "give the file as `config=FILE`"),
}
# A crawl's key -> the service's with that meaning.
_OF_SERVICE = {"politeness_delay_seconds": "job_delay_seconds"}
_OVERRIDE = "override_"


def answer(name: str, names: Mapping[str, str], spell: Callable[[str], str]) -> str:
    """The end of the error message for an unknown name: `; did you mean 'delay'?`.

    `names` maps every valid name to its key; `spell` writes a valid name in the form of its source.
    """
    own = name.removeprefix(_OVERRIDE)
    if own in names:
        return f"; {'the key is' if own == name else 'here it is'} {spell(own)!r}"
    if own in FOREIGN:
        key, more = FOREIGN[own]
        if key is None:
            return f"; {more}"
        key = key if key in names else _OF_SERVICE.get(key, key)
        if key in names:  # otherwise it is a setting of another product
            return "; " + "; ".join(filter(None, [f"here it is {spell(key)!r}", more]))
    near = nearest(name, names)
    return f"; did you mean {spell(near)!r}?" if near else "; `weft config schema` lists the known ones"


def nearest(name: str, names: Iterable[str]) -> str:
    """The one of these names that a person may have meant; empty if none is spelt nearly so.

    One letter in four may be wrong, missing, too much or exchanged with its neighbour, and at most three.
    """
    most = min(3, (len(name) + 1) // 4)
    by_distance = [(_distance(name, other, most), other) for other in names]
    distance, other = min(by_distance, default=(most + 1, ""))
    return other if distance <= most else ""


def _distance(one: str, other: str, most: int) -> int:
    """How many letters differ (Damerau-Levenshtein, optimal string alignment); more than `most` is not counted out."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    before, last = list[int](), list(range(len(other) + 1))
    for at, letter in enumerate(one, 1):
        line = [at]
        for there, its in enumerate(other, 1):
            cost = min(last[there] + 1, line[-1] + 1, last[there - 1] + (letter != its))
            if at > 1 and there > 1 and letter == other[there - 2] and one[at - 2] == its:
                cost = min(cost, before[there - 2] + 1)
            line.append(cost)
        if min(line) > most:
            return most + 1
        before, last = last, line
    return last[-1]
