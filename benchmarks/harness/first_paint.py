"""The median time from a navigation to the first text that is painted, in ms: `first_paint.py CHROMIUM URL`.

Each time with a fresh profile, so that nothing is in a cache. A program of its own: Playwright wants no other loop
in its process.
"""

from __future__ import annotations

import statistics
import sys

from playwright.sync_api import sync_playwright

TIMES = 7
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PAINT = """() => new Promise(done => new PerformanceObserver(list => {
  const found = list.getEntriesByName("first-contentful-paint");
  if (found.length) done(found[0].startTime);
}).observe({type: "paint", buffered: true}))"""


def main() -> None:
    program, url = sys.argv[1:]
    found = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        for _ in range(TIMES):
            context = browser.new_context()
            page = context.new_page()
            page.goto(url)
            found.append(page.evaluate(PAINT))
            context.close()
        browser.close()
    print(round(statistics.median(found), 1))


if __name__ == "__main__":
    main()
