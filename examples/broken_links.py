"""Find the broken links of a site, and the pages that they are on. Exits with 1 if there is one: fit for a build.

    WEFT_EMAIL=you@example.com python examples/broken_links.py https://example.com ./check

One hop out of the site is made, so links to other sites are tried too. The crawl is kept in ./check:
`weft explain ./check URL` tells more about one of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import weft


def fault_of(status: int, error: str) -> str:
    """What is wrong with where a link leads; nothing for what robots.txt keeps us from trying."""
    if status >= 400:
        return f"HTTP {status}"
    if error.startswith(("robots", "noindex", "redirect to ", "trap")):
        return ""
    return error


def main(seed: str, folder: Path) -> int:
    for _ in weft.crawl(seed, data_dir=folder, offsite_hops=1, fresh=(folder / "engine.json").exists()):
        pass
    broken = 0
    with weft.StoredPages(folder) as pages:
        for row in pages.rows():
            if fault := fault_of(row.status, row.error):
                broken += 1
                print(f"{fault}: {row.url}\n    on {pages.parent(row) or 'the list of seeds, or a sitemap'}")
    print(f"{broken} broken links")
    return 1 if broken else 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
