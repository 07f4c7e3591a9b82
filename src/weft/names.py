"""What a setting may be called, and what is said about a name that is none.

A setting has a key (`politeness_delay_seconds`) and the name of its flag (`--delay`, so `delay`). Flags, `WEFT_*`
variables and keywords of `weft.crawl` take both; a file takes keys alone, so that there is one way to write it. A name
that is neither is answered with ours: the key that means the same where it is another crawler's, else the nearest one.
The same answer for every source; only the spelling differs, which is handed in. Pure: the keys are handed in, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches

# Names that people bring along: name -> (the key that means it, what else they must know).
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
    # What is no key here, and may be looked for
    "config": (None, "give the file with --config FILE"),
    "render": (None, "this Weft does not load pages in a browser yet"),
}
_OVERRIDE = "override_"


def answer(name: str, names: Mapping[str, str], spell: Callable[[str], str]) -> str:
    """What is said after a name that is not accepted: `; did you mean 'delay'?`.

    `names` has every own name with its key; `spell` writes an own name as its source would have it.
    """
    own = name.removeprefix(_OVERRIDE)
    if own in FOREIGN:
        key, more = FOREIGN[own]
        return "; " + "; ".join(filter(None, [f"here it is {spell(key)!r}" if key else "", more]))
    if own in names:
        return f"; {'the key is' if own == name else 'here it is'} {spell(own)!r}"
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {spell(near[0])!r}?" if near else "; `weft config schema` lists the known ones"
