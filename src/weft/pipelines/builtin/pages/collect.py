"""The collector of `pages`: removes what the rules and the duplicates say, and gives the rest as rows.

Beside the shards it writes `removed.jsonl`, with the reason for each page that was removed, and the data card
`README.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, BinaryIO

import msgspec

from weft.extract.text.similar import Sketch
from weft.pipelines.builtin.pages.card import Card
from weft.pipelines.builtin.pages.duplicates import Duplicates, Match
from weft.pipelines.builtin.pages.rules import Removal, check_settings, removal
from weft.pipelines.builtin.pages.source import check_paths, paths_of
from weft.pipelines.stage import CollectContext, ItemResult

CARD, REMOVED = "README.md", "removed.jsonl"
EXACT, NEAR = "exact_duplicate", "near_duplicate"


def check(settings: Mapping[str, Mapping[str, Any]]) -> None:
    """Raises BadInput for settings that cannot be used."""
    from weft.extract.text import arrays  # noqa: F401 - raises Missing, here instead of in every worker

    check_paths(paths_of(settings["items"]))
    check_settings(settings["collect"])


def collect(results: Iterator[ItemResult], context: CollectContext) -> Iterator[Mapping[str, Any]]:
    """Yields the rows of the kept pages, in the order of the source."""
    folder = context.files.path(CARD).parent
    folder.mkdir(parents=True, exist_ok=True)
    card = Card(context.total, context.settings)
    near = context.settings.get("near_duplicates")
    with context.files.create(REMOVED) as removed, closing(Duplicates(folder, near)) as duplicates:
        for result in results:
            page, measured = result.values.get("text"), result.values.get("measure")
            if page is None or measured is None:
                card.not_read(result)
                continue
            why, match = _reason_for_removal(str(result.id), page, measured, duplicates, context.settings)
            if why is not None:
                card.remove(why.reason)
                _write_removed(removed, result, page, why, match)
                continue
            row = row_of(result, page, measured["signals"])
            card.keep(row, result.position)
            yield row
    context.files.write(CARD, card.markdown())


def _reason_for_removal(
    name: str, page: Mapping[str, Any], measured: Mapping[str, Any], kept: Duplicates, settings: Mapping[str, Any]
) -> tuple[Removal | None, Match | None]:
    """Why a page is removed, None if it is kept; a kept page is remembered, to find its duplicates."""
    why = removal(page, measured["signals"], settings)
    if why is not None or measured["digest"] is None:
        return why, None
    sketch = Sketch(measured["digest"], measured["minima"])
    match = kept.find(sketch)
    if match is None or (match.is_exact and settings.get("exact_duplicates") is False):
        kept.add(sketch, name)
        return None, None
    return Removal(EXACT if match.is_exact else NEAR, match.similarity, settings.get("near_duplicates")), match


def row_of(result: ItemResult, page: Mapping[str, Any], signals: Mapping[str, Any]) -> dict[str, Any]:
    """The output row of a kept page."""
    return {"id": str(result.id), **page, **signals}


def _write_removed(
    file: BinaryIO, result: ItemResult, page: Mapping[str, Any], why: Removal, match: Match | None
) -> None:
    row = {"id": str(result.id), "url": page["url"], "language": page["language"], **why._asdict()}
    if match is not None:
        row["duplicate_of"] = match.id
    file.write(msgspec.json.encode(row) + b"\n")
