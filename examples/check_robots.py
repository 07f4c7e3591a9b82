"""Tell what a robots.txt says about URLs: allowed or not, by which rule on which line; the Crawl-delay; the sitemaps.

    python examples/check_robots.py robots.txt MyBot https://example.com/a https://example.com/private/b

With - in place of the file, standard input is read. Exits with 1 if a URL is forbidden.
"""

from __future__ import annotations

import sys
from pathlib import Path

from weft.fetch.robots import Robots


def main(path: str, agent: str, urls: list[str]) -> int:
    robots = Robots.parse(sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes())
    forbidden = 0
    for url in urls:
        verdict = robots.verdict(agent, url)
        forbidden += not verdict.allowed
        why = f"{verdict.rule} (line {verdict.line})" if verdict.rule else "no rule speaks of it"
        print(f"{'allowed' if verdict.allowed else 'forbidden'}: {url}: {why}")
    if (delay_s := robots.crawl_delay(agent)) is not None:
        print(f"Crawl-delay: {delay_s:g} s")
    for sitemap in robots.sitemaps:
        print(f"Sitemap: {sitemap}")
    return 1 if forbidden else 0


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
