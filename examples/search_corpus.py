"""Read stored pages back, with no request to anyone: print the lines of a crawl's main texts that hold a word.

    python examples/search_corpus.py ./weft-data politeness

Works while the crawl runs, too: what is committed is seen.
"""

from __future__ import annotations

import sys

from weft.engine.stored.stored_page import read_page
from weft.store.index.query import RowFilter
from weft.store.pages import PageStore


def main(folder: str, word: str) -> None:
    store = PageStore.open([folder], read_only=True)
    searched = found = 0
    for row in store.rows(RowFilter(status=200, stored=True)):
        page = read_page(store.read(row))
        if page is None or page.page.kind != "html":
            continue
        searched += 1
        for line in page.page.main_text.splitlines():
            at = line.casefold().find(word.casefold())
            if at >= 0:
                found += 1
                print(f"{row.url}: {line[max(0, at - 60) : at + 100].strip()}")
    store.close()
    print(f"{found} lines in {searched} pages", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
