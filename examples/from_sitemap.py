"""Fetch exactly the pages that a sitemap lists, and no other: links are not followed.

    WEFT_EMAIL=you@example.com python examples/from_sitemap.py https://example.com/sitemap.xml

Index files lead to further sitemaps, gzipped ones too. All requests keep to robots.txt and the delay.
"""

from __future__ import annotations

import sys

import weft
from weft import urls
from weft.fetch import sitemaps


def listed(sitemap: str) -> list[str]:
    """The pages of a sitemap and of the sitemaps that it names."""
    pages: list[str] = []
    unread, known = [sitemap], {sitemap}
    while unread:
        found = [sitemaps.parse(page.body) for page in weft.crawl(unread, seeded_urls_only=True)]
        pages += [url for one in found for url, _ in one.urls]
        unread = [url for one in found for url in one.sitemaps if url not in known]
        known.update(unread)
    return urls.join_all(sitemap, pages)


def main(sitemap: str) -> None:
    wanted = listed(sitemap)
    print(f"{len(wanted)} pages are listed", file=sys.stderr)
    if not wanted:
        return
    for page in weft.crawl(wanted, seeded_urls_only=True):
        print(f"{page.status} {page.url}  {page.title}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
