"""Count the languages of a crawl's pages, host by host, on all processors.

    python examples/languages.py ./weft-data

Shows the worker pool: a function is run over many items in processes of their own; one that crashes or hangs costs one
item, not the run.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from functools import cache

import weft
from weft import urls
from weft.pipelines import Context, WorkerPool


@cache
def corpus(folder: str) -> weft.StoredPages:
    """Opened once in each worker."""
    return weft.StoredPages(folder)


def language_of(item: dict[str, str], context: Context) -> str:
    page = corpus(item["folder"]).get(item["id"])
    if page is None or page.page.kind != "html":
        context.skip("no HTML page")
    return page.page.language or "unknown"


def main(folder: str) -> None:
    items = ({"id": row.url, "folder": folder} for row in corpus(folder).rows() if row.status == 200)
    hosts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for result in WorkerPool(language_of).stream(items):
        if result.status == "ok":
            hosts[urls.host_of(str(result.item_id))][result.value] += 1
    for host, counts in sorted(hosts.items()):
        print(host, ", ".join(f"{language} {count}" for language, count in counts.most_common()))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
