"""Let the synthetic web judge a crawler of your own: what it missed, what it should not have asked, how polite it was.

    python examples/judge_your_crawler.py 4 40

Serves 4 hosts with 40 pages on loopback and judges the crawler below, written as such loops mostly are. It knows
neither robots.txt nor a delay, and takes whatever stands in an href for a link. Put yours in its place.
"""

from __future__ import annotations

import re
import sys
from http.client import HTTPException
from urllib.parse import urldefrag, urljoin
from urllib.request import urlopen

from weft.testing.web import synthetic_web


def crawl(seeds: list[str]) -> None:
    queue, seen = list(seeds), set(seeds)
    while queue:
        url = queue.pop(0)
        try:
            with urlopen(url, timeout=5) as answer:  # noqa: S310 (the web is ours)
                text = answer.read().decode("utf-8", "replace")
        except (OSError, ValueError, HTTPException):
            continue
        for href in re.findall(r'href="([^"]+)"', text):
            try:
                target = urldefrag(urljoin(url, href)).url
            except ValueError:
                continue
            if target.startswith("http://127.") and target not in seen:
                seen.add(target)
                queue.append(target)


def main(hosts: int, pages: int) -> int:
    with synthetic_web(hosts=hosts, pages=pages) as web:
        crawl(web.seeds)
        verdict = web.judge(delay_s=0.1)
    for fault, cases in verdict.faults().items():
        print(f"{fault}: {len(cases)}, for example {cases[0]}")
    print(f"{verdict.requests} requests: {'a right crawl' if verdict.ok else 'not a right crawl'}")
    return 0 if verdict.ok else 1


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
