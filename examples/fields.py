"""Crawl a site and write fields of its pages as CSV: rules say where they are, errors say which could not be read.

    WEFT_EMAIL=you@example.com python examples/fields.py https://example.com > fields.csv

With `--extract FILE` the same rules work on the command line; docs/extraction.md has the whole language.
"""

from __future__ import annotations

import csv
import sys

import weft

RULES = {
    "heading": "h1",
    "published": {"css": "time", "type": "date"},
    "author": {"css": "meta[name=author]"},
    "first_paragraph": {"xpath": "(//p)[1]"},
    "links": {"css": "a[href]", "type": "url", "many": True},
}


def main(seeds: list[str]) -> None:
    out = csv.writer(sys.stdout)
    out.writerow(["url", *RULES])
    wrong = 0
    for page in weft.crawl(seeds, extract=RULES):
        fields = page.fields | {"links": len(page.fields["links"])}
        # A page may hold anything, a formula for your spreadsheet, too.
        out.writerow([page.url, *(f"'{fields[name]}" if fields[name] else "" for name in RULES)])
        for path, why in page.field_errors.items():
            wrong += 1
            print(f"{page.url}: {path}: {why}", file=sys.stderr)
    print(f"{wrong} fields could not be read", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
