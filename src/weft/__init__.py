"""Weft collects the web politely and never loses what it has.

`weft.crawl(URL)` is a crawl, page by page; `weft.StoredPages(DIR)` reads what is stored; `weft.run(Spider)` is a crawl
with code of one's own, item by item (`weft.arun` for asyncio). A `weft.Spider` yields items and `weft.Request`s of each
`weft.Page`; `weft.try_spider` runs one without a network. `weft.FormLogin` is what a crawl logs in with. `weft.Engine`
and `weft.AsyncEngine` run many crawls at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.crawl.items.item_iteration import arun as arun
    from weft.crawl.items.item_iteration import run as run
    from weft.crawl.page_iteration import crawl as crawl
    from weft.crawl.reports.stored_pages import StoredPages as StoredPages
    from weft.engine.aio import AsyncEngine as AsyncEngine
    from weft.engine.handle import Engine as Engine
    from weft.engine.stored.stored_page import CrawledPage as CrawledPage
    from weft.engine.user_code.page import Page as Page
    from weft.engine.user_code.request import Request as Request
    from weft.engine.user_code.selected import Selected as Selected
    from weft.logins import FormLogin as FormLogin
    from weft.spiders.spider import RequestFailure as RequestFailure
    from weft.spiders.spider import Spider as Spider
    from weft.spiders.trying import try_spider as try_spider
    from weft.system.supervisor import Supervisor as Supervisor

__version__ = "0.1.0"

# Public name -> its module: `weft.run(...)` works after `import weft` alone, which stays free of everything it needs.
_NAMES = {
    "AsyncEngine": "weft.engine.aio",
    "CrawledPage": "weft.engine.stored.stored_page",
    "Engine": "weft.engine.handle",
    "FormLogin": "weft.logins",
    "Page": "weft.engine.user_code.page",
    "Request": "weft.engine.user_code.request",
    "RequestFailure": "weft.spiders.spider",
    "Selected": "weft.engine.user_code.selected",
    "Spider": "weft.spiders.spider",
    "StoredPages": "weft.crawl.reports.stored_pages",
    "Supervisor": "weft.system.supervisor",
    "arun": "weft.crawl.items.item_iteration",
    "crawl": "weft.crawl",
    "run": "weft.crawl.items.item_iteration",
    "try_spider": "weft.spiders.trying",
}
__all__ = [*_NAMES]  # noqa: PLE0604 (they are texts)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "Orchestrator":  # an older name
        return import_module("weft.system.supervisor").Supervisor
    if name not in _NAMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    module = import_module(_NAMES[name])
    return module if name == "crawl" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted([*_NAMES, "__version__"])
