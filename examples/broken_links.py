"""Find the broken links of a site, and the pages that they are on. Exits with 1 if there is one: fit for a build.

    WEFT_EMAIL=you@example.com python examples/broken_links.py https://example.com ./check

One hop out of the site is made, so links to other sites are tried too. The crawl is kept in ./check:
`weft explain ./check URL` tells more about one of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import weft
from weft.records import Row
from weft.store.pages import PageStore


def fault_of(row: Row) -> str:
    """What is wrong with where a link leads; nothing for what robots.txt keeps us from trying."""
    if row.status >= 400:
        return f"HTTP {row.status}"
    if row.error.startswith(("robots", "noindex", "redirect to ", "trap")):
        return ""
    return row.error


def main(seed: str, folder: Path) -> int:
    for _ in weft.crawl(seed, data_dir=folder, offsite_hops=1, fresh=(folder / "engine.json").exists()):
        pass
    store = PageStore.open([folder], read_only=True)
    broken = 0
    for row in store.rows():
        if fault := fault_of(row):
            broken += 1
            print(f"{fault}: {row.url}\n    on {store.url_of(row.parent) or 'the list of seeds, or a sitemap'}")
    store.close()
    print(f"{broken} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
