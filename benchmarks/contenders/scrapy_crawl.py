"""Scrapy, set as its documentation advises for speed on broad crawls.

    python scrapy_crawl.py SEED [--pages N]

robots.txt obeyed, no delay, many requests at once (also to one host), no logs, cookies, retries, redirects or telnet.
Nothing is stored: the pages are parsed for links with the stock LinkExtractor.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor

SETTINGS = {
    "ROBOTSTXT_OBEY": True,
    "USER_AGENT": "bench",
    "CONCURRENT_REQUESTS": 100,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "AUTOTHROTTLE_ENABLED": False,
    "COOKIES_ENABLED": False,
    "RETRY_ENABLED": False,
    "REDIRECT_ENABLED": False,
    "REFERER_ENABLED": False,
    "TELNETCONSOLE_ENABLED": False,
    "LOG_ENABLED": False,
    "LOGSTATS_INTERVAL": 0,
    "REACTOR_THREADPOOL_MAXSIZE": 20,
    "SCHEDULER_PRIORITY_QUEUE": "scrapy.pqueues.DownloaderAwarePriorityQueue",
}


class Follow(scrapy.Spider):
    """Follows every link."""

    name = "follow"
    links = LinkExtractor()
    pages = 0

    async def start(self) -> AsyncIterator[Any]:
        """The seed, known to the duplicate filter like any other URL."""
        yield scrapy.Request(sys.argv[1])

    def parse(self, response: Any) -> Iterator[Any]:
        """One page."""
        Follow.pages += 1
        for link in self.links.extract_links(response):
            yield scrapy.Request(link.url)


def main() -> int:
    limit = int(sys.argv[3]) if "--pages" in sys.argv else 0
    process = CrawlerProcess({**SETTINGS, "CLOSESPIDER_PAGECOUNT": limit})
    process.crawl(Follow)
    start = time.perf_counter()
    process.start()
    print(json.dumps({"pages": Follow.pages, "seconds": time.perf_counter() - start}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
