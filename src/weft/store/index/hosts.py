"""How many pages the hosts of a crawl have, kept while rows get their keys: MOST of each crawl, those with the most.

Exact as long as a crawl has no more hosts than that; beyond that, a later host inherits the count of the smallest one,
which it replaces (the space-saving algorithm): a count is never too low, and too high by at most all pages divided by
MOST.
"""

from __future__ import annotations

import sqlite3
from heapq import heapify, heapreplace

from weft.store.index.keys import LAST_KEYED

MOST_HOSTS = 2000
IS_PAGE = "status BETWEEN 200 AND 299"
_COUNT_NEW = (
    f"SELECT crawl, host_of(url), count(*) FROM pages WHERE seq > {LAST_KEYED} AND seq <= ? AND {IS_PAGE} GROUP BY 1, 2"  # noqa: S608
)

_COUNT_ALL = f"""INSERT INTO hosts SELECT crawl, host, pages FROM (SELECT *, row_number() OVER
    (PARTITION BY crawl ORDER BY pages DESC) AS place FROM (SELECT crawl, host_of(url) AS host, count(*) AS pages
    FROM pages WHERE seq <= {LAST_KEYED} AND {IS_PAGE} GROUP BY 1, 2)) WHERE place <= ?"""  # noqa: S608


def count_new_rows(db: sqlite3.Connection, last: int) -> None:
    """Counts the rows up to a position that have no keys yet; in the transaction that gives them their keys."""
    by_crawl: dict[int, dict[str, int]] = {}
    for crawl, host, pages in db.execute(_COUNT_NEW, (last,)):
        by_crawl.setdefault(crawl, {})[host] = pages
    for crawl, new in by_crawl.items():
        _add_counts(db, crawl, new)


def recount_hosts(db: sqlite3.Connection) -> None:
    """Counts again after rows were deleted."""
    db.execute("DELETE FROM hosts")
    db.execute(_COUNT_ALL, (MOST_HOSTS,))


def _add_counts(db: sqlite3.Connection, crawl: int, new: dict[str, int]) -> None:
    counts = dict(db.execute("SELECT host, pages FROM hosts WHERE crawl = ?", (crawl,)))
    changed = {host: counts[host] + pages for host, pages in new.items() if host in counts}
    late = [(host, pages) for host, pages in new.items() if host not in counts]
    counts |= changed
    free = max(0, MOST_HOSTS - len(counts))
    changed |= dict(late[:free])
    counts |= dict(late[:free])
    smallest = [(pages, host) for host, pages in counts.items()]
    heapify(smallest)
    gone: list[str] = []
    for host, pages in late[free:]:
        least, replaced = heapreplace(smallest, (smallest[0][0] + pages, host))
        gone.append(replaced)
        changed.pop(replaced, None)
        changed[host] = least + pages
    db.executemany("DELETE FROM hosts WHERE crawl = ? AND host = ?", [(crawl, host) for host in gone])
    db.executemany("INSERT OR REPLACE INTO hosts VALUES (?, ?, ?)", [(crawl, *one) for one in changed.items()])
