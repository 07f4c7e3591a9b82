"""Crawlee for Python with its Parsel crawler, set for speed.

    python crawlee_crawl.py SEED

robots.txt obeyed, storage in memory, concurrency held high from the start, no retries, no logs. Nothing is stored.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
import time
from datetime import timedelta

from crawlee import ConcurrencySettings
from crawlee.crawlers import ParselCrawler, ParselCrawlingContext
from crawlee.statistics import Statistics
from crawlee.storage_clients import MemoryStorageClient


async def crawl(seed: str) -> dict[str, float]:
    """One crawl."""
    pages = 0
    crawler = ParselCrawler(
        respect_robots_txt_file=True,
        max_request_retries=0,
        use_session_pool=False,
        configure_logging=False,
        storage_client=MemoryStorageClient(),
        concurrency_settings=ConcurrencySettings(min_concurrency=32, desired_concurrency=32, max_concurrency=64),
        statistics=Statistics.with_default_state(log_interval=timedelta(hours=1)),
    )

    @crawler.router.default_handler
    async def handle(context: ParselCrawlingContext) -> None:
        nonlocal pages
        pages += 1
        await context.enqueue_links(strategy="all")

    start = time.perf_counter()
    await crawler.run([seed])
    return {"pages": pages, "seconds": time.perf_counter() - start}


def main() -> int:
    logging.disable(logging.CRITICAL)
    print(json.dumps(asyncio.run(crawl(sys.argv[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
