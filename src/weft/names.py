"""The names of settings, and what the error message for an unknown name suggests.

A setting has a key (`politeness_delay_seconds`) and the name of its flag (`--delay`, so `delay`). Flags, `WEFT_*`
variables and keywords of `weft.crawl` accept both; a file accepts keys alone, so that there is one way to write it. For
an unknown name the corresponding key is suggested if it is another crawler's, else the nearest one. The suggestion is
the same for every source; only its spelling differs, for which a function is passed in. Pure: so are the keys.

A message names a setting in backticks, as a program writes it (`` `allow_private=True` ``), and never by its flag:
callers in Python have none. The command line makes flags of them where it prints a message (`weft.cli.messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

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
    "robotstxt_obey": (None, "robots.txt is always obeyed: leave it out"),
    # Other names of the delay, which the nearest name would answer with another setting
    "delay": ("politeness_delay_seconds", ""),
    "delay_seconds": ("politeness_delay_seconds", ""),
    "politeness_delay": ("politeness_delay_seconds", ""),
    "crawl_delay": ("politeness_delay_seconds", ""),
    "request_delay": ("politeness_delay_seconds", ""),
    "wait": ("politeness_delay_seconds", ""),
    # What is no key here, and may be looked for
    "config": (None, "give the file as `config=FILE`"),
    "render": (None, "this Weft does not load pages in a browser yet"),
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
        if key in names:  # else it is a setting of another product
            return "; " + "; ".join(filter(None, [f"here it is {spell(key)!r}", more]))
    from difflib import get_close_matches  # for mistakes alone

    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {spell(near[0])!r}?" if near else "; `weft config schema` lists the known ones"
