"""The limits that every crawl has, however it is started: those of its frontier, and the required contact address.

This module is separate from the rest of the engine, so that a command that starts a crawl need not import what runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from weft import urls
from weft.config import Config, FetchSection
from weft.errors import BadInput
from weft.fetch.guard import is_loopback, is_private_host
from weft.frontier.contract import CrawlLimits

MOST_SITEMAPS, FEW_SITEMAPS = 2000, 20  # of one site: at 50,000 URLs each, that is more than most crawls ever fetch


def frontier_limits_of(config: Config, in_flight: int | None = None) -> CrawlLimits:
    """The limits that the frontier keeps. No crawl needs more sitemaps of a site than it may fetch pages of it."""
    limits = config.limits
    sitemaps = MOST_SITEMAPS if limits.max_pages is None else min(MOST_SITEMAPS, max(FEW_SITEMAPS, limits.max_pages))
    # A user's request keeps the depth at which it was first made: no shorter path to it is searched for.
    max_depth = None if config.spider.is_given else config.scope.max_depth
    return CrawlLimits(limits.max_pages, limits.max_pages_per_domain, max_depth, in_flight, max_sitemaps=sitemaps)


def check_email(seeds: Iterable[str], fetch: FetchSection) -> None:
    """Refuses seeds beyond this machine where no e-mail address is given for the sites' owners."""
    if fetch.email:
        return
    for seed in seeds:
        if not is_loopback(_pinned(urls.host_of(seed), fetch)):
            raise BadInput(
                f"{seed}: tell the sites how to reach you: `email='you@example.com'` (it is sent in the user agent)"
            )


def robots_ignored_at(config: Config) -> Callable[[str], bool]:
    """At which hosts a crawl does not apply robots.txt: with `ignore_robots` at those that are private by their
    address, as `localhost`, or by `resolve`. A name whose address DNS gives is none: it may be another one at the next
    request.
    """
    if not config.politeness.ignore_robots:
        return lambda _host: False
    return lambda host: is_private_host(_pinned(host, config.fetch))


def _pinned(host: str, fetch: FetchSection) -> str:
    """The address that `resolve` gives a host, or the host."""
    pinned = fetch.resolve.get(host) or fetch.resolve.get("*." + host.partition(".")[2]) or fetch.resolve.get("*")
    return pinned or host
