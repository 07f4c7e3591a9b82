"""The collector of passages.yaml: the pages that the one of `pages` keeps, cut into passages at their paragraphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft.pipelines import CollectContext, ItemResult
from weft.pipelines.builtin.pages.collect import collect


def passages(results: Iterator[ItemResult], context: CollectContext) -> Iterator[Mapping[str, Any]]:
    """A row for each passage: where it is from, and its text."""
    most = context.settings["passage_words"]
    for page in collect(results, context):
        for number, text in enumerate(cut(page["text"], most)):
            about = {name: page[name] for name in ("url", "title", "language")}
            yield {"id": f"{page['id']}#{number}", **about, "text": text}


def cut(text: str, most: int) -> Iterator[str]:
    """Whole paragraphs as long as they fit; one that is longer by itself is cut between words."""
    passage: list[str] = []
    for paragraph in text.split("\n\n"):
        words = paragraph.split()
        if passage and len(passage) + len(words) > most:
            yield " ".join(passage)
            passage = []
        passage += words
        while len(passage) > most:
            yield " ".join(passage[:most])
            passage = passage[most:]
    if passage:
        yield " ".join(passage)
