"""Write the links of a site as CSV: from, to, the link's text and its rel. Any graph tool reads it.

    WEFT_EMAIL=you@example.com python examples/link_graph.py https://example.com links.csv

Links that a crawl does not follow (nofollow, other sites, files) are in it too: they are on the page.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import weft
from weft import urls
from weft.errors import BadUrl


def links_of(page: weft.CrawledPage) -> Iterator[tuple[str, str, str]]:
    """Target, text and rel of each link that is a URL."""
    parsed = page.page
    for link in parsed.links:
        try:
            target = urls.join(parsed.base, link.href, parsed.charset or "utf-8")
        except BadUrl:  # mailto:, javascript: and the like
            continue
        yield target, link.text, " ".join(link.rel)


def main(seed: str, path: Path) -> None:
    pages = links = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["from", "to", "text", "rel"])
        for page in weft.crawl(seed):
            pages += 1
            for link in links_of(page):
                links += 1
                table.writerow([page.url, *link])
    print(f"{links} links on {pages} pages: {path}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
