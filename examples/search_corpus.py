"""Read stored pages back, with no request to anyone: print the lines of a crawl's main texts that hold a word.

    python examples/search_corpus.py ./weft-data politeness

Works while the crawl runs, too: what is committed is seen.
"""

from __future__ import annotations

import sys

import weft


def main(folder: str, word: str) -> None:
    searched = found = 0
    with weft.StoredPages(folder) as pages:
        for page in pages:
            if page.page.kind != "html":
                continue
            searched += 1
            for line in page.page.main_text.splitlines():
                at = line.casefold().find(word.casefold())
                if at >= 0:
                    found += 1
                    print(f"{page.url}: {line[max(0, at - 60) : at + 100].strip()}")
    print(f"{found} lines in {searched} pages", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
