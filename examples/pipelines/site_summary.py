"""A stage and a collector of one's own behind the source and the text stage of `pages`: see site_summary.yaml."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from weft.pipelines import CollectContext, ItemResult, StageContext


def outline(_item: Mapping[str, Any], context: StageContext) -> dict[str, Any]:
    """The headings of a page, and how many words it has."""
    page = context.results["text"]
    headings = re.findall(rf"^#{{1,{context.settings['levels']}}} (.+)$", page["markdown"], re.MULTILINE)
    return {"headings": headings, "words": len(page["text"].split())}


def hosts(results: Iterator[ItemResult], context: CollectContext) -> Iterator[dict[str, Any]]:
    """A row for each host: only what is counted stays in memory, however many pages there are."""
    pages: Counter[str] = Counter()
    words: Counter[str] = Counter()
    languages: dict[str, Counter[str]] = {}
    with context.files.create("contents.md") as contents:
        for result in results:
            if "outline" not in result.values:  # no page, or one that could not be read
                continue
            page, found = result.values["text"], result.values["outline"]
            host = urlsplit(page["url"]).netloc
            pages[host] += 1
            words[host] += found["words"]
            languages.setdefault(host, Counter())[page["language"] or "unknown"] += 1
            lines = [f"# {page['title'] or page['url']}", *(f"- {heading}" for heading in found["headings"])]
            contents.write("\n".join([*lines, "", ""]).encode())
    for host in sorted(pages):
        common = [name for name, _ in languages[host].most_common(3)]
        yield {"host": host, "pages": pages[host], "words": words[host], "languages": common}
