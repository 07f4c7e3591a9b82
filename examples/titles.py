"""Crawl a site and print the title of every page as it comes in.

    WEFT_EMAIL=you@example.com python examples/titles.py https://example.com

Every setting of a crawl can be given in the environment (WEFT_MAX_PAGES=50) or as a keyword of `weft.crawl`.
"""

from __future__ import annotations

import sys

import weft


def main(seeds: list[str]) -> None:
    pages = 0
    for page in weft.crawl(seeds):
        pages += 1
        print(f"{page.status} {page.url}  {page.title}", flush=True)
    print(f"{pages} pages", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
