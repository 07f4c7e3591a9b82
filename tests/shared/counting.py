"""What a folder holds now, counted from all rows: what the counters of the store must say, too."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from typing import Any

from weft import urls
from weft.store.index.visits import Visit, current_visit
from weft.store.pages import PageStore

_VISITS = """SELECT url, item, status, fetched_at, error, file IS NOT NULL, content_type, depth, length, crawl,
    request FROM pages WHERE ? IN (crawl, 0)"""


def counted(data_dirs: list[Path], crawl: int = 0) -> dict[str, Any]:
    """As `Current` has it."""
    by_url: dict[tuple[int, str, str | None], list[Visit]] = defaultdict(list)
    for path in (path for folder in data_dirs for path in folder.glob("index-*.db")):
        with closing(sqlite3.connect(path)) as db:
            for visit in (Visit(*values) for values in db.execute(_VISITS, (crawl,))):
                by_url[visit.crawl, visit.url, visit.request].append(visit)
    chosen = [current_visit(visits) for visits in by_url.values()]
    there = [visit for visit in chosen if visit is not None]
    pages = [visit for visit in there if visit.is_page]
    hosts = Counter(urls.host_of(visit.url) for visit in there if 200 <= visit.status < 300)
    return {
        "urls": len(there),
        "pages": len(pages),
        "gone": len(chosen) - len(there),
        "page_bytes": sum(visit.length for visit in pages),
        "kinds": dict(Counter((visit.status, visit.error) for visit in there)),
        "content_types": dict(Counter(visit.content_type for visit in there)),
        "depths": dict(Counter(visit.depth for visit in there)),
        "hosts": sorted(hosts.items(), key=lambda one: (-one[1], one[0])),
    }


def check_counts(data_dirs: list[Path], crawl: int = 0) -> None:
    """The store's counters say what its rows say."""
    store = PageStore.open(data_dirs, read_only=True)
    try:
        for top in (2000, 3000):  # as they are counted, and by all rows
            current = store.current(top, crawl)
            said = {name: getattr(current, name) for name in current.__slots__}
            said["hosts"] = [(host, pages) for host, pages in current.hosts if pages]
            true = counted(data_dirs, crawl)
            assert not [(name, said[name], true[name]) for name in said if said[name] != true[name]]
    finally:
        store.abandon()
