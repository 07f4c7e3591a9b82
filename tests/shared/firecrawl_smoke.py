"""What every version of the Python client must be able to do against the service, as its users write it.

Imported by tests for the version that is installed, and run as a program for others:
`firecrawl_smoke.py SERVICE HOME HOLDING`; the last is a site as in holding_site.py.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

PAGES = 12
WAIT_S = 300  # against hangs alone


def sync(url: str, home: str, holding: str) -> None:
    """Version 2, plain."""
    from firecrawl import Firecrawl

    client = Firecrawl(api_key="fc-smoke", api_url=url)
    page = client.scrape(home, formats=["markdown", "html", "links"])
    assert page.markdown and page.html and page.links and page.metadata.status_code == 200, page
    job = client.crawl(home, limit=PAGES, scrape_options={"formats": ["markdown"]}, poll_interval=1)
    urls = [one.metadata.source_url for one in job.data]
    assert job.status == "completed" and job.completed == len(set(urls)) == PAGES, job
    client.get_crawl_errors(job.id)
    word = uuid4().hex
    held, frees = f"{holding}/held?{word}", f"{holding}/frees?{word}"
    batch = client.start_batch_scrape([held], formats=["markdown"])
    assert client.start_batch_scrape([frees], append_to_id=batch.id).id == batch.id
    while (done := client.get_batch_scrape_status(batch.id)).status == "scraping":
        time.sleep(0.1)
    assert {one.metadata.source_url for one in done.data} == {held, frees}, done
    assert home in [link.url for link in client.map(home).links]
    running = client.start_crawl(home, limit=1000, delay=5)
    assert running.id in [one.id for one in client.get_active_crawls().crawls]
    assert client.cancel_crawl(running.id) is True
    assert client.get_crawl_status(running.id).status == "cancelled"


def watched(url: str, home: str, holding: str = "", limit: int = PAGES) -> list[str]:
    """The documents of a watcher that begins at once; version 2."""
    from firecrawl import Firecrawl

    client = Firecrawl(api_key="fc-smoke", api_url=url)
    job = client.start_crawl(home, limit=limit)
    watcher = client.watcher(job.id, kind="crawl", poll_interval=WAIT_S)  # what is not sent is missing
    found, over = list[str](), threading.Event()
    watcher.add_event_listener("document", lambda event: found.append(event["data"]["metadata"]["sourceURL"]))
    for name in ("done", "error"):
        watcher.add_event_listener(name, lambda _: over.set())
    watcher.start()
    assert over.wait(WAIT_S), "the watcher has not ended"
    assert watcher.status == "completed"
    return found


def asynchronous(url: str, home: str, holding: str = "") -> None:
    """Version 2, with asyncio."""
    from firecrawl import AsyncFirecrawl

    async def work() -> None:
        client = AsyncFirecrawl(api_key="fc-smoke", api_url=url)
        page = await client.scrape(home, formats=["markdown"])
        assert page.markdown
        started = await client.start_crawl(home, limit=PAGES)
        last: Any = None
        async for last in client.watcher(started.id, kind="crawl", poll_interval=2, timeout=WAIT_S):
            if last.status != "scraping":
                break
        assert last.status == "completed", last
        assert len((await client.get_crawl_status(started.id)).data) == PAGES
        job = await client.batch_scrape([home], formats=["markdown"], poll_interval=1)
        assert [one.metadata.source_url for one in job.data] == [home]
        assert (await client.map(home)).links

    asyncio.run(work())


def version_1(url: str, home: str, holding: str = "") -> None:
    """The client of version 1, which is in the same package."""
    from firecrawl.v1 import V1FirecrawlApp

    client = V1FirecrawlApp(api_key="fc-smoke", api_url=url)
    assert client.scrape_url(home, formats=["markdown"]).markdown
    job = client.crawl_url(home, limit=PAGES, poll_interval=1)
    assert job.status == "completed" and len(job.data) == PAGES, job
    client.check_crawl_errors(client.async_crawl_url(home, limit=2).id)
    assert client.batch_scrape_urls([home], formats=["markdown"], poll_interval=1).completed == 1
    assert home in client.map_url(home).links
    running = client.async_crawl_url(home, limit=1000, delay=5)
    assert client.cancel_crawl(running.id)["status"] == "cancelled"

    async def watch() -> None:
        watcher = client.crawl_url_and_watch(home, limit=PAGES + 1)
        seen: list[Any] = []
        watcher.add_event_listener("document", seen.append)
        await asyncio.wait_for(watcher.connect(), WAIT_S)
        assert watcher.status == "completed" and len(seen) == len(watcher.data) == PAGES + 1

    asyncio.run(watch())


PARTS: dict[str, Callable[[str, str, str], object]] = {
    "sync": sync, "watched": watched, "asynchronous": asynchronous, "version_1": version_1,
}  # fmt: skip

if __name__ == "__main__":
    for part in PARTS.values():
        part(*sys.argv[1:4])
    print("all of it")
